#include <cmath>
#include <limits>

#include "nn/evaluate.h"
#include "tensorgrad/nn.h"
#include "tensorgrad/random.h"

namespace tensorgrad {
namespace {

using testing::check_function;
using testing::check_gradients;
using testing::Doubles;
using testing::evaluate;
using testing::expect_near;
using testing::input;
using testing::literal;
using testing::message_of;
using testing::scattered;

constexpr double inf = std::numeric_limits<double>::infinity();
const double nan = std::nan("");
const Doubles points{-1000, -30, -2, -0.5, 0, 0.5, 2, 30, 1000};

Doubles mapped(const Doubles& x, double (*f)(double)) {
  Doubles out;
  for (double v : x) out.push_back(f(v));
  return out;
}
Tensor at_points() { return literal(points, {static_cast<std::int64_t>(points.size())}); }

/// df/dx at one point.
template <class F>
double slope(F f, double at) {
  const Tensor x = input("x", {});
  const Tensor y = f(x);
  const Tensor seed = full({}, 1);
  return evaluate(vjp(std::span(&y, 1), std::span(&x, 1), std::span(&seed, 1))[0],
                  {.inputs = {{"x", {at}}}})[0];
}

TEST(Activations, Values) {
  expect_near(evaluate(relu(at_points())), mapped(points, [](double x) { return x > 0 ? x : 0; }));
  expect_near(evaluate(gelu(at_points())),
              mapped(points, [](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }));
  expect_near(evaluate(gelu(at_points(), {.approximate = true})), mapped(points, [](double x) {
                return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
              }));
  expect_near(evaluate(silu(at_points())),
              mapped(points, [](double x) { return x / (1 + std::exp(-x)); }));
  expect_near(evaluate(softplus(at_points())),
              mapped(points, [](double x) { return x > 40 ? x : std::log1p(std::exp(x)); }));
  expect_near(evaluate(leaky_relu(at_points(), 0.25)),
              mapped(points, [](double x) { return x > 0 ? x : x / 4; }));
  expect_near(evaluate(leaky_relu(at_points())),
              mapped(points, [](double x) { return x > 0 ? x : x * 0.01; }));
  expect_near(evaluate(elu(at_points(), 2)),
              mapped(points, [](double x) { return x > 0 ? x : 2 * std::expm1(x); }));
}

TEST(Activations, PassNaNOn) {
  const Tensor x = full({1}, nan);
  for (const Tensor& y : {relu(x), gelu(x), silu(x), softplus(x), leaky_relu(x), elu(x)}) {
    expect_near(evaluate(y), {nan});
  }
}

TEST(Activations, Gradients) {
  check_function([](const Tensor& x) { return relu(x); }, {6});
  check_function([](const Tensor& x) { return gelu(x); }, {6});
  check_function([](const Tensor& x) { return gelu(x, {.approximate = true}); }, {6});
  check_function([](const Tensor& x) { return silu(x); }, {6});
  check_function([](const Tensor& x) { return softplus(x); }, {6});
  check_function([](const Tensor& x) { return leaky_relu(x, 0.25); }, {6});
  check_function([](const Tensor& x) { return elu(x); }, {6});
}

TEST(Activations, DerivativesAtKinksAndFarOut) {
  EXPECT_EQ(slope([](const Tensor& x) { return relu(x); }, 0), 0);
  EXPECT_EQ(slope([](const Tensor& x) { return softplus(x); }, 0), 0.5);
  EXPECT_EQ(slope([](const Tensor& x) { return softplus(x); }, 2000), 1);
  EXPECT_EQ(slope([](const Tensor& x) { return leaky_relu(x, 0.25); }, 0), 0.25);
  EXPECT_EQ(slope([](const Tensor& x) { return elu(x); }, 2000), 1);
  EXPECT_EQ(slope([](const Tensor& x) { return elu(x); }, 0), 1);
}

TEST(Softmax, Value) {
  const Tensor x = literal(Doubles{1, 2, 4, 1000, 1001, 1003}, {2, 3});
  const double total = std::exp(1) + std::exp(2) + std::exp(4);
  const Doubles row{std::exp(1) / total, std::exp(2) / total, std::exp(4) / total};
  expect_near(evaluate(softmax(x)), {row[0], row[1], row[2], row[0], row[1], row[2]}, 1e-12);
  expect_near(evaluate(log_softmax(x)),
              {std::log(row[0]), std::log(row[1]), std::log(row[2]), std::log(row[0]),
               std::log(row[1]), std::log(row[2])},
              1e-12);
  const Tensor columns = literal(Doubles{0, 1000, 0, 1001}, {2, 2});
  const double e = 1 / (1 + std::exp(1.0));
  expect_near(evaluate(softmax(columns, 0)), {0.5, e, 0.5, 1 - e}, 1e-12);
  expect_near(evaluate(softmax(array({0, static_cast<float>(-inf)}))), {1, 0});
  EXPECT_EQ(softmax(zeros({3, 0})).shape(), (Shape{3, 0}));
}

TEST(Softmax, Gradients) {
  check_function([](const Tensor& x) { return softmax(x); }, {2, 4});
  check_function([](const Tensor& x) { return softmax(x, 0); }, {3, 2});
  check_function([](const Tensor& x) { return log_softmax(x); }, {2, 4});
  check_function([](const Tensor& x) { return causal_softmax(x); }, {2, 3, 4});
}

TEST(Softmax, CausalRowsSeeWhatIsBefore) {
  const double e = 1 / (1 + std::exp(1.0));
  const Doubles third{1 / (1 + std::exp(1.0) + std::exp(2.0))};
  expect_near(evaluate(causal_softmax(literal(Doubles{5, 9, 9, 1, 2, 9, 0, 1, 2}, {3, 3}))),
              {1, 0, 0, e, 1 - e, 0, third[0], third[0] * std::exp(1.0), third[0] * std::exp(2.0)},
              1e-12);
}

TEST(Softmax, Errors) {
  EXPECT_EQ(message_of<ShapeError>([] { softmax(zeros({2, 3}), 2); }),
            "softmax: axis 2 is out of range for shape [2, 3].");
  EXPECT_EQ(message_of<ShapeError>([] { causal_softmax(zeros({2})); }),
            "causal_softmax: takes scores [..., T, S], not shape [2].");
  EXPECT_EQ(message_of<DTypeError>([] { log_softmax(arange(3)); }),
            "log_softmax: takes f32 or f16, not i32; cast it first.");
}

TEST(Dropout, KeepsAndScalesUnderAKey) {
  const Tensor key = random::key(5);
  const Doubles keeps = evaluate(random::bernoulli(key, 0.75, {40}));
  const Doubles x = scattered(40);
  Doubles expected;
  for (std::size_t i = 0; i < x.size(); ++i) expected.push_back(keeps[i] != 0 ? x[i] / 0.75 : 0);
  expect_near(evaluate(dropout(input("x", {40}), 0.25, key), {.inputs = {{"x", x}}}), expected);
}

TEST(Dropout, DependsOnTraining) {
  const Tensor x = input("x", {40});
  const Doubles values = scattered(40);
  const Tensor y = dropout(x, 0.5);
  EXPECT_EQ(evaluate(y, {.inputs = {{"x", values}}, .training = false}), values);
  const Doubles dropped = evaluate(y, {.inputs = {{"x", values}}});
  std::size_t zeros = 0;
  for (std::size_t i = 0; i < dropped.size(); ++i) {
    if (dropped[i] == 0) {
      ++zeros;
    } else {
      EXPECT_DOUBLE_EQ(dropped[i], 2 * values[i]);
    }
  }
  EXPECT_GT(zeros, 5U);
  EXPECT_LT(zeros, 35U);
}

TEST(Dropout, Gradients) {
  check_function([](const Tensor& x) { return dropout(x, 0.5); }, {3, 4});
  check_function([](const Tensor& x) { return dropout(x, 0.3, random::key(1)); }, {3, 4});
}

TEST(Dropout, Ends) {
  const Tensor x = input("x", {2});
  EXPECT_EQ(&dropout(x, 0).node(), &x.node());
  const auto gradients = check_gradients(
      dropout(x, 1), {x}, {.inputs = {{"x", {1, std::numeric_limits<float>::max()}}}});
  EXPECT_EQ(gradients.at("x"), (Doubles{0, 0}));
}

TEST(Dropout, Errors) {
  EXPECT_EQ(message_of<ValueError>([] { dropout(zeros({2}), 2); }),
            "dropout: the probability is 2, not in [0, 1].");
  EXPECT_EQ(message_of<ValueError>([] { dropout(zeros({2}), nan); }),
            "dropout: the probability is nan, not in [0, 1].");
  EXPECT_EQ(message_of<DTypeError>([] { dropout(arange(2), 0.5); }),
            "dropout: takes f32 or f16, not i32; cast it first.");
}

}  // namespace
}  // namespace tensorgrad
