#include "runtime/cpu/prepare.h"

#include <algorithm>

#include "runtime/cpu/memory.h"
#include "runtime/cpu/sort.h"

namespace tensorgrad::cpu {

Prepared prepare(const kernel::Kernel& kernel, int threads) {
  Prepared result;
  if (kernel.contraction) {
    result.contraction = make_contraction(kernel, threads);
    const bool shared = result.contraction->blocks().size() > 1;
    const std::size_t slots = shared ? static_cast<std::size_t>(threads) : 1;
    result.scratch_bytes =
        result.contraction->shared_bytes() + slots * result.contraction->own_bytes();
  }
  if (kernel.sort) {
    result.contraction = make_sort(kernel);
    result.scratch_bytes = result.contraction->scratch_bytes();
  }
  if (kernel.nest.stages.empty()) return result;
  result.cut = cut_nest(kernel);
  if (result.contraction) result.parts = follow_blocks(kernel, result.contraction->blocks());
  if (!result.parts.empty()) return result;
  const std::int64_t parts = reduction_parts(kernel, result.cut);
  if (parts > 1) result.stages = in_two_stages(kernel, parts);
  if (result.stages) {
    result.cut = cut_nest(result.stages->rest);
    result.parts_cut = cut_evenly(result.stages->parts, result.stages->count);
    std::size_t bytes = 0;
    for (const std::int64_t partial : result.stages->bytes) {
      bytes += aligned(static_cast<std::size_t>(partial));
    }
    result.scratch_bytes = std::max(result.scratch_bytes, bytes);
  }
  return result;
}

}  // namespace tensorgrad::cpu
