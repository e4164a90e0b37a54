// Attention by rows. An invocation has a row: of queries, which streams
// over the keys with a running maximum and sum; in the backward of keys, a row of keys, which
// streams over the queries. What is streamed passes through workgroup memory, where that is nearer
// than a buffer and has room.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "codegen/wgsl/attention.h"
#include "codegen/wgsl/attention_text.h"
#include "codegen/wgsl/contract_text.h"

namespace tensorgrad::wgsl {

using kernel::Access;
using kernel::Attention;
using kernel::Kernel;

namespace {

class RowRenderer {
 public:
  RowRenderer(const Kernel& kernel, const Target& target, const std::vector<bool>& writable)
      : kernel_(kernel),
        a_(std::get<Attention>(*kernel.contraction)),
        target_(target),
        writable_(writable),
        invocations_(std::min<std::int64_t>(64, target.invocations)) {
    for (const std::int64_t extent : a_.batch) batches_ *= extent;
  }

  RenderedKernel render() {
    if (batches_ == 0) return {};
    if (a_.mode == Attention::Mode::forward) {
      if (a_.queries > 0) forward();
      return std::move(out_);
    }
    if (a_.dq.buffer >= 0 || a_.dk.buffer >= 0) {
      out_.scratch_bytes.push_back(batches_ * a_.queries * element_bytes);
      if (a_.queries > 0) delta();
    }
    if (a_.dq.buffer >= 0 && a_.queries > 0) query_gradient();
    const bool dk = a_.dk.buffer >= 0;
    const bool dv = a_.dv.buffer >= 0;
    if (a_.keys == 0) return std::move(out_);
    // Both at once, if the adapter binds that many buffers.
    const int bound = 8 + (a_.mask.buffer >= 0 ? 1 : 0);
    if (dk && dv && bound <= target_.storage_buffers) {
      key_gradients(true, true);
    } else {
      if (dk) key_gradients(true, false);
      if (dv) key_gradients(false, true);
    }
    return std::move(out_);
  }

 private:
  /// A matrix that is streamed: rows of `columns` numbers.
  struct Streamed {
    const char* name;
    const Access* access;
    std::int64_t columns;
    std::string array = {};  ///< in workgroup memory
  };

  /// A pass with an invocation for each of `rows` rows of each point of the batch.
  class Pass : public AttentionPass {
   public:
    Pass(const RowRenderer& owner, std::int64_t rows)
        : AttentionPass(owner.kernel_, owner.a_, owner.target_, owner.writable_, owner.invocations_,
                        owner.batches_ * owner.tiles(rows)),
          owner_(owner) {
      line("let batch = group / {}u;", owner.tiles(rows));
      line("let start = group % {}u * {}u;", owner.tiles(rows), owner.invocations_);
      // Barriers are for all: rows beyond the last compute it once more, and store nothing.
      line("let row = min(start + local, {}u);", rows - 1);
      line("let live = start + local < {}u;", rows);
    }

    /// Declares NAME, the row's numbers.
    void load_row(const char* name, const Access& access, std::int64_t columns) {
      const std::string function = four(name, access, columns);
      line("let {}_at = {};", name, row_of(name, access, "row"));
      zero_row(name, columns);
      open_columns(columns);
      line("{0}_row[c] = {1}({0}_at, c);", name, function);
      close();
    }
    void zero_row(const char* name, std::int64_t columns) {
      // WGSL has no empty arrays.
      line("var {}_row: array<vec4<f32>, {}>;", name, std::max<std::int64_t>(quads(columns), 1));
    }
    void open_columns(std::int64_t columns) {
      open("for (var c = 0u; c < {}u; c++)", quads(columns));
    }
    /// Stores NAME_row times `factor` as the row of a result.
    void store_row(const char* name, const Access& access, std::int64_t columns,
                   const std::string& factor) {
      open("if (live)");
      line("let to = {};", row_of(name, access, "row"));
      open_columns(columns);
      line("let four = {}_row[c]{};", name, factor);
      for (int k = 0; k < 4; ++k) {
        const std::string store =
            fmt::format("b{}[to + c * 4u + {}u] = four.{};", access.buffer, k, "xyzw"[k]);
        const std::string guard = fmt::format("c * 4u + {}u < {}u", k, columns);
        line("{}",
             k == 0 || columns % 4 == 0 ? store : fmt::format("if ({}) {{ {} }}", guard, store));
      }
      close();
      close();
    }

    /// Opens the loop over rows u of the streamed matrices, from `first` to before `end`, which the
    /// whole workgroup shares; `own`, if not empty, is a condition for this invocation's u.
    void open_stream(std::vector<Streamed>& streamed, const std::string& first,
                     const std::string& end, std::int64_t rows, const std::string& own) {
      std::int64_t bytes = 0;
      bool is_empty = false;
      for (const Streamed& s : streamed) {
        bytes += quads(s.columns) * 4 * element_bytes;
        is_empty = is_empty || s.columns == 0;
      }
      const std::int64_t room = owner_.target_.workgroup_bytes / std::max<std::int64_t>(bytes, 1);
      const std::int64_t block = std::min<std::int64_t>({room, 32, rows});
      staged_ = !owner_.target_.cpu && block >= 2 && !is_empty;
      if (!staged_) {
        open("for (var u = {}; u < {}; u++)", first, end);
        for (const Streamed& s : streamed) {
          four(s.name, *s.access, s.columns);
          line("let {0}_u = {1};", s.name, row_of(s.name, *s.access, "u"));
        }
      } else {
        open("for (var block = {}; block < {}; block += {}u)", first, end, block);
        for (Streamed& s : streamed) {
          const std::int64_t width = quads(s.columns);
          s.array = builder().workgroup_array("vec4<f32>", block * width);
          open("for (var i = local; i < {}u; i += {}u)", block * width, owner_.invocations_);
          line("let u = min(block + i / {}u, {}u);", width, rows - 1);
          line("{}[i] = {}({}, i % {}u);", s.array, four(s.name, *s.access, s.columns),
               row_of(s.name, *s.access, "u"), width);
          close();
        }
        line("workgroupBarrier();");
        open("for (var j = 0u; j < min({}u, {} - block); j++)", block, end);
        line("let u = block + j;");
      }
      guarded_ = !own.empty();
      if (guarded_) open("if ({})", own);
    }
    void close_stream() {
      if (guarded_) close();
      close();
      if (!staged_) return;
      // What is read is overwritten only after all have read it.
      line("workgroupBarrier();");
      close();
    }
    /// Four numbers of the streamed row, at c.
    std::string element(const Streamed& s) const {
      return staged_ ? fmt::format("{}[j * {}u + c]", s.array, quads(s.columns))
                     : fmt::format("{0}_four({0}_u, c)", s.name);
    }
    /// Defines `result`, the product of NAME_row and the streamed row.
    void product(const char* result, const char* name, const Streamed& s) {
      line("var {} = 0f;", result);
      open_columns(s.columns);
      line("{} += dot({}_row[c], {});", result, name, element(s));
      close();
    }
    /// NAME_row += factor * the streamed row.
    void accumulate(const char* name, const std::string& factor, const Streamed& s) {
      open_columns(s.columns);
      line("{0}_row[c] = fma(vec4<f32>({1}), {2}, {0}_row[c]);", name, factor, element(s));
      close();
    }
    /// Defines `score` from the product of a query and a key.
    void score(const std::string& product, const std::string& query, const std::string& key) {
      line("let score = {};", score_of(product, query, key));
    }

   private:
    const RowRenderer& owner_;
    bool staged_ = false, guarded_ = false;
  };

  std::int64_t tiles(std::int64_t rows) const { return (rows + invocations_ - 1) / invocations_; }

  /// Opens the loop over the keys that a query counts.
  void open_keys(Pass& pass, std::vector<Streamed>& streamed) const {
    // The last row of the workgroup counts the most keys.
    const std::string end =
        a_.causal ? fmt::format("min(start + {}u, {}u)", invocations_, a_.keys) : number(a_.keys);
    pass.open_stream(streamed, "0u", end, a_.keys, a_.causal ? "u <= row" : "");
  }

  void forward() {
    Pass pass(*this, a_.queries);
    pass.base("q", a_.q);
    pass.base("k", a_.k);
    if (a_.mask.buffer >= 0) pass.base("mask", a_.mask);
    const bool wants_out = a_.out.buffer >= 0;
    std::vector<Streamed> streamed{{"k", &a_.k, a_.depth}};
    if (wants_out) {
      pass.base("v", a_.v);
      pass.base("out", a_.out);
      streamed.push_back({"v", &a_.v, a_.value_depth});
    }
    pass.load_row("q", a_.q, a_.depth);
    if (wants_out) pass.zero_row("out", a_.value_depth);
    pass.line("var largest = -3e38f;");
    pass.line("var total = 0f;");
    open_keys(pass, streamed);
    pass.product("near", "q", streamed[0]);
    pass.score("near", "row", "u");
    pass.open("if (score > largest)");
    pass.line("let shrink = {}(largest - score);", pass.builder().helpers().use("tg_exp"));
    pass.line("largest = score;");
    pass.line("total *= shrink;");
    if (wants_out) {
      pass.open_columns(a_.value_depth);
      pass.line("out_row[c] *= shrink;");
      pass.close();
    }
    pass.close();
    pass.line("let weight = {};", pass.exponential("score", "largest"));
    pass.line("total += weight;");
    if (wants_out) pass.accumulate("out", "weight", streamed[1]);
    pass.close_stream();
    if (wants_out) pass.store_row("out", a_.out, a_.value_depth, " / total");
    if (a_.lse.buffer >= 0) {
      pass.base("lse", a_.lse);
      const std::string log = pass.builder().helpers().use("tg_log");
      pass.line("if (live) {{ {} = largest + {}(total); }}", pass.lse_at("row"), log);
    }
    out_.passes.push_back(pass.builder().finish());
  }

  /// Leaves in scratch, for every query, the product of its result and the result's gradient.
  void delta() {
    Pass pass(*this, a_.queries);
    pass.base("out", a_.out);
    pass.base("dout", a_.dout);
    const std::string out = pass.four("out", a_.out, a_.value_depth);
    const std::string dout = pass.four("dout", a_.dout, a_.value_depth);
    pass.line("var total = 0f;");
    pass.open_columns(a_.value_depth);
    pass.line("total += dot({}({}, c), {}({}, c));", out,
              AttentionPass::row_of("out", a_.out, "row"), dout,
              AttentionPass::row_of("dout", a_.dout, "row"));
    pass.close();
    pass.line("if (live) {{ {} = bitcast<u32>(total); }}", pass.delta_at("row"));
    out_.passes.push_back(pass.builder().finish());
  }

  void query_gradient() {
    Pass pass(*this, a_.queries);
    for (const auto& [name, access] : {std::pair<const char*, const Access*>{"q", &a_.q},
                                       {"k", &a_.k},
                                       {"v", &a_.v},
                                       {"dout", &a_.dout},
                                       {"lse", &a_.lse},
                                       {"dq", &a_.dq}}) {
      pass.base(name, *access);
    }
    if (a_.mask.buffer >= 0) pass.base("mask", a_.mask);
    pass.load_row("q", a_.q, a_.depth);
    pass.load_row("dout", a_.dout, a_.value_depth);
    pass.zero_row("dq", a_.depth);
    pass.line("let lse = {};", pass.lse_at("row"));
    pass.line("let delta = bitcast<f32>({});", pass.delta_at("row"));
    std::vector<Streamed> streamed{{"k", &a_.k, a_.depth}, {"v", &a_.v, a_.value_depth}};
    open_keys(pass, streamed);
    pass.product("near", "q", streamed[0]);
    pass.score("near", "row", "u");
    pass.product("change", "dout", streamed[1]);
    pass.line("let weight = {} * (change - delta);", pass.exponential("score", "lse"));
    pass.accumulate("dq", "weight", streamed[0]);
    pass.close_stream();
    pass.store_row("dq", a_.dq, a_.depth,
                   fmt::format(" * {}", finite_literal(DType::f32, a_.scale)));
    out_.passes.push_back(pass.builder().finish());
  }

  void key_gradients(bool dk, bool dv) {
    Pass pass(*this, a_.keys);
    std::vector<Streamed> streamed{{"q", &a_.q, a_.depth}, {"dout", &a_.dout, a_.value_depth}};
    pass.base("q", a_.q);
    pass.base("k", a_.k);
    pass.base("dout", a_.dout);
    pass.base("lse", a_.lse);
    if (a_.mask.buffer >= 0) pass.base("mask", a_.mask);
    pass.load_row("k", a_.k, a_.depth);
    if (dk) {
      pass.base("v", a_.v);
      pass.load_row("v", a_.v, a_.value_depth);
      pass.base("dk", a_.dk);
      pass.zero_row("dk", a_.depth);
    }
    if (dv) {
      pass.base("dv", a_.dv);
      pass.zero_row("dv", a_.value_depth);
    }
    if (a_.queries > 0) {
      pass.open_stream(streamed, a_.causal ? "start" : "0u", number(a_.queries), a_.queries,
                       a_.causal ? "row <= u" : "");
      pass.product("near", "k", streamed[0]);
      pass.score("near", "u", "row");
      pass.line("let weight = {};", pass.exponential("score", pass.lse_at("u")));
      if (dv) pass.accumulate("dv", "weight", streamed[1]);
      if (dk) {
        pass.product("change", "v", streamed[1]);
        pass.line("let slope = weight * (change - bitcast<f32>({}));", pass.delta_at("u"));
        pass.accumulate("dk", "slope", streamed[0]);
      }
      pass.close_stream();
    }
    if (dk) {
      pass.store_row("dk", a_.dk, a_.depth,
                     fmt::format(" * {}", finite_literal(DType::f32, a_.scale)));
    }
    if (dv) pass.store_row("dv", a_.dv, a_.value_depth, "");
    out_.passes.push_back(pass.builder().finish());
  }

  const Kernel& kernel_;
  const Attention& a_;
  const Target& target_;
  const std::vector<bool>& writable_;
  std::int64_t invocations_;
  std::int64_t batches_ = 1;
  RenderedKernel out_;
};

}  // namespace

RenderedKernel render_attention_rows(const Kernel& kernel, const Target& target,
                                     const std::vector<bool>& writable) {
  return RowRenderer(kernel, target, writable).render();
}

}  // namespace tensorgrad::wgsl
