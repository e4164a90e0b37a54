// Contraction without workgroup memory: an invocation reads what its own results need. For adapters
// where a buffer is as near as workgroup memory, for short k, and as the `dot` form for few
// results.
#include <algorithm>

#include "codegen/wgsl/contract_text.h"

namespace tensorgrad::wgsl {
namespace {

constexpr const char* components = "xyzw";

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// One operand as an invocation reads it: `count` rows of the outer axis.
class Reader {
 public:
  Reader(std::string name, const Operand& operand, const Problem& problem, const Extents& outer,
         std::int64_t count, const WideArgs& wide)
      : name_(std::move(name)),
        operand_(operand),
        problem_(problem),
        outer_(outer),
        count_(count),
        wide_(wide),
        wide_outer_(count % 4 == 0 && is_wide_outer(operand, problem, outer, wide)),
        wide_depth_(!wide_outer_ && !problem.k.empty() && problem.k.back() % 4 == 0 &&
                    is_wide_depth(operand, problem, outer, wide)) {
    for (const auto extent : outer) outer_extent_ *= extent;
  }

  bool is_wide_along_depth() const { return wide_depth_; }
  std::string functions() const {
    if (operand_.windows.empty()) return {};
    return window_functions(name_, operand_, problem_, outer_, wide_);
  }

  /// Declares where the rows from `start` (WGSL) lie. Rows beyond the last one repeat it.
  void declare(Lines& out, const std::string& start) const {
    const std::int64_t unit = wide_outer_ || wide_depth_ ? 4 : 1;
    std::vector<Dim> batch = merged(problem_.batch, operand_.batch);
    for (Dim& dim : batch) dim.stride /= unit;
    const std::string base = sum(number(operand_.offset / unit), affine("z", batch));
    for (std::int64_t i = 0; i < count_; i += wide_outer_ ? 4 : 1) {
      std::string row = i == 0 ? start : fmt::format("{} + {}u", start, i);
      row = fmt::format("min({}, {}u)", row, outer_extent_ - (wide_outer_ ? 4 : 1));
      if (!operand_.windows.empty()) {
        out.line("let {0}_at{1} = {0}_outer(z, {2});", name_, i, row);
        continue;
      }
      std::vector<Dim> dims = merged(outer_, operand_.outer);
      for (Dim& dim : dims) {
        if (wide_outer_ && &dim == &dims.back()) {
          dim.extent /= 4;
        } else {
          dim.stride /= unit;
        }
      }
      out.line("let {}_o{} = {}{};", name_, i, row, wide_outer_ ? " / 4u" : "");
      out.line("let {}_at{} = {};", name_, i,
               sum(base, affine(fmt::format("{}_o{}", name_, i), dims)));
    }
  }

  /// Declares the place of k, whose digits are the variables k0, k1 ...
  void declare_place(Lines& out) const {
    const std::int64_t unit = wide_outer_ || wide_depth_ ? 4 : 1;
    std::string at;
    for (std::size_t d = 0; d < problem_.k.size(); ++d) {
      std::int64_t stride = operand_.depth[d];
      if (stride == 0) continue;
      if (!at.empty()) at += " + ";
      if (wide_depth_ && d + 1 == problem_.k.size()) {
        at += fmt::format("k{} / 4u", d);
        continue;
      }
      stride /= unit;
      at += fmt::format("k{}", d);
      if (stride != 1) at += " * " + number(stride);
    }
    if (at.empty()) at = "0u";
    if (operand_.windows.empty()) {
      out.line("let {}_k = {};", name_, at);
      return;
    }
    for (const Window& window : operand_.windows) {
      std::string position;
      for (std::size_t d = 0; d < problem_.k.size(); ++d) {
        if (window.depth[d] == 0) continue;
        if (!position.empty()) position += " + ";
        position += fmt::format("i32(k{}) * {}", d, window.depth[d]);
      }
      at += ", " + (position.empty() ? "0" : position);
    }
    out.line("let {0}_k = {0}_place({1});", name_, at);
  }

  /// Reads four k at once, for an operand that is wide along k.
  void prefetch(Lines& out) const {
    if (!wide_depth_) return;
    for (std::int64_t i = 0; i < count_; ++i) {
      out.line("let {}_v{} = {};", name_, i,
               vector(operand_, fmt::format("{0}_at{1} + {0}_k", name_, i)));
    }
  }

  /// WGSL of row i at the k of `declare_place` plus `step`.
  std::string row(std::int64_t i, std::int64_t step) const {
    if (wide_depth_) return fmt::format("{}_v{}.{}", name_, i, components[step]);
    if (wide_outer_) {
      return fmt::format("{}.{}", rows(i / 4 * 4, step), components[i % 4]);
    }
    if (!operand_.windows.empty()) {
      return fmt::format("{0}_at({0}_at{1}, {2})", name_, i, place(step));
    }
    return element(operand_, fmt::format("{}_at{} + {}", name_, i, place(step)), wide_);
  }
  /// WGSL of rows i to i + 3.
  std::string rows(std::int64_t i, std::int64_t step) const {
    if (wide_outer_) {
      return vector(operand_, fmt::format("{}_at{} + {}", name_, i, place(step)));
    }
    return fmt::format("vec4f({}, {}, {}, {})", row(i, step), row(i + 1, step), row(i + 2, step),
                       row(i + 3, step));
  }

 private:
  std::string place(std::int64_t step) const {
    std::string text = name_ + "_k";
    if (step == 0) return text;
    if (!operand_.windows.empty()) {
      const std::size_t last = problem_.k.size() - 1;
      std::string moved =
          fmt::format("{0}_place({1}.at + {2}", name_, text, number(step * operand_.depth[last]));
      for (std::size_t d = 0; d < operand_.windows.size(); ++d) {
        moved += fmt::format(", {}.p{} + ({})", text, d, step * operand_.windows[d].depth[last]);
      }
      return moved + ")";
    }
    const std::int64_t stride = operand_.depth.back() / (wide_outer_ ? 4 : 1);
    return fmt::format("{} + {}", text, number(step * stride));
  }

  std::string name_;
  const Operand& operand_;
  const Problem& problem_;
  const Extents& outer_;
  std::int64_t count_;
  const WideArgs& wide_;
  bool wide_outer_, wide_depth_;
  std::int64_t outer_extent_ = 1;
};

/// Declares the digits k0, k1 ... of the flat k in `variable`.
void declare_digits(Lines& out, const Extents& k, const std::string& variable) {
  std::int64_t inner = 1;
  for (const auto extent : k) inner *= extent;
  for (std::size_t d = 0; d < k.size(); ++d) {
    inner /= k[d];
    std::string digit = variable;
    if (inner != 1) digit += fmt::format(" / {}u", inner);
    if (d != 0) digit += fmt::format(" % {}u", k[d]);
    out.line("let k{} = {};", d, digit);
  }
}

/// The problem with at least one k dimension.
Problem with_depth(const Problem& problem) {
  Problem p = problem;
  if (p.k.empty()) {
    p.k = {1};
    p.lhs.depth = {0};
    p.rhs.depth = {0};
  }
  return p;
}

}  // namespace

Body render_direct(const Problem& original, const Tile& tile, const Target& target,
                   const WideArgs& wide) {
  const Problem problem = with_depth(original);
  const std::int64_t tiles_m = ceil_div(problem.rows(), tile.tm);
  const std::int64_t tiles_n = ceil_div(problem.columns(), tile.tn);
  const std::int64_t batches = problem.batches();
  const std::int64_t count = tiles_m * tiles_n * batches * tile.splits;
  const Grid grid = linear_grid(ceil_div(count, tile.threads), target);
  const bool vectors = tile.tn % 4 == 0;
  const Reader lhs("lhs", problem.lhs, problem, problem.m, tile.tm, wide);
  const Reader rhs("rhs", problem.rhs, problem, problem.n, tile.tn, wide);
  const std::int64_t step = lhs.is_wide_along_depth() || rhs.is_wide_along_depth() ? 4 : 1;
  const std::int64_t part = ceil_div(ceil_div(problem.depth(), tile.splits), step) * step;

  Body body;
  body.groups = grid.groups;
  body.functions = lhs.functions() + rhs.functions();
  Lines out;
  out.line("@compute @workgroup_size({})", tile.threads);
  out.open("fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) t: u32)");
  out.line("let item = {} * {}u + t;", grid.number, tile.threads);
  out.line("if (item >= {}u) {{ return; }}", count);
  out.line("let n0 = item % {}u * {}u;", tiles_n, tile.tn);
  out.line("let m0 = item / {}u % {}u * {}u;", tiles_n, tiles_m, tile.tm);
  out.line("let z_out = item / {}u;", tiles_n * tiles_m);
  out.line("let z = z_out{};", tile.splits > 1 ? fmt::format(" % {}u", batches) : "");
  lhs.declare(out, "m0");
  rhs.declare(out, "n0");
  for (std::int64_t i = 0; i < tile.tm; ++i) {
    for (std::int64_t j = 0; j < tile.tn; j += vectors ? 4 : 1) {
      out.line("var c{}_{} = {};", i, j, vectors ? "vec4f()" : "0.0");
    }
  }
  std::size_t loops = 0;
  if (tile.splits > 1) {
    out.line("let k_begin = z_out / {}u * {}u;", batches, part);
    out.open("for (var k = k_begin; k < min(k_begin + {}u, {}u); k += {}u)", part, problem.depth(),
             step);
    declare_digits(out, problem.k, "k");
    loops = 1;
  } else {
    for (; loops < problem.k.size(); ++loops) {
      out.open("for (var k{0} = 0u; k{0} < {1}u; k{0} += {2}u)", loops, problem.k[loops],
               loops + 1 == problem.k.size() ? step : 1);
    }
  }
  lhs.declare_place(out);
  rhs.declare_place(out);
  lhs.prefetch(out);
  rhs.prefetch(out);
  for (std::int64_t s = 0; s < step; ++s) {
    out.open_scope();
    for (std::int64_t j = 0; j < tile.tn; j += vectors ? 4 : 1) {
      out.line("let r{} = {};", j, vectors ? rhs.rows(j, s) : rhs.row(j, s));
    }
    for (std::int64_t i = 0; i < tile.tm; ++i) {
      out.line("let l{} = {};", i, lhs.row(i, s));
      for (std::int64_t j = 0; j < tile.tn; j += vectors ? 4 : 1) {
        out.line("c{0}_{1} = fma({2}, r{1}, c{0}_{1});", i, j,
                 vectors ? fmt::format("vec4f(l{})", i) : fmt::format("l{}", i));
      }
    }
    out.close();
  }
  for (; loops > 0; --loops) out.close();
  const bool even_rows = problem.rows() % tile.tm == 0;
  const bool even_columns = problem.columns() % tile.tn == 0;
  for (std::int64_t i = 0; i < tile.tm; ++i) {
    if (!even_rows && i > 0) out.open("if (m0 + {}u < {}u)", i, problem.rows());
    for (std::int64_t j = 0; j < tile.tn; j += vectors ? 4 : 1) {
      const std::string m = fmt::format("m0 + {}u", i);
      const std::string n = fmt::format("n0 + {}u", j);
      if (vectors && (even_columns || problem.columns() % 4 == 0)) {
        const std::string call = fmt::format("finish4(z_out, {}, {}, c{}_{});", m, n, i, j);
        if (even_columns || j == 0) {
          out.line("{}", call);
        } else {
          out.line("if ({} < {}u) {{ {} }}", n, problem.columns(), call);
        }
        continue;
      }
      for (int c = 0; c < (vectors ? 4 : 1); ++c) {
        out.line("if ({0} + {1}u < {2}u) {{ finish(z_out, {3}, {0} + {1}u, c{4}_{5}{6}); }}", n, c,
                 problem.columns(), m, i, j,
                 vectors ? fmt::format(".{}", components[c]) : std::string());
      }
    }
    if (!even_rows && i > 0) out.close();
  }
  out.close();
  body.text = out.text();
  return body;
}

Body render_dot(const Problem& original, const Tile& tile, const Target& target,
                const WideArgs& wide) {
  const Problem problem = with_depth(original);
  const std::int64_t slices = tile.threads / tile.lanes;  // invocations that share one column
  const std::int64_t tiles_m = ceil_div(problem.rows(), tile.tm);
  const std::int64_t tiles_n = ceil_div(problem.columns(), tile.lanes);
  const std::int64_t batches = problem.batches();
  const std::int64_t count = tiles_m * tiles_n * batches * tile.splits;
  const Grid grid = linear_grid(count, target);
  const Reader lhs("lhs", problem.lhs, problem, problem.m, tile.tm, wide);
  const Reader rhs("rhs", problem.rhs, problem, problem.n, 1, wide);
  const std::int64_t step = lhs.is_wide_along_depth() || rhs.is_wide_along_depth() ? 4 : 1;
  const std::int64_t stride = step * slices;
  const std::int64_t part = ceil_div(ceil_div(problem.depth(), tile.splits), stride) * stride;

  Body body;
  body.groups = grid.groups;
  Lines globals;
  globals.line("var<workgroup> parts: array<f32, {}>;", tile.tm * tile.threads);
  body.functions = globals.text() + lhs.functions() + rhs.functions();
  Lines out;
  out.line("@compute @workgroup_size({})", tile.threads);
  out.open("fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) t: u32)");
  out.line("let tile = {};", grid.number);
  if (std::int64_t{grid.groups[0]} * grid.groups[1] != count) {
    out.line("if (tile >= {}u) {{ return; }}", count);
  }
  out.line("let n = tile % {}u * {}u + t % {}u;", tiles_n, tile.lanes, tile.lanes);
  out.line("let m0 = tile / {}u % {}u * {}u;", tiles_n, tiles_m, tile.tm);
  out.line("let z_out = tile / {}u;", tiles_n * tiles_m);
  out.line("let z = z_out{};", tile.splits > 1 ? fmt::format(" % {}u", batches) : "");
  out.line("let slice = t / {}u;", tile.lanes);
  lhs.declare(out, "m0");
  rhs.declare(out, "n");
  for (std::int64_t i = 0; i < tile.tm; ++i) out.line("var c{} = 0.0;", i);
  std::string begin = "0u";
  std::string end = number(problem.depth());
  if (tile.splits > 1) {
    out.line("let k_begin = z_out / {}u * {}u;", batches, part);
    begin = "k_begin";
    end = fmt::format("min(k_begin + {}u, {}u)", part, problem.depth());
  }
  out.open("for (var k = {} + slice * {}u; k < {}; k += {}u)", begin, step, end, stride);
  declare_digits(out, problem.k, "k");
  lhs.declare_place(out);
  rhs.declare_place(out);
  lhs.prefetch(out);
  rhs.prefetch(out);
  for (std::int64_t s = 0; s < step; ++s) {
    out.open_scope();
    out.line("let r = {};", rhs.row(0, s));
    for (std::int64_t i = 0; i < tile.tm; ++i) {
      out.line("c{0} = fma({1}, r, c{0});", i, lhs.row(i, s));
    }
    out.close();
  }
  out.close();
  for (std::int64_t i = 0; i < tile.tm; ++i) {
    out.line("parts[{}u + t] = c{};", i * tile.threads, i);
  }
  out.line("workgroupBarrier();");
  for (std::int64_t half = slices / 2; half > 0; half /= 2) {
    out.open("if (slice < {}u)", half);
    for (std::int64_t i = 0; i < tile.tm; ++i) {
      out.line("parts[{0}u + t] += parts[{0}u + t + {1}u];", i * tile.threads, half * tile.lanes);
    }
    out.close();
    out.line("workgroupBarrier();");
  }
  out.open("if (slice == 0u && n < {}u)", problem.columns());
  for (std::int64_t i = 0; i < tile.tm; ++i) {
    if (i > 0 && problem.rows() % tile.tm != 0) {
      out.line("if (m0 + {0}u < {1}u) {{ finish(z_out, m0 + {0}u, n, parts[{2}u + t]); }}", i,
               problem.rows(), i * tile.threads);
    } else {
      out.line("finish(z_out, m0 + {}u, n, parts[{}u + t]);", i, i * tile.threads);
    }
  }
  out.close();
  out.close();
  body.text = out.text();
  return body;
}

}  // namespace tensorgrad::wgsl
