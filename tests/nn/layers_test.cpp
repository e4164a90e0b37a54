#include "nn/evaluate.h"
#include "tensorgrad/nn.h"

namespace tensorgrad {
namespace {

using testing::bind_inputs;
using testing::check_gradients;
using testing::Doubles;
using testing::evaluate;
using testing::expect_near;
using testing::input;
using testing::Leaves;
using testing::literal;
using testing::message_of;
using testing::scattered;

/// Checks a layer's gradients by its input and its parameters.
template <class Layer>
void check_layer(Layer layer, const Shape& shape) {
  Leaves leaves{.inputs = {{"x", scattered(numel(shape))}}};
  std::vector<Tensor> by = bind_inputs(layer, leaves);
  by.push_back(input("x", shape));
  check_gradients(layer(by.back()), by, leaves);
}

template <class Layer>
std::vector<std::string> described(const Layer& layer) {
  std::vector<std::string> out;
  visit_params(layer, [&](const std::string& name, const Param& p) {
    out.push_back(name + to_string(p.shape) + (p.decay ? " decays" : ""));
  });
  return out;
}

using Strings = std::vector<std::string>;

TEST(Linear, Parameters) {
  const nn::Linear layer(3, 2);
  EXPECT_EQ(described(layer), (Strings{"W[3, 2] decays", "b[2]"}));
  EXPECT_EQ(described(nn::Linear(3, 2, {.bias = false})), (Strings{"W[3, 2] decays"}));
  EXPECT_EQ(layer.W.init, Init::uniform(1 / std::sqrt(3.0)));
  EXPECT_EQ(layer.b->init, Init::uniform(1 / std::sqrt(3.0)));
}

TEST(Linear, Value) {
  nn::Linear layer(3, 2);
  layer.W.bind(literal(Doubles{1, 2, 3, 4, 5, 6}, {3, 2}));
  layer.b->bind(array({10, 20}));
  EXPECT_EQ(evaluate(layer(literal(Doubles{1, 0, -1, 2, 1, 0}, {2, 3}))),
            (Doubles{1 - 5 + 10, 2 - 6 + 20, 2 + 3 + 10, 4 + 4 + 20}));
  EXPECT_EQ(layer(zeros({3})).shape(), (Shape{2}));
  EXPECT_EQ(layer(zeros({4, 5, 3})).shape(), (Shape{4, 5, 2}));
  EXPECT_EQ(layer(zeros({0, 3})).shape(), (Shape{0, 2}));
}

TEST(Linear, Gradients) {
  check_layer(nn::Linear(3, 2), {4, 3});
  check_layer(nn::Linear(3, 2, {.bias = false}), {2, 2, 3});
}

TEST(Linear, Errors) {
  nn::Linear layer(64, 10);
  EXPECT_EQ(message_of<ShapeError>([&] { layer(zeros({2, 5})); }),
            "Linear: the input's last dimension is 5, not the layer's 64.");
  layer.W.bind(input("head.W", {64, 10}));
  EXPECT_EQ(message_of<ShapeError>([&] { layer(zeros({2, 5})); }),
            "Linear: the input's last dimension is 5, not the layer's 64. Its weight is `head.W`.");
  layer.W.bind(zeros({64, 10}), "l1.W");
  EXPECT_EQ(message_of<DTypeError>([&] { layer(arange(64)); }),
            "Linear: takes f32, not i32; cast it first. Its weight is `l1.W`.");
  EXPECT_EQ(message_of<ShapeError>([&] { layer(full({}, 1)); }),
            "Linear: takes no scalars; the layer's last dimension is 64. Its weight is `l1.W`.");
  EXPECT_EQ(message_of<ValueError>([] { nn::Linear(0, 3); }),
            "Linear: the number of inputs is 0, not at least 1.");
}

TEST(Linear, TheErrorNamesTheCallersLine) {
  const nn::Linear layer(2, 2);
  const int line = __LINE__ + 2;
  try {
    layer(zeros({3}));
    FAIL() << "nothing was thrown";
  } catch (const ShapeError& error) {
    EXPECT_EQ(error.what(),
              fmt::format("Linear: the input's last dimension is 3, not the layer's 2.\n  at {}:{}",
                          __FILE__, line));
  }
}

TEST(Conv2d, Parameters) {
  const nn::Conv2d layer(4, 6, {3, 2}, {.groups = 2});
  EXPECT_EQ(described(layer), (Strings{"W[6, 2, 3, 2] decays", "b[6]"}));
  EXPECT_EQ(layer.W.init, Init::uniform(1 / std::sqrt(12.0)));
}

TEST(Conv2d, Value) {
  nn::Conv2d layer(2, 3, {2, 3}, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}});
  Leaves leaves{.inputs = {{"x", scattered(2 * 2 * 5 * 7)}}};
  bind_inputs(layer, leaves);
  const Tensor y = layer(input("x", {2, 2, 5, 7}));
  ASSERT_EQ(y.shape(), (Shape{2, 3, 3, 3}));
  const Doubles& x = leaves.inputs["x"];
  const Doubles& w = leaves.inputs["W"];
  Doubles expected;
  for (int n = 0; n < 2; ++n) {
    for (int o = 0; o < 3; ++o) {
      for (int r = 0; r < 3; ++r) {
        for (int c = 0; c < 3; ++c) {
          double total = leaves.inputs["b"][static_cast<std::size_t>(o)];
          for (int i = 0; i < 2; ++i) {
            for (int u = 0; u < 2; ++u) {
              for (int v = 0; v < 3; ++v) {
                const int row = 2 * r + u - 1;
                const int column = c + 2 * v;
                if (row < 0 || row >= 5) continue;
                total += x[static_cast<std::size_t>(((n * 2 + i) * 5 + row) * 7 + column)] *
                         w[static_cast<std::size_t>(((o * 2 + i) * 2 + u) * 3 + v)];
              }
            }
          }
          expected.push_back(total);
        }
      }
    }
  }
  expect_near(evaluate(y, leaves), expected, 1e-12);
}

TEST(Conv2d, Gradients) {
  check_layer(nn::Conv2d(2, 2, 3, {.padding = 1}), {1, 2, 4, 3});
  check_layer(nn::Conv2d(2, 4, 2, {.stride = 2, .groups = 2, .bias = false}), {2, 2, 4, 5});
}

TEST(Conv2d, Errors) {
  nn::Conv2d layer(3, 8, 3);
  layer.W.bind(zeros(layer.W.shape), "conv1.W");
  EXPECT_EQ(message_of<ShapeError>([&] { layer(zeros({2, 1, 8, 8})); }),
            "Conv2d: the input has 1 channels, not the layer's 3. Its weight is `conv1.W`.");
  EXPECT_EQ(message_of<ShapeError>([&] { layer(zeros({3, 8, 8})); }),
            "Conv2d: takes images [N, C, H, W], not shape [3, 8, 8]. Its weight is `conv1.W`.");
  EXPECT_EQ(message_of<ShapeError>([&] { layer(zeros({1, 3, 8, 2})); }),
            "Conv2d: the window's width is 3, more than the input's 2 with padding 0. Its weight "
            "is `conv1.W`.");
  EXPECT_EQ(message_of<ValueError>([] { nn::Conv2d(3, 8, 3, {.groups = 2}); }),
            "Conv2d: 2 groups do not divide 3 input and 8 output channels.");
  EXPECT_EQ(message_of<ValueError>([] { nn::Conv2d(3, 8, 3, {.stride = 0}); }),
            "Conv2d: the stride is 0, not at least 1.");
  EXPECT_EQ(message_of<ValueError>([] { nn::Conv2d(3, 8, 3, {.padding = {1, -1}}); }),
            "Conv2d: the padding is -1, not at least 0.");
}

TEST(Embedding, Value) {
  nn::Embedding layer(3, 2);
  EXPECT_EQ(described(layer), (Strings{"W[3, 2] decays"}));
  EXPECT_EQ(layer.W.init, Init::normal(1));
  layer.W.bind(literal(Doubles{1, 2, 3, 4, 5, 6}, {3, 2}));
  const Tensor y = layer(literal(std::vector<std::int32_t>{2, 0, 1, 2}, {2, 2}));
  EXPECT_EQ(y.shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(evaluate(y), (Doubles{5, 6, 1, 2, 3, 4, 5, 6}));
  const double nan = std::nan("");
  expect_near(evaluate(layer(literal(std::vector<std::int32_t>{3, -1}, {2}))),
              {nan, nan, nan, nan});
}

TEST(Embedding, Gradients) {
  nn::Embedding layer(3, 2);
  Leaves leaves;
  const std::vector<Tensor> by = bind_inputs(layer, leaves);
  check_gradients(layer(literal(std::vector<std::int32_t>{2, 0, 2, 2}, {4})), by, leaves);
}

TEST(Embedding, PaddingReadsZerosAndLearnsNothing) {
  nn::Embedding layer(3, 2, {.padding_index = 1});
  layer.W.bind(literal(Doubles{1, 2, 3, 4, 5, 6}, {3, 2}));
  const Tensor y = layer(literal(std::vector<std::int32_t>{1, 0, 1}, {3}));
  EXPECT_EQ(evaluate(y), (Doubles{0, 0, 1, 2, 0, 0}));
  const std::vector<Tensor> by{layer.W.bound};
  const Tensor seed = full({3, 2}, 1);
  EXPECT_EQ(evaluate(vjp(std::span(&y, 1), by, std::span(&seed, 1))[0]),
            (Doubles{1, 1, 0, 0, 0, 0}));
  EXPECT_EQ(message_of<ValueError>([] { nn::Embedding(3, 2, {.padding_index = 3}); }),
            "Embedding: the padding index is 3, not one of 3 rows.");
}

TEST(Embedding, Errors) {
  EXPECT_EQ(message_of<DTypeError>([] { nn::Embedding(3, 2)(zeros({2})); }),
            "Embedding: takes i32 positions, not f32.");
  EXPECT_EQ(message_of<ValueError>([] { nn::Embedding(-3, 2); }),
            "Embedding: the number of rows is -3, not at least 1.");
}

TEST(LayerNorm, Value) {
  nn::LayerNorm layer(4, {.eps = 0.25});
  EXPECT_EQ(described(layer), (Strings{"g[4]", "b[4]"}));
  layer.b->bind(array({1, 2, 3, 4}));
  // Mean 2, variance (1 + 9 + 1 + 9) / 4 = 5.
  const double s = 1 / std::sqrt(5.25);
  expect_near(evaluate(layer(array({3, 5, 1, -1}))), {s + 1, 3 * s + 2, -s + 3, -3 * s + 4}, 1e-12);
  EXPECT_EQ(described(nn::LayerNorm(4, {.bias = false})), (Strings{"g[4]"}));
}

TEST(LayerNorm, Gradients) {
  check_layer(nn::LayerNorm(5), {3, 5});
  check_layer(nn::LayerNorm(3, {.bias = false}), {2, 2, 3});
}

TEST(LayerNorm, OverSeveralDimensions) {
  nn::LayerNorm layer({2, 2}, {.eps = 0.25});
  EXPECT_EQ(described(layer), (Strings{"g[2, 2]", "b[2, 2]"}));
  layer.b->bind(literal(Doubles{1, 2, 3, 4}, {2, 2}));
  const double s = 1 / std::sqrt(5.25);
  expect_near(evaluate(layer(literal(Doubles{3, 5, 1, -1}, {1, 2, 2}))),
              {s + 1, 3 * s + 2, -s + 3, -3 * s + 4}, 1e-12);
  check_layer(nn::LayerNorm({3, 2}), {4, 3, 2});
  EXPECT_EQ(message_of<ShapeError>([] { nn::LayerNorm({3, 2})(zeros({2, 2, 2})); }),
            "LayerNorm: the input's shape [2, 2, 2] does not end in the layer's [3, 2].");
  EXPECT_EQ(message_of<ValueError>([] { nn::LayerNorm(Shape{}); }),
            "LayerNorm: no dimensions to normalise are given.");
}

TEST(RMSNorm, Value) {
  nn::RMSNorm layer(2, {.eps = 0.5});
  EXPECT_EQ(described(layer), (Strings{"g[2]"}));
  layer.g.bind(array({2, 3}));
  const double s = 1 / std::sqrt(25.0 / 2 + 0.5);
  expect_near(evaluate(layer(array({3, 4}))), {6 * s, 12 * s}, 1e-12);
}

TEST(RMSNorm, Gradients) { check_layer(nn::RMSNorm(4), {3, 4}); }

TEST(Norms, Errors) {
  EXPECT_EQ(message_of<ShapeError>([] { nn::LayerNorm(4)(zeros({4, 3})); }),
            "LayerNorm: the input's last dimension is 3, not the layer's 4.");
  EXPECT_EQ(message_of<ShapeError>([] { nn::RMSNorm(4)(zeros({4, 3})); }),
            "RMSNorm: the input's last dimension is 3, not the layer's 4.");
  EXPECT_EQ(message_of<ValueError>([] { nn::LayerNorm(4, {.eps = -1}); }),
            "LayerNorm: eps is -1, not a finite number of at least 0.");
}

}  // namespace
}  // namespace tensorgrad
