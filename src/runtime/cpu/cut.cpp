#include "runtime/cpu/cut.h"

#include <algorithm>

#include "codegen/llvm/render.h"
#include "kernel/visit.h"

namespace tensorgrad::cpu {
namespace {

// Nanoseconds. A piece outweighs the cost of handing it out by far, and there are enough of them to
// balance the load.
constexpr double worthwhile = 100'000;
constexpr double piece = 40'000;

/// A rough estimate of a nest's time on one thread.
double nanoseconds(const kernel::Kernel& kernel) {
  constexpr double bytes_each = 16;  // from memory or a large cache
  constexpr double flops_each = 16;  // vector code; a function counts as one
  kernel::Kernel nest = kernel;
  nest.contraction.reset();
  const kernel::Cost cost = kernel::cost(nest);
  return static_cast<double>(cost.bytes) / bytes_each +
         static_cast<double>(cost.flops) / flops_each;
}

/// Into how many pieces a nest of some nanoseconds is worth cutting.
std::int64_t pieces_of(double time) {
  constexpr std::int64_t most_pieces = 512;
  return std::min(static_cast<std::int64_t>(time / piece), most_pieces);
}

/// Whether the nest writes what the contraction reads.
bool writes_operands(const kernel::Kernel& kernel) {
  const auto written = [&](const kernel::Access& access) {
    for (const kernel::Stage& stage : kernel.nest.stages) {
      for (const kernel::Store& store : stage.stores) {
        if (store.buffer == access.buffer) return true;
      }
    }
    return false;
  };
  if (const auto* matmul = std::get_if<kernel::Matmul>(&*kernel.contraction)) {
    return written(matmul->lhs) || written(matmul->rhs);
  }
  if (std::holds_alternative<kernel::Attention>(*kernel.contraction)) return true;  // no epilogue
  const auto& conv = std::get<kernel::Conv>(*kernel.contraction);
  const int result = kernel::result_buffer(*kernel.contraction);
  for (const kernel::Access* access : {&conv.x, &conv.w, &conv.y}) {
    if (access->buffer != result && written(*access)) return true;
  }
  return false;
}

}  // namespace

Cut cut_evenly(const kernel::Kernel& kernel, std::int64_t pieces) {
  // Vector loops step alike in every piece.
  constexpr std::int64_t unit = 64;
  const llvm_ir::Order order = llvm_ir::choose_order(kernel);
  // Pieces of what runs side by side in a vector or a block are no smaller than that.
  const bool across =
      order == llvm_ir::Order::block ||
      (order == llvm_ir::Order::column && llvm_ir::split_loop(kernel) == kernel.nest.outer.back());
  const std::int64_t extent = llvm_ir::split_extent(kernel);
  const std::int64_t count = std::clamp(pieces, std::int64_t{1}, std::max(extent, std::int64_t{1}));
  std::int64_t chunk = (extent + count - 1) / count;
  if (across || chunk > unit / 2) chunk = (chunk + unit - 1) / unit * unit;
  if (chunk >= extent) return {extent, extent, 1};
  return {extent, chunk, (extent + chunk - 1) / chunk};
}

Cut cut_nest(const kernel::Kernel& kernel) {
  const std::int64_t extent = llvm_ir::split_extent(kernel);
  const Cut whole{extent, extent, 1};
  if (extent < 2 || !llvm_ir::can_split(kernel)) return whole;
  const double time = nanoseconds(kernel);
  return time < worthwhile ? whole : cut_evenly(kernel, pieces_of(time));
}

std::int64_t reduction_parts(const kernel::Kernel& kernel, const Cut& cut) {
  constexpr std::int64_t fewest = 16;
  constexpr std::int64_t most = 128;
  constexpr std::int64_t enough_pieces = 8;
  constexpr std::int64_t most_points = 4096;
  const double time = nanoseconds(kernel);
  // Enough for many threads, or about all that its time is worth.
  if (time < worthwhile || 2 * cut.chunks >= std::min(2 * enough_pieces, pieces_of(time))) return 0;
  std::int64_t points = 1;
  for (const int loop : kernel.nest.outer) {
    points *= kernel.loops[static_cast<std::size_t>(loop)].extent;
  }
  if (points > most_points) return 0;
  return std::clamp(static_cast<std::int64_t>(time / piece), fewest, most);
}

std::vector<Part> follow_blocks(const kernel::Kernel& kernel, const std::vector<Block>& blocks) {
  if (!llvm_ir::can_split(kernel) || writes_operands(kernel)) return {};
  const int loop = llvm_ir::split_loop(kernel);
  const auto touched = llvm_ir::footprint(kernel, loop, kernel::result_buffer(*kernel.contraction));
  if (!touched) return {};
  const std::int64_t extent = llvm_ir::split_extent(kernel);
  std::vector<Part> parts;
  for (const Block& block : blocks) {
    const std::int64_t begin = block.begin - touched->first;
    const std::int64_t end = block.end - touched->first;
    if (begin < 0 || end <= begin) return {};
    parts.push_back({begin / touched->step, (end + touched->step - 1) / touched->step});
  }
  std::vector<Part> sorted = parts;
  std::sort(sorted.begin(), sorted.end(),
            [](const Part& a, const Part& b) { return a.begin < b.begin; });
  std::int64_t covered = 0;
  for (const Part& part : sorted) {
    if (part.begin != covered) return {};
    covered = part.end;
  }
  if (covered != extent) return {};
  return parts;
}

}  // namespace tensorgrad::cpu
