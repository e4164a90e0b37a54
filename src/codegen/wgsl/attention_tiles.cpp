// Attention by tiles: a workgroup has a tile of rows, of queries or in their backward of keys, and
// streams tiles of the other rows through workgroup memory. An invocation computes the scores of a
// few rows against four; the weights pass through workgroup memory, and each invocation adds up
// some columns of the results for its rows.
#include <fmt/format.h>

#include <utility>

#include "codegen/wgsl/attention.h"
#include "codegen/wgsl/attention_tile_pass.h"

namespace tensorgrad::wgsl {

using kernel::Attention;
using kernel::Kernel;

namespace {

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
  TilePass begin(std::int64_t rows, std::int64_t streamed, bool last_first) const {
    return {kernel_, a_, target_, writable_, tile_, batches_, rows, streamed, last_first};
  }

  void forward() {
    TilePass pass = begin(a_.queries, a_.keys, a_.causal);
    const bool wants_out = a_.out.buffer >= 0;
    StagedMatrix q{"q", &a_.q, a_.depth};
    StagedMatrix k{"k", &a_.k, a_.depth};
    StagedMatrix v{"v", &a_.v, a_.value_depth};
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
    if (wants_out) {
      pass.open_stream({&k, &v}, pass.sums(a_.value_depth));
    } else {
      pass.open_stream({&k}, 0);
    }
    pass.barrier();
    pass.products("s", q, k);
    pass.streamed_rows();
    pass.on_and_off_diagonal([&](bool diagonal) { pass.scores("s", diagonal); });
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
      pass.read_ahead();
      pass.accumulate("out", weights, v);
    } else {
      pass.read_ahead();
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
  void find_delta(TilePass& pass) const {
    const std::string out = pass.four_of("out", a_.out, a_.value_depth);
    const std::string dout = pass.four_of("dout", a_.dout, a_.value_depth);
    for (std::int64_t i = 0; i < pass.rows(); ++i) pass.line("var delta{} = 0f;", i);
    pass.open("for (var c = lane; c < {}u; c += {}u)", quads(a_.value_depth), tile_.lanes);
    for (std::int64_t i = 0; i < pass.rows(); ++i) {
      const std::string row = fmt::format("row{}", i);
      pass.line("delta{} += dot({}({}, c), {}({}, c));", i, out,
                TilePass::row_of("out", a_.out, row), dout, TilePass::row_of("dout", a_.dout, row));
    }
    pass.close();
    pass.combine("delta", false);
    for (std::int64_t i = 0; i < pass.rows(); ++i) {
      pass.line("if (lane == 0u && {}) {{ {} = bitcast<u32>(delta{}); }}", pass.is_row(i),
                pass.delta_at(fmt::format("row{}", i)), i);
    }
  }

  void delta() {
    TilePass pass = begin(a_.queries, 1, false);
    pass.matrix("out", a_.out, a_.value_depth);
    pass.matrix("dout", a_.dout, a_.value_depth);
    pass.know_vectors();
    find_delta(pass);
    add(pass);
  }

  void query_gradient(bool finds_delta) {
    TilePass pass = begin(a_.queries, a_.keys, a_.causal);
    StagedMatrix q{"q", &a_.q, a_.depth};
    StagedMatrix dout{"dout", &a_.dout, a_.value_depth};
    StagedMatrix k{"k", &a_.k, a_.depth};
    StagedMatrix v{"v", &a_.v, a_.value_depth};
    for (const StagedMatrix* s : {&q, &dout, &k, &v}) pass.matrix(s->name, *s->access, s->columns);
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
    pass.open_stream({&k, &v}, pass.sums(a_.depth));
    pass.barrier();
    pass.products("s", q, k);
    pass.products("g", dout, v);
    pass.streamed_rows();
    pass.on_and_off_diagonal([&](bool diagonal) {
      pass.scores("s", diagonal);
      pass.each([&](std::int64_t i, std::int64_t j) {
        const std::string score = fmt::format("s{}_{}", i, j);
        std::string value = fmt::format("{} * (g{}_{} - delta{})",
                                        pass.exponential(score, fmt::format("lse{}", i)), i, j, i);
        const std::string condition = pass.counts(i, fmt::format("u{}", j), diagonal);
        if (!condition.empty()) value = fmt::format("select(0f, {}, {})", value, condition);
        pass.line("{} = {};", score, value);
      });
    });
    pass.store_weights(weights, "s");
    pass.barrier();
    pass.read_ahead();
    pass.accumulate("dq", weights, k);
    pass.barrier();
    pass.close();
    pass.store("dq", a_.dq, a_.depth, fmt::format(" * {}", finite_literal(DType::f32, a_.scale)));
    add(pass);
  }

  void key_gradients(bool dk, bool dv) {
    TilePass pass = begin(a_.keys, a_.queries, false);
    pass.own_keys();
    StagedMatrix k{"k", &a_.k, a_.depth};
    StagedMatrix v{"v", &a_.v, a_.value_depth};
    StagedMatrix q{"q", &a_.q, a_.depth};
    StagedMatrix dout{"dout", &a_.dout, a_.value_depth};
    for (const StagedMatrix* s : {&k, &q, &dout}) pass.matrix(s->name, *s->access, s->columns);
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
      pass.open_stream({&q, &dout},
                       (dk ? pass.sums(a_.depth) : 0) + (dv ? pass.sums(a_.value_depth) : 0));
      // Before the barrier, so that they come in the time of the products.
      pass.streamed_rows();
      for (std::int64_t j = 0; j < 4; ++j) {
        const std::string query = fmt::format("v{}", j);
        pass.line("let lse{} = {};", j, pass.lse_at(query));
        if (dk) pass.line("let delta{} = bitcast<f32>({});", j, pass.delta_at(query));
      }
      pass.barrier();
      pass.products("s", k, q);
      if (dk) pass.products("g", v, dout);
      pass.on_and_off_diagonal([&](bool diagonal) {
        pass.scores("s", diagonal);
        pass.each([&](std::int64_t i, std::int64_t j) {
          const std::string score = fmt::format("s{}_{}", i, j);
          pass.line("{} = {};", score, pass.exponential(score, fmt::format("lse{}", j)));
          if (!dk) return;
          std::string value = fmt::format("{} * (g{}_{} - delta{})", score, i, j, j);
          const std::string condition = pass.counts(i, fmt::format("u{}", j), diagonal);
          if (!condition.empty()) value = fmt::format("select(0f, {}, {})", value, condition);
          pass.line("g{}_{} = {};", i, j, value);
        });
      });
      if (dv) pass.store_weights(weights, "s");
      if (dk) pass.store_weights(slopes, "g");
      pass.barrier();
      pass.read_ahead();
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

  void add(TilePass& pass) {
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
