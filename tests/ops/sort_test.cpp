// Sorting: the order of NaN and of equal elements, derivatives through the order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ops/sampling.h"
#include "tensorgrad/error.h"
#include "tensorgrad/ops.h"
#include "tensorgrad/transforms.h"

namespace tensorgrad::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr double inf = std::numeric_limits<double>::infinity();

std::vector<double> values(const Tensor& t) { return interpret(t).data; }
Tensor row(std::vector<double> v, DType dtype = DType::f32) {
  const auto n = static_cast<std::int64_t>(v.size());
  return tensor_of({{{n}, dtype}, std::move(v)});
}

TEST(Sort, NanIsTheLargest) {
  const Tensor x = row({3, nan_value, -inf, inf, nan_value, 0});
  EXPECT_THAT(values(argsort(x)), ElementsAre(2, 5, 0, 3, 1, 4));
  EXPECT_THAT(values(argsort(x, -1, true)), ElementsAre(1, 4, 3, 0, 5, 2));
  const std::vector<double> sorted = values(sort(x));
  EXPECT_EQ(sorted[3], inf);
  EXPECT_TRUE(std::isnan(sorted[4]) && std::isnan(sorted[5]));
}

TEST(Sort, EqualElementsKeepTheirOrder) {
  const Tensor x = row({1, 0, -0.0, 1, 0, -0.0});
  EXPECT_THAT(values(argsort(x)), ElementsAre(1, 2, 4, 5, 0, 3));
  EXPECT_THAT(values(argsort(x, 0, true)), ElementsAre(0, 3, 1, 2, 4, 5));
  const std::vector<double> sorted = values(sort(x));
  EXPECT_FALSE(std::signbit(sorted[0]));
  EXPECT_TRUE(std::signbit(sorted[1]));
}

TEST(Sort, IntegersKeepTheirSign) {
  EXPECT_THAT(values(sort(row({5, -2147483648.0, 2147483647, -1, 0}, DType::i32))),
              ElementsAre(-2147483648.0, -1, 0, 5, 2147483647));
  EXPECT_THAT(values(sort(row({5, 4294967295.0, 0}, DType::u32), 0, true)),
              ElementsAre(4294967295.0, 5, 0));
}

TEST(Sort, AlongAnyAxis) {
  const Tensor x = tensor_of({{{2, 3}, DType::f32}, {3, 1, 2, 1, 2, 0}});
  EXPECT_THAT(values(sort(x, 0)), ElementsAre(1, 1, 0, 3, 2, 2));
  EXPECT_THAT(values(sort(x, 1)), ElementsAre(1, 2, 3, 0, 1, 2));
  EXPECT_THAT(values(argsort(x, 0)), ElementsAre(1, 0, 1, 0, 1, 0));
}

TEST(Sort, EmptyAndSingleAxes) {
  EXPECT_EQ(sort(zeros({2, 0})).shape(), (Shape{2, 0}));
  EXPECT_THAT(values(argsort(full({3, 1}, 7))), ElementsAre(0, 0, 0));
}

TEST(Sort, Errors) {
  const auto message = [](auto f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(message([] { sort(full({}, 1)); }),
              StartsWith("sort: axis -1 is out of range for shape []"));
  EXPECT_THAT(message([] { argsort(zeros({2}, DType::bool_)); }),
              StartsWith("argsort: takes f32, f16, i32 or u32, not bool."));
}

TEST(Sort, TheGradientGoesBackToWhereElementsCameFrom) {
  Bindings bindings;
  const Tensor x = bindings.add(RefArray{{{2, 3}, DType::f32}, {3, 1, 2, 5, 5, 4}});
  const Tensor weights = tensor_of({{{2, 3}, DType::f32}, {1, 10, 100, 1, 10, 100}});
  const Tensor loss = sum(sort(x, 1) * weights);
  const Tensor seed = full({}, 1);
  const Tensor g = vjp(std::span(&loss, 1), std::span(&x, 1), std::span(&seed, 1))[0];
  EXPECT_THAT(bindings.evaluate(g).data, ElementsAre(100, 1, 10, 10, 100, 1));
}

TEST(TakeAlongAxis, FollowsArgsort) {
  const Tensor x = tensor_of({{{2, 3}, DType::f32}, {3, 1, 2, 1, 2, 0}});
  for (const int axis : {0, 1}) {
    EXPECT_EQ(values(take_along_axis(x, argsort(x, axis), axis)), values(sort(x, axis)));
  }
}

TEST(TakeAlongAxis, IndicesMayBeLongerOrOutOfRange) {
  const Tensor x = tensor_of({{{2, 3}, DType::f32}, {1, 2, 3, 4, 5, 6}});
  const Tensor at = tensor_of({{{2, 4}, DType::i32}, {2, 0, -1, 1, 0, 0, 3, 2}});
  const std::vector<double> y = values(take_along_axis(x, at, 1));
  EXPECT_EQ(y[0], 3);
  EXPECT_EQ(y[1], 1);
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], 2);
  EXPECT_EQ(y[4], 4);
  EXPECT_TRUE(std::isnan(y[6]));
  EXPECT_EQ(y[7], 6);
}

TEST(TakeAlongAxis, ShapesMustAgree) {
  try {
    take_along_axis(zeros({2, 3}), zeros({3, 3}, DType::i32), 1);
    FAIL();
  } catch (const ShapeError& e) {
    EXPECT_THAT(e.what(), StartsWith("take_along_axis: indices of shape [3, 3] do not have the "
                                     "shape [2, 3] but along axis 1."));
  }
}

}  // namespace
}  // namespace tensorgrad::testing
