// The image classifiers of the command.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensorgrad/compile.h"
#include "tensorgrad/nn.h"

namespace tensorgrad::tools {

/// Two hidden layers over the flattened image.
struct Mlp {
  nn::Linear fc1{784, 256}, fc2{256, 128}, fc3{128, 10};
  TENSORGRAD_FIELDS(fc1, fc2, fc3)
  /// Images [B, 1, 28, 28] to logits [B, 10].
  Tensor operator()(const Tensor& images) const;
};

/// Two convolutions with pooling, then two dense layers.
struct Cnn {
  nn::Conv2d conv1{1, 16, 3, {.padding = 1}}, conv2{16, 32, 3, {.padding = 1}};
  nn::Linear fc1{1568, 128}, fc2{128, 10};
  TENSORGRAD_FIELDS(conv1, conv2, fc1, fc2)
  /// Images [B, 1, 28, 28] to logits [B, 10].
  Tensor operator()(const Tensor& images) const;
};

/// The names that `start_classifier` knows.
std::vector<std::string> model_names();

/// A training of a model and its forward pass on the same parameters, apart from the model's type.
struct Classifier {
  /// Feeds "images" f32 [B, 1, 28, 28] and "labels" i32 [B]; the step's result has "logits".
  std::shared_ptr<AnyTraining> training;
  /// Feeds "images" f32 [any, 1, 28, 28]; the result is the logits [any, 10].
  Forward forward;
  std::int64_t parameters = 0;  ///< trainable elements
};

/// Starts the training of a run's model. A batch of `dyn` compiles when it is first fed. Throws
/// ValueError for an unknown model, DeviceError for an unknown device.
Classifier start_classifier(const std::string& model, const std::string& device,
                            const Optimizer& optimizer, std::uint64_t seed, std::int64_t batch);

}  // namespace tensorgrad::tools
