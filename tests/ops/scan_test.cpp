// Running combinations: known values, and derivatives where the generated tests do not go: zeros,
// ties, second derivatives.
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

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

std::vector<double> values(const Tensor& t) { return interpret(t).data; }
Tensor row(std::vector<double> v, DType dtype = DType::f32) {
  const auto n = static_cast<std::int64_t>(v.size());
  return tensor_of({{{n}, dtype}, std::move(v)});
}

TEST(Scan, ForwardReverseAndExclusive) {
  const Tensor x = row({1, 2, 3, 4});
  EXPECT_THAT(values(cumsum(x, 0)), ElementsAre(1, 3, 6, 10));
  EXPECT_THAT(values(cumsum(x, 0, {.reverse = true})), ElementsAre(10, 9, 7, 4));
  EXPECT_THAT(values(cumsum(x, 0, {.exclusive = true})), ElementsAre(0, 1, 3, 6));
  EXPECT_THAT(values(cumsum(x, 0, {.reverse = true, .exclusive = true})), ElementsAre(9, 7, 4, 0));
  EXPECT_THAT(values(cumprod(x, 0)), ElementsAre(1, 2, 6, 24));
  EXPECT_THAT(values(cumprod(x, -1, {.reverse = true, .exclusive = true})),
              ElementsAre(24, 12, 4, 1));
}

TEST(Scan, AlongAnyAxis) {
  const Tensor x = tensor_of({{{2, 3}, DType::i32}, {1, 2, 3, 4, 5, 6}});
  EXPECT_THAT(values(cumsum(x, 0)), ElementsAre(1, 2, 3, 5, 7, 9));
  EXPECT_THAT(values(cumsum(x, 1)), ElementsAre(1, 3, 6, 4, 9, 15));
  EXPECT_EQ(cumsum(x, 1).dtype(), DType::i32);
}

TEST(Scan, EmptyAndSingleAxes) {
  EXPECT_EQ(cumsum(zeros({0, 3}), 0).shape(), (Shape{0, 3}));
  EXPECT_TRUE(values(cumprod(zeros({0}), 0, {.exclusive = true})).empty());
  EXPECT_THAT(values(cumsum(full({2, 1}, 5), 1)), ElementsAre(5, 5));
  EXPECT_THAT(values(cumsum(full({2, 1}, 5), 1, {.exclusive = true})), ElementsAre(0, 0));
}

TEST(Scan, ExtremaAndTheirPositions) {
  const Tensor x = row({2, 5, 5, 1, 7, 7});
  EXPECT_THAT(values(cummax(x, 0)), ElementsAre(2, 5, 5, 5, 7, 7));
  EXPECT_THAT(values(cumargmax(x, 0)), ElementsAre(0, 1, 1, 1, 4, 4));
  EXPECT_THAT(values(cummin(x, 0)), ElementsAre(2, 2, 2, 1, 1, 1));
  EXPECT_THAT(values(cumargmin(x, 0)), ElementsAre(0, 0, 0, 3, 3, 3));
  EXPECT_THAT(values(cummax(x, 0, true)), ElementsAre(7, 7, 7, 7, 7, 7));
  EXPECT_THAT(values(cumargmax(x, 0, true)), ElementsAre(5, 5, 5, 5, 5, 5));
  EXPECT_THAT(values(cumargmin(x, 0, true)), ElementsAre(3, 3, 3, 3, 5, 5));
}

TEST(Scan, NanStays) {
  const std::vector<double> y = values(cummax(row({1, nan_value, 9, nan_value}), 0));
  EXPECT_EQ(y[0], 1);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_TRUE(std::isnan(y[i]));
  EXPECT_THAT(values(cumargmax(row({1, nan_value, 9, nan_value}), 0)), ElementsAre(0, 1, 1, 1));
}

TEST(Scan, IntegersWrapAndBoolsCount) {
  EXPECT_THAT(values(cumsum(row({2147483647, 1}, DType::i32), 0)),
              ElementsAre(2147483647.0, -2147483648.0));
  const Tensor mask = row({1, 0, 1, 1}, DType::bool_);
  EXPECT_THAT(values(cumsum(mask, 0)), ElementsAre(1, 1, 2, 3));
}

TEST(Scan, Errors) {
  try {
    cumsum(zeros({2, 3}), 2);
    FAIL();
  } catch (const ShapeError& e) {
    EXPECT_THAT(e.what(), StartsWith("cumsum: axis 2 is out of range for shape [2, 3].\n"));
  }
}

/// The gradient of sum(weights * f(x)).
template <class F>
std::vector<double> gradient(F f, const std::vector<double>& x,
                             const std::vector<double>& weights) {
  Bindings bindings;
  const Tensor in = bindings.add(RefArray{{{static_cast<std::int64_t>(x.size())}, DType::f32}, x});
  const Tensor y = f(in);
  const Tensor loss = sum(y * tensor_of({y.node().type, weights}));
  const Tensor seed = full({}, 1);
  return bindings.evaluate(vjp(std::span(&loss, 1), std::span(&in, 1), std::span(&seed, 1))[0])
      .data;
}

/// The same by products of the other elements.
std::vector<double> cumprod_gradient(const std::vector<double>& x, const std::vector<double>& w) {
  std::vector<double> out(x.size(), 0);
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double others = 1;
      for (std::size_t k = 0; k <= i; ++k) others *= k == j ? 1 : x[k];
      out[j] += w[i] * others;
    }
  }
  return out;
}

TEST(Scan, ProductsHaveExactDerivativesAtZero) {
  const std::vector<double> weights{1, 2, -3, 0.5, 4};
  for (const std::vector<double>& x : {std::vector<double>{2, 3, 4, 5, 6},
                                       {2, 0, 4, 5, 6},
                                       {0, 3, 4, 5, 6},
                                       {2, 3, 0, 5, 0},
                                       {0, 0, 4, 5, 6},
                                       {2, 3, 4, 5, 0},
                                       {0, 0, 0, 0, 0}}) {
    const auto actual = gradient([](const Tensor& t) { return cumprod(t, 0); }, x, weights);
    EXPECT_THAT(actual, ::testing::ElementsAreArray(cumprod_gradient(x, weights)));
  }
}

TEST(Scan, SecondDerivativesOfProductsAreExactAtZero) {
  // Of the product of all five, from either end, by elements i and j: the product of the others.
  const std::vector<double> values{2, 0, 3, 0, 5};
  for (const bool reverse : {false, true}) {
    Bindings bindings;
    const Tensor x = bindings.add(RefArray{{{5}, DType::f32}, values});
    const Tensor y = take(cumprod(x, 0, {.reverse = reverse}), 0, reverse ? 0 : 4);
    const Tensor seed = full({}, 1);
    const Tensor first = vjp(std::span(&y, 1), std::span(&x, 1), std::span(&seed, 1))[0];
    for (std::size_t i = 0; i < 5; ++i) {
      const Tensor by_i = take(first, 0, static_cast<std::int64_t>(i));
      const Tensor second = vjp(std::span(&by_i, 1), std::span(&x, 1), std::span(&seed, 1))[0];
      std::vector<double> expected(5, 0);
      for (std::size_t j = 0; j < 5; ++j) {
        double others = i == j ? 0 : 1;
        for (std::size_t k = 0; k < 5; ++k) others *= k == i || k == j ? 1 : values[k];
        expected[j] = others;
      }
      EXPECT_THAT(bindings.evaluate(second).data, ::testing::ElementsAreArray(expected)) << i;
    }
  }
}

TEST(Scan, DerivativesOfProductsAreRightForTinyElements) {
  const auto actual =
      gradient([](const Tensor& t) { return cumprod(t, 0); }, {1e-42, 1e-3}, {0, 1});
  EXPECT_NEAR(actual[0], 1e-3, 1e-9);
  EXPECT_NEAR(actual[1], 1e-42, 2e-45);
}

TEST(Scan, TheFirstOfEqualExtremaHasTheDerivative) {
  const auto f = [](const Tensor& t) { return cummax(t, 0); };
  EXPECT_THAT(gradient(f, {3, 3, 1, 4}, {1, 10, 100, 1000}), ElementsAre(111, 0, 0, 1000));
}

// ---- products over axes --------------------------------------------------------------------------

TEST(Prod, DerivativesAreExactAtZero) {
  const auto total = [](const Tensor& t) { return prod(t); };
  EXPECT_THAT(gradient(total, {2, 3, 4}, {1}), ElementsAre(12, 8, 6));
  EXPECT_THAT(gradient(total, {2, 0, 4}, {1}), ElementsAre(0, 8, 0));
  EXPECT_THAT(gradient(total, {0, 0, 4}, {1}), ElementsAre(0, 0, 0));
  const auto over_axes = [](const Tensor& t) { return prod(reshape(t, {2, 2, 2}), Reduce{0, 2}); };
  // Element (i, j, k) belongs to product j.
  EXPECT_THAT(gradient(over_axes, {1, 2, 0, 3, 4, 5, 6, 7}, {1, 10}),
              ElementsAre(40, 20, 1260, 0, 10, 8, 0, 0));
}

TEST(Prod, SecondDerivativesAreExactAtZero) {
  // d2(xyz) / dx dy = z wherever x and y are.
  Bindings bindings;
  const Tensor x = bindings.add(RefArray{{{3}, DType::f32}, {0, 0, 5}});
  const Tensor y = prod(x);
  const Tensor seed = full({}, 1);
  const Tensor first = vjp(std::span(&y, 1), std::span(&x, 1), std::span(&seed, 1))[0];
  const Tensor by_x = take(first, 0, 0);
  const Tensor second = vjp(std::span(&by_x, 1), std::span(&x, 1), std::span(&seed, 1))[0];
  EXPECT_THAT(bindings.evaluate(second).data, ElementsAre(0, 5, 0));
}

TEST(Prod, OfNothingIsOne) {
  EXPECT_THAT(values(prod(zeros({2, 0}), Reduce(1))), ElementsAre(1, 1));
}

}  // namespace
}  // namespace tensorgrad::testing
