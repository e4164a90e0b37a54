// What the scheduling passes work on: a program, what of it is stored where, and which stores share
// a kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"
#include "ops/registry.h"
#include "schedule/plan.h"

namespace tensorgrad::schedule {

/// Where the elements of a stored tensor are: buffer[offset + sum of stride * index].
struct Location {
  int buffer = -1;
  std::int64_t offset = 0;
  Shape strides;
};

enum class ItemKind : std::uint8_t { map, reduce, contract, attention, scatter, scan, sort };

/// One tensor to compute and store.
struct Item {
  Tensor value;
  ItemKind kind = ItemKind::map;
  Location dest;
  bool stored = true;  ///< false: every reader is in the same kernel
};

/// Items computed by one kernel, in dependency order.
struct Group {
  std::vector<int> items;
};

/// The program while it is scheduled.
class State {
 public:
  State(Graph g, int most_buffers);

  Graph graph;
  int max_buffers;  ///< arguments that a kernel may have
  std::vector<const Node*> order;
  std::unordered_map<const Node*, std::vector<const Node*>> users;
  std::vector<PlanBuffer> buffers;
  std::unordered_map<const Node*, Location> locations;  ///< leaves and stored tensors
  std::unordered_map<const Node*, std::vector<int>> writers;
  std::vector<Item> items;
  std::vector<Group> groups;    ///< an emptied group has been merged into another
  std::vector<int> item_group;  ///< item -> group
  /// Items that must run before an item: writers of what it reads, readers of what it overwrites.
  std::vector<std::unordered_set<int>> before;
  std::vector<std::vector<int>> after;               ///< the converse of `before`
  std::vector<std::vector<const Node*>> item_reads;  ///< located nodes that an item loads

  bool is_located(const Node& n) const { return locations.contains(&n); }
  /// Whether an item only copies what is stored elsewhere, be it in the same buffer.
  bool is_copy(const Item& item) const;
  int add_buffer(PlanBuffer buffer);
  int add_temp(DType dtype, std::int64_t elements);
  /// Appends an item in a group of its own.
  int add_item(Item item);
  /// The located nodes that computing `item` loads.
  std::vector<const Node*> reads(const Item& item) const;
  /// Fills `before`, `after` and `item_reads` from the items.
  void find_dependencies();
  /// Whether group `from` must run before group `to` because of a third group between them.
  bool path_through_others(int from, int to) const;
  bool depends(int group, int on) const;  ///< directly
  /// Groups in an order that respects dependencies: what frees temporaries first, else earlier
  /// items first.
  std::vector<int> group_order() const;

 private:
  class Usage;
};

/// Dense row-major location.
Location dense(int buffer, std::int64_t offset, const Shape& shape);
/// Whether a location is dense row-major for the shape.
bool is_dense(const Location& location, const Shape& shape);
/// The node behind views that only reinterpret the same elements in the same order (reshape, tags).
const Node& storage_node(const Tensor& t);

// ---- passes, in order ----------------------------------------------------------------------------

/// What contractions ask of storage.
struct Prepared {
  std::unordered_set<const Node*> stored;          ///< nodes that must be stored
  std::unordered_map<const Node*, Shape> layouts;  ///< strides of results that are not row-major
};
/// Gives contractions operands that strided access can reach: others are rearranged by a copy. With
/// `half_operands` what is widened for a contraction alone is read where it lies in f16.
Prepared prepare_contractions(Graph& graph, bool half_operands);
/// Decides which tensors are stored, and where. `fuse_maps` off stores every elementwise result;
/// `place_parts` off copies the parts of a concatenation into it.
void realise(State& state, const Prepared& prepared, bool fuse_maps, bool place_parts);
/// The results of one attention, and its gradients, share a kernel.
void fuse_attention(State& state);
void fuse_epilogues(State& state);
void fuse_rows(State& state);
void fuse_siblings(State& state);
/// Marks tensors that only their own kernel reads: they are recomputed instead of stored.
void drop_stores(State& state);

/// The kernel of a group and the buffers of its arguments, or a reason why the group cannot be one
/// kernel.
struct Lowered {
  kernel::Kernel kernel;
  std::vector<int> buffers;
  std::string failure;
};
Lowered lower(const State& state, const std::vector<int>& items);
/// Where a kernel reads a temporary for the last time and can write one of its results over it,
/// they become one buffer. `kernels` are in the order in which they run.
void overwrite_temporaries(const std::vector<PlanBuffer>& buffers, std::vector<Lowered>& kernels);
/// The argument of a kernel for a plan buffer, which it reads or writes.
using Argument = std::function<int(int buffer, bool written)>;
/// Convolution `n`, whose result goes to `out`.
kernel::Conv conv_of(const State& state, const Node& n, const Location& out,
                     const Argument& argument);
/// Rewrites every expression of a stage.
void map_stage(kernel::Pool& pool, kernel::Stage& stage, const kernel::Pool::Mapping& mapping);
/// Binds each argument from the first element that the kernel touches (or the last place before it
/// that `target` can bind) to the last one, so that kernels which differ in that place alone become
/// the same. Returns the elements left out before each argument.
std::vector<std::int64_t> rebase_arguments(kernel::Kernel& kernel, const Target& target);
/// Splits loops where accesses take short digits of them (i / 2, i % 2), so that those become
/// loops.
void split_loops(kernel::Kernel& kernel);
/// Merges adjacent loops that every access walks as one.
void collapse_loops(kernel::Kernel& kernel);
/// Gives temps their offsets in the arena. `reuse` off gives each its own bytes.
void place_memory(Plan& plan, const Target& target, bool reuse);

/// A tensor as elements buffer[offset + strides * index] of the first located node below it,
/// through views and, where that node is of f16, a widening to f32. No stride is negative.
struct Strided {
  const Node* node = nullptr;
  int buffer = -1;
  std::int64_t offset = 0;
  Shape strides;  ///< one for each dimension of the tensor
};
std::optional<Strided> strided(const Tensor& t,
                               const std::function<std::optional<Location>(const Node&)>& locate);
/// Strides of `n` with which the elements of a view of it lie dense, if that only reorders
/// dimensions and then reshapes.
std::optional<Shape> strides_for_view(const Node& n, const Node& view);
/// The stored node and the offset in its buffer at which `t` lies dense, row-major, if it does.
std::optional<std::pair<const Node*, std::int64_t>> dense_access(
    const Tensor& t, const std::function<std::optional<Location>(const Node&)>& locate);
/// Strided access to a contraction's operands.
struct DotAccess {
  kernel::Matmul matmul;      ///< extents and strides; buffers are plan buffers, but for `out`
  const Node* lhs = nullptr;  ///< the stored nodes that are read
  const Node* rhs = nullptr;
};
/// How dot `n` reads its operands, given the location of a node and the strides of its result;
/// nothing if an operand is not a strided view of a located node or does not fit a Matmul.
std::optional<DotAccess> dot_access(
    const Node& n, const Shape& out,
    const std::function<std::optional<Location>(const Node&)>& locate);

}  // namespace tensorgrad::schedule
