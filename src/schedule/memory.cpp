// Offsets of temporaries in the arena: largest first, each as low as its lifetime allows.
#include <algorithm>
#include <vector>

#include "graph/order.h"
#include "schedule/state.h"

namespace tensorgrad {

std::int64_t Plan::total_bytes() const {
  std::int64_t total = arena_bytes;
  for (const PlanBuffer& b : buffers) {
    if (b.kind != BufferKind::temp) total += b.bytes();
  }
  return total;
}

namespace schedule {
namespace {

struct Life {
  int buffer;
  int first, last;  // dispatches
  std::int64_t bytes;
};

}  // namespace

void place_memory(Plan& plan, const Target& target, bool reuse) {
  const auto device_bytes = [&](const PlanBuffer& buffer) {
    // What holds nothing has a place of its own, too: devices bind a few bytes of it.
    const std::int64_t bytes =
        std::max<std::int64_t>(buffer.elements, 1) * target.bytes(buffer.dtype);
    return (bytes + target.alignment - 1) / target.alignment * target.alignment;
  };
  std::vector<Life> lives;
  std::vector<int> index(plan.buffers.size(), -1);
  for (std::size_t d = 0; d < plan.dispatches.size(); ++d) {
    for (int b : plan.dispatches[d].buffers) {
      const PlanBuffer& buffer = plan.buffers[static_cast<std::size_t>(b)];
      if (buffer.kind != BufferKind::temp) continue;
      int& at = index[static_cast<std::size_t>(b)];
      if (at < 0) {
        at = static_cast<int>(lives.size());
        lives.push_back({b, static_cast<int>(d), static_cast<int>(d), device_bytes(buffer)});
      }
      lives[static_cast<std::size_t>(at)].last = static_cast<int>(d);
    }
  }
  sort_values(lives, [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
  plan.arena_bytes = 0;
  std::vector<const Life*> placed;
  for (const Life& life : lives) {
    std::int64_t offset = 0;
    if (!reuse) {
      offset = plan.arena_bytes;
    } else {
      // Gaps between the placed buffers alive at the same time, by offset: the tightest that fits.
      std::vector<std::pair<std::int64_t, std::int64_t>> taken;
      for (const Life* p : placed) {
        if (p->last < life.first || p->first > life.last) continue;
        const std::int64_t start = plan.buffers[static_cast<std::size_t>(p->buffer)].offset;
        taken.emplace_back(start, start + p->bytes);
      }
      sort_values(taken);
      std::int64_t end = 0;
      std::int64_t best = -1;
      std::int64_t best_gap = 0;
      for (auto [from, to] : taken) {
        const std::int64_t gap = from - end;
        if (gap >= life.bytes && (best < 0 || gap < best_gap)) {
          best = end;
          best_gap = gap;
        }
        end = std::max(end, to);
      }
      offset = best >= 0 ? best : end;
    }
    plan.buffers[static_cast<std::size_t>(life.buffer)].offset = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + life.bytes);
    placed.push_back(&life);
  }
}

}  // namespace schedule
}  // namespace tensorgrad
