// Messages of errors: the values, the op and the user's line.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "ops/primitives.h"
#include "tensorgrad/compile.h"
#include "tensorgrad/nn.h"
#include "tensorgrad/ops.h"
#include "tensorgrad/transforms.h"

namespace tensorgrad {
namespace {

Tensor x(const Shape& shape, DType dtype = DType::f32) { return zeros(shape, dtype); }

// The whole message of the error that `f` throws at `line` of this file.
template <class E>
void expect_error(const std::function<void()>& f, const std::string& message, unsigned line) {
  try {
    f();
    FAIL() << "nothing is thrown; expected: " << message;
  } catch (const E& e) {
    EXPECT_EQ(std::string(e.what()), fmt::format("{}\n  at {}:{}", message, __FILE__, line));
  }
}

TEST(Errors, NameTheOpTheValuesAndTheLine) {
  expect_error<ShapeError>([] { x({2, 3}) + x({4}); },
                           "add: shapes [2, 3] and [4] do not broadcast: 3 against 4 in dimension "
                           "1 from the end.",
                           __LINE__ - 3);
  expect_error<ShapeError>([] { matmul(x({256, 64}), x({128, 10})); },
                           "matmul: inner dimensions differ: [256, 64] x [128, 10] (64 against "
                           "128).",
                           __LINE__ - 3);
  expect_error<ShapeError>([] { reshape(x({6}), {4, 2}); },
                           "reshape: [6] has 6 elements, [4, 2] has 8.", __LINE__ - 1);
  expect_error<ShapeError>([] { reshape(x({6}), {4, -1}); },
                           "reshape: the 6 elements of [6] do not divide into [4, -1].",
                           __LINE__ - 2);
  expect_error<ShapeError>([] { sum(x({2, 3}), 2); },
                           "sum: axis 2 is out of range for shape [2, 3].", __LINE__ - 1);
  expect_error<ShapeError>([] { sum(x({2, 3}), {0, -2}); },
                           "sum: axes [0, -2] name a dimension of [2, 3] twice.", __LINE__ - 1);
  expect_error<ShapeError>([] { max(x({0})); },
                           "max: there is nothing to choose from: axes [0] of shape [0] hold no "
                           "element.",
                           __LINE__ - 3);
  expect_error<DTypeError>([] { exp(x({2}, DType::i32)); }, "exp: takes f32 or f16, not i32.",
                           __LINE__ - 1);
  expect_error<DTypeError>([] { x({2}, DType::i32) + x({2}, DType::u32); },
                           "add: i32 and u32 have no common dtype; cast one of them.",
                           __LINE__ - 2);
  expect_error<DTypeError>([] { where(x({2}), x({2}), 0); },
                           "where: the condition is f32, not bool.", __LINE__ - 1);
  expect_error<ShapeError>([] { concat({x({2, 3}), x({2, 4})}, 0); },
                           "concat: part 1 of shape [2, 4] does not join [2, 3] along axis 0.",
                           __LINE__ - 2);
  expect_error<ShapeError>([] { squeeze(x({2, 3}), 0); },
                           "squeeze: dimension 0 of [2, 3] is not 1.", __LINE__ - 1);
  expect_error<ShapeError>([] { narrow(x({5}), 0, 3, 4); },
                           "narrow: 4 elements from 3 leave dimension 0 of [5].", __LINE__ - 1);
  expect_error<ShapeError>([] { array(std::span<const float>(), {2}); },
                           "array: 0 values do not fill shape [2] of 2 elements.", __LINE__ - 1);
  expect_error<ShapeError>([] { x({2, 3}).dim(2); },
                           "dim: axis 2 is out of range for shape [2, 3].", __LINE__ - 1);
}

TEST(Errors, OfComposedFunctionsNameTheUsersLine) {
  expect_error<ShapeError>(
      [] { cross_entropy(x({4, 10}), x({5}, DType::i32)); },
      "cross_entropy: the class indices have shape [5], not [4], which [4, 10] "
      "is without classes.",
      __LINE__ - 3);
}

TEST(Errors, OfTransformsNameTheOp) {
  const auto bits = [](const Tensor& t) { return sum(cast(bitcast(t, DType::i32), DType::f32)); };
  const unsigned line = __LINE__ - 1;
  expect_error<GraphError>([&] { grad(bits)(x({3})); },
                           "bitcast: has no derivative: bits are not real numbers. Put "
                           "stop_gradient before it if none is wanted.",
                           line);
  expect_error<ShapeError>(
      [] { grad([](const Tensor& t) { return t * 2; })(x({3})); },
      "grad: the function returns f32[3], not a scalar of f32 or f16; reduce it, for "
      "example with mean.",
      __LINE__ - 3);
}

TEST(Errors, AnEmptyHandleSaysSo) {
  EXPECT_THROW(static_cast<void>(Tensor().shape()), GraphError);
  EXPECT_THROW(exp(Tensor()), GraphError);
  EXPECT_THROW(Tensor() + 1, GraphError);
}

struct Line {
  nn::Linear head{4, 2};
  TENSORGRAD_FIELDS(head)
};

struct Two {
  nn::Linear used{4, 2}, spare{4, 2};
  TENSORGRAD_FIELDS(used, spare)
};

class CompileErrors : public testing::Test {
 protected:
  static Training<Line> compile_line() {
    return compile(Line{},
                   [](const Line& m, const Inputs& in) { return mean(square(m.head(in["x"]))); },
                   {.inputs = {{"x", {3, 4}}}, .device = "reference"});
  }
};

TEST_F(CompileErrors, FeedsAreCheckedBeforeAnythingRuns) {
  auto training = compile_line();
  const std::vector<float> good(12, 1.0F);
  const std::vector<float> small(5, 1.0F);
  const std::vector<std::int32_t> integers(12, 1);
  const auto before = training.params()[0].values;
  expect_error<GraphError>([&] { training.step({}); }, "Input `x` is missing; the inputs are `x`.",
                           __LINE__ - 1);
  expect_error<GraphError>([&] { training.step({{"x", good}, {"z", good}}); },
                           "There is no input `z`; the inputs are `x`.", __LINE__ - 1);
  expect_error<ShapeError>([&] { training.step({{"x", small}}); },
                           "Input `x` is fed 5 values, but [3, 4] takes 12.", __LINE__ - 1);
  expect_error<DTypeError>([&] { training.step({{"x", integers}}); },
                           "Input `x` is fed i32 values, but it is f32.", __LINE__ - 1);
  EXPECT_EQ(training.steps(), 0);
  EXPECT_EQ(training.params()[0].values, before);
  training.step({{"x", good}});
  EXPECT_EQ(training.steps(), 1);
}

TEST_F(CompileErrors, WrongProductsNameTheParameter) {
  const auto compile_wrong = [] {
    return compile(Line{},
                   [](const Line& m, const Inputs& in) { return mean(matmul(in["x"], m.head.W)); },
                   {.inputs = {{"x", {3, 5}}}, .device = "reference"});
  };
  const unsigned line = __LINE__ - 3;
  expect_error<ShapeError>([&] { compile_wrong(); },
                           "matmul: inner dimensions differ: [3, 5] x [4, 2] (5 against 4). The "
                           "left operand is `x`. The right operand is `head.W`.",
                           line);
}

TEST_F(CompileErrors, UnusedParametersAreNamed) {
  std::vector<std::string> warnings;
  compile(Two{}, [](const Two& m, const Inputs& in) { return mean(m.used(in["x"])); },
          {.inputs = {{"x", {3, 4}}}, .device = "reference", .warn = [&](const std::string& w) {
             warnings.push_back(w);
           }});
  EXPECT_EQ(warnings, (std::vector<std::string>{
                          "the loss never uses parameter `spare.W`; it is not trained.",
                          "the loss never uses parameter `spare.b`; it is not trained."}));
}

TEST_F(CompileErrors, ARandomOperationOutsideOfTrainingNeedsAKey) {
  auto training = compile_line();
  const std::vector<float> good(12, 1.0F);
  auto forward =
      training.attach([](const Line& m, const Inputs& in) { return m.head(dropout(in["x"], 0.5)); },
                      {.inputs = {{"x", {3, 4}}}});
  EXPECT_EQ(forward.run({{"x", good}}).value().size(), 6U) << "dropout is off in evaluation";
}

}  // namespace
}  // namespace tensorgrad
