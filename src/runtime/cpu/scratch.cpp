#include "runtime/cpu/scratch.h"

#include <algorithm>
#include <utility>

#include "runtime/cpu/memory.h"

namespace tensorgrad::cpu {

ScratchPlan place_scratch(const Plan& plan, const std::vector<std::size_t>& bytes) {
  struct Life {
    std::size_t first = 0, last = 0;
    bool used = false;
  };
  std::vector<Life> lives(plan.buffers.size());
  for (std::size_t d = 0; d < plan.dispatches.size(); ++d) {
    for (const int buffer : plan.dispatches[d].buffers) {
      Life& life = lives[static_cast<std::size_t>(buffer)];
      if (!life.used) life = {d, d, true};
      life.last = d;
    }
  }
  ScratchPlan result;
  result.offsets.assign(plan.dispatches.size(), 0);
  result.arena_bytes = static_cast<std::size_t>(plan.arena_bytes);
  for (std::size_t d = 0; d < plan.dispatches.size(); ++d) {
    if (bytes[d] == 0) continue;
    std::vector<std::pair<std::size_t, std::size_t>> taken;
    for (std::size_t b = 0; b < plan.buffers.size(); ++b) {
      const PlanBuffer& buffer = plan.buffers[b];
      if (buffer.kind != BufferKind::temp || !lives[b].used) continue;
      if (lives[b].first > d || lives[b].last < d) continue;
      const auto start = static_cast<std::size_t>(buffer.offset);
      taken.emplace_back(start, aligned(start + static_cast<std::size_t>(buffer.bytes())));
    }
    std::sort(taken.begin(), taken.end());
    std::size_t offset = 0;
    for (const auto& [from, to] : taken) {
      if (from >= offset + bytes[d]) break;
      offset = std::max(offset, to);
    }
    result.offsets[d] = offset;
    result.arena_bytes = std::max(result.arena_bytes, offset + bytes[d]);
  }
  return result;
}

}  // namespace tensorgrad::cpu
