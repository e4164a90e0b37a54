// How well a classifier does on labelled images.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "report.h"
#include "tensorgrad/compile.h"
#include "tensorgrad/data.h"

namespace tensorgrad::tools {

/// How the command feeds pixels: roughly centred, with deviation 1 over Fashion-MNIST.
inline constexpr PixelScaling pixel_scaling{.mean = 0.286, .standard_deviation = 0.353};

struct Evaluation {
  double loss = 0;      ///< mean cross entropy
  double accuracy = 0;  ///< 0 to 1
  std::int64_t images = 0;
  std::vector<std::vector<std::int64_t>> confusion;  ///< [true class][predicted class]
  std::vector<WrongPrediction> wrong;                ///< the most confident ones, worst first
};

/// How many rows of logits [rows, classes] have their maximum at the label.
std::int64_t count_correct(std::span<const float> logits, std::span<const std::int32_t> labels);

/// Runs `forward`, images to logits, over the data, and keeps up to `most_wrong` wrong predictions.
Evaluation evaluate(Forward& forward, const LabelledImages& data, std::size_t most_wrong);

}  // namespace tensorgrad::tools
