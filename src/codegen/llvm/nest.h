// Renders the loops of a nest around its expressions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "codegen/llvm/expressions.h"
#include "codegen/llvm/render.h"
#include "codegen/llvm/share.h"
#include "codegen/llvm/writer.h"
#include "kernel/kernel.h"

namespace tensorgrad::llvm_ir {

/// Writes the body of the function that runs a kernel's nest over [%begin, %end) of its
/// `split_loop`.
class NestRenderer {
 public:
  explicit NestRenderer(const kernel::Kernel& kernel);
  void render(Order order);
  const Writer& writer() const { return writer_; }
  const ExpressionRenderer& expressions() const { return expressions_; }

 private:
  /// One accumulator while its stage runs.
  struct Running {
    const kernel::Accumulator* accumulator = nullptr;
    bool wide = false;              ///< partial sums are added up in double
    std::string value, position;    ///< current SSA values
    std::string values, positions;  ///< column order: arrays of a tile
    bool indexed() const;           ///< argmax or argmin
  };

  /// A saved value with its array and the loop that counts its elements.
  struct Saved {
    SavedValue item;
    int loop;
    std::string array;
  };

  std::int64_t extent(int var) const { return kernel_.loops[static_cast<std::size_t>(var)].extent; }
  std::int64_t points(const kernel::Stage& stage) const;
  bool unit(int var) const { return extent(var) == 1; }
  /// Bounds of a loop: [%begin, %end) for the one that is split.
  std::pair<std::string, std::string> bounds(int var) const;
  void open(int var);
  void close(const std::vector<std::string>& next = {});
  /// Opens a stage's loops that have more than one iteration.
  int open_all(const std::vector<int>& loops);

  void run_blocks();
  std::string block_end(const std::string& first, const std::string& end, std::int64_t size);
  void run_stages_by_row();
  void reduce_by_row(int index);
  void scan_by_row(int index);
  void scan_loops(int index, const std::vector<int>& loops, std::size_t level,
                  std::vector<Running>& running);
  std::vector<Running> start(const kernel::Stage& stage, bool always_wide) const;
  void bind_running(int index, const std::vector<Running>& running);
  void reduce_loops(int stage, const std::vector<int>& loops, std::size_t level,
                    std::vector<Running>& running);
  void reduce_innermost(int stage, int var, const std::string& begin, const std::string& end,
                        std::vector<Running>& running);
  std::vector<Carried> carry(const std::vector<Running>& running, bool innermost) const;
  void uncarry(std::vector<Running>& running, const std::vector<std::string>& names) const;
  std::vector<std::string> values(const std::vector<Running>& running) const;
  void accumulate(Running& running, bool widened);
  void store_stage(int index);
  /// Reads the values of this row that earlier stages have saved.
  void recall(int stage);
  /// Saves those that later stages read.
  void save(int stage);
  std::string place_of(const Saved& saved);
  void do_stores(const kernel::Stage& stage);

  void run_tiles();
  void run_stages_by_column(const std::string& first, const std::string& size);
  void reduce_by_column(int index, const std::string& first, const std::string& size);
  void open_tile(const std::string& first, const std::string& size);

  const kernel::Kernel& kernel_;
  int split_;
  Writer writer_;
  ExpressionRenderer expressions_;
  std::vector<Saved> saved_;
  std::string tile_offset_;  ///< position within the tile of the open tile loop
};

}  // namespace tensorgrad::llvm_ir
