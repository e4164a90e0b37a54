#include "tensorgrad/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/primitives.h"
#include "runtime/reference/interpreter.h"
#include "tensorgrad/error.h"

namespace tensorgrad {
namespace {

using random::Scheme;
using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> values(const Tensor& t) {
  return interpret(t, nullptr, RefRounding::results).data;
}
std::vector<float> floats(const Tensor& t) {
  std::vector<float> out;
  for (double v : values(t)) out.push_back(static_cast<float>(v));
  return out;
}
Tensor row(const Tensor& keys, std::int64_t i) {
  return prim::reshape(prim::slice(keys, {i, 0}, {i + 1, 2}, {1, 1}), {2});
}
template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

std::vector<double> block(std::uint32_t k0, std::uint32_t k1, std::uint32_t c0, std::uint32_t c1) {
  const auto u = [](std::uint32_t v) { return prim::constant(v, DType::u32); };
  std::vector<double> out;
  for (int word : {0, 1}) {
    out.push_back(values(prim::threefry(u(k0), u(k1), u(c0), u(c1), word))[0]);
  }
  return out;
}

// The known answers that come with the definition of the generator.
TEST(Threefry, KnownAnswers) {
  EXPECT_THAT(block(0, 0, 0, 0), ElementsAre(0x6b200159, 0x99ba4efe));
  EXPECT_THAT(block(0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff),
              ElementsAre(0x1cb996fc, 0xbb002be7));
  EXPECT_THAT(block(0x13198a2e, 0x03707344, 0x243f6a88, 0x85a308d3),
              ElementsAre(0xc4923a9c, 0x483df7a0));
}

TEST(Threefry, LoweringSharesTheRoundsOfBothWords) {
  const Tensor zero = prim::constant(0, DType::u32);
  const Tensor first = prim::threefry(zero, zero, zero, zero, 0);
  const Tensor second = prim::threefry(zero, zero, zero, zero, 1);
  kernel::Pool pool;
  std::vector<kernel::Expr> operands;
  for (int i = 0; i < 4; ++i) {
    operands.push_back(pool.load(i, pool.number(0), {}, DType::u32));
  }
  const auto* lowering = lowering_as<LowerMap>(first.node());
  ASSERT_NE(lowering, nullptr);
  const kernel::Expr a = lowering->fn(pool, first.node(), operands);
  const std::size_t after_first = pool.size();
  const kernel::Expr b = lowering->fn(pool, second.node(), operands);
  EXPECT_FALSE(a == b);
  EXPECT_LE(pool.size() - after_first, 4U);
}

TEST(Random, KeyHoldsTheSeed) {
  EXPECT_THAT(values(random::key(42)), ElementsAre(0, 42));
  EXPECT_THAT(values(random::key(0x0123456789abcdef)), ElementsAre(0x01234567, 0x89abcdef));
}

// Values of jax.random for the same keys.
TEST(Random, OriginalSchemeMatchesJax) {
  const Tensor key = random::key(0);
  EXPECT_THAT(values(random::split(key)),
              ElementsAre(4146024105, 967050713, 2718843009, 1272950319));
  EXPECT_THAT(values(random::split(key, 4)),
              ElementsAre(2285895361, 1501764800, 1518642379, 4090693311, 433833334, 4221794875,
                          839183663, 3740430601));
  EXPECT_THAT(values(random::bits(key, {5})),
              ElementsAre(2467461003, 428148500, 1688610540, 3840466878, 2562233961));
  EXPECT_THAT(floats(random::uniform(key, {})), ElementsAre(0.41845703F));
  EXPECT_THAT(values(random::normal(key, {})), ElementsAre(DoubleNear(-0.20584226, 1e-7)));
  EXPECT_THAT(values(random::normal(row(random::split(key), 1), {1})),
              ElementsAre(DoubleNear(-1.2515389, 1e-6)));
  const std::vector<double> ten = values(random::normal(key, {10}));
  EXPECT_NEAR(ten[0], -0.3721109, 1e-6);
  EXPECT_NEAR(ten[1], 0.2642311, 1e-6);
  EXPECT_NEAR(ten[2], -0.18252768, 1e-6);
}

TEST(Random, PartitionableSchemeMatchesJax) {
  const Tensor key = random::key(0);
  const Scheme s = Scheme::partitionable;
  EXPECT_THAT(values(random::split(key, 3, s)),
              ElementsAre(1797259609, 2579123966, 928981903, 3453687069, 4146024105, 2718843009));
  EXPECT_THAT(values(random::uniform(key, {}, 0, 1, s)), ElementsAre(DoubleNear(0.947667, 1e-6)));
  EXPECT_THAT(values(random::uniform(row(random::split(key, 2, s), 1), {}, 0, 1, s)),
              ElementsAre(DoubleNear(0.00729382, 1e-8)));
  EXPECT_THAT(values(random::bits(random::key(42), {2, 2}, s)),
              ElementsAre(2098992034, 2919706841, 2646866425, 2409546199));
}

TEST(Random, FoldInHashesTheData) {
  EXPECT_THAT(values(random::fold_in(random::key(42), 7)), ElementsAre(2547012911, 1371500959));
  EXPECT_EQ(values(random::fold_in(random::key(42), prim::constant(7, DType::i32))),
            values(random::fold_in(random::key(42), 7)));
  EXPECT_EQ(values(random::fold_in(random::key(42), prim::constant(-1, DType::i32))),
            values(random::fold_in(random::key(42), 0xffffffff)));
}

// A shape is filled in row-major order, and empty shapes draw nothing.
TEST(Random, ShapesAreFilledInOrder) {
  for (Scheme s : {Scheme::original, Scheme::partitionable}) {
    EXPECT_EQ(values(random::bits(random::key(3), {3, 5}, s)),
              values(random::bits(random::key(3), {15}, s)));
    EXPECT_THAT(values(random::bits(random::key(3), {3, 0}, s)), ElementsAre());
    EXPECT_EQ(random::split(random::key(3), 0, s).shape(), (Shape{0, 2}));
  }
}

TEST(Random, UniformStaysInItsRangeAndFillsIt) {
  const std::vector<double> u = values(random::uniform(random::key(1), {10000}, -3, 5));
  EXPECT_THAT(u, Each(::testing::AllOf(::testing::Ge(-3.0), ::testing::Lt(5.0))));
  double sum = 0;
  for (double v : u) sum += v;
  EXPECT_NEAR(sum / 10000, 1, 5 * 8 / std::sqrt(12 * 10000.0));
}

TEST(Random, NormalHasTheMomentsOfTheDistribution) {
  const std::vector<double> x = values(random::normal(random::key(5), {20000}));
  double moments[5] = {};
  for (double v : x) {
    for (int k = 1; k < 5; ++k) moments[k] += std::pow(v, k) / 20000;
  }
  EXPECT_NEAR(moments[1], 0, 0.036);
  EXPECT_NEAR(moments[2], 1, 0.05);
  EXPECT_NEAR(moments[3], 0, 0.14);
  EXPECT_NEAR(moments[4], 3, 0.35);
}

// The inversion, against the distribution function: Phi(normal) is the uniform it was made from.
TEST(Random, NormalInvertsTheDistributionFunction) {
  const Tensor key = random::key(9);
  const std::vector<double> x = values(random::normal(key, {5000}));
  const std::vector<double> u = values(random::uniform(key, {5000}, std::nextafter(-1.0F, 0.0F)));
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(std::erf(x[i] / std::sqrt(2)), u[i], 3e-7);
  }
}

TEST(Random, BernoulliIsTrueWhereUniformIsBelowP) {
  const Tensor key = random::key(11);
  const std::vector<double> u = values(random::uniform(key, {1000}));
  const Tensor b = random::bernoulli(key, 0.3, {1000});
  EXPECT_EQ(b.dtype(), DType::bool_);
  const std::vector<double> bits = values(b);
  for (std::size_t i = 0; i < u.size(); ++i) EXPECT_EQ(bits[i] != 0, u[i] < 0.3F);
  EXPECT_THAT(values(random::bernoulli(key, 1, {100})), Each(1.0));
  EXPECT_THAT(values(random::bernoulli(key, 0, {100})), Each(0.0));
}

TEST(Random, Errors) {
  const Tensor key = random::key(0);
  EXPECT_THAT(message_of([&] { random::bits(prim::full({2}, 0, DType::f32), {3}); }),
              HasSubstr("bits: the key is f32, not u32.\n  at "));
  EXPECT_THAT(message_of([&] { random::split(prim::full({3}, 0, DType::u32)); }),
              HasSubstr("split: the key has shape [3], not [2]."));
  EXPECT_THAT(message_of([&] { random::uniform(key, {2, -1}); }),
              HasSubstr("uniform: shape [2, -1] has a negative extent."));
  EXPECT_THAT(message_of([&] { random::uniform(key, {2}, 3, 1); }),
              HasSubstr("uniform: [3, 1) is not a range of f32."));
  EXPECT_THAT(
      message_of([&] { random::normal(key, {65536, 65536, 1}); }),
      HasSubstr("normal: shape [65536, 65536, 1] has more elements than a key has counters"));
  EXPECT_THAT(message_of([&] { random::bernoulli(key, 1.5, {2}); }),
              HasSubstr("bernoulli: the probability is 1.5, not in [0, 1]."));
  EXPECT_THAT(message_of([&] { random::fold_in(key, prim::constant(1, DType::f32)); }),
              HasSubstr("fold_in: the data is f32, not i32 or u32."));
}

}  // namespace
}  // namespace tensorgrad
