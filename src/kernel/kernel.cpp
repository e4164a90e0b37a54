#include "kernel/kernel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel/print.h"

namespace tensorgrad::kernel {

const char* name(Combiner combiner) {
  switch (combiner) {
    case Combiner::sum:
      return "sum";
    case Combiner::prod:
      return "prod";
    case Combiner::max:
      return "max";
    case Combiner::min:
      return "min";
    case Combiner::argmax:
      return "argmax";
    case Combiner::argmin:
      break;
  }
  return "argmin";
}

double neutral(Combiner combiner, DType dtype) {
  switch (combiner) {
    case Combiner::sum:
      return 0;
    case Combiner::prod:
      return 1;
    case Combiner::max:
    case Combiner::argmax:
      if (is_floating(dtype)) return -std::numeric_limits<double>::infinity();
      return dtype == DType::i32 ? std::numeric_limits<std::int32_t>::min() : 0.0;
    case Combiner::min:
    case Combiner::argmin:
      break;
  }
  switch (dtype) {
    case DType::f32:
    case DType::f16:
      return std::numeric_limits<double>::infinity();
    case DType::i32:
      return std::numeric_limits<std::int32_t>::max();
    case DType::u32:
      return std::numeric_limits<std::uint32_t>::max();
    case DType::bool_:
      break;
  }
  return 1;
}

std::int64_t Matmul::batches() const {
  return std::accumulate(batch.begin(), batch.end(), std::int64_t{1}, std::multiplies<>());
}
std::int64_t Matmul::depth() const {
  return std::accumulate(k.begin(), k.end(), std::int64_t{1}, std::multiplies<>());
}

namespace {

std::string_view mode_name(Conv::Mode mode) {
  switch (mode) {
    case Conv::Mode::forward:
      return "forward";
    case Conv::Mode::input_grad:
      return "input_grad";
    case Conv::Mode::weight_grad:
      break;
  }
  return "weight_grad";
}

std::string access_text(const Access& access) {
  std::string result = fmt::format("b{}", access.buffer);
  if (access.offset != 0) result += fmt::format(" + {}", access.offset);
  if (!access.strides.empty()) result += fmt::format(" by ({})", fmt::join(access.strides, ", "));
  return result;
}

std::string contraction_text(const Matmul& c) {
  return fmt::format("matmul batch {} m {} n {} k {}\n  lhs {}\n  rhs {}\n  out {}\n", c.batch, c.m,
                     c.n, c.k, access_text(c.lhs), access_text(c.rhs), access_text(c.out));
}

std::string contraction_text(const Attention& c) {
  std::string text =
      fmt::format("attention {} batch {} queries {} keys {} depth {} value depth {} scale {}{}\n",
                  c.mode == Attention::Mode::forward ? "forward" : "backward", c.batch, c.queries,
                  c.keys, c.depth, c.value_depth, c.scale, c.causal ? " causal" : "");
  const std::pair<const char*, const Access*> accesses[] = {
      {"q", &c.q},     {"k", &c.k},       {"v", &c.v},   {"mask", &c.mask}, {"out", &c.out},
      {"lse", &c.lse}, {"dout", &c.dout}, {"dq", &c.dq}, {"dk", &c.dk},     {"dv", &c.dv}};
  for (const auto& [name, access] : accesses) {
    if (access->buffer >= 0) text += fmt::format("  {} {}\n", name, access_text(*access));
  }
  return text;
}

std::string contraction_text(const Conv& c) {
  return fmt::format(
      "conv {} batch {} groups {} channels {} -> {}\n"
      "  input {} kernel {} output {} stride {} pad {}, {} dilation {}\n"
      "  x {}\n  w {}\n  y {}\n",
      mode_name(c.mode), c.batch, c.groups, c.in_channels, c.out_channels, c.input, c.kernel,
      c.output, c.stride, c.pad_low, c.pad_high, c.dilation, access_text(c.x), access_text(c.w),
      access_text(c.y));
}

std::string sort_text(const Sort& s) {
  std::string result =
      fmt::format("sort{} rows {} x {} length {}\n  in {}\n", s.descending ? " descending" : "",
                  s.outer, s.inner, s.length, access_text(s.in));
  if (s.values.buffer >= 0) result += fmt::format("  values {}\n", access_text(s.values));
  if (s.indices.buffer >= 0) result += fmt::format("  indices {}\n", access_text(s.indices));
  return result;
}

std::string loops_text(const Kernel& kernel, const std::vector<int>& loops) {
  std::string result;
  for (const int loop : loops) {
    const bool known = loop >= 0 && static_cast<std::size_t>(loop) < kernel.loops.size();
    const std::int64_t extent = known ? kernel.loops[static_cast<std::size_t>(loop)].extent : -1;
    result += fmt::format("{}i{} < {}", result.empty() ? "" : ", ", loop, extent);
  }
  return result;
}

/// The lines of a stage's body.
std::vector<std::string> body_lines(const Kernel& kernel, const Stage& stage, std::size_t number) {
  Printer printer(kernel.pool);
  for (const Accumulator& a : stage.accumulators) {
    printer.count(a.value);
    if (a.position.id >= 0) printer.count(a.position);
  }
  for (const Store& s : stage.stores) {
    printer.count(s.index);
    printer.count(s.value);
    if (s.cond.defined()) printer.count(s.cond);
  }
  std::vector<std::string> lines;
  const auto flush = [&](std::string line) {
    for (std::string& definition : printer.take_definitions()) {
      lines.push_back(std::move(definition));
    }
    lines.push_back(std::move(line));
  };
  for (std::size_t slot = 0; slot < stage.accumulators.size(); ++slot) {
    const Accumulator& a = stage.accumulators[slot];
    std::string line = fmt::format("s{}.{} = {} {} {}", number, slot, name(a.combiner),
                                   tensorgrad::name(a.dtype), printer.print(a.value));
    if (a.position.id >= 0) line += " at " + printer.print(a.position);
    flush(std::move(line));
  }
  for (const Store& s : stage.stores) {
    std::string line = fmt::format("b{}[{}] {} {}", s.buffer, printer.print(s.index),
                                   s.accumulate ? "+=" : "=", printer.print(s.value));
    if (s.cond.defined()) line += " where " + printer.print(s.cond);
    flush(std::move(line));
  }
  return lines;
}

}  // namespace

std::string to_string(const Kernel& kernel) {
  std::string result = fmt::format("kernel {}\n", kernel.name);
  for (std::size_t i = 0; i < kernel.args.size(); ++i) {
    const BufferArg& arg = kernel.args[i];
    result += fmt::format("b{}: {}[{}]{}{}\n", i, tensorgrad::name(arg.dtype), arg.elements,
                          arg.read ? " read" : "", arg.written ? " written" : "");
  }
  if (kernel.contraction) {
    result += std::visit([](const auto& c) { return contraction_text(c); }, *kernel.contraction);
  }
  if (kernel.sort) result += sort_text(*kernel.sort);
  std::string indent;
  if (!kernel.nest.outer.empty()) {
    result += fmt::format("for {}:\n", loops_text(kernel, kernel.nest.outer));
    indent = "  ";
  }
  for (std::size_t number = 0; number < kernel.nest.stages.size(); ++number) {
    const Stage& stage = kernel.nest.stages[number];
    std::string inner = indent;
    if (!stage.loops.empty()) {
      const char* verb = stage.accumulators.empty() ? "for"
                         : stage.stores.empty()     ? "reduce"
                                                    : "scan";
      result += fmt::format("{}{} {}:\n", indent, verb, loops_text(kernel, stage.loops));
      inner += "  ";
    }
    for (const std::string& line : body_lines(kernel, stage, number)) {
      result += inner + line + "\n";
    }
  }
  return result;
}

}  // namespace tensorgrad::kernel
