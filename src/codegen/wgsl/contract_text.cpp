#include "codegen/wgsl/contract_text.h"

#include <algorithm>

#include "codegen/wgsl/expressions.h"

namespace tensorgrad::wgsl {
namespace {

bool is_multiple(std::int64_t value) { return value % 4 == 0; }

/// Whether every step along an axis is a whole number of vectors.
bool steps_whole(const Extents& extents, const Extents& strides) {
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] != 1 && !is_multiple(strides[i])) return false;
  }
  return true;
}

/// Whether vectors lie along an axis: its innermost dimension is contiguous and whole.
bool lies_along(const Extents& extents, const Extents& strides) {
  const std::vector<Dim> dims = merged(extents, strides);
  if (dims.empty() || dims.back().stride != 1 || !is_multiple(dims.back().extent)) return false;
  return std::all_of(dims.begin(), dims.end() - 1,
                     [](const Dim& dim) { return is_multiple(dim.stride); });
}

bool may_be_wide(const Operand& operand, const Problem& problem, const WideArgs& wide) {
  return wide.contains(operand.arg) && operand.windows.empty() && is_multiple(operand.offset) &&
         steps_whole(problem.batch, operand.batch);
}

/// Digit of a dimension with `inner` points below it, of a variable.
std::string digit(const std::string& variable, std::int64_t inner, std::int64_t extent,
                  bool is_first) {
  std::string text = variable;
  if (inner != 1) text += fmt::format(" / {}u", inner);
  if (!is_first) text += fmt::format(" % {}u", extent);
  return text;
}

}  // namespace

std::vector<Dim> merged(const Extents& extents, const Extents& strides) {
  std::vector<Dim> dims;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] == 1) continue;
    if (!dims.empty() && dims.back().stride == strides[i] * extents[i]) {
      dims.back().extent *= extents[i];
      dims.back().stride = strides[i];
    } else {
      dims.push_back({extents[i], strides[i]});
    }
  }
  return dims;
}

std::string number(std::int64_t value) {
  return fmt::format("{}u", static_cast<std::uint32_t>(static_cast<std::uint64_t>(value)));
}

std::string affine(const std::string& variable, const std::vector<Dim>& dims) {
  std::string text;
  std::int64_t inner = 1;
  for (const Dim& dim : dims) inner *= dim.extent;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    inner /= std::max<std::int64_t>(dims[i].extent, 1);
    if (dims[i].stride == 0) continue;
    if (!text.empty()) text += " + ";
    text += digit(variable, inner, dims[i].extent, i == 0);
    if (dims[i].stride != 1) text += " * " + number(dims[i].stride);
  }
  return text.empty() ? "0u" : text;
}

std::string signed_affine(const std::string& variable, const Extents& extents,
                          const Extents& coefficients) {
  std::string text;
  std::int64_t inner = 1;
  for (const auto extent : extents) inner *= extent;
  bool is_first = true;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] == 1) continue;
    inner /= extents[i];
    if (coefficients[i] != 0) {
      if (!text.empty()) text += " + ";
      text += fmt::format("i32({}) * {}", digit(variable, inner, extents[i], is_first),
                          coefficients[i]);
    }
    is_first = false;
  }
  return text.empty() ? "0" : text;
}

std::string sum(const std::string& a, const std::string& b) {
  if (a == "0u") return b;
  if (b == "0u") return a;
  return a + " + " + b;
}

bool is_wide_outer(const Operand& operand, const Problem& problem, const Extents& outer,
                   const WideArgs& wide) {
  return may_be_wide(operand, problem, wide) && steps_whole(problem.k, operand.depth) &&
         lies_along(outer, operand.outer);
}

bool is_wide_depth(const Operand& operand, const Problem& problem, const Extents& outer,
                   const WideArgs& wide) {
  return may_be_wide(operand, problem, wide) && steps_whole(outer, operand.outer) &&
         lies_along(problem.k, operand.depth);
}

WideArgs wide_args(const Problem& problem, const std::vector<kernel::BufferArg>& args) {
  WideArgs wide;
  const auto add = [&](const Operand& operand, const Extents& outer) {
    const std::int64_t elements = args[static_cast<std::size_t>(operand.arg)].elements;
    if (elements == 0 || !is_multiple(elements)) return;
    const WideArgs own{operand.arg};
    if (is_wide_outer(operand, problem, outer, own) ||
        is_wide_depth(operand, problem, outer, own)) {
      wide.insert(operand.arg);
    }
  };
  add(problem.lhs, problem.m);
  add(problem.rhs, problem.n);
  return wide;
}

std::string element(int arg, const std::string& index, const WideArgs& wide) {
  if (!wide.contains(arg)) return fmt::format("b{}[{}]", arg, index);
  return fmt::format("b{0}[({1}) / 4u][({1}) % 4u]", arg, index);
}

std::string element(const Operand& operand, const std::string& index, const WideArgs& wide) {
  return from_memory(operand.dtype, element(operand.arg, index, wide));
}

std::string vector(const Operand& operand, const std::string& index) {
  const std::string text = fmt::format("b{}[{}]", operand.arg, index);
  return operand.dtype == DType::f32 ? text : fmt::format("vec4f({})", text);
}

std::string window_functions(const std::string& name, const Operand& operand,
                             const Problem& problem, const Extents& outer, const WideArgs& wide) {
  Lines out;
  const std::size_t rank = operand.windows.size();
  out.open("struct {}_place", name);
  out.line("at: u32,");
  for (std::size_t d = 0; d < rank; ++d) out.line("p{}: i32,", d);
  out.close();
  const auto coordinates = [&](const std::string& variable, const Extents& extents,
                               auto coefficients, bool with_low) {
    std::string text;
    for (const Window& window : operand.windows) {
      text += ", " + signed_affine(variable, extents, coefficients(window));
      if (with_low && window.low != 0) text += fmt::format(" + ({})", window.low);
    }
    return text;
  };
  out.open("fn {0}_outer(z: u32, o: u32) -> {0}_place", name);
  out.line("return {}_place({}{});", name,
           sum(sum(number(operand.offset), affine("z", merged(problem.batch, operand.batch))),
               affine("o", merged(outer, operand.outer))),
           coordinates("o", outer, [](const Window& w) { return w.outer; }, true));
  out.close();
  out.open("fn {0}_depth(k: u32) -> {0}_place", name);
  out.line("return {}_place({}{});", name, affine("k", merged(problem.k, operand.depth)),
           coordinates("k", problem.k, [](const Window& w) { return w.depth; }, false));
  out.close();
  std::string valid;
  std::string at = "a.at + b.at";
  for (std::size_t d = 0; d < rank; ++d) {
    const Window& window = operand.windows[d];
    if (!valid.empty()) valid += " & ";
    std::string position = fmt::format("u32(a.p{0} + b.p{0})", d);
    // A negative position is a large u32, above every extent.
    if (window.divisor == 1) {
      valid += fmt::format("({} < {}u)", position, window.extent);
    } else {
      valid += fmt::format("({0} < {1}u) & ({0} % {2}u == 0u)", position,
                           (window.extent - 1) * window.divisor + 1, window.divisor);
      position += fmt::format(" / {}u", window.divisor);
    }
    at += " + " + position;
    if (window.stride != 1) at += " * " + number(window.stride);
  }
  out.open("fn {0}_valid(a: {0}_place, b: {0}_place) -> bool", name);
  out.line("return {};", valid);
  out.close();
  out.open("fn {0}_at(a: {0}_place, b: {0}_place) -> f32", name);
  // Without branches: some compilers take minutes for loops around many calls that have them.
  out.line("let valid = {}_valid(a, b);", name);
  out.line("let place = select(0u, {}, valid);", at);
  out.line("return select(0.0, {}, valid);", element(operand, "place", wide));
  out.close();
  return out.text();
}

std::string exact_functions(const Problem& problem, const WideArgs& wide, bool ones, bool fours) {
  Lines out;
  out.open("fn exact(z: u32, m: u32, n: u32, value: f32) -> f32");
  out.line("if ((bitcast<u32>(value) & 0x7fffffffu) <= 0x7f800000u) {{ return value; }}");
  out.line("let column = exact_outer(z, n);");
  out.line("let row = {};", sum(sum(number(problem.lhs.offset),
                                    affine("z", merged(problem.batch, problem.lhs.batch))),
                                affine("m", merged(problem.m, problem.lhs.outer))));
  out.line("var total = 0.0;");
  out.open("for (var k = 0u; k < {}u; k++)", problem.depth());
  out.line("let place = exact_depth(k);");
  out.line(
      "let left = {};",
      element(problem.lhs, sum("row", affine("k", merged(problem.k, problem.lhs.depth))), wide));
  out.line("let more = fma(left, exact_at(column, place), total);");
  out.line("total = select(total, more, exact_valid(column, place));");
  out.close();
  out.line("return total;");
  out.close();
  if (ones) {
    out.open("fn finish_exact(z: u32, m: u32, n: u32, value: f32)");
    out.line("finish(z, m, n, exact(z, m, n, value));");
    out.close();
  }
  if (fours) {
    out.open("fn finish4_exact(z: u32, m: u32, n: u32, value: vec4f)");
    out.line(
        "finish4(z, m, n, vec4f(exact(z, m, n, value.x), exact(z, m, n + 1u, value.y), "
        "exact(z, m, n + 2u, value.z), exact(z, m, n + 3u, value.w)));");
    out.close();
  }
  return window_functions("exact", problem.rhs, problem, problem.n, wide) + out.text();
}

Grid linear_grid(std::int64_t count, const Target& target) {
  Grid grid;
  const std::int64_t rows = (count + target.groups - 1) / target.groups;
  const std::int64_t columns = (count + rows - 1) / rows;
  grid.groups = {static_cast<std::uint32_t>(columns), static_cast<std::uint32_t>(rows), 1};
  grid.number = rows == 1 ? "group.x" : fmt::format("(group.y * {}u + group.x)", columns);
  return grid;
}

}  // namespace tensorgrad::wgsl
