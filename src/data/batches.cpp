// Batches of samples in a reproducible order, and their contents as floats and integers.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "tensorgrad/data.h"

namespace tensorgrad {
namespace {

constexpr std::uint64_t golden_gamma = 0x9e3779b97f4a7c15U;

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

// SplitMix64; std::shuffle and the standard distributions differ between libraries.
class Generator {
 public:
  explicit Generator(std::uint64_t state) : state_(state) {}

  // Uniform in [0, bound), without the bias of a plain remainder.
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t threshold = (0 - bound) % bound;  // 2^64 modulo bound
    for (;;) {
      state_ += golden_gamma;
      const std::uint64_t bits = mix(state_);
      if (bits >= threshold) return bits % bound;
    }
  }

 private:
  std::uint64_t state_;
};

void check_indices(const LabelledImages& data, std::span<const std::int64_t> indices) {
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= data.count) {
      throw ValueError(
          fmt::format("Sample index {} is outside [0, {}) of the data set.", index, data.count));
    }
  }
}

}  // namespace

Batches::Batches(std::int64_t samples, std::int64_t batch_size, BatchOptions options)
    : samples_(samples), batch_size_(batch_size), options_(options) {
  if (samples < 0) throw ValueError(fmt::format("The number of samples is {}, below 0.", samples));
  if (batch_size < 1) throw ValueError(fmt::format("The batch size is {}, below 1.", batch_size));
}

std::int64_t Batches::batches_per_epoch() const {
  const std::int64_t full = samples_ / batch_size_;
  return full + (samples_ % batch_size_ != 0 && !options_.drop_last ? 1 : 0);
}

EpochBatches Batches::epoch(std::int64_t epoch) const {
  if (epoch < 0) throw ValueError(fmt::format("The epoch is {}, below 0.", epoch));
  EpochBatches result;
  result.batch_size_ = batch_size_;
  result.size_ = batches_per_epoch();
  result.order_.resize(static_cast<std::size_t>(samples_));
  std::iota(result.order_.begin(), result.order_.end(), std::int64_t{0});
  if (options_.shuffle) {
    const auto step = (static_cast<std::uint64_t>(epoch) + 1) * golden_gamma;
    Generator generator(mix(mix(options_.seed + golden_gamma) ^ step));
    for (std::size_t last = result.order_.size(); last > 1; --last) {
      std::swap(result.order_[last - 1], result.order_[generator.below(last)]);
    }
  }
  return result;
}

std::span<const std::int64_t> EpochBatches::operator[](std::int64_t batch) const {
  if (batch < 0 || batch >= size_) {
    throw ValueError(fmt::format("Batch {} is outside [0, {}) of the epoch.", batch, size_));
  }
  const auto begin = static_cast<std::size_t>(batch * batch_size_);
  return std::span(order_).subspan(
      begin, std::min(static_cast<std::size_t>(batch_size_), order_.size() - begin));
}

std::vector<float> gather_images(const LabelledImages& data, std::span<const std::int64_t> indices,
                                 const PixelScaling& scaling) {
  check_indices(data, indices);
  if (!std::isfinite(scaling.mean) || !std::isfinite(scaling.standard_deviation) ||
      scaling.standard_deviation <= 0) {
    throw ValueError(fmt::format(
        "Pixels cannot be scaled with mean {} and standard deviation {}: both must be finite and "
        "the deviation above 0.",
        scaling.mean, scaling.standard_deviation));
  }
  std::array<float, 256> scaled{};
  for (std::size_t x = 0; x < scaled.size(); ++x) {
    scaled[x] = static_cast<float>((static_cast<double>(x) / 255 - scaling.mean) /
                                   scaling.standard_deviation);
  }
  const auto pixels = static_cast<std::size_t>(data.height * data.width);
  std::vector<float> result(indices.size() * pixels);
  auto to = result.begin();
  for (const std::int64_t index : indices) {
    const auto image =
        std::span(data.images).subspan(static_cast<std::size_t>(index) * pixels, pixels);
    to = std::ranges::transform(image, to, [&](std::uint8_t x) { return scaled[x]; }).out;
  }
  return result;
}

std::vector<std::int32_t> gather_labels(const LabelledImages& data,
                                        std::span<const std::int64_t> indices) {
  check_indices(data, indices);
  std::vector<std::int32_t> result(indices.size());
  std::ranges::transform(indices, result.begin(), [&](std::int64_t index) {
    return data.labels[static_cast<std::size_t>(index)];
  });
  return result;
}

}  // namespace tensorgrad
