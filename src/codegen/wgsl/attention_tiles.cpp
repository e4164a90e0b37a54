// Attention by tiles: a workgroup has a tile of rows, of queries or in their backward of keys, and
// streams tiles of the other rows through workgroup memory. An invocation computes the scores of a
// few rows against four; the weights pass through workgroup memory, and each invocation adds up
// some columns of the results for its rows.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "codegen/wgsl/attention.h"

namespace tensorgrad::wgsl {

using kernel::Access;
using kernel::Attention;
using kernel::Kernel;

namespace {

constexpr const char* components = "xyzw";

bool is_multiple_of_four(std::int64_t n) { return n % 4 == 0; }

class TileRenderer {
 public:
  TileRenderer(const Kernel& kernel, const Target& target, const std::vector<bool>& writable,
               const AttentionTile& tile)
      : kernel_(kernel),
        a_(std::get<Attention>(*kernel.contraction)),
        target_(target),
        writable_(writable),
        tile_(tile) {
    for (const std::int64_t extent : a_.batch) batches_ *= extent;
  }

  RenderedKernel render() {
    if (batches_ == 0) return {};
    if (a_.mode == Attention::Mode::forward) {
      if (a_.queries > 0) forward();
      return std::move(out_);
    }
    const bool dq = a_.dq.buffer >= 0 && a_.queries > 0;
    const bool dk = a_.dk.buffer >= 0;
    const bool dv = a_.dv.buffer >= 0;
    const int mask = a_.mask.buffer >= 0 ? 1 : 0;
    // The pass of the queries leaves the products of results and their gradients for that of the
    // keys, if it can bind what it takes.
    const bool finds_delta = dq && 8 + mask <= target_.storage_buffers;
    if (dq || dk) out_.scratch_bytes.push_back(batches_ * a_.queries * element_bytes);
    if ((dq || dk) && !finds_delta && a_.queries > 0) delta();
    if (dq) query_gradient(finds_delta);
    if (a_.keys == 0) return std::move(out_);
    // Both at once, if the adapter binds that many buffers.
    if (dk && dv && 8 + mask <= target_.storage_buffers) {
      key_gradients(true, true);
    } else {
      if (dk) key_gradients(true, false);
      if (dv) key_gradients(false, true);
    }
    return std::move(out_);
  }

 private:
  /// A matrix of which a tile lies in workgroup memory.
  struct Staged {
    const char* name;
    const Access* access;
    std::int64_t columns;
    std::string array = {};
  };

  /// A pass with a workgroup for each tile of `rows` rows of each point of the batch.
  class Pass {
   public:
    /// `last_first` starts with the tiles at the end, which have the most to do.
    Pass(const TileRenderer& owner, std::int64_t rows, std::int64_t streamed, bool last_first)
        : owner_(owner),
          a_(owner.a_),
          tile_(owner.tile_),
          rows_(rows),
          streamed_(streamed),
          tiles_((rows + tile_.own() - 1) / tile_.own()),
          builder_(owner.kernel_, owner.target_, owner.writable_, tile_.invocations(),
                   owner.batches_ * tiles_),
          writer_(builder_.writer()) {
      line("let batch = group / {}u;", tiles_);
      const std::string number = fmt::format("group % {}u", tiles_);
      line("let start = {} * {}u;",
           last_first ? fmt::format("({}u - {})", tiles_ - 1, number) : number, tile_.own());
      line("let lane = local % {}u;", tile_.lanes);
      line("let own = local / {}u;", tile_.lanes);
      // Barriers are for all: rows beyond the last compute it once more, and store nothing.
      for (std::int64_t i = 0; i < tile_.rows; ++i) {
        line("let row{} = min(start + own + {}u, {}u);", i, i * tile_.groups, rows - 1);
      }
    }

    PassBuilder& builder() { return builder_; }

    template <class... Args>
    void line(fmt::format_string<Args...> format, Args&&... args) {
      writer_.line(fmt::format(format, std::forward<Args>(args)...));
    }
    template <class... Args>
    void open(fmt::format_string<Args...> format, Args&&... args) {
      writer_.open(fmt::format(format, std::forward<Args>(args)...));
    }
    void close() { writer_.close(); }
    void barrier() { line("workgroupBarrier();"); }

    /// Defines `NAME_base`, where the matrix begins for this point of the batch. Rows of all
    /// matrices in an argument must be known before any is read.
    void matrix(const char* name, const Access& access, std::int64_t columns) {
      line("let {}_base = {};", name, base_of(a_, access));
      const bool wide =
          columns % 4 == 0 && access.offset % 4 == 0 &&
          std::all_of(access.strides.begin(), access.strides.end() - 1, is_multiple_of_four) &&
          owner_.kernel_.args[static_cast<std::size_t>(access.buffer)].elements % 4 == 0;
      if (!wide) narrow_.insert(access.buffer);
      if (wide && !narrow_.contains(access.buffer)) wide_.insert(access.buffer);
      if (!wide) wide_.erase(access.buffer);
    }
    /// The same for numbers that are read one by one.
    void numbers(const char* name, const Access& access) {
      line("let {}_base = {};", name, base_of(a_, access));
      narrow_.insert(access.buffer);
      wide_.erase(access.buffer);
    }
    void mask() {
      if (a_.mask.buffer >= 0) numbers("mask", a_.mask);
    }
    void know_vectors() {
      for (const int arg : wide_) builder_.use_vectors(arg);
    }

    std::int64_t width(std::int64_t columns) const {
      return (quads(columns) + tile_.lanes - 1) / tile_.lanes * tile_.lanes;
    }

    /// A function that reads four numbers of the row at `at`, zeros beyond its end.
    std::string four(const char* name, const Access& access, std::int64_t columns) {
      std::string function = fmt::format("{}_four", name);
      if (!declared_.insert(function).second) return function;
      std::string text = fmt::format("fn {}(at: u32, c: u32) -> vec4<f32> {{\n", function);
      if (wide_.contains(access.buffer)) {
        text += fmt::format("  return b{}[at / 4u + c];\n}}\n\n", access.buffer);
      } else {
        text += "  let i = at + c * 4u;\n";
        const auto read = [&](int k) {
          if (k == 0 || columns % 4 == 0) {
            return fmt::format("b{}[i{}]", access.buffer, k == 0 ? "" : fmt::format(" + {}u", k));
          }
          return fmt::format(
              "select(0f, b{0}[i + select(0u, {1}u, c * 4u + {1}u < {2}u)], "
              "c * 4u + {1}u < {2}u)",
              access.buffer, k, columns);
        };
        text += fmt::format("  return vec4<f32>({}, {}, {}, {});\n}}\n\n", read(0), read(1),
                            read(2), read(3));
      }
      builder_.add_function(text);
      return function;
    }

    /// Copies this workgroup's rows of a matrix.
    void stage_own(Staged& s) {
      const std::int64_t w = width(s.columns);
      s.array = builder_.workgroup_array("vec4<f32>", tile_.own() * (w + 1));
      open("for (var i = local; i < {}u; i += {}u)", tile_.own() * w, tile_.invocations());
      line("let c = i % {}u;", w);
      line("let row = min(start + i / {}u, {}u);", w, rows_ - 1);
      store_staged(s, fmt::format("i / {}u", w), "row", "");
      close();
    }
    /// Copies the tile of streamed rows at `block`, zeros beyond the last row. Row 4 r + j stands
    /// at place j * lanes + r, so that neighbours in a row of invocations read neighbours.
    void stage_streamed(Staged& s) {
      const std::int64_t w = width(s.columns);
      if (s.array.empty()) {
        s.array = builder_.workgroup_array("vec4<f32>", tile_.streamed() * (w + 1));
      }
      open("for (var i = local; i < {}u; i += {}u)", tile_.streamed() * w, tile_.invocations());
      line("let c = i % {}u;", w);
      line("let r = i / {}u;", w);
      line("let row = block + r;");
      const bool even = streamed_ % tile_.streamed() == 0 && !starts_anywhere();
      store_staged(s, fmt::format("(r % 4u * {}u + r / 4u)", tile_.lanes), "row",
                   even ? "" : fmt::format("row < {}u", streamed_));
      close();
    }

    /// Defines PREFIXi_j, products of own row i and streamed row j of this invocation.
    void products(const char* prefix, const Staged& own, const Staged& streamed) {
      each([&](std::int64_t i, std::int64_t j) { line("var {}{}_{} = 0f;", prefix, i, j); });
      open("for (var c = 0u; c < {}u; c++)", quads(own.columns));
      for (std::int64_t i = 0; i < tile_.rows; ++i) {
        line("let a{} = {}[(own + {}u) * {}u + c];", i, own.array, i * tile_.groups,
             width(own.columns) + 1);
      }
      for (std::int64_t j = 0; j < 4; ++j) {
        line("let o{} = {}[(lane + {}u) * {}u + c];", j, streamed.array, j * tile_.lanes,
             width(streamed.columns) + 1);
      }
      each([&](std::int64_t i, std::int64_t j) {
        const std::string name = fmt::format("{}{}_{}", prefix, i, j);
        std::string value = name;
        for (int k = 0; k < 4; ++k) {
          value = fmt::format("fma(a{0}.{2}, o{1}.{2}, {3})", i, j, components[k], value);
        }
        line("{} = {};", name, value);
      });
      close();
    }

    /// Declares PREFIXi_c, sums of results for own row i.
    void zero(const char* prefix, std::int64_t columns) {
      for (std::int64_t i = 0; i < tile_.rows; ++i) {
        for (std::int64_t c = 0; c < width(columns) / tile_.lanes; ++c) {
          line("var {}{}_{} = vec4<f32>();", prefix, i, c);
        }
      }
    }
    /// Scales them, row i by FACTORi.
    void scale(const char* prefix, std::int64_t columns, const char* factor) {
      for (std::int64_t i = 0; i < tile_.rows; ++i) {
        for (std::int64_t c = 0; c < width(columns) / tile_.lanes; ++c) {
          line("{0}{1}_{2} *= {3}{1};", prefix, i, c, factor);
        }
      }
    }

    /// An array in workgroup memory for the weights of own rows and streamed ones.
    std::string weights() {
      return builder_.workgroup_array("vec4<f32>", tile_.own() * (tile_.lanes + 1));
    }
    void store_weights(const std::string& array, const char* prefix) {
      for (std::int64_t i = 0; i < tile_.rows; ++i) {
        line("{0}[(own + {1}u) * {2}u + lane] = vec4<f32>({3}{4}_0, {3}{4}_1, {3}{4}_2, {3}{4}_3);",
             array, i * tile_.groups, tile_.lanes + 1, prefix, i);
      }
    }
    /// PREFIXi_c += the sum over streamed rows of weight and row. Where some rows do not count for
    /// all, those are left out: what they hold may be infinite.
    void accumulate(const char* prefix, const std::string& array, const Staged& s) {
      if (!a_.causal) {
        add(prefix, array, s, false);
        return;
      }
      open("if ({})", meets_diagonal());
      add(prefix, array, s, true);
      writer_.close();
      open("else");
      add(prefix, array, s, false);
      close();
    }

    /// Whether streamed row `u` counts for own row i, as WGSL; "" where it does.
    std::string counts(std::int64_t i, const std::string& u) const {
      std::string text;
      if (streamed_ % tile_.streamed() != 0 || starts_anywhere()) {
        text = fmt::format("{} < {}u", u, streamed_);
      }
      if (a_.causal) {
        text += text.empty() ? "" : " && ";
        text += owns_queries_ ? fmt::format("{} <= row{}", u, i) : fmt::format("row{} <= {}", i, u);
      }
      return text;
    }

    /// Makes SCOREi_j of the products: scaled, with the mask, and the least number where a row does
    /// not count.
    void scores(const char* prefix) {
      for (std::int64_t j = 0; j < 4; ++j) {
        line("let u{} = block + lane * 4u + {}u;", j, j);
        line("let v{0} = min(u{0}, {1}u);", j, streamed_ - 1);
      }
      each([&](std::int64_t i, std::int64_t j) {
        const std::string name = fmt::format("{}{}_{}", prefix, i, j);
        std::string text = fmt::format("{} * {}", name, finite_literal(DType::f32, a_.scale));
        if (a_.mask.buffer >= 0) {
          const std::string mine = fmt::format("row{}", i);
          const std::string other = fmt::format("v{}", j);
          text += fmt::format(" + b{}[{} + {}]", a_.mask.buffer,
                              row_of("mask", a_.mask, owns_queries_ ? mine : other),
                              owns_queries_ ? other : mine);
        }
        const std::string condition = counts(i, fmt::format("u{}", j));
        if (!condition.empty()) text = fmt::format("select(-3.4e38f, {}, {})", text, condition);
        line("{} = {};", name, text);
      });
    }
    /// The exponential of a score less `by`: 0 for minus infinity and what does not count.
    std::string exponential(const std::string& score, const std::string& by) {
      return fmt::format("select({0}({1} - {2}), 0f, {1} < -3e38f)",
                         builder_.helpers().use("tg_exp"), score, by);
    }

    /// Combines a value NAMEi of each lane over the lanes of a row, which all get it: the largest,
    /// or the sum. In an order that is always the same.
    void combine(const char* name, bool largest) {
      if (shared_.empty()) {
        shared_ = builder_.workgroup_array("f32", tile_.own() * (tile_.lanes + 1));
      }
      for (std::int64_t i = 0; i < tile_.rows; ++i) {
        line("{}[(own + {}u) * {}u + lane] = {}{};", shared_, i * tile_.groups, tile_.lanes + 1,
             name, i);
      }
      barrier();
      for (std::int64_t i = 0; i < tile_.rows; ++i) {
        line("{}{} = {}[(own + {}u) * {}u];", name, i, shared_, i * tile_.groups, tile_.lanes + 1);
      }
      open("for (var l = 1u; l < {}u; l++)", tile_.lanes);
      for (std::int64_t i = 0; i < tile_.rows; ++i) {
        line("let x{} = {}[(own + {}u) * {}u + l];", i, shared_, i * tile_.groups, tile_.lanes + 1);
        if (largest) {
          line("{0}{1} = select({0}{1}, x{1}, x{1} > {0}{1});", name, i);
        } else {
          line("{0}{1} += x{1};", name, i);
        }
      }
      close();
    }

    /// Stores PREFIXi_c times `factor` (of which {} is i) as rows of a result.
    void store(const char* prefix, const Access& access, std::int64_t columns,
               const std::string& factor) {
      for (std::int64_t i = 0; i < tile_.rows; ++i) {
        open("if ({})", is_row(i));
        line("let to = {};", row_of(prefix, access, fmt::format("row{}", i)));
        for (std::int64_t k = 0; k < width(columns) / tile_.lanes; ++k) {
          const std::string value = fmt::format(
              "{}{}_{}{}", prefix, i, k, fmt::format(fmt::runtime(factor), fmt::arg("i", i)));
          open_if(width(columns) > quads(columns)
                      ? fmt::format("lane + {}u < {}u", k * tile_.lanes, quads(columns))
                      : "");
          if (wide_.contains(access.buffer)) {
            line("b{}[to / 4u + lane + {}u] = {};", access.buffer, k * tile_.lanes, value);
          } else {
            store_narrow(access, columns, k, value);
          }
          close_if();
        }
        close();
      }
    }

    std::string is_row(std::int64_t i) const {
      return fmt::format("start + own + {}u < {}u", i * tile_.groups, rows_);
    }
    std::string lse_at(const std::string& query) const {
      return fmt::format("b{}[lse_base + {} * {}u]", a_.lse.buffer, query, a_.lse.strides.back());
    }
    std::string delta_at(const std::string& query) {
      return fmt::format("{}[batch * {}u + {}]", builder_.scratch(0), a_.queries, query);
    }

    /// Opens the loop over the tiles of streamed rows that count for any row of the workgroup.
    void open_stream() {
      std::string end = number(streamed_);
      if (a_.causal && owns_queries_) {
        end = fmt::format("min(start + {}u, {}u)", tile_.own(), streamed_);
      }
      open("for (var block = {}; block < {}; block += {}u)", starts_anywhere() ? "start" : "0u",
           end, tile_.streamed());
    }
    void own_keys() { owns_queries_ = false; }
    std::int64_t rows() const { return tile_.rows; }
    template <class F>
    void each(const F& f) const {
      for (std::int64_t i = 0; i < tile_.rows; ++i) {
        for (std::int64_t j = 0; j < 4; ++j) f(i, j);
      }
    }

   private:
    static std::string number(std::int64_t n) { return fmt::format("{}u", n); }
    /// Whether the first streamed tile need not start at a multiple of its size.
    bool starts_anywhere() const { return a_.causal && !owns_queries_; }
    std::string meets_diagonal() const {
      return owns_queries_ ? fmt::format("block + {}u > start", tile_.streamed() - 1)
                           : fmt::format("block < start + {}u", tile_.own() - 1);
    }

    void open_if(const std::string& condition) {
      conditional_ = !condition.empty();
      if (conditional_) open("if ({})", condition);
    }
    void close_if() {
      if (conditional_) close();
    }

    void store_staged(const Staged& s, const std::string& place, const std::string& row,
                      std::string condition) {
      const std::int64_t w = width(s.columns);
      if (w > quads(s.columns)) {
        condition += condition.empty() ? "" : " && ";
        condition += fmt::format("c < {}u", quads(s.columns));
      }
      const std::string read = fmt::format("{}({}, c)", four(s.name, *s.access, s.columns),
                                           row_of(s.name, *s.access, row));
      const std::string to = fmt::format("{}[{} * {}u + c]", s.array, place, w + 1);
      if (condition.empty()) {
        line("{} = {};", to, read);
        return;
      }
      line("var four = vec4<f32>();");
      line("if ({}) {{ four = {}; }}", condition, read);
      line("{} = four;", to);
    }

    void store_narrow(const Access& access, std::int64_t columns, std::int64_t k,
                      const std::string& value) {
      line("let four = {};", value);
      line("let c = (lane + {}u) * 4u;", k * tile_.lanes);
      for (int n = 0; n < 4; ++n) {
        const std::string one =
            fmt::format("b{}[to + c + {}u] = four.{};", access.buffer, n, components[n]);
        if (n == 0 || columns % 4 == 0) {
          line("{}", one);
        } else {
          line("if (c + {}u < {}u) {{ {} }}", n, columns, one);
        }
      }
    }

    void add(const char* prefix, const std::string& array, const Staged& s, bool guarded) {
      const std::int64_t w = width(s.columns);
      open("for (var r = 0u; r < {}u; r++)", tile_.lanes);
      for (std::int64_t i = 0; i < tile_.rows; ++i) {
        line("let p{} = {}[(own + {}u) * {}u + r];", i, array, i * tile_.groups, tile_.lanes + 1);
      }
      for (std::int64_t j = 0; j < 4; ++j) {
        if (guarded) line("let u{} = block + r * 4u + {}u;", j, j);
        for (std::int64_t c = 0; c < w / tile_.lanes; ++c) {
          line("let o{}_{} = {}[(r + {}u) * {}u + lane + {}u];", j, c, s.array, j * tile_.lanes,
               w + 1, c * tile_.lanes);
          for (std::int64_t i = 0; i < tile_.rows; ++i) {
            const std::string sum = fmt::format("{}{}_{}", prefix, i, c);
            const std::string value =
                fmt::format("fma(vec4<f32>(p{}.{}), o{}_{}, {})", i, components[j], j, c, sum);
            if (guarded) {
              line("{0} = select({0}, {1}, {2});", sum, value, counts(i, fmt::format("u{}", j)));
            } else {
              line("{} = {};", sum, value);
            }
          }
        }
      }
      close();
    }

    const TileRenderer& owner_;
    const Attention& a_;
    AttentionTile tile_;
    std::int64_t rows_, streamed_, tiles_;
    PassBuilder builder_;
    Writer& writer_;
    std::set<std::string> declared_;
    std::set<int> wide_, narrow_;
    std::string shared_;
    bool owns_queries_ = true, conditional_ = false;
  };

  void forward() {
    Pass pass(*this, a_.queries, a_.keys, a_.causal);
    const bool wants_out = a_.out.buffer >= 0;
    Staged q{"q", &a_.q, a_.depth};
    Staged k{"k", &a_.k, a_.depth};
    Staged v{"v", &a_.v, a_.value_depth};
    pass.matrix("q", a_.q, a_.depth);
    pass.matrix("k", a_.k, a_.depth);
    if (wants_out) {
      pass.matrix("v", a_.v, a_.value_depth);
      pass.matrix("out", a_.out, a_.value_depth);
    }
    if (a_.lse.buffer >= 0) pass.numbers("lse", a_.lse);
    pass.mask();
    pass.know_vectors();
    pass.stage_own(q);
    if (wants_out) pass.zero("out", a_.value_depth);
    for (std::int64_t i = 0; i < pass.rows(); ++i) {
      pass.line("var largest{} = -3e38f;", i);
      pass.line("var total{} = 0f;", i);
    }
    const std::string weights = wants_out ? pass.weights() : "";
    const std::string exp = pass.builder().helpers().use("tg_exp");
    pass.open_stream();
    pass.stage_streamed(k);
    if (wants_out) pass.stage_streamed(v);
    pass.barrier();
    pass.products("s", q, k);
    pass.scores("s");
    for (std::int64_t i = 0; i < pass.rows(); ++i) pass.line("var top{0} = largest{0};", i);
    pass.each([&](std::int64_t i, std::int64_t j) {
      pass.line("top{0} = select(top{0}, s{0}_{1}, s{0}_{1} > top{0});", i, j);
    });
    pass.combine("top", true);
    for (std::int64_t i = 0; i < pass.rows(); ++i) {
      pass.line("let shrink{0} = {1}(largest{0} - top{0});", i, exp);
      pass.line("largest{0} = top{0};", i);
    }
    pass.each([&](std::int64_t i, std::int64_t j) {
      const std::string score = fmt::format("s{}_{}", i, j);
      pass.line("{} = {};", score, pass.exponential(score, fmt::format("top{}", i)));
    });
    for (std::int64_t i = 0; i < pass.rows(); ++i) {
      pass.line("total{0} = total{0} * shrink{0} + (s{0}_0 + s{0}_1 + s{0}_2 + s{0}_3);", i);
    }
    if (wants_out) {
      pass.scale("out", a_.value_depth, "shrink");
      pass.store_weights(weights, "s");
      pass.barrier();
      pass.accumulate("out", weights, v);
    }
    // What is read is overwritten only after all have read it.
    pass.barrier();
    pass.close();
    pass.combine("total", false);
    if (wants_out) pass.store("out", a_.out, a_.value_depth, " / total{i}");
    if (a_.lse.buffer >= 0) {
      const std::string log = pass.builder().helpers().use("tg_log");
      for (std::int64_t i = 0; i < pass.rows(); ++i) {
        pass.line("if (lane == 0u && {}) {{ {} = largest{} + {}(total{}); }}", pass.is_row(i),
                  pass.lse_at(fmt::format("row{}", i)), i, log, i);
      }
    }
    add(pass);
  }

  /// Leaves in scratch, for every query of the workgroup, the product of its result and the
  /// result's gradient, and defines it as deltai.
  void find_delta(Pass& pass) const {
    const std::string out = pass.four("out", a_.out, a_.value_depth);
    const std::string dout = pass.four("dout", a_.dout, a_.value_depth);
    for (std::int64_t i = 0; i < pass.rows(); ++i) pass.line("var delta{} = 0f;", i);
    pass.open("for (var c = lane; c < {}u; c += {}u)", quads(a_.value_depth), tile_.lanes);
    for (std::int64_t i = 0; i < pass.rows(); ++i) {
      const std::string row = fmt::format("row{}", i);
      pass.line("delta{} += dot({}({}, c), {}({}, c));", i, out, row_of("out", a_.out, row), dout,
                row_of("dout", a_.dout, row));
    }
    pass.close();
    pass.combine("delta", false);
    for (std::int64_t i = 0; i < pass.rows(); ++i) {
      pass.line("if (lane == 0u && {}) {{ {} = bitcast<u32>(delta{}); }}", pass.is_row(i),
                pass.delta_at(fmt::format("row{}", i)), i);
    }
  }

  void delta() {
    Pass pass(*this, a_.queries, 1, false);
    pass.matrix("out", a_.out, a_.value_depth);
    pass.matrix("dout", a_.dout, a_.value_depth);
    pass.know_vectors();
    find_delta(pass);
    add(pass);
  }

  void query_gradient(bool finds_delta) {
    Pass pass(*this, a_.queries, a_.keys, a_.causal);
    Staged q{"q", &a_.q, a_.depth};
    Staged dout{"dout", &a_.dout, a_.value_depth};
    Staged k{"k", &a_.k, a_.depth};
    Staged v{"v", &a_.v, a_.value_depth};
    for (const Staged* s : {&q, &dout, &k, &v}) pass.matrix(s->name, *s->access, s->columns);
    pass.matrix("dq", a_.dq, a_.depth);
    if (finds_delta) pass.matrix("out", a_.out, a_.value_depth);
    pass.numbers("lse", a_.lse);
    pass.mask();
    pass.know_vectors();
    pass.stage_own(q);
    pass.stage_own(dout);
    if (finds_delta) find_delta(pass);
    for (std::int64_t i = 0; i < pass.rows(); ++i) {
      const std::string row = fmt::format("row{}", i);
      pass.line("let lse{} = {};", i, pass.lse_at(row));
      if (!finds_delta) pass.line("let delta{} = bitcast<f32>({});", i, pass.delta_at(row));
    }
    pass.zero("dq", a_.depth);
    const std::string weights = pass.weights();
    pass.open_stream();
    pass.stage_streamed(k);
    pass.stage_streamed(v);
    pass.barrier();
    pass.products("s", q, k);
    pass.products("g", dout, v);
    pass.scores("s");
    pass.each([&](std::int64_t i, std::int64_t j) {
      const std::string score = fmt::format("s{}_{}", i, j);
      std::string value = fmt::format("{} * (g{}_{} - delta{})",
                                      pass.exponential(score, fmt::format("lse{}", i)), i, j, i);
      const std::string condition = pass.counts(i, fmt::format("u{}", j));
      if (!condition.empty()) value = fmt::format("select(0f, {}, {})", value, condition);
      pass.line("{} = {};", score, value);
    });
    pass.store_weights(weights, "s");
    pass.barrier();
    pass.accumulate("dq", weights, k);
    pass.barrier();
    pass.close();
    pass.store("dq", a_.dq, a_.depth, fmt::format(" * {}", finite_literal(DType::f32, a_.scale)));
    add(pass);
  }

  void key_gradients(bool dk, bool dv) {
    Pass pass(*this, a_.keys, a_.queries, false);
    pass.own_keys();
    Staged k{"k", &a_.k, a_.depth};
    Staged v{"v", &a_.v, a_.value_depth};
    Staged q{"q", &a_.q, a_.depth};
    Staged dout{"dout", &a_.dout, a_.value_depth};
    for (const Staged* s : {&k, &q, &dout}) pass.matrix(s->name, *s->access, s->columns);
    if (dk) pass.matrix("v", a_.v, a_.value_depth);
    if (dk) pass.matrix("dk", a_.dk, a_.depth);
    if (dv) pass.matrix("dv", a_.dv, a_.value_depth);
    pass.numbers("lse", a_.lse);
    pass.mask();
    pass.know_vectors();
    if (dk) pass.zero("dk", a_.depth);
    if (dv) pass.zero("dv", a_.value_depth);
    if (a_.queries > 0) {
      pass.stage_own(k);
      if (dk) pass.stage_own(v);
      const std::string weights = pass.weights();
      const std::string slopes = dk && dv ? pass.weights() : weights;
      pass.open_stream();
      pass.stage_streamed(q);
      pass.stage_streamed(dout);
      pass.barrier();
      pass.products("s", k, q);
      if (dk) pass.products("g", v, dout);
      pass.scores("s");
      for (std::int64_t j = 0; j < 4; ++j) {
        const std::string query = fmt::format("v{}", j);
        pass.line("let lse{} = {};", j, pass.lse_at(query));
        if (dk) pass.line("let delta{} = bitcast<f32>({});", j, pass.delta_at(query));
      }
      pass.each([&](std::int64_t i, std::int64_t j) {
        const std::string score = fmt::format("s{}_{}", i, j);
        pass.line("{} = {};", score, pass.exponential(score, fmt::format("lse{}", j)));
        if (!dk) return;
        std::string value = fmt::format("{} * (g{}_{} - delta{})", score, i, j, j);
        const std::string condition = pass.counts(i, fmt::format("u{}", j));
        if (!condition.empty()) value = fmt::format("select(0f, {}, {})", value, condition);
        pass.line("g{}_{} = {};", i, j, value);
      });
      if (dv) pass.store_weights(weights, "s");
      if (dk) pass.store_weights(slopes, "g");
      pass.barrier();
      if (dv) pass.accumulate("dv", weights, dout);
      if (dk) pass.accumulate("dk", slopes, q);
      pass.barrier();
      pass.close();
    }
    if (dk) {
      pass.store("dk", a_.dk, a_.depth, fmt::format(" * {}", finite_literal(DType::f32, a_.scale)));
    }
    if (dv) pass.store("dv", a_.dv, a_.value_depth, "");
    add(pass);
  }

  void add(Pass& pass) {
    out_.passes.push_back(pass.builder().finish());
    RenderedPass& done = out_.passes.back();
    done.text = fmt::format("// {}\n{}", to_string(tile_), done.text);
  }

  const Kernel& kernel_;
  const Attention& a_;
  const Target& target_;
  const std::vector<bool>& writable_;
  AttentionTile tile_;
  std::int64_t batches_ = 1;
  RenderedKernel out_;
};

}  // namespace

RenderedKernel render_attention_tiles(const Kernel& kernel, const Target& target,
                                      const std::vector<bool>& writable,
                                      const AttentionTile& tile) {
  return TileRenderer(kernel, target, writable, tile).render();
}

}  // namespace tensorgrad::wgsl
