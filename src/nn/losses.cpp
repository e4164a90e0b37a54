#include <cmath>
#include <limits>

#include "nn/check.h"
#include "ops/primitives.h"
#include "tensorgrad/nn.h"

namespace tensorgrad {
namespace {

Tensor reduced(const Tensor& losses, Reduction reduction) {
  switch (reduction) {
    case Reduction::mean:
      return mean(losses);
    case Reduction::sum:
      return sum(losses);
    case Reduction::none:
      return losses;
    case Reduction::batch_mean:
      return sum(losses) / (losses.rank() == 0 ? 1.0 : static_cast<double>(losses.dim(0)));
  }
  throw ValueError("a loss's reduction is none of mean, sum, none and batch_mean.");
}

void check_pair(const char* loss, const Tensor& a, const Tensor& b, const Site& site) {
  check_f32(loss, a, site);
  check_f32(loss, b, site);
  if (a.shape() == b.shape()) return;
  throw ShapeError(
      fmt::format("{}: shapes {} and {} differ.", loss, to_string(a.shape()), to_string(b.shape())),
      site);
}

void check_classes(const char* loss, const Tensor& scores, const Site& site) {
  check_f32(loss, scores, site);
  if (scores.rank() > 0 && scores.dim(-1) > 0) return;
  throw ShapeError(fmt::format("{}: shape {} has no classes in its last dimension.", loss,
                               to_string(scores.shape())),
                   site);
}

/// Rows of `scores` with a class index each.
class Picked {
 public:
  Picked(const char* loss, const Tensor& scores, const Tensor& targets, std::int64_t ignore_index,
         const Site& site)
      : scores_(scores), targets_(targets) {
    if (targets.dtype() != DType::i32) {
      throw DTypeError(
          fmt::format("{}: takes i32 class indices, not {}.", loss, name(targets.dtype())), site);
    }
    const Shape rows(scores.shape().begin(), scores.shape().end() - 1);
    if (targets.shape() != rows) {
      throw ShapeError(
          fmt::format("{}: the class indices have shape {}, not {}, which {} is "
                      "without classes.",
                      loss, to_string(targets.shape()), to_string(rows), to_string(scores.shape())),
          site);
    }
    counts_ = targets != ignore_index;
  }

  /// The scores at the class indices: each row summed over a mask, which needs no second pass over
  /// memory and no matrix of ones and zeros.
  Tensor at_targets() const {
    const Tensor position = prim::iota(scores_.shape(), scores_.rank() - 1, DType::i32);
    return sum(where(position == unsqueeze(targets_, -1), scores_, 0), -1);
  }

  Tensor reduce(const Tensor& losses, Reduction reduction) const {
    const Tensor known = (targets_ >= 0) & (targets_ < scores_.dim(-1));
    const Tensor checked = where(known, losses, std::numeric_limits<double>::quiet_NaN());
    const Tensor counted = where(counts_, checked, 0);
    if (reduction == Reduction::mean) return sum(counted) / sum(cast(counts_, DType::f32));
    return reduced(counted, reduction);
  }

 private:
  Tensor scores_, targets_, counts_;
};

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, CrossEntropyOptions options,
                     Site site) {
  const SiteScope scope(site);
  check_classes("cross_entropy", logits, site);
  const double smoothing = options.label_smoothing;
  if (!(smoothing >= 0 && smoothing <= 1)) {
    throw ValueError(fmt::format("cross_entropy: label_smoothing is {}, not in [0, 1].", smoothing),
                     site);
  }
  // log softmax = logit - logsumexp, never materialised: only its sums over classes are needed.
  if (is_floating(targets.dtype())) {
    check_pair("cross_entropy", logits, targets, site);
    const auto classes = static_cast<double>(logits.dim(-1));
    const Tensor p = smoothing == 0 ? targets : targets * (1 - smoothing) + smoothing / classes;
    return reduced(sum(p, -1) * logsumexp(logits, -1) - sum(p * logits, -1), options.reduction);
  }
  const Picked picked("cross_entropy", logits, targets, options.ignore_index, site);
  Tensor target_logit = picked.at_targets();
  if (smoothing > 0) {
    target_logit = target_logit * (1 - smoothing) + mean(logits, -1) * smoothing;
  }
  return picked.reduce(logsumexp(logits, -1) - target_logit, options.reduction);
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets, NllOptions options,
                Site site) {
  const SiteScope scope(site);
  check_classes("nll_loss", log_probabilities, site);
  const Picked picked("nll_loss", log_probabilities, targets, options.ignore_index, site);
  return picked.reduce(-picked.at_targets(), options.reduction);
}

Tensor mse_loss(const Tensor& prediction, const Tensor& target, Reduction reduction, Site site) {
  const SiteScope scope(site);
  check_pair("mse_loss", prediction, target, site);
  return reduced(square(prediction - target), reduction);
}

Tensor l1_loss(const Tensor& prediction, const Tensor& target, Reduction reduction, Site site) {
  const SiteScope scope(site);
  check_pair("l1_loss", prediction, target, site);
  return reduced(abs(prediction - target), reduction);
}

Tensor huber_loss(const Tensor& prediction, const Tensor& target, HuberOptions options, Site site) {
  const SiteScope scope(site);
  check_pair("huber_loss", prediction, target, site);
  const double delta = options.delta;
  if (!(std::isfinite(delta) && delta > 0)) {
    throw ValueError(fmt::format("huber_loss: delta is {}, not a finite number above 0.", delta),
                     site);
  }
  const Tensor d = prediction - target;
  const Tensor size = abs(d);
  return reduced(where(size <= delta, 0.5 * square(d), delta * (size - 0.5 * delta)),
                 options.reduction);
}

Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, SmoothL1Options options,
                      Site site) {
  const SiteScope scope(site);
  check_pair("smooth_l1_loss", prediction, target, site);
  const double beta = options.beta;
  if (!(std::isfinite(beta) && beta >= 0)) {
    throw ValueError(
        fmt::format("smooth_l1_loss: beta is {}, not a finite number of at least 0.", beta), site);
  }
  const Tensor d = prediction - target;
  const Tensor size = abs(d);
  if (beta == 0) return reduced(size, options.reduction);
  return reduced(where(size < beta, (0.5 / beta) * square(d), size - 0.5 * beta),
                 options.reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& targets,
                                        const BceOptions& options, Site site) {
  const char* const loss = "binary_cross_entropy_with_logits";
  const SiteScope scope(site);
  check_pair(loss, logits, targets, site);
  // log(1 + e^-|x|), which is -log sigmoid(|x|).
  const Tensor tail = log1p(exp(-abs(logits)));
  if (!options.pos_weight.defined()) {
    return reduced(maximum(logits, 0) - logits * targets + tail, options.reduction);
  }
  check_f32(loss, options.pos_weight, site);
  const Tensor weight = broadcast_to(options.pos_weight, logits.shape(), site);
  const Tensor positive = 1 + (weight - 1) * targets;
  return reduced((1 - targets) * logits + positive * (tail + maximum(-logits, 0)),
                 options.reduction);
}

Tensor kl_div(const Tensor& log_probabilities, const Tensor& targets, KlOptions options,
              Site site) {
  const SiteScope scope(site);
  check_pair("kl_div", log_probabilities, targets, site);
  if (options.log_target) {
    return reduced(exp(targets) * (targets - log_probabilities), options.reduction);
  }
  // The logarithm sees no zero: its infinity would meet a zero in the derivative.
  const Tensor empty = targets == 0;
  const Tensor logs = log(where(empty, 1, targets));
  return reduced(where(empty, 0, targets * (logs - log_probabilities)), options.reduction);
}

}  // namespace tensorgrad
