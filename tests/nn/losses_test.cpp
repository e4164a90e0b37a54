#include <cmath>
#include <limits>

#include "nn/evaluate.h"
#include "tensorgrad/nn.h"

namespace tensorgrad {
namespace {

using testing::check_gradients;
using testing::Doubles;
using testing::evaluate;
using testing::expect_near;
using testing::input;
using testing::Leaves;
using testing::literal;
using testing::message_of;
using testing::scattered;

using Ints = std::vector<std::int32_t>;
const double nan = std::nan("");

/// log softmax of each row of [rows, classes].
Doubles log_softmax_rows(const Doubles& x, std::size_t classes) {
  Doubles out;
  for (std::size_t r = 0; r < x.size(); r += classes) {
    double total = 0;
    for (std::size_t c = 0; c < classes; ++c) total += std::exp(x[r + c]);
    for (std::size_t c = 0; c < classes; ++c) out.push_back(x[r + c] - std::log(total));
  }
  return out;
}

double total(const Doubles& x) {
  double out = 0;
  for (double v : x) out += v;
  return out;
}

TEST(CrossEntropy, OfClassIndices) {
  const Leaves leaves{.inputs = {{"x", scattered(4 * 3)}}};
  const Tensor x = input("x", {2, 2, 3});
  const Tensor targets = literal(Ints{2, 0, 1, 1}, {2, 2});
  const Doubles logs = log_softmax_rows(leaves.inputs.at("x"), 3);
  const Doubles rows{-logs[2], -logs[3], -logs[7], -logs[10]};
  expect_near(evaluate(cross_entropy(x, targets, {.reduction = Reduction::none}), leaves), rows,
              1e-12);
  EXPECT_EQ(cross_entropy(x, targets, {.reduction = Reduction::none}).shape(), (Shape{2, 2}));
  expect_near(evaluate(cross_entropy(x, targets, {.reduction = Reduction::sum}), leaves),
              {total(rows)}, 1e-12);
  expect_near(evaluate(cross_entropy(x, targets), leaves), {total(rows) / 4}, 1e-12);
}

TEST(CrossEntropy, IgnoredRowsDoNotCount) {
  const Leaves leaves{.inputs = {{"x", scattered(3 * 3)}}};
  const Tensor x = input("x", {3, 3});
  const Doubles logs = log_softmax_rows(leaves.inputs.at("x"), 3);
  const Tensor targets = literal(Ints{1, -100, 0}, {3});
  expect_near(evaluate(cross_entropy(x, targets), leaves), {-(logs[1] + logs[6]) / 2}, 1e-12);
  expect_near(evaluate(cross_entropy(x, targets, {.reduction = Reduction::none}), leaves),
              {-logs[1], 0, -logs[6]}, 1e-12);
  expect_near(evaluate(cross_entropy(x, literal(Ints{1, 2, 0}, {3}), {.ignore_index = 2}), leaves),
              {-(logs[1] + logs[6]) / 2}, 1e-12);
  expect_near(evaluate(cross_entropy(x, literal(Ints{-100, -100, -100}, {3})), leaves), {nan});
}

TEST(CrossEntropy, AnIndexOutOfRangeIsNotSilent) {
  const Leaves leaves{.inputs = {{"x", scattered(2 * 3)}}};
  const Tensor x = input("x", {2, 3});
  const Doubles logs = log_softmax_rows(leaves.inputs.at("x"), 3);
  expect_near(
      evaluate(cross_entropy(x, literal(Ints{3, 0}, {2}), {.reduction = Reduction::none}), leaves),
      {nan, -logs[3]});
  expect_near(evaluate(cross_entropy(x, literal(Ints{1, -1}, {2})), leaves), {nan});
}

TEST(CrossEntropy, LabelSmoothing) {
  const Leaves leaves{.inputs = {{"x", scattered(2 * 4)}}};
  const Tensor x = input("x", {2, 4});
  const Doubles logs = log_softmax_rows(leaves.inputs.at("x"), 4);
  const auto row = [&](std::size_t r, std::size_t target) {
    double loss = -0.9 * logs[4 * r + target];
    for (std::size_t c = 0; c < 4; ++c) loss -= 0.1 / 4 * logs[4 * r + c];
    return loss;
  };
  expect_near(
      evaluate(cross_entropy(x, literal(Ints{3, 1}, {2}), {.label_smoothing = 0.1}), leaves),
      {(row(0, 3) + row(1, 1)) / 2});
  const Tensor certain = literal(Doubles{0, 0, 0, 1, 0, 1, 0, 0}, {2, 4});
  expect_near(evaluate(cross_entropy(x, certain, {.label_smoothing = 0.1}), leaves),
              {(row(0, 3) + row(1, 1)) / 2});
}

TEST(CrossEntropy, OfProbabilities) {
  const Leaves leaves{.inputs = {{"x", scattered(2 * 3)}}};
  const Tensor x = input("x", {2, 3});
  const Doubles logs = log_softmax_rows(leaves.inputs.at("x"), 3);
  const Tensor targets = literal(Doubles{0.5, 0.25, 0.25, 0, 1, 0}, {2, 3});
  const Doubles rows{-(0.5 * logs[0] + 0.25 * logs[1] + 0.25 * logs[2]), -logs[4]};
  expect_near(evaluate(cross_entropy(x, targets, {.reduction = Reduction::none}), leaves), rows,
              1e-12);
  expect_near(evaluate(cross_entropy(x, targets), leaves), {total(rows) / 2}, 1e-12);
}

TEST(CrossEntropy, LargeLogitsDoNotOverflow) {
  const Tensor x = literal(Doubles{1000, 0, -1000, 3000, 3000, 3000}, {2, 3});
  expect_near(evaluate(cross_entropy(x, literal(Ints{1, 2}, {2}), {.reduction = Reduction::none})),
              {1000, std::log(3.0)});
}

TEST(CrossEntropy, Gradients) {
  const Tensor x = input("x", {3, 4});
  const Leaves leaves{.inputs = {{"x", scattered(12)}, {"p", scattered(12, 1, 9)}}};
  const Tensor targets = literal(Ints{3, -100, 1}, {3});
  check_gradients(cross_entropy(x, targets), {x}, leaves);
  check_gradients(
      cross_entropy(x, targets, {.label_smoothing = 0.25, .reduction = Reduction::none}), {x},
      leaves);
  const Tensor p = input("p", {3, 4});
  check_gradients(cross_entropy(x, p, {.label_smoothing = 0.25}), {x, p}, leaves);
}

TEST(CrossEntropy, TheGradientIsSoftmaxMinusOne) {
  const Tensor x = input("x", {1, 3});
  const Tensor y = cross_entropy(x, literal(Ints{1}, {1}));
  const Tensor seed = full({}, 1);
  const Doubles values{1, 2, 3};
  const Doubles logs = log_softmax_rows(values, 3);
  expect_near(evaluate(vjp(std::span(&y, 1), std::span(&x, 1), std::span(&seed, 1))[0],
                       {.inputs = {{"x", values}}}),
              {std::exp(logs[0]), std::exp(logs[1]) - 1, std::exp(logs[2])}, 1e-12);
}

TEST(CrossEntropy, Errors) {
  EXPECT_EQ(message_of<ShapeError>([] { cross_entropy(zeros({3, 10}), arange(4)); }),
            "cross_entropy: the class indices have shape [4], not [3], which [3, 10] is without "
            "classes.");
  EXPECT_EQ(message_of<ShapeError>([] { cross_entropy(zeros({3, 10}), zeros({3})); }),
            "cross_entropy: shapes [3, 10] and [3] differ.");
  EXPECT_EQ(message_of<DTypeError>([] { cross_entropy(zeros({3, 10}), zeros({3}, DType::bool_)); }),
            "cross_entropy: takes i32 class indices, not bool.");
  EXPECT_EQ(message_of<ShapeError>([] { cross_entropy(zeros({3, 0}), arange(3)); }),
            "cross_entropy: shape [3, 0] has no classes in its last dimension.");
  EXPECT_EQ(message_of<DTypeError>([] { cross_entropy(arange(3), arange(3)); }),
            "cross_entropy: takes f32, not i32; cast it first.");
  EXPECT_EQ(message_of<ValueError>(
                [] { cross_entropy(zeros({3, 2}), arange(3), {.label_smoothing = 2}); }),
            "cross_entropy: label_smoothing is 2, not in [0, 1].");
}

TEST(NllLoss, ValueAndGradients) {
  const Leaves leaves{.inputs = {{"x", scattered(9)}}};
  const Doubles& x = leaves.inputs.at("x");
  const Tensor logs = input("x", {3, 3});
  const Tensor targets = literal(Ints{2, -100, 0}, {3});
  expect_near(evaluate(nll_loss(logs, targets), leaves), {-(x[2] + x[6]) / 2}, 1e-12);
  expect_near(evaluate(nll_loss(logs, targets, {.reduction = Reduction::sum}), leaves),
              {-(x[2] + x[6])}, 1e-12);
  check_gradients(nll_loss(logs, targets), {logs}, leaves);
}

/// A loss of pairs, its loop, and where its operands lie.
struct PairLoss {
  const char* name;
  Tensor (*loss)(const Tensor& a, const Tensor& b, Reduction reduction);
  double (*element)(double a, double b);
  bool targets_are_probabilities = false;
};
std::vector<PairLoss> pair_losses() {
  return {
      {"mse_loss", [](const Tensor& a, const Tensor& b, Reduction r) { return mse_loss(a, b, r); },
       [](double a, double b) { return (a - b) * (a - b); }},
      {"l1_loss", [](const Tensor& a, const Tensor& b, Reduction r) { return l1_loss(a, b, r); },
       [](double a, double b) { return std::abs(a - b); }},
      {"huber_loss",
       [](const Tensor& a, const Tensor& b, Reduction r) {
         return huber_loss(a, b, {.delta = 0.75, .reduction = r});
       },
       [](double a, double b) {
         const double d = std::abs(a - b);
         return d <= 0.75 ? d * d / 2 : 0.75 * (d - 0.375);
       }},
      {"binary_cross_entropy_with_logits",
       [](const Tensor& a, const Tensor& b, Reduction r) {
         return binary_cross_entropy_with_logits(a, b, {.reduction = r});
       },
       [](double a, double b) {
         const double s = 1 / (1 + std::exp(-a));
         return -b * std::log(s) - (1 - b) * std::log(1 - s);
       },
       true},
      {"binary_cross_entropy_with_logits",
       [](const Tensor& a, const Tensor& b, Reduction r) {
         return binary_cross_entropy_with_logits(a, b, {.pos_weight = full({}, 3), .reduction = r});
       },
       [](double a, double b) {
         const double s = 1 / (1 + std::exp(-a));
         return -3 * b * std::log(s) - (1 - b) * std::log(1 - s);
       },
       true},
      {"kl_div",
       [](const Tensor& a, const Tensor& b, Reduction r) { return kl_div(a, b, {.reduction = r}); },
       [](double a, double b) { return b * (std::log(b) - a); }, true},
      {"kl_div",
       [](const Tensor& a, const Tensor& b, Reduction r) {
         return kl_div(a, b, {.log_target = true, .reduction = r});
       },
       [](double a, double b) { return std::exp(b) * (b - a); }},
  };
}

TEST(PairLosses, ValuesAndGradients) {
  for (const PairLoss& loss : pair_losses()) {
    SCOPED_TRACE(loss.name);
    Leaves leaves{.inputs = {{"a", scattered(6, 2, 1)}, {"b", scattered(6, 2, 2)}}};
    if (loss.targets_are_probabilities) {
      for (double& v : leaves.inputs["b"]) v = (v + 2) / 4;
    }
    const Tensor a = input("a", {2, 3});
    const Tensor b = input("b", {2, 3});
    Doubles expected;
    for (std::size_t i = 0; i < 6; ++i) {
      expected.push_back(loss.element(leaves.inputs["a"][i], leaves.inputs["b"][i]));
    }
    expect_near(evaluate(loss.loss(a, b, Reduction::none), leaves), expected, 1e-12);
    expect_near(evaluate(loss.loss(a, b, Reduction::sum), leaves), {total(expected)}, 1e-12);
    expect_near(evaluate(loss.loss(a, b, Reduction::mean), leaves), {total(expected) / 6}, 1e-12);
    for (Reduction r : {Reduction::none, Reduction::mean}) {
      check_gradients(loss.loss(a, b, r), {a, b}, leaves);
    }
    EXPECT_EQ(
        message_of<ShapeError>([&] { loss.loss(zeros({2, 1}), zeros({2}), Reduction::mean); }),
        std::string(loss.name) + ": shapes [2, 1] and [2] differ.");
    EXPECT_EQ(message_of<DTypeError>([&] { loss.loss(zeros({2}), arange(2), Reduction::mean); }),
              std::string(loss.name) + ": takes f32, not i32; cast it first.");
  }
}

TEST(PairLosses, FarLogitsDoNotOverflow) {
  expect_near(evaluate(binary_cross_entropy_with_logits(
                  array({1000, -1000, 1000}), array({0, 1, 1}), {.reduction = Reduction::none})),
              {1000, 1000, 0});
  expect_near(evaluate(binary_cross_entropy_with_logits(
                  array({1000, -1000, 1000}), array({0, 1, 1}),
                  {.pos_weight = array({2, 3, 4}), .reduction = Reduction::none})),
              {1000, 3000, 0});
}

TEST(PairLosses, PosWeightErrors) {
  const Tensor x = zeros({2, 3});
  EXPECT_EQ(message_of<DTypeError>(
                [&] { binary_cross_entropy_with_logits(x, x, {.pos_weight = arange(3)}); }),
            "binary_cross_entropy_with_logits: takes f32, not i32; cast it first.");
  EXPECT_THROW(binary_cross_entropy_with_logits(x, x, {.pos_weight = zeros({2})}), ShapeError);
}

TEST(PairLosses, KlOfAnImpossibleTarget) {
  const Tensor a = input("a", {2});
  const Tensor b = input("b", {2});
  const Leaves leaves{.inputs = {{"a", {-3, -1}}, {"b", {0, 1}}}};
  const Tensor y = kl_div(a, b, {.reduction = Reduction::sum});
  expect_near(evaluate(y, leaves), {1});
  const std::vector<Tensor> by{a, b};
  const Tensor seed = full({}, 1);
  const std::vector<Tensor> gradients = vjp(std::span(&y, 1), by, std::span(&seed, 1));
  expect_near(evaluate(gradients[0], leaves), {0, -1});
  expect_near(evaluate(gradients[1], leaves), {0, 2});
}

TEST(PairLosses, SmoothL1) {
  const Leaves leaves{.inputs = {{"p", {0, 1, 3, -4}}, {"t", {0.5, 0, 0, 0}}}};
  const Tensor p = input("p", {4});
  const Tensor t = input("t", {4});
  const auto loss = [&](SmoothL1Options o) { return evaluate(smooth_l1_loss(p, t, o), leaves); };
  expect_near(loss({.reduction = Reduction::none}), {0.125, 0.5, 2.5, 3.5});
  expect_near(loss({.beta = 2, .reduction = Reduction::none}), {0.0625, 0.25, 2, 3});
  expect_near(loss({.beta = 0, .reduction = Reduction::sum}), {0.5 + 1 + 3 + 4});
  check_gradients(smooth_l1_loss(p, t), {p, t},
                  {.inputs = {{"p", {0, 1.5, 3, -4}}, {"t", {0.5, 0, 0, 0}}}});
  EXPECT_EQ(message_of<ValueError>([] { smooth_l1_loss(zeros({2}), zeros({2}), {.beta = -1}); }),
            "smooth_l1_loss: beta is -1, not a finite number of at least 0.");
}

TEST(PairLosses, BatchMeanDividesByTheFirstExtent) {
  const Leaves leaves{.inputs = {{"p", {1, 2, 3, 4, 5, 6}}}};
  const Tensor p = input("p", {2, 3});
  expect_near(evaluate(mse_loss(p, zeros({2, 3}), Reduction::batch_mean), leaves), {91.0 / 2});
  const Tensor l = log_softmax(p);
  const Tensor q = full({2, 3}, 1.0 / 3);
  expect_near(evaluate(kl_div(l, q, {.reduction = Reduction::batch_mean}), leaves),
              {evaluate(kl_div(l, q, {.reduction = Reduction::sum}), leaves)[0] / 2});
}

TEST(PairLosses, HuberErrors) {
  EXPECT_EQ(message_of<ValueError>([] { huber_loss(zeros({2}), zeros({2}), {.delta = 0}); }),
            "huber_loss: delta is 0, not a finite number above 0.");
}

}  // namespace
}  // namespace tensorgrad
