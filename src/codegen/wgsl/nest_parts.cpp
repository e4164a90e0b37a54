#include "codegen/wgsl/nest_parts.h"

#include <fmt/format.h>

namespace tensorgrad::wgsl {

using kernel::Accumulator;
using kernel::Combiner;

bool Running::indexed() const {
  return accumulator->combiner == Combiner::argmax || accumulator->combiner == Combiner::argmin;
}

std::string_view running_type(const Accumulator& accumulator) {
  return value_type(accumulator.dtype == DType::bool_ ? DType::u32 : accumulator.dtype);
}

namespace {

/// Bools run as u32, whose neutral elements are theirs but for those of a minimum.
double neutral(const Accumulator& accumulator) {
  return kernel::neutral(accumulator.combiner, accumulator.dtype);
}
DType running_dtype(const Accumulator& accumulator) {
  return accumulator.dtype == DType::bool_ ? DType::u32 : accumulator.dtype;
}

}  // namespace

Running start(PassBuilder& pass, const Accumulator& accumulator) {
  Running running;
  running.accumulator = &accumulator;
  Writer& writer = pass.writer();
  const std::string first =
      pass.expressions().literal(running_dtype(accumulator), neutral(accumulator));
  running.value = writer.var(writer.depth(), first);
  // Beyond every position, so that the first value that is neutral is taken.
  if (running.indexed()) running.position = writer.var(writer.depth(), "2147483647i");
  return running;
}

void take(PassBuilder& pass, const Running& running, const std::string& value,
          const std::string& position) {
  Writer& writer = pass.writer();
  const Accumulator& accumulator = *running.accumulator;
  const DType dtype = running_dtype(accumulator);
  if (!running.indexed()) {
    const Rendered sum = pass.expressions().combine(accumulator.combiner, dtype,
                                                    named(running.value, writer.depth()),
                                                    named(value, writer.depth()));
    writer.line(fmt::format("{} = {};", running.value, sum.text));
    return;
  }
  const bool is_max = accumulator.combiner == Combiner::argmax;
  const std::string beats =
      dtype == DType::f32
          ? fmt::format("{}({}, {}, {}, {})", pass.helpers().use(is_max ? "tg_above" : "tg_below"),
                        value, position, running.value, running.position)
          : fmt::format("{0} {1} {2} || ({0} == {2} && {3} < {4})", value, is_max ? ">" : "<",
                        running.value, position, running.position);
  writer.line(fmt::format("if ({}) {{ {} = {}; {} = {}; }}", beats, running.value, value,
                          running.position, position));
}

void take(PassBuilder& pass, const Running& running) {
  const Accumulator& accumulator = *running.accumulator;
  ExpressionRenderer& expressions = pass.expressions();
  const Rendered value = running.indexed() ? expressions.render_named(accumulator.value)
                                           : expressions.render(accumulator.value);
  const std::string text = accumulator.dtype == DType::bool_ ? fmt::format("u32({})", value.text)
                                                             : value.operand(Strength::primary);
  std::string position;
  if (running.indexed()) {
    position = fmt::format("i32({})", expressions.render(accumulator.position).text);
  }
  take(pass, running, text, position);
}

}  // namespace tensorgrad::wgsl
