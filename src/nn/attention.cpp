#include <cmath>

#include "nn/check.h"
#include "ops/operands.h"
#include "ops/primitives.h"
#include "tensorgrad/nn.h"

namespace tensorgrad {
namespace {

/// Throws ShapeError unless `x`, f32, has the dimensions that `form` names, of which the first
/// stand for any number.
void check_form(const char* what, const Tensor& x, int least_rank, const char* form,
                const Site& site) {
  check_f32(what, x, site);
  if (x.rank() >= least_rank) return;
  throw ShapeError(fmt::format("{}: takes {}, not shape {}.", what, form, to_string(x.shape())),
                   site);
}

/// Softmax of scores [..., T, S] with the mask of `options`, and of the causal one if it is asked
/// for.
Tensor masked_softmax(const Tensor& scores, const AttentionOptions& options, const Site& site) {
  const Tensor& mask = options.mask;
  const Shape joined = broadcast_shapes("attention", mask.shape(), scores.shape(), site);
  if (joined != scores.shape()) {
    throw ShapeError(fmt::format("attention: the mask has shape {}, which does not broadcast to "
                                 "the scores' {}.",
                                 to_string(mask.shape()), to_string(scores.shape())),
                     site);
  }
  if (is_floating(mask.dtype())) {
    return options.causal ? causal_softmax(scores + mask, site) : softmax(scores + mask, -1, site);
  }
  if (mask.dtype() != DType::bool_) {
    throw DTypeError(fmt::format("attention: the mask is {}, not bool or f32.", name(mask.dtype())),
                     site);
  }
  Tensor seen = mask;
  if (options.causal) {
    const Shape square{scores.dim(-2), scores.dim(-1)};
    seen = seen & (prim::iota(square, 1, DType::i32) <= prim::iota(square, 0, DType::i32));
  }
  // A finite number, so that a row that sees nothing has finite weights to be made zero.
  constexpr double hidden = -1e30;
  return where(seen, softmax(where(seen, scores, hidden), -1, site), 0);
}

}  // namespace

Tensor split_heads(const Tensor& x, std::int64_t heads, Site site) {
  const SiteScope scope(site);
  check_form("split_heads", x, 2, "[..., T, features]", site);
  positive("split_heads", "number of heads", heads, site);
  const std::int64_t features = x.dim(-1);
  if (features % heads != 0) {
    throw ShapeError(fmt::format("split_heads: {} heads do not divide the {} features of {}.",
                                 heads, features, to_string(x.shape())),
                     site);
  }
  Shape shape = x.shape();
  shape.back() = heads;
  shape.push_back(features / heads);
  return swap_axes(reshape(x, shape, site), -2, -3, site);
}

Tensor merge_heads(const Tensor& x, Site site) {
  const SiteScope scope(site);
  check_form("merge_heads", x, 3, "[..., heads, T, d]", site);
  return flatten(swap_axes(x, -2, -3, site), -2, -1, site);
}

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                 Site site) {
  const SiteScope scope(site);
  for (const Tensor* t : {&q, &k, &v}) check_form("attention", *t, 2, "[..., T, d]", site);
  if (q.dim(-1) != k.dim(-1)) {
    throw ShapeError(fmt::format("attention: q {} and k {} have {} and {} features.",
                                 to_string(q.shape()), to_string(k.shape()), q.dim(-1), k.dim(-1)),
                     site);
  }
  if (k.dim(-2) != v.dim(-2)) {
    throw ShapeError(fmt::format("attention: k {} and v {} have {} and {} positions.",
                                 to_string(k.shape()), to_string(v.shape()), k.dim(-2), v.dim(-2)),
                     site);
  }
  const double scale = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.dim(-1))));
  const Tensor scores = matmul(q, transpose(k, site), site) * scale;
  Tensor weights;
  if (!options.mask.defined()) {
    weights = options.causal ? causal_softmax(scores, site) : softmax(scores, -1, site);
  } else {
    weights = masked_softmax(scores, options, site);
  }
  return matmul(dropout(weights, options.dropout, site), v, site);
}

namespace nn {
namespace {

Linear projection(std::int64_t d, Init init, bool bias, const Site& site) {
  Linear out(d, d, {.bias = bias}, site);
  out.W.init = std::move(init);
  if (out.b) out.b->init = Init::zeros();
  return out;
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(std::int64_t d, std::int64_t head_count,
                                       MultiHeadAttentionOptions chosen, Site site)
    : q(projection(d, Init::xavier_uniform(d, 3 * d), chosen.bias, site)),
      k(q),
      v(q),
      out(projection(d, q.W.init, chosen.bias, site)),
      heads(positive("MultiHeadAttention", "number of heads", head_count, site)),
      options(chosen) {
  out.W.init = Linear(d, d).W.init;
  if (d % heads != 0) {
    throw ValueError(
        fmt::format("MultiHeadAttention: {} heads do not divide {} features.", heads, d), site);
  }
}

Tensor MultiHeadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const Tensor& mask, Site site) const {
  const SiteScope scope(site);
  return out(
      merge_heads(
          attention(split_heads(q(query, site), heads, site),
                    split_heads(k(key, site), heads, site),
                    split_heads(v(value, site), heads, site),
                    {.causal = options.causal, .mask = mask, .dropout = options.dropout}, site),
          site),
      site);
}

Tensor MultiHeadAttention::operator()(const Tensor& x, Site site) const {
  return (*this)(x, x, x, Tensor(), site);
}

}  // namespace nn

}  // namespace tensorgrad
