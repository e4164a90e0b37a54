// Public functions that are composed of primitives: known values at the edges.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "ops/sampling.h"
#include "tensorgrad/error.h"
#include "tensorgrad/ops.h"
#include "tensorgrad/transforms.h"

namespace tensorgrad::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

constexpr double least = std::numeric_limits<std::int32_t>::min();
constexpr double inf = std::numeric_limits<double>::infinity();

std::vector<double> values(const Tensor& t) { return interpret(t).data; }
Tensor row(std::vector<double> v, DType dtype = DType::f32) {
  const auto n = static_cast<std::int64_t>(v.size());
  return tensor_of({{{n}, dtype}, std::move(v)});
}
Tensor i32(std::vector<double> v) { return row(std::move(v), DType::i32); }
Tensor u32(std::vector<double> v) { return row(std::move(v), DType::u32); }

// ---- integers ------------------------------------------------------------------------------------

TEST(IntegerDivision, EveryInputIsDefined) {
  const Tensor a = i32({7, -7, 7, -7, 7, least, least, 0});
  const Tensor b = i32({2, 2, -2, -2, 0, -1, 0, 5});
  EXPECT_THAT(values(trunc_divide(a, b)), ElementsAre(3, -3, -3, 3, 0, least, 0, 0));
  EXPECT_THAT(values(floor_divide(a, b)), ElementsAre(3, -4, -4, 3, 0, least, 0, 0));
  EXPECT_THAT(values(fmod(a, b)), ElementsAre(1, -1, 1, -1, 0, 0, 0, 0));
  EXPECT_THAT(values(remainder(a, b)), ElementsAre(1, 1, -1, -1, 0, 0, 0, 0));
}

TEST(IntegerDivision, Unsigned) {
  const Tensor a = u32({7, 4294967295.0, 7});
  const Tensor b = u32({2, 2, 0});
  EXPECT_THAT(values(floor_divide(a, b)), ElementsAre(3, 2147483647, 0));
  EXPECT_THAT(values(remainder(a, b)), ElementsAre(1, 1, 0));
}

TEST(FloatDivision, RoundsBothWays) {
  const Tensor a = row({7, -7, 7, -7});
  const Tensor b = row({2, 2, -2, -2});
  EXPECT_THAT(values(trunc_divide(a, b)), ElementsAre(3, -3, -3, 3));
  EXPECT_THAT(values(floor_divide(a, b)), ElementsAre(3, -4, -4, 3));
  EXPECT_THAT(values(remainder(a, b)), ElementsAre(1, 1, -1, -1));
}

TEST(Shifts, EveryDistanceIsDefined) {
  const Tensor by = i32({0, 1, 31, 32, 33, -1});
  EXPECT_THAT(values(left_shift(i32({1, 1, 1, 1, 1, 1}), by)), ElementsAre(1, 2, least, 0, 0, 0));
  EXPECT_THAT(values(right_shift(i32({-8, -8, -8, -8, -8, -8}), by)),
              ElementsAre(-8, -4, -1, -1, -1, -1));
  EXPECT_THAT(values(right_shift(u32({8, 8, 8, 8}), u32({1, 3, 32, 4294967295.0}))),
              ElementsAre(4, 1, 0, 0));
  EXPECT_EQ(values(i32({5}) << i32({2})), values(left_shift(i32({5}), i32({2}))));
}

// ---- functions of one number ---------------------------------------------------------------------

using Function = std::pair<Tensor (*)(const Tensor&, Site), double (*)(double)>;

void expect_function(const Function& f, const std::vector<double>& at) {
  Bindings bindings;
  const auto n = static_cast<std::int64_t>(at.size());
  const Tensor x = bindings.add(RefArray{{{n}, DType::f32}, at});
  const Tensor y = f.first(x, Site::current());
  const std::vector<double> got = bindings.evaluate(y).data;
  const Tensor total = sum(y);
  const Tensor seed = full({}, 1);
  const Tensor slope = vjp(std::span(&total, 1), std::span(&x, 1), std::span(&seed, 1))[0];
  const std::vector<double> slopes = bindings.evaluate(slope).data;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double want = f.second(at[i]);
    EXPECT_NEAR(got[i], want, 1e-6 * std::fabs(want) + 1e-12) << "at " << at[i];
    const double h = 1e-6 * std::max(1.0, std::fabs(at[i]));
    const double difference = (f.second(at[i] + h) - f.second(at[i] - h)) / (2 * h);
    EXPECT_NEAR(slopes[i], difference, 1e-4 * std::max(1.0, std::fabs(difference)))
        << "slope at " << at[i];
  }
}

TEST(Functions, AgreeWithTheLibraryAndHaveItsSlopes) {
  const auto f = [](double (*g)(double)) { return g; };
  expect_function({sinh, f(std::sinh)}, {-20, -2, -0.5, -1e-4, 1e-4, 0.3, 5, 60});
  expect_function({cosh, f(std::cosh)}, {-20, -2, -0.5, 0.3, 5, 60});
  expect_function({asinh, f(std::asinh)}, {-2e9, -300, -2, -1e-4, 0.3, 5, 1e12});
  expect_function({acosh, f(std::acosh)}, {1.001, 2, 50, 1e6, 5e9});
  expect_function({atanh, f(std::atanh)}, {-0.99, -0.5, -1e-4, 0.3, 0.9});
  expect_function({exp2, f(std::exp2)}, {-30, -1, 0.5, 10.25});
  expect_function({log2, f(std::log2)}, {0.1, 1, 8, 1e6});
  expect_function({log10, f(std::log10)}, {0.1, 1, 1000, 3e7});
  expect_function({cbrt, f(std::cbrt)}, {-27, -0.5, 0.5, 8, 1e9});
}

TEST(Functions, TruncAndIsinf) {
  EXPECT_THAT(values(trunc(row({-1.5, -0.5, 0.5, 1.5, inf}))), ElementsAre(-1, 0, 0, 1, inf));
  EXPECT_THAT(values(isinf(row({-inf, inf, 3, std::nan("")}))), ElementsAre(1, 1, 0, 0));
}

// ---- making and arranging ------------------------------------------------------------------------

TEST(Making, Ranges) {
  EXPECT_THAT(values(arange(4)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(values(arange(1, 2.5, 0.5)), ElementsAre(1, 1.5, 2));
  EXPECT_THAT(values(arange(3, 0, -1)), ElementsAre(3, 2, 1));
  EXPECT_TRUE(values(arange(3, 0, 1)).empty());
  EXPECT_THROW(arange(0, 1, 0), ValueError);
  EXPECT_THAT(values(linspace(0, 1, 5)), ElementsAre(0, 0.25, 0.5, 0.75, 1));
  EXPECT_THAT(values(linspace(3, 9, 1)), ElementsAre(3));
  EXPECT_EQ(values(linspace(0.1, 0.7, 7)).back(), static_cast<double>(0.7F));
}

TEST(Making, Triangles) {
  EXPECT_THAT(values(eye(2)), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(values(eye(2, 3, 1, DType::i32)), ElementsAre(0, 1, 0, 0, 0, 1));
  const Tensor x = reshape(arange(9) + 1, {3, 3});
  EXPECT_THAT(values(tril(x)), ElementsAre(1, 0, 0, 4, 5, 0, 7, 8, 9));
  EXPECT_THAT(values(triu(x, 1)), ElementsAre(0, 2, 3, 0, 0, 6, 0, 0, 0));
  EXPECT_THAT(values(tril(x, -1)), ElementsAre(0, 0, 0, 4, 0, 0, 7, 8, 0));
}

TEST(Arranging, RollRepeatTileSplit) {
  const Tensor x = reshape(arange(6), {2, 3});
  EXPECT_THAT(values(roll(x, 1, 1)), ElementsAre(2, 0, 1, 5, 3, 4));
  EXPECT_THAT(values(roll(x, -4, 1)), ElementsAre(1, 2, 0, 4, 5, 3));
  EXPECT_THAT(values(repeat(arange(3), 2, 0)), ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_THAT(values(tile(x, {1, 2})), ElementsAre(0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5));
  const std::vector<Tensor> parts = split_equal(x, 3, 1);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_THAT(values(parts[1]), ElementsAre(1, 4));
  EXPECT_THROW(split_equal(x, 2, 1), ShapeError);
}

// ---- transposed convolution ----------------------------------------------------------------------

TEST(ConvTranspose, SpreadsTheInput) {
  const Tensor x = tensor_of({{{1, 1, 3}, DType::f32}, {1, 2, 3}});
  const Tensor w = tensor_of({{{1, 1, 2}, DType::f32}, {10, 1}});
  EXPECT_THAT(values(conv_transpose(x, w)), ElementsAre(10, 21, 32, 3));
  EXPECT_THAT(values(conv_transpose(x, w, {.stride = {2}})), ElementsAre(10, 1, 20, 2, 30, 3));
  EXPECT_THAT(values(conv_transpose(x, w, {.stride = {2}}, {1})),
              ElementsAre(10, 1, 20, 2, 30, 3, 0));
  EXPECT_THAT(values(conv_transpose(x, w, {.stride = {2}, .padding = {1}})),
              ElementsAre(1, 20, 2, 30));
}

TEST(ConvTranspose, ShapesWithGroups) {
  const Tensor y = conv_transpose(zeros({2, 4, 5, 6}), zeros({4, 3, 3, 2}),
                                  {.stride = {2}, .padding = {1, 0}, .groups = 2});
  EXPECT_EQ(y.shape(), (Shape{2, 6, 9, 12}));
}

TEST(ConvTranspose, Errors) {
  try {
    conv_transpose(zeros({1, 2, 5}), zeros({3, 1, 2}));
    FAIL();
  } catch (const ShapeError& e) {
    EXPECT_THAT(e.what(), StartsWith("conv_transpose: an input of shape [1, 2, 5] has 2 channels, "
                                     "but a kernel of shape [3, 1, 2] takes 3."));
  }
  EXPECT_THROW(conv_transpose(zeros({1, 1, 5}), zeros({1, 1, 2}), {}, {1}), ShapeError);
}

}  // namespace
}  // namespace tensorgrad::testing
