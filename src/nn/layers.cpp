#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "nn/check.h"
#include "ops/primitives.h"
#include "tensorgrad/nn.h"

namespace tensorgrad::nn {
namespace {

/// What PyTorch gives to weights and biases of layers with `fan_in` inputs an output.
Init by_inputs(std::int64_t fan_in) {
  return Init::uniform(1 / std::sqrt(static_cast<double>(fan_in)));
}

double checked_eps(const char* layer, double eps, const Site& site) {
  if (std::isfinite(eps) && eps >= 0) return eps;
  throw ValueError(fmt::format("{}: eps is {}, not a finite number of at least 0.", layer, eps),
                   site);
}

/// Throws ShapeError if a side of a convolution's window does not fit the input.
void check_window(const char* side, std::int64_t kernel, std::int64_t input, std::int64_t padding,
                  std::int64_t dilation, const Param& weight, const Site& site) {
  const std::int64_t window = dilation * (kernel - 1) + 1;
  if (input + 2 * padding >= window) return;
  throw ShapeError(
      fmt::format("Conv2d: the window's {} is {}, more than the input's {} with padding {}.{}",
                  side, window, input, padding, weight_name(weight)),
      site);
}

}  // namespace

Linear::Linear(std::int64_t in, std::int64_t out, LinearOptions options, Site site) {
  positive("Linear", "number of inputs", in, site);
  positive("Linear", "number of outputs", out, site);
  W = {.shape = {in, out}, .init = by_inputs(in)};
  if (options.bias) b = Param{.shape = {out}, .init = by_inputs(in), .decay = false};
}

Tensor Linear::operator()(const Tensor& x, Site site) const {
  const SiteScope scope(site);
  check_last("Linear", x, {W.shape[0]}, W, site);
  const Tensor y = matmul(x, W, site);
  return b ? y + *b : y;
}

Conv2d::Conv2d(std::int64_t in, std::int64_t out, Size2 kernel, Conv2dOptions chosen, Site site)
    : options(chosen) {
  positive("Conv2d", "number of input channels", in, site);
  positive("Conv2d", "number of output channels", out, site);
  positive("Conv2d", "kernel's height", kernel.h, site);
  positive("Conv2d", "kernel's width", kernel.w, site);
  positive("Conv2d", "number of groups", options.groups, site);
  for (const auto& [what, size] :
       {std::pair("stride", options.stride), std::pair("dilation", options.dilation)}) {
    positive("Conv2d", what, std::min(size.h, size.w), site);
  }
  if (options.padding.h < 0 || options.padding.w < 0) {
    throw ValueError(fmt::format("Conv2d: the padding is {}, not at least 0.",
                                 std::min(options.padding.h, options.padding.w)),
                     site);
  }
  if (in % options.groups != 0 || out % options.groups != 0) {
    throw ValueError(fmt::format("Conv2d: {} groups do not divide {} input and {} output channels.",
                                 options.groups, in, out),
                     site);
  }
  const std::int64_t fan_in = in / options.groups * kernel.h * kernel.w;
  W = {.shape = {out, in / options.groups, kernel.h, kernel.w}, .init = by_inputs(fan_in)};
  if (options.bias) b = Param{.shape = {out}, .init = by_inputs(fan_in), .decay = false};
}

Tensor Conv2d::operator()(const Tensor& x, Site site) const {
  const SiteScope scope(site);
  check_images("Conv2d", x, site, weight_name(W));
  const std::int64_t channels = W.shape[1] * options.groups;
  if (x.dim(1) != channels) {
    throw ShapeError(fmt::format("Conv2d: the input has {} channels, not the layer's {}.{}",
                                 x.dim(1), channels, weight_name(W)),
                     site);
  }
  check_window("height", W.shape[2], x.dim(2), options.padding.h, options.dilation.h, W, site);
  check_window("width", W.shape[3], x.dim(3), options.padding.w, options.dilation.w, W, site);
  const Tensor y = conv(x, W,
                        {.stride = {options.stride.h, options.stride.w},
                         .padding = {options.padding.h, options.padding.w},
                         .dilation = {options.dilation.h, options.dilation.w},
                         .groups = options.groups},
                        site);
  return b ? y + reshape(*b, {W.shape[0], 1, 1}, site) : y;
}

Embedding::Embedding(std::int64_t n, std::int64_t d, EmbeddingOptions chosen, Site site)
    : options(chosen) {
  positive("Embedding", "number of rows", n, site);
  positive("Embedding", "row's size", d, site);
  if (const auto& index = options.padding_index; index && (*index < 0 || *index >= n)) {
    throw ValueError(
        fmt::format("Embedding: the padding index is {}, not one of {} rows.", *index, n), site);
  }
  W = {.shape = {n, d}, .init = Init::normal(1)};
}

Tensor Embedding::operator()(const Tensor& positions, Site site) const {
  const SiteScope scope(site);
  if (positions.dtype() != DType::i32) {
    throw DTypeError(fmt::format("Embedding: takes i32 positions, not {}.{}",
                                 name(positions.dtype()), weight_name(W)),
                     site);
  }
  const Tensor rows = gather(W, positions, 0, site);
  if (!options.padding_index) return rows;
  return where(unsqueeze(positions == *options.padding_index, -1), 0, rows);
}

LayerNorm::LayerNorm(std::int64_t d, LayerNormOptions options, Site site)
    : LayerNorm(Shape{d}, options, site) {}

LayerNorm::LayerNorm(const Shape& normalized, LayerNormOptions options, Site site)
    : eps(checked_eps("LayerNorm", options.eps, site)) {
  if (normalized.empty()) {
    throw ValueError("LayerNorm: no dimensions to normalise are given.", site);
  }
  for (const std::int64_t d : normalized) positive("LayerNorm", "number of features", d, site);
  g = {.shape = normalized, .init = Init::ones(), .decay = false};
  if (options.bias) b = Param{.shape = normalized, .init = Init::zeros(), .decay = false};
}

Tensor LayerNorm::operator()(const Tensor& x, Site site) const {
  const SiteScope scope(site);
  check_last("LayerNorm", x, g.shape, g, site);
  std::vector<int> axes(g.shape.size());
  std::iota(axes.begin(), axes.end(), -static_cast<int>(axes.size()));
  const Reduce over(std::move(axes), true);
  const Tensor centred = x - mean(x, over, site);
  const Tensor variance = mean(square(centred), over, site);
  const Tensor y = centred * rsqrt(variance + eps) * g;
  return b ? y + *b : y;
}

RMSNorm::RMSNorm(std::int64_t d, RMSNormOptions options, Site site)
    : eps(checked_eps("RMSNorm", options.eps, site)) {
  positive("RMSNorm", "number of features", d, site);
  g = {.shape = {d}, .init = Init::ones(), .decay = false};
}

Tensor RMSNorm::operator()(const Tensor& x, Site site) const {
  const SiteScope scope(site);
  check_last("RMSNorm", x, g.shape, g, site);
  return x * rsqrt(mean(square(x), Reduce(-1, true), site) + eps) * g;
}

namespace {

void check_channels(const char* layer, const Tensor& x, std::int64_t d, const std::string& weight,
                    const Site& site) {
  check_f32(layer, x, site, weight);
  if (x.rank() >= 2 && x.dim(1) == d) return;
  throw ShapeError(fmt::format("{}: takes [N, {}, ...], not shape {}.{}", layer, d,
                               to_string(x.shape()), weight),
                   site);
}

/// A vector of the channels beside x [N, d, ...].
Tensor per_channel(const Tensor& v, const Tensor& x) {
  Shape shape(static_cast<std::size_t>(x.rank() - 1), 1);
  shape[0] = v.size();
  return reshape(v, shape);
}

Tensor scaled(Tensor y, const std::optional<Param>& g, const std::optional<Param>& b) {
  if (g) y = y * per_channel(*g, y);
  return b ? y + per_channel(*b, y) : y;
}

}  // namespace

BatchNorm::BatchNorm(std::int64_t d, BatchNormOptions chosen, Site site)
    : mean{.shape = {d}, .init = Init::zeros()},
      variance{.shape = {d}, .init = Init::ones()},
      options(chosen) {
  positive("BatchNorm", "number of channels", d, site);
  checked_eps("BatchNorm", options.eps, site);
  if (!(options.momentum >= 0 && options.momentum <= 1)) {
    throw ValueError(fmt::format("BatchNorm: momentum is {}, not in [0, 1].", options.momentum),
                     site);
  }
  if (!options.affine) return;
  g = Param{.shape = {d}, .init = Init::ones(), .decay = false};
  b = Param{.shape = {d}, .init = Init::zeros(), .decay = false};
}

Tensor BatchNorm::operator()(const Tensor& x, Site site) const {
  const SiteScope scope(site);
  const std::int64_t d = mean.shape[0];
  check_channels("BatchNorm", x, d, g ? weight_name(*g) : "", site);
  std::vector<int> others{0};
  for (int i = 2; i < x.rank(); ++i) others.push_back(i);
  const Tensor batch_mean = tensorgrad::mean(x, Reduce(others, true), site);
  const Tensor centred = x - batch_mean;
  const Tensor batch_variance = tensorgrad::mean(square(centred), Reduce(others, true), site);

  const auto n = static_cast<double>(x.size()) / static_cast<double>(d);
  const auto running = [&](const Buffer& kept, const Tensor& now) {
    return kept * (1 - options.momentum) + now * options.momentum;
  };
  const Tensor training = prim::training_flag(site);
  const Tensor unbiased = reshape(batch_variance, {d}) * (n / std::max(n - 1, 1.0));
  const Tensor y =
      where(training, centred * rsqrt(batch_variance + options.eps),
            (x - per_channel(mean, x)) * rsqrt(per_channel(variance, x) + options.eps));
  const Tensor result = scaled(y, g, b);
  return assign(variance, running(variance, unbiased),
                assign(mean, running(mean, reshape(batch_mean, {d})), result, site), site);
}

GroupNorm::GroupNorm(std::int64_t group_count, std::int64_t d, GroupNormOptions options, Site site)
    : groups(positive("GroupNorm", "number of groups", group_count, site)),
      channels(positive("GroupNorm", "number of channels", d, site)),
      eps(checked_eps("GroupNorm", options.eps, site)) {
  if (d % groups != 0) {
    throw ValueError(fmt::format("GroupNorm: {} groups do not divide {} channels.", groups, d),
                     site);
  }
  if (!options.affine) return;
  g = Param{.shape = {d}, .init = Init::ones(), .decay = false};
  b = Param{.shape = {d}, .init = Init::zeros(), .decay = false};
}

Tensor GroupNorm::operator()(const Tensor& x, Site site) const {
  const SiteScope scope(site);
  check_channels("GroupNorm", x, channels, g ? weight_name(*g) : "", site);
  const Tensor rows =
      reshape(x, {x.dim(0), groups, x.size() / std::max<std::int64_t>(x.dim(0) * groups, 1)});
  const Tensor centred = rows - mean(rows, Reduce(-1, true), site);
  const Tensor variance = mean(square(centred), Reduce(-1, true), site);
  return scaled(reshape(centred * rsqrt(variance + eps), x.shape()), g, b);
}

}  // namespace tensorgrad::nn
