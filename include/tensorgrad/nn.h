// Layers, activations, pooling, attention and losses. A layer is a struct of parameters with a call
// operator; everything else is a function. Defaults are PyTorch's. All take and return f32 unless
// said otherwise (activations, softmaxes and dropout f16 too), and throw ShapeError, DTypeError or
// ValueError, with the caller's line, for what they cannot take; errors of a layer name it and its
// parameter.
#pragma once

#include <cstdint>
#include <optional>

#include "tensorgrad/module.h"
#include "tensorgrad/ops.h"

namespace tensorgrad {

/// Height and width.
struct Size2 {
  std::int64_t h = 1, w = 1;
  // NOLINTBEGIN(google-explicit-constructor): one number stands for both
  Size2(std::int64_t both) : h(both), w(both) {}
  // NOLINTEND(google-explicit-constructor)
  Size2(std::int64_t height, std::int64_t width) : h(height), w(width) {}
  bool operator==(const Size2&) const = default;
};

namespace nn {

struct LinearOptions {
  bool bias = true;
};

/// x W + b over the last dimension: [..., in] to [..., out].
struct Linear {
  Param W;                 ///< [in, out], uniform in ±1/sqrt(in)
  std::optional<Param> b;  ///< [out], the same; no weight decay
  TENSORGRAD_FIELDS(W, b)

  Linear(std::int64_t in, std::int64_t out, LinearOptions options = {},
         Site site = Site::current());
  Tensor operator()(const Tensor& x, Site site = Site::current()) const;
};

struct Conv2dOptions {
  Size2 stride = 1, padding = 0, dilation = 1;
  std::int64_t groups = 1;
  bool bias = true;
};

/// Convolution of images [N, in, H, W] to [N, out, H', W'], where H' = (H + 2 padding - dilation
/// (kernel - 1) - 1) / stride + 1, rounded down.
struct Conv2d {
  Param W;  ///< [out, in / groups, kh, kw], uniform in ±1/sqrt(in / groups * kh * kw)
  std::optional<Param> b;  ///< [out], the same; no weight decay
  Conv2dOptions options;
  TENSORGRAD_FIELDS(W, b)

  Conv2d(std::int64_t in, std::int64_t out, Size2 kernel, Conv2dOptions chosen = {},
         Site site = Site::current());
  Tensor operator()(const Tensor& x, Site site = Site::current()) const;
};

struct EmbeddingOptions {
  /// The position of no word: it reads zeros, and its row of the table gets no derivative.
  std::optional<std::int64_t> padding_index = {};
};

/// Rows of a table: positions [...], i32, to [..., d]. A position out of range reads NaN.
struct Embedding {
  Param W;  ///< [n, d], normal with standard deviation 1
  EmbeddingOptions options;
  TENSORGRAD_FIELDS(W)

  /// Throws ValueError unless the padding index, if there is one, is a row of the table.
  Embedding(std::int64_t n, std::int64_t d, EmbeddingOptions chosen = {},
            Site site = Site::current());
  Tensor operator()(const Tensor& positions, Site site = Site::current()) const;
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool bias = true;
};

/// (x - mean) / sqrt(variance + eps) * g + b over the last dimensions, with the biased variance.
struct LayerNorm {
  Param g;                 ///< the normalised dimensions, ones; no weight decay
  std::optional<Param> b;  ///< the same, zeros; no weight decay
  double eps;
  TENSORGRAD_FIELDS(g, b)

  /// Over the last dimension, of extent `d`.
  explicit LayerNorm(std::int64_t d, LayerNormOptions options = {}, Site site = Site::current());
  /// Over the last dimensions, together of shape `normalized`.
  explicit LayerNorm(const Shape& normalized, LayerNormOptions options = {},
                     Site site = Site::current());
  Tensor operator()(const Tensor& x, Site site = Site::current()) const;
};

struct RMSNormOptions {
  double eps = 1.1920928955078125e-07;  ///< the spacing of f32 at 1
};

/// x / sqrt(mean(x^2) + eps) * g over the last dimension.
struct RMSNorm {
  Param g;  ///< [d], ones; no weight decay
  double eps;
  TENSORGRAD_FIELDS(g)

  explicit RMSNorm(std::int64_t d, RMSNormOptions options = {}, Site site = Site::current());
  Tensor operator()(const Tensor& x, Site site = Site::current()) const;
};

struct BatchNormOptions {
  double eps = 1e-5;
  double momentum = 0.1;  ///< the share of a step in the running statistics
  bool affine = true;     ///< whether there are g and b
};

/// (x - mean) / sqrt(variance + eps) * g + b for each channel of x [N, d, ...]. While training,
/// mean and (biased) variance are those of the batch over all other dimensions, and the running
/// statistics become (1 - momentum) * running + momentum * batch, with the unbiased variance;
/// elsewhere the running ones are used. One call a step.
struct BatchNorm {
  std::optional<Param> g, b;  ///< [d], ones and zeros; no weight decay
  Buffer mean, variance;      ///< [d], zeros and ones: the running statistics
  BatchNormOptions options;
  TENSORGRAD_FIELDS(g, b, mean, variance)

  explicit BatchNorm(std::int64_t d, BatchNormOptions chosen = {}, Site site = Site::current());
  Tensor operator()(const Tensor& x, Site site = Site::current()) const;
};

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;  ///< whether there are g and b
};

/// (x - mean) / sqrt(variance + eps) * g + b for x [N, d, ...], with mean and (biased) variance of
/// each of `groups` runs of d / groups channels of each example; g and b are per channel.
struct GroupNorm {
  std::optional<Param> g, b;  ///< [d], ones and zeros; no weight decay
  std::int64_t groups;
  std::int64_t channels;
  double eps;
  TENSORGRAD_FIELDS(g, b)

  /// Throws ValueError unless `group_count` divides d.
  GroupNorm(std::int64_t group_count, std::int64_t d, GroupNormOptions options = {},
            Site site = Site::current());
  Tensor operator()(const Tensor& x, Site site = Site::current()) const;
};

struct MultiHeadAttentionOptions {
  bool bias = true;
  bool causal = false;
  double dropout = 0;  ///< of the attention weights, while training
};

/// Attention by several heads: out(merge(attention(split(q(query)), split(k(key)),
/// split(v(value))))), for query [..., T, d] and key and value [..., S, d].
struct MultiHeadAttention {
  Linear q, k, v;  ///< d to d; weights as PyTorch's joint projection: uniform in ±sqrt(6 / (4 d))
  Linear out;      ///< d to d; all biases start at zero
  std::int64_t heads;
  MultiHeadAttentionOptions options;
  TENSORGRAD_FIELDS(q, k, v, out)

  /// Throws ValueError unless `head_count` divides d.
  MultiHeadAttention(std::int64_t d, std::int64_t head_count, MultiHeadAttentionOptions chosen = {},
                     Site site = Site::current());
  /// `mask` as AttentionOptions::mask, broadcast to [..., heads, T, S].
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                    const Tensor& mask = {}, Site site = Site::current()) const;
  /// Self-attention: x is query, key and value.
  Tensor operator()(const Tensor& x, Site site = Site::current()) const;
};

}  // namespace nn

// ---- activations ---------------------------------------------------------------------------------

/// max(x, 0); its derivative at 0 is 0.
Tensor relu(const Tensor& x, Site site = Site::current());
struct GeluOptions {
  bool approximate = false;  ///< by tanh; else exactly, by erf
};
/// x times the normal distribution function of x.
Tensor gelu(const Tensor& x, GeluOptions options = {}, Site site = Site::current());
/// x * sigmoid(x).
Tensor silu(const Tensor& x, Site site = Site::current());
/// log(1 + e^x), safe from overflow.
Tensor softplus(const Tensor& x, Site site = Site::current());
/// x where it is positive, else alpha * x.
Tensor leaky_relu(const Tensor& x, double alpha = 0.01, Site site = Site::current());
/// x where it is positive, else alpha * (e^x - 1).
Tensor elu(const Tensor& x, double alpha = 1, Site site = Site::current());

/// e^x / sum(e^x) along an axis, safe from overflow.
Tensor softmax(const Tensor& x, int axis = -1, Site site = Site::current());
/// log(softmax(x)), computed without leaving the logarithm.
Tensor log_softmax(const Tensor& x, int axis = -1, Site site = Site::current());
/// Softmax of scores [..., T, S] over the last axis, where row t sees columns 0..t only.
Tensor causal_softmax(const Tensor& x, Site site = Site::current());

/// While training, zeroes each element with probability p and divides the others by 1 - p; outside
/// of training returns x. The random numbers are those of the step and of the call's place in the
/// program. Throws ValueError unless 0 <= p <= 1.
Tensor dropout(const Tensor& x, double p, Site site = Site::current());
/// The same under an explicit key (u32 [2]), always.
Tensor dropout(const Tensor& x, double p, const Tensor& key, Site site = Site::current());

// ---- pooling -------------------------------------------------------------------------------------

struct PoolOptions {
  std::optional<Size2> stride = {};  ///< the kernel's size if not given
  Size2 padding = 0;                 ///< at most half the kernel's size
};
/// Largest element of each window of images [N, C, H, W]; NaN if the window has one. Padding never
/// wins. The first of equal elements gets the derivative.
Tensor max_pool2d(const Tensor& x, Size2 kernel, PoolOptions options = {},
                  Site site = Site::current());
/// Mean of each window of images [N, C, H, W]; padding counts as zeros.
Tensor avg_pool2d(const Tensor& x, Size2 kernel, PoolOptions options = {},
                  Site site = Site::current());

// ---- attention -----------------------------------------------------------------------------------

/// [..., T, heads * d] to [..., heads, T, d]: head i has the i-th contiguous part of the features.
Tensor split_heads(const Tensor& x, std::int64_t heads, Site site = Site::current());
/// The inverse of split_heads.
Tensor merge_heads(const Tensor& x, Site site = Site::current());
struct AttentionOptions {
  bool causal = false;               ///< position t of q sees positions 0..t of k and v
  std::optional<double> scale = {};  ///< 1 / sqrt(d) if not given
  /// Broadcasts to [..., T, S]. bool: where position t of q may see position s (a row that sees
  /// nothing gives zeros); f32: added to the scores. Empty: everything is seen.
  Tensor mask = {};
  double dropout = 0;  ///< of the weights, while training
};
/// softmax(q k^T * scale + mask) v for q [..., T, d], k [..., S, d], v [..., S, e].
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                 const AttentionOptions& options = {}, Site site = Site::current());

// ---- losses --------------------------------------------------------------------------------------

/// What a loss makes of the losses of its elements.
enum class Reduction : std::uint8_t {
  mean,
  sum,
  none,
  batch_mean  ///< the sum divided by the extent of the first dimension
};

struct CrossEntropyOptions {
  std::int64_t ignore_index = -100;  ///< rows with this class index have loss 0 and do not count
  double label_smoothing = 0;        ///< the share of the target that is spread over all classes
  Reduction reduction = Reduction::mean;
};
/// -log softmax(logits) at the target, for logits [..., C] and class indices [...] (i32), or its
/// expectation under target probabilities [..., C] (f32). The mean is over rows. A class index out
/// of range has loss NaN. Throws ValueError unless 0 <= label_smoothing <= 1.
Tensor cross_entropy(const Tensor& logits, const Tensor& targets, CrossEntropyOptions options = {},
                     Site site = Site::current());
struct NllOptions {
  std::int64_t ignore_index = -100;
  Reduction reduction = Reduction::mean;
};
/// Minus the log-probability of the class, for log-probabilities [..., C] and indices [...] (i32).
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets, NllOptions options = {},
                Site site = Site::current());

/// The losses below take two tensors of one shape, and their mean is over all elements.

/// (prediction - target)^2.
Tensor mse_loss(const Tensor& prediction, const Tensor& target,
                Reduction reduction = Reduction::mean, Site site = Site::current());
/// |prediction - target|.
Tensor l1_loss(const Tensor& prediction, const Tensor& target,
               Reduction reduction = Reduction::mean, Site site = Site::current());
struct HuberOptions {
  double delta = 1;
  Reduction reduction = Reduction::mean;
};
/// d^2 / 2 for differences |d| <= delta, else delta * (|d| - delta / 2). Throws ValueError unless
/// delta > 0.
Tensor huber_loss(const Tensor& prediction, const Tensor& target, HuberOptions options = {},
                  Site site = Site::current());
struct SmoothL1Options {
  double beta = 1;
  Reduction reduction = Reduction::mean;
};
/// d^2 / (2 beta) for differences |d| < beta, else |d| - beta / 2; |d| for beta 0. Throws
/// ValueError unless beta is at least 0.
Tensor smooth_l1_loss(const Tensor& prediction, const Tensor& target, SmoothL1Options options = {},
                      Site site = Site::current());
struct BceOptions {
  /// p below, broadcast to the logits: above 1 it favours recall. Empty: 1.
  Tensor pos_weight = {};
  Reduction reduction = Reduction::mean;
};
/// -(p t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))), safe from overflow.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& targets,
                                        const BceOptions& options = {},
                                        Site site = Site::current());
struct KlOptions {
  bool log_target = false;  ///< the targets are log-probabilities too
  Reduction reduction = Reduction::mean;
};
/// t * (log t - l) for log-probabilities l and target probabilities t; 0 where t is 0.
Tensor kl_div(const Tensor& log_probabilities, const Tensor& targets, KlOptions options = {},
              Site site = Site::current());

}  // namespace tensorgrad
