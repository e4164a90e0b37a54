// Contraction with tiles in workgroup memory: while a workgroup multiplies one tile of both
// operands, its invocations already hold the next one in registers.
#include <algorithm>

#include "codegen/wgsl/contract_text.h"

namespace tensorgrad::wgsl {
namespace {

constexpr const char* components = "xyzw";

/// Brings tiles of one operand into workgroup memory: rows of k, vectors along the outer axis.
class Loader {
 public:
  Loader(std::string name, const Operand& operand, const Problem& problem, const Extents& outer,
         std::int64_t block, const Tile& tile, const WideArgs& wide)
      : name_(std::move(name)),
        operand_(operand),
        problem_(problem),
        outer_(outer),
        block_(block),
        tile_(tile),
        wide_(wide),
        dims_(merged(outer, operand.outer)),
        depth_dims_(merged(problem.k, operand.depth)) {
    for (const auto extent : outer) outer_extent_ *= extent;
    if (!operand.windows.empty()) {
      mode_ = Mode::window;
    } else if (is_wide_outer(operand, problem, outer, wide)) {
      mode_ = Mode::outer;
    } else if (is_wide_depth(operand, problem, outer, wide)) {
      mode_ = Mode::depth;
    } else {
      mode_ = Mode::scalar;
    }
    const bool along_depth = !depth_dims_.empty() && depth_dims_.back().stride == 1;
    depth_first_ = mode_ == Mode::scalar && along_depth;
    pads_ = mode_ == Mode::depth || depth_first_;
    const std::int64_t vectors = block / 4 * tile.bk;
    units_ = mode_ == Mode::depth ? vectors / 4 : vectors;
    rounds_ = (units_ + tile.threads - 1) / tile.threads;
    whole_depth_ = problem.depth() % tile.bk == 0;
    is_even_ = outer_extent_ % block == 0;
    // Four rows of a unit lie `row_stride_` apart, where they lie in one run of the last dimension.
    one_run_ = dims_.empty() ? outer_extent_ % 4 == 0 : dims_.back().extent % 4 == 0;
    row_stride_ = dims_.empty() ? 0 : dims_.back().stride;
  }

  std::int64_t row_length() const { return block_ / 4 + (pads_ ? 1 : 0); }
  std::int64_t tile_length() const { return row_length() * tile_.bk; }
  std::string functions() const {
    if (mode_ != Mode::window) return {};
    return window_functions(name_, operand_, problem_, outer_, wide_);
  }

  /// Where each unit lies in the tile and in the buffer. Uses t, z and `start`, the tile's first
  /// row.
  void declare(Lines& out, const std::string& start) const {
    for (std::int64_t u = 0; u < rounds_; ++u) {
      const std::string id = fmt::format("{}{}", name_, u);
      const std::string unit = u == 0 ? "t" : fmt::format("(t + {}u)", u * tile_.threads);
      std::string k;
      std::string vector;
      const std::int64_t vectors = block_ / 4;
      if (mode_ == Mode::depth) {
        // Eight neighbours take two vectors of k in each of four blocks of rows: whole sectors of
        // the buffer, and no two of them in one bank of the tile.
        const std::int64_t ks = tile_.bk / 4;
        if (ks % 2 == 0 && vectors % 4 == 0) {
          k = fmt::format("({0} / 8u % {1}u * 2u + {0} % 2u) * 4u", unit, ks / 2);
          vector = fmt::format("{0} / {1}u * 4u + {0} / 2u % 4u", unit, 4 * ks);
        } else {
          k = fmt::format("{} % {}u * 4u", unit, ks);
          vector = fmt::format("{} / {}u", unit, ks);
        }
      } else if (depth_first_) {
        k = fmt::format("{} % {}u", unit, tile_.bk);
        vector = fmt::format("{} / {}u", unit, tile_.bk);
      } else {
        k = fmt::format("{} / {}u", unit, vectors);
        vector = fmt::format("{} % {}u", unit, vectors);
      }
      out.line("let {}_k = {};", id, k);
      out.line("let {}_v = {};", id, vector);
      out.line("let {0}_to = {0}_k * {1}u + {0}_v;", id, row_length());
      declare_rows(out, id, start);
      const int registers = mode_ == Mode::depth ? 4 : 1;
      for (int i = 0; i < registers; ++i) out.line("var {}_r{} = vec4f();", id, i);
    }
  }

  /// Reads the units of the tile that starts at k0 into registers.
  void load(Lines& out, const std::string& k0) const {
    const bool by_tile = depth_by_tile();
    if (by_tile) {
      out.open_scope();
      declare_place(out, k0);
    }
    for (std::int64_t u = 0; u < rounds_; ++u) {
      guarded(out, u, k0, [&](const std::string& id) {
        if (!by_tile) declare_place(out, fmt::format("({} + {}_k)", k0, id));
        read(out, id);
      });
    }
    if (by_tile) out.close();
  }

  /// Writes the registers into the tile that starts at `to`.
  void store(Lines& out, const std::string& to) const {
    for (std::int64_t u = 0; u < rounds_; ++u) {
      const std::string id = fmt::format("{}{}", name_, u);
      const bool is_part = (u + 1) * tile_.threads > units_;
      if (is_part) out.open("if (t + {}u < {}u)", u * tile_.threads, units_);
      if (mode_ == Mode::depth) {
        for (int i = 0; i < 4; ++i) {
          const char c = components[i];
          out.line(
              "{0}_tile[{1} + {2}_to + {3}u] = vec4f({2}_r0.{4}, {2}_r1.{4}, {2}_r2.{4}, "
              "{2}_r3.{4});",
              name_, to, id, i * row_length(), c);
        }
      } else {
        out.line("{0}_tile[{1} + {2}_to] = {2}_r0;", name_, to, id);
      }
      if (is_part) out.close();
    }
  }

 private:
  enum class Mode : std::uint8_t {
    outer,   ///< vectors along the outer axis
    depth,   ///< vectors along k, transposed in registers
    scalar,  ///< one element at a time
    window   ///< one element at a time, of a convolution's window
  };

  /// Whether a tile lies in one run of the innermost k dimension, so that its place is found once.
  bool depth_by_tile() const {
    if (mode_ == Mode::window) return false;
    if (depth_dims_.size() <= 1) return true;
    return whole_depth_ && depth_dims_.back().extent % tile_.bk == 0;
  }

  /// Declares `place`, the place of the k that the WGSL `k` names, in the unit the buffer is read
  /// in.
  void declare_place(Lines& out, const std::string& k) const {
    if (mode_ == Mode::window) {
      out.line("let place = {}_depth({});", name_, k);
      return;
    }
    std::vector<Dim> dims = depth_dims_;
    if (mode_ == Mode::depth) {
      dims = quartered(dims);
    } else if (mode_ == Mode::outer) {
      for (Dim& dim : dims) dim.stride /= 4;
    }
    out.line("let k = {}{};", k, mode_ == Mode::depth ? " / 4u" : "");
    out.line("let place = {};", affine("k", dims));
  }

  /// Dimensions of an axis counted in vectors, which lie along its innermost one.
  static std::vector<Dim> quartered(std::vector<Dim> dims) {
    for (std::size_t i = 0; i < dims.size(); ++i) {
      if (i + 1 == dims.size()) {
        dims[i].extent /= 4;
      } else {
        dims[i].stride /= 4;
      }
    }
    return dims;
  }

  void declare_rows(Lines& out, const std::string& id, const std::string& start) const {
    const bool is_block = mode_ == Mode::outer || one_run_;
    std::string row = fmt::format("{} + {}_v * 4u", start, id);
    // Rows beyond the last one repeat it: what they give is never stored.
    if (!is_even_ && is_block) row = fmt::format("min({}, {}u)", row, outer_extent_ - 4);
    out.line("let {}_o = {};", id, row);
    if (mode_ == Mode::window) {
      for (int i = 0; i < 4; ++i) {
        std::string at = i == 0 ? fmt::format("{}_o", id) : fmt::format("{}_o + {}u", id, i);
        if (!is_even_ && !is_block) at = fmt::format("min({}, {}u)", at, outer_extent_ - 1);
        out.line("let {0}_at{1} = {2}_outer(z, {3});", id, i, name_, at);
      }
      return;
    }
    const std::int64_t unit = mode_ == Mode::scalar ? 1 : 4;
    std::vector<Dim> batch = merged(problem_.batch, operand_.batch);
    for (Dim& dim : batch) dim.stride /= unit;
    std::string base = sum(number(operand_.offset / unit), affine("z", batch));
    if (depth_by_tile()) base = sum(base, first_k(id));
    const int rows = is_block ? 1 : 4;
    for (int i = 0; i < rows; ++i) {
      const std::string variable = fmt::format("{}_o{}", id, i);
      std::string at = i == 0 ? fmt::format("{}_o", id) : fmt::format("{}_o + {}u", id, i);
      if (!is_even_ && !is_block) at = fmt::format("min({}, {}u)", at, outer_extent_ - 1);
      std::vector<Dim> dims = dims_;
      if (mode_ == Mode::outer) {
        at += " / 4u";
        dims = quartered(dims);
      } else if (mode_ == Mode::depth) {
        for (Dim& dim : dims) dim.stride /= 4;
      }
      out.line("let {} = {};", variable, at);
      out.line("let {}_at{} = {};", id, i, sum(base, affine(variable, dims)));
    }
  }

  /// Offset of a unit's first k within its tile.
  std::string first_k(const std::string& id) const {
    if (depth_dims_.empty()) return "0u";
    const std::int64_t stride = depth_dims_.back().stride;
    if (mode_ == Mode::depth) return fmt::format("{}_k / 4u", id);
    const std::int64_t step = mode_ == Mode::outer ? stride / 4 : stride;
    return fmt::format("{}_k * {}", id, number(step));
  }

  template <class Read>
  void guarded(Lines& out, std::int64_t u, const std::string& k0, Read body) const {
    const std::string id = fmt::format("{}{}", name_, u);
    std::string condition;
    if ((u + 1) * tile_.threads > units_) {
      condition = fmt::format("t + {}u < {}u", u * tile_.threads, units_);
    }
    if (!whole_depth_) {
      if (!condition.empty()) condition += " && ";
      condition += fmt::format("{} + {}_k < {}u", k0, id, problem_.depth());
    }
    if (condition.empty()) {
      out.open_scope();
    } else {
      out.open("if ({})", condition);
    }
    body(id);
    out.close();
    if (!whole_depth_) {
      const int registers = mode_ == Mode::depth ? 4 : 1;
      std::string zeros;
      for (int i = 0; i < registers; ++i) zeros += fmt::format("{}_r{} = vec4f(); ", id, i);
      out.line("else {{ {}}}", zeros);
    }
  }

  void read(Lines& out, const std::string& id) const {
    const auto at = [&](int i) {
      if (mode_ == Mode::outer || one_run_) {
        const std::int64_t stride = mode_ == Mode::depth ? row_stride_ / 4 : row_stride_;
        std::string place = fmt::format("{}_at0 + place", id);
        if (i > 0) place += " + " + number(i * stride);
        return place;
      }
      return fmt::format("{}_at{} + place", id, i);
    };
    switch (mode_) {
      case Mode::outer:
        out.line("{}_r0 = {};", id, vector(operand_, at(0)));
        break;
      case Mode::depth:
        for (int i = 0; i < 4; ++i) out.line("{}_r{} = {};", id, i, vector(operand_, at(i)));
        break;
      case Mode::scalar:
        out.line("{}_r0 = vec4f({}, {}, {}, {});", id, element(operand_, at(0), wide_),
                 element(operand_, at(1), wide_), element(operand_, at(2), wide_),
                 element(operand_, at(3), wide_));
        break;
      case Mode::window:
        out.line(
            "{0}_r0 = vec4f({1}_at({0}_at0, place), {1}_at({0}_at1, place), {1}_at({0}_at2, "
            "place), "
            "{1}_at({0}_at3, place));",
            id, name_);
        break;
    }
  }

  std::string name_;
  const Operand& operand_;
  const Problem& problem_;
  const Extents& outer_;
  std::int64_t block_;
  const Tile& tile_;
  const WideArgs& wide_;
  std::vector<Dim> dims_, depth_dims_;
  std::int64_t outer_extent_ = 1;
  Mode mode_ = Mode::scalar;
  bool depth_first_ = false;  ///< neighbouring invocations read neighbours in k
  bool pads_ = false;
  std::int64_t units_ = 0, rounds_ = 0;
  bool whole_depth_ = true, is_even_ = true, one_run_ = true;
  std::int64_t row_stride_ = 0;
};

/// Stores the results of an invocation: rows `row(i)`, vectors of columns `column(j)`.
void store_results(Lines& out, const Problem& problem, const Tile& tile, bool even_rows,
                   bool even_columns) {
  const std::int64_t vectors = tile.tn / 4;
  const std::int64_t row_step = tile.bm / (tile.tm / 4);
  const std::int64_t column_step = tile.bn / vectors;
  for (std::int64_t j = 0; j < vectors; ++j) {
    out.line("let n{} = first_n + tx * 4u + {}u;", j, j * column_step);
  }
  for (std::int64_t i = 0; i < tile.tm; ++i) {
    out.open_scope();
    out.line("let m = first_m + ty * 4u + {}u;", i / 4 * row_step + i % 4);
    if (!even_rows) out.open("if (m < {}u)", problem.rows());
    for (std::int64_t j = 0; j < vectors; ++j) {
      if (even_columns) {
        out.line("finish4(z_out, m, n{0}, c{1}_{0});", j, i);
      } else if (problem.columns() % 4 == 0) {
        out.line("if (n{0} < {1}u) {{ finish4(z_out, m, n{0}, c{2}_{0}); }}", j, problem.columns(),
                 i);
      } else {
        for (int c = 0; c < 4; ++c) {
          out.line("if (n{0} + {1}u < {2}u) {{ finish(z_out, m, n{0} + {1}u, c{3}_{0}.{4}); }}", j,
                   c, problem.columns(), i, components[c]);
        }
      }
    }
    if (!even_rows) out.close();
    out.close();
  }
}

}  // namespace

Body render_tiled(const Problem& problem, const Tile& tile, const Target& target,
                  const WideArgs& wide) {
  const std::int64_t vectors = tile.tn / 4;
  const std::int64_t blocks = tile.tm / 4;
  const std::int64_t tx = tile.bn / tile.tn;
  const auto ceil_div = [](std::int64_t a, std::int64_t b) { return (a + b - 1) / b; };
  const std::int64_t tiles_m = ceil_div(problem.rows(), tile.bm);
  const std::int64_t tiles_n = ceil_div(problem.columns(), tile.bn);
  const std::int64_t batches = problem.batches();
  const std::int64_t count = tiles_m * tiles_n * batches * tile.splits;
  const std::int64_t part = ceil_div(ceil_div(problem.depth(), tile.splits), tile.bk) * tile.bk;
  const Grid grid = linear_grid(count, target);

  const Loader lhs("lhs", problem.lhs, problem, problem.m, tile.bm, tile, wide);
  const Loader rhs("rhs", problem.rhs, problem, problem.n, tile.bn, tile, wide);
  const std::int64_t copies = tile.stages ? 2 : 1;

  Body body;
  body.groups = grid.groups;
  Lines globals;
  globals.line("var<workgroup> lhs_tile: array<vec4f, {}>;", copies * lhs.tile_length());
  globals.line("var<workgroup> rhs_tile: array<vec4f, {}>;", copies * rhs.tile_length());
  body.functions = globals.text() + lhs.functions() + rhs.functions();

  Lines out;
  out.line("@compute @workgroup_size({})", tile.threads);
  out.open("fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) t: u32)");
  out.line("let tile = {};", grid.number);
  if (std::int64_t{grid.groups[0]} * grid.groups[1] != count) {
    out.line("if (tile >= {}u) {{ return; }}", count);
  }
  out.line("let first_n = tile % {}u * {}u;", tiles_n, tile.bn);
  out.line("let first_m = tile / {}u % {}u * {}u;", tiles_n, tiles_m, tile.bm);
  out.line("let z_out = tile / {}u;", tiles_n * tiles_m);
  out.line("let z = z_out{};", tile.splits > 1 ? fmt::format(" % {}u", batches) : "");
  // Where it fits, 32 neighbours take 4 x 8 places, two rows alternating: then their reads of
  // either tile come in pairs of equal addresses, which NVIDIA's workgroup memory serves in half
  // the time.
  const std::int64_t ty = tile.bm / tile.tm;
  if (tx % 8 == 0 && ty % 4 == 0) {
    out.line("let tx = t / 32u % {}u * 8u + t % 32u / 2u % 8u;", tx / 8);
    out.line("let ty = t / {}u * 4u + t % 32u / 16u * 2u + t % 2u;", 4 * tx);
  } else {
    out.line("let tx = t % {}u;", tx);
    out.line("let ty = t / {}u;", tx);
  }
  std::string begin = "0u";
  std::string end = number(problem.depth());
  if (tile.splits > 1) {
    out.line("let k_begin = z_out / {}u * {}u;", batches, part);
    begin = "k_begin";
    out.line("let k_end = min(k_begin + {}u, {}u);", part, problem.depth());
    end = "k_end";
  }
  lhs.declare(out, "first_m");
  rhs.declare(out, "first_n");
  for (std::int64_t i = 0; i < tile.tm; ++i) {
    for (std::int64_t j = 0; j < vectors; ++j) out.line("var c{}_{} = vec4f();", i, j);
  }
  lhs.load(out, begin);
  rhs.load(out, begin);
  lhs.store(out, "0u");
  rhs.store(out, "0u");
  out.line("workgroupBarrier();");
  if (tile.stages) out.line("var stage = 0u;");
  out.open("for (var k0 = {0}; k0 < {1}; k0 += {2}u)", begin, end, tile.bk);
  out.line("let more = k0 + {}u < {};", tile.bk, end);
  out.open("if (more)");
  out.line("let next = k0 + {}u;", tile.bk);
  lhs.load(out, "next");
  rhs.load(out, "next");
  out.close();
  out.line("let lhs_at = {}ty;",
           tile.stages ? fmt::format("stage * {}u + ", lhs.tile_length()) : "");
  out.line("let rhs_at = {}tx;",
           tile.stages ? fmt::format("stage * {}u + ", rhs.tile_length()) : "");
  for (std::int64_t k = 0; k < tile.bk; ++k) {
    out.open_scope();
    for (std::int64_t i = 0; i < blocks; ++i) {
      out.line("let a{} = lhs_tile[lhs_at + {}u];", i,
               k * lhs.row_length() + i * (tile.bm / 4 / blocks));
    }
    for (std::int64_t j = 0; j < vectors; ++j) {
      out.line("let b{} = rhs_tile[rhs_at + {}u];", j,
               k * rhs.row_length() + j * (tile.bn / 4 / vectors));
    }
    for (std::int64_t i = 0; i < tile.tm; ++i) {
      for (std::int64_t j = 0; j < vectors; ++j) {
        out.line("c{0}_{1} = fma(vec4f(a{2}.{3}), b{1}, c{0}_{1});", i, j, i / 4,
                 components[i % 4]);
      }
    }
    out.close();
  }
  const auto refill = [&](const Loader& loader) {
    loader.store(out, tile.stages ? fmt::format("stage * {}u", loader.tile_length()) : "0u");
  };
  if (tile.stages) {
    out.line("stage = 1u - stage;");
  } else {
    out.line("workgroupBarrier();");
  }
  out.open("if (more)");
  refill(lhs);
  refill(rhs);
  out.close();
  out.line("workgroupBarrier();");
  out.close();
  store_results(out, problem, tile, problem.rows() % tile.bm == 0,
                problem.columns() % tile.bn == 0);
  out.close();
  body.text = out.text();
  return body;
}

}  // namespace tensorgrad::wgsl
