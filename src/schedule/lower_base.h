// What the lowerings of every kind of group share: arguments, loops, and the rules of overwriting.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "schedule/pull.h"
#include "schedule/state.h"

namespace tensorgrad::schedule {

/// A reason why a group cannot be one kernel; caught in `lower`.
struct Unfit {
  std::string why;
};

/// A kernel under construction.
class LoweringBase {
 public:
  LoweringBase(const State& s, const std::vector<int>& ids);

 protected:
  const Item& item(int i) const { return s_.items[static_cast<std::size_t>(i)]; }
  bool has(ItemKind kind) const;
  bool is_copy(int i) const { return s_.is_copy(item(i)); }
  std::optional<Location> located(const Node& n) const;
  /// The kernel argument of a plan buffer, marked as read or written.
  int argument(int buffer, bool written = false);
  /// The kernel argument in which elements of a node of that shape are read.
  int read_argument(const Location& at, const Shape& shape);
  /// A new loop of the kernel.
  int add_loop(std::int64_t extent);
  /// The element of a map, or of a copy of what is stored elsewhere.
  kernel::Expr pull_map(Puller& puller, int i, const std::vector<kernel::Index>& index) const;
  /// Where a buffer is both read and written, what it held before must be meant, that of a state or
  /// a contraction's result, and be read before it is overwritten. Another buffer gets its contents
  /// from this very kernel, whose loads of a stage run before its stores. The operands of a
  /// contraction are not overwritten.
  /// Throws Unfit.
  void check_overwrites() const;

  const State& s_;
  std::vector<int> ids_;
  std::unordered_map<const Node*, int> member_;
  std::map<int, int> arguments_;
  int contraction_arg_ = -1;
  Lowered out_;

 private:
  /// From the first to the last element that a node may have read in an argument.
  struct Range {
    int arg;
    std::int64_t first, last;
  };

  void check_operands_survive() const;
  /// Whether no node that is read in argument `arg` lies where the kernel stores.
  bool reads_other_parts(int arg) const;

  std::vector<Range> read_;  ///< where the nodes lie that are read
};

/// Groups of the results of one attention, with scans, of sorts, and of a scatter.
Lowered lower_attention(const State& s, const std::vector<int>& ids);
Lowered lower_scans(const State& s, const std::vector<int>& ids);
Lowered lower_sorts(const State& s, const std::vector<int>& ids);
Lowered lower_scatter(const State& s, const std::vector<int>& ids);

}  // namespace tensorgrad::schedule
