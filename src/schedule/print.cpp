#include "schedule/print.h"

#include <fmt/format.h>

namespace tensorgrad {
const char* name(BufferKind kind) {
  switch (kind) {
    case BufferKind::input:
      return "input";
    case BufferKind::state:
      return "state";
    case BufferKind::output:
      return "output";
    case BufferKind::temp:
      return "temp";
    case BufferKind::constant:
      return "constant";
  }
  return "";
}

std::string to_string(const Plan& plan) {
  std::string text = fmt::format("plan: {} kernels, {} dispatches, arena of {} bytes\n",
                                 plan.kernels.size(), plan.dispatches.size(), plan.arena_bytes);
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlanBuffer& b = plan.buffers[i];
    text += fmt::format("buffer {}: {} {}[{}]", i, name(b.kind), name(b.dtype), b.elements);
    if (!b.name.empty()) text += " " + b.name;
    if (b.kind == BufferKind::temp) text += fmt::format(" at {}", b.offset);
    text += '\n';
  }
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    text += fmt::format("kernel {}:\n{}\n", i, kernel::to_string(plan.kernels[i]));
  }
  for (const Dispatch& d : plan.dispatches) {
    text += fmt::format("dispatch kernel {} on", d.kernel);
    for (std::size_t i = 0; i < d.buffers.size(); ++i) {
      text += fmt::format(" {}", d.buffers[i]);
      if (d.offset(i) > 0) text += fmt::format("+{}", d.offset(i));
    }
    text += fmt::format(": {}\n", d.name);
  }
  return text;
}

}  // namespace tensorgrad
