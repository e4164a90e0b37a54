#include <cmath>

#include "nn/check.h"
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

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions options,
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
  return matmul(options.causal ? causal_softmax(scores, site) : softmax(scores, -1, site), v, site);
}

}  // namespace tensorgrad
