// Batch norm and group norm: PyTorch's formulas in double, in a loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/evaluate.h"
#include "tensorgrad/nn.h"

namespace tensorgrad {
namespace {

using testing::bind_inputs;
using testing::check_gradients;
using testing::Doubles;
using testing::evaluate;
using testing::expect_near;
using ::testing::HasSubstr;
using testing::input;
using testing::Leaves;
using testing::message_of;
using testing::scattered;

/// Mean and biased variance of the elements of x that `chosen` picks.
template <class F>
std::pair<double, double> moments(const Doubles& x, F chosen) {
  double sum = 0, squares = 0, n = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!chosen(i)) continue;
    sum += x[i];
    ++n;
  }
  const double mean = sum / n;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (chosen(i)) squares += (x[i] - mean) * (x[i] - mean);
  }
  return {mean, squares / n};
}

Leaves leaves_for(nn::BatchNorm& layer, const Shape& shape) {
  Leaves leaves{.inputs = {{"x", scattered(numel(shape))}}};
  bind_inputs(layer, leaves);
  visit_buffers(layer, [&](const std::string& name, Buffer& b) {
    b.bind(input(name, b.shape), name);
    leaves.inputs[name] = scattered(numel(b.shape), 1, hash32(name));
    for (double& v : leaves.inputs[name]) v = std::abs(v) + 0.5;
  });
  return leaves;
}

TEST(BatchNorm, WhileTrainingUsesTheBatch) {
  const Shape shape{2, 3, 4};
  nn::BatchNorm layer(3);
  Leaves leaves = leaves_for(layer, shape);
  const Tensor y = layer(input("x", shape));
  const Doubles& x = leaves.inputs["x"];
  Doubles expected(x.size());
  Doubles running_mean, running_variance;
  for (std::size_t c = 0; c < 3; ++c) {
    const auto in_channel = [&](std::size_t i) { return i / 4 % 3 == c; };
    const auto [mean, variance] = moments(x, in_channel);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (!in_channel(i)) continue;
      expected[i] = (x[i] - mean) / std::sqrt(variance + 1e-5) * leaves.inputs["g"][c] +
                    leaves.inputs["b"][c];
    }
    running_mean.push_back(0.9 * leaves.inputs["mean"][c] + 0.1 * mean);
    running_variance.push_back(0.9 * leaves.inputs["variance"][c] + 0.1 * variance * 8 / 7);
  }
  expect_near(evaluate(y, leaves), expected);
  // What it assigns, found where compile finds it.
  std::map<std::string, Doubles> assigned;
  for (const Node* n : topological(std::span(&y, 1))) {
    if (const auto* b = std::get_if<BufferAttr>(&n->attrs)) {
      assigned[b->name] = evaluate(n->operand(1), leaves);
    }
  }
  expect_near(assigned["mean"], running_mean);
  expect_near(assigned["variance"], running_variance);
}

TEST(BatchNorm, ElsewhereUsesTheRunningStatistics) {
  const Shape shape{5, 2};
  nn::BatchNorm layer(2, {.eps = 0.01, .affine = false});
  Leaves leaves = leaves_for(layer, shape);
  leaves.training = false;
  Doubles expected;
  for (std::size_t i = 0; i < 10; ++i) {
    expected.push_back((leaves.inputs["x"][i] - leaves.inputs["mean"][i % 2]) /
                       std::sqrt(leaves.inputs["variance"][i % 2] + 0.01));
  }
  expect_near(evaluate(layer(input("x", shape)), leaves), expected);
}

TEST(BatchNorm, Gradients) {
  for (const bool training : {true, false}) {
    const Shape shape{3, 2, 2, 2};
    nn::BatchNorm layer(2);
    Leaves leaves = leaves_for(layer, shape);
    leaves.training = training;
    const Tensor x = input("x", shape);
    check_gradients(layer(x), {x, layer.g->bound, layer.b->bound}, leaves);
  }
}

TEST(BatchNorm, Errors) {
  const nn::BatchNorm layer(3);
  EXPECT_EQ(message_of<ShapeError>([&] { layer(zeros({2, 4})); }),
            "BatchNorm: takes [N, 3, ...], not shape [2, 4].");
  EXPECT_EQ(message_of<ValueError>([] { nn::BatchNorm(3, {.momentum = 2}); }),
            "BatchNorm: momentum is 2, not in [0, 1].");
  nn::BatchNorm named(3);
  initialise(named, 0);
  const auto per_element = vmap([&](const Tensor& x) { return sum(named(x)); });
  EXPECT_THAT(message_of<GraphError>([&] { per_element(zeros({2, 4, 3})); }),
              HasSubstr("assign: the elements of a batch have different values for buffer `mean`"));
}

TEST(GroupNorm, Value) {
  const Shape shape{2, 4, 3};
  nn::GroupNorm layer(2, 4);
  Leaves leaves{.inputs = {{"x", scattered(numel(shape))}}};
  bind_inputs(layer, leaves);
  const Doubles& x = leaves.inputs["x"];
  Doubles expected;
  for (std::size_t i = 0; i < x.size(); ++i) {
    // Six elements of an example and group lie side by side.
    const auto [mean, variance] = moments(x, [&](std::size_t j) { return j / 6 == i / 6; });
    expected.push_back((x[i] - mean) / std::sqrt(variance + 1e-5) * leaves.inputs["g"][i / 3 % 4] +
                       leaves.inputs["b"][i / 3 % 4]);
  }
  expect_near(evaluate(layer(input("x", shape)), leaves), expected);
  EXPECT_EQ(layer(zeros({0, 4, 3})).shape(), (Shape{0, 4, 3}));
}

TEST(GroupNorm, GradientsAndErrors) {
  nn::GroupNorm layer(2, 4);
  Leaves leaves{.inputs = {{"x", scattered(16)}}};
  std::vector<Tensor> by = bind_inputs(layer, leaves);
  by.push_back(input("x", {2, 4, 2}));
  check_gradients(layer(by.back()), by, leaves);
  EXPECT_EQ(message_of<ValueError>([] { nn::GroupNorm(3, 4); }),
            "GroupNorm: 3 groups do not divide 4 channels.");
}

}  // namespace
}  // namespace tensorgrad
