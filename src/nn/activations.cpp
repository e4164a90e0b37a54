#include <cmath>
#include <limits>
#include <numbers>

#include "nn/check.h"
#include "ops/operands.h"
#include "ops/primitives.h"
#include "tensorgrad/nn.h"
#include "tensorgrad/random.h"

namespace tensorgrad {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// x with its largest element along the axis at 0. The shift cancels in what softmax makes of it,
/// so that it has no derivative.
Tensor from_top(const Tensor& x, int axis) { return x - stop_gradient(max(x, Reduce(axis, true))); }

void check_probability(const char* what, double p, const Site& site) {
  if (p >= 0 && p <= 1) return;
  throw ValueError(fmt::format("{}: the probability is {}, not in [0, 1].", what, p), site);
}

Tensor dropped(const Tensor& x, double p, const Tensor& key, const Site& site) {
  if (p == 1) return zeros_like(x, site);
  const Tensor keeps = random::bernoulli(key, 1 - p, x.shape(), random::Scheme::original, site);
  return where(keeps, x * (1 / (1 - p)), 0);
}

}  // namespace

// The forms with `where` decide which derivative holds at the kink, and pass NaN on.

Tensor relu(const Tensor& x, Site site) {
  const SiteScope scope(site);
  check_floating("relu", x, site);
  // The primitive's derivative reads the result, so that the operand need not be kept for it.
  return prim::map(kernel::Fn::relu, {x}, site);
}

Tensor gelu(const Tensor& x, GeluOptions options, Site site) {
  const SiteScope scope(site);
  check_floating("gelu", x, site);
  if (options.approximate) {
    const double root = std::sqrt(2 / std::numbers::pi);
    return 0.5 * x * (1 + tanh(root * (x + 0.044715 * x * x * x)));
  }
  return 0.5 * x * (1 + erf(x * (1 / std::numbers::sqrt2)));
}

Tensor silu(const Tensor& x, Site site) {
  const SiteScope scope(site);
  check_floating("silu", x, site);
  return x * sigmoid(x);
}

Tensor softplus(const Tensor& x, Site site) {
  const SiteScope scope(site);
  check_floating("softplus", x, site);
  return maximum(x, 0) + log1p(exp(-abs(x)));
}

Tensor leaky_relu(const Tensor& x, double alpha, Site site) {
  const SiteScope scope(site);
  check_floating("leaky_relu", x, site);
  return where(x > 0, x, x * alpha);
}

Tensor elu(const Tensor& x, double alpha, Site site) {
  const SiteScope scope(site);
  check_floating("elu", x, site);
  // The exponential sees no positive number: its overflow would meet a zero in the derivative.
  return where(x > 0, x, alpha * expm1(where(x > 0, 0, x)));
}

Tensor softmax(const Tensor& x, int axis, Site site) {
  const SiteScope scope(site);
  check_floating("softmax", x, site);
  const int a = normal_axis("softmax", axis, x.rank(), x.shape(), site);
  if (x.size() == 0) return x;
  const Tensor e = exp(from_top(x, a));
  return e / sum(e, Reduce(a, true));
}

Tensor log_softmax(const Tensor& x, int axis, Site site) {
  const SiteScope scope(site);
  check_floating("log_softmax", x, site);
  const int a = normal_axis("log_softmax", axis, x.rank(), x.shape(), site);
  if (x.size() == 0) return x;
  const Tensor shifted = from_top(x, a);
  return shifted - log(sum(exp(shifted), Reduce(a, true)));
}

Tensor causal_softmax(const Tensor& x, Site site) {
  const SiteScope scope(site);
  check_floating("causal_softmax", x, site);
  if (x.rank() < 2) {
    throw ShapeError(fmt::format("causal_softmax: takes scores [..., T, S], not shape {}.",
                                 to_string(x.shape())),
                     site);
  }
  const Shape square{x.dim(-2), x.dim(-1)};
  const Tensor seen = prim::iota(square, 1, DType::i32) <= prim::iota(square, 0, DType::i32);
  return softmax(where(seen, x, -infinity), -1, site);
}

Tensor dropout(const Tensor& x, double p, Site site) {
  const SiteScope scope(site);
  check_floating("dropout", x, site);
  check_probability("dropout", p, site);
  if (p == 0) return x;
  return where(prim::training_flag(site), dropped(x, p, prim::step_key(site), site), x);
}

Tensor dropout(const Tensor& x, double p, const Tensor& key, Site site) {
  const SiteScope scope(site);
  check_floating("dropout", x, site);
  check_probability("dropout", p, site);
  return p == 0 ? x : dropped(x, p, key, site);
}

}  // namespace tensorgrad
