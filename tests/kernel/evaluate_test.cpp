// The meaning of scalar operations, special values first.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernel/expr.h"
#include "tensorgrad/error.h"

namespace tensorgrad::kernel {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double i32_min = -2147483648.0;
constexpr double i32_max = 2147483647.0;
constexpr double u32_max = 4294967295.0;

double f32(Fn fn, std::vector<double> args) { return evaluate(fn, DType::f32, DType::f32, args); }
double i32(Fn fn, std::vector<double> args) { return evaluate(fn, DType::i32, DType::i32, args); }
double u32(Fn fn, std::vector<double> args) { return evaluate(fn, DType::u32, DType::u32, args); }
double cast(DType from, DType to, double x) {
  return evaluate(Fn::cast, from, to, std::vector<double>{x});
}
double bitcast(DType from, DType to, double x) {
  return evaluate(Fn::bitcast, from, to, std::vector<double>{x});
}

TEST(Evaluate, FloatsAreComputedInDouble) {
  EXPECT_EQ(f32(Fn::add, {1, 1e-12}), 1 + 1e-12);
  EXPECT_DOUBLE_EQ(f32(Fn::exp, {1}), 2.718281828459045);
  EXPECT_DOUBLE_EQ(f32(Fn::erfc, {3}), 2.209049699858544e-05);
  EXPECT_EQ(f32(Fn::rsqrt, {4}), 0.5);
  EXPECT_EQ(f32(Fn::reciprocal, {-0.0}), -inf);
  EXPECT_EQ(f32(Fn::atan2, {1, -1}), std::atan2(1.0, -1.0));
  EXPECT_EQ(f32(Fn::rem, {-7, 3}), -1);
  EXPECT_EQ(f32(Fn::div, {1, 0}), inf);
}

TEST(Evaluate, NanAndSignsOfZero) {
  EXPECT_TRUE(std::isnan(f32(Fn::relu, {nan})));
  EXPECT_EQ(f32(Fn::relu, {-3}), 0);
  EXPECT_EQ(f32(Fn::relu, {3}), 3);
  EXPECT_TRUE(std::isnan(f32(Fn::sign, {nan})));
  EXPECT_EQ(f32(Fn::sign, {-2}), -1);
  EXPECT_TRUE(std::signbit(f32(Fn::sign, {-0.0})));
  EXPECT_TRUE(std::isnan(f32(Fn::max, {1, nan})));
  EXPECT_TRUE(std::isnan(f32(Fn::min, {nan, 1})));
  EXPECT_FALSE(std::signbit(f32(Fn::max, {-0.0, 0.0})));
  EXPECT_TRUE(std::signbit(f32(Fn::min, {0.0, -0.0})));
  EXPECT_EQ(f32(Fn::pow, {nan, 0}), 1);
}

TEST(Evaluate, LogisticIsStable) {
  EXPECT_EQ(f32(Fn::logistic, {0}), 0.5);
  EXPECT_EQ(f32(Fn::logistic, {1000}), 1);
  EXPECT_EQ(f32(Fn::logistic, {-1000}), 0);
  EXPECT_DOUBLE_EQ(f32(Fn::logistic, {-700}), std::exp(-700.0));
  EXPECT_TRUE(std::isnan(f32(Fn::logistic, {nan})));
}

TEST(Evaluate, RoundIsHalfToEven) {
  EXPECT_EQ(f32(Fn::round, {0.5}), 0);
  EXPECT_EQ(f32(Fn::round, {1.5}), 2);
  EXPECT_EQ(f32(Fn::round, {2.5}), 2);
  EXPECT_EQ(f32(Fn::round, {-1.5}), -2);
  EXPECT_EQ(f32(Fn::floor, {-0.5}), -1);
}

TEST(Evaluate, IntegersWrap) {
  EXPECT_EQ(i32(Fn::add, {i32_max, 1}), i32_min);
  EXPECT_EQ(i32(Fn::mul, {65537, 65537}), 131073);
  EXPECT_EQ(i32(Fn::neg, {i32_min}), i32_min);
  EXPECT_EQ(i32(Fn::abs, {i32_min}), i32_min);
  EXPECT_EQ(u32(Fn::sub, {0, 1}), u32_max);
  EXPECT_EQ(u32(Fn::mul, {u32_max, u32_max}), 1);
  EXPECT_EQ(i32(Fn::bit_not, {0}), -1);
  EXPECT_EQ(u32(Fn::bit_not, {0}), u32_max);
  EXPECT_EQ(u32(Fn::bit_xor, {u32_max, 1}), u32_max - 1);
}

TEST(Evaluate, IntegerDivisionIsDefinedEverywhere) {
  EXPECT_EQ(i32(Fn::div, {-7, 2}), -3);
  EXPECT_EQ(i32(Fn::rem, {-7, 2}), -1);
  EXPECT_EQ(i32(Fn::div, {7, 0}), 0);
  EXPECT_EQ(i32(Fn::rem, {7, 0}), 0);
  EXPECT_EQ(i32(Fn::div, {i32_min, -1}), i32_min);
  EXPECT_EQ(i32(Fn::rem, {i32_min, -1}), 0);
  EXPECT_EQ(u32(Fn::div, {u32_max, 2}), i32_max);
}

TEST(Evaluate, IntegerPowers) {
  EXPECT_EQ(i32(Fn::pow, {-3, 3}), -27);
  EXPECT_EQ(i32(Fn::pow, {2, 31}), i32_min);
  EXPECT_EQ(i32(Fn::pow, {0, 0}), 1);
  EXPECT_EQ(i32(Fn::pow, {2, -1}), 0);
  EXPECT_EQ(i32(Fn::pow, {-1, -3}), -1);
  EXPECT_EQ(u32(Fn::pow, {3, 21}), 1870418611.0);
}

TEST(Evaluate, ShiftsAreDefinedEverywhere) {
  EXPECT_EQ(i32(Fn::shl, {1, 31}), i32_min);
  EXPECT_EQ(i32(Fn::shl, {1, 32}), 0);
  EXPECT_EQ(i32(Fn::shl, {1, -1}), 0);
  EXPECT_EQ(i32(Fn::shr, {-8, 1}), -4);
  EXPECT_EQ(i32(Fn::shr, {-8, 40}), -1);
  EXPECT_EQ(i32(Fn::shr, {8, -1}), 0);
  EXPECT_EQ(u32(Fn::shr, {u32_max, 31}), 1);
  EXPECT_EQ(u32(Fn::shr, {u32_max, 32}), 0);
}

TEST(Evaluate, BoolsAreLogical) {
  const auto of = [](Fn fn, std::vector<double> args) {
    return evaluate(fn, DType::bool_, DType::bool_, args);
  };
  EXPECT_EQ(of(Fn::bit_not, {1}), 0);
  EXPECT_EQ(of(Fn::bit_and, {1, 0}), 0);
  EXPECT_EQ(of(Fn::bit_or, {1, 0}), 1);
  EXPECT_EQ(of(Fn::bit_xor, {1, 1}), 0);
  EXPECT_EQ(of(Fn::max, {1, 0}), 1);
  EXPECT_EQ(of(Fn::min, {1, 0}), 0);
}

TEST(Evaluate, ComparisonsAreFalseWithNanButNe) {
  for (const Fn fn : {Fn::eq, Fn::lt, Fn::le, Fn::gt, Fn::ge}) {
    EXPECT_EQ(f32(fn, {nan, 1}), 0) << name(fn);
    EXPECT_EQ(f32(fn, {nan, nan}), 0) << name(fn);
  }
  EXPECT_EQ(f32(Fn::ne, {nan, nan}), 1);
  EXPECT_EQ(f32(Fn::le, {1, 1}), 1);
  EXPECT_EQ(u32(Fn::gt, {u32_max, 1}), 1);
}

TEST(Evaluate, Select) {
  EXPECT_EQ(f32(Fn::select, {1, 2, nan}), 2);
  EXPECT_TRUE(std::isnan(f32(Fn::select, {0, 2, nan})));
}

TEST(Evaluate, CastsTruncateSaturateAndWrap) {
  EXPECT_EQ(cast(DType::f32, DType::i32, -2.9), -2);
  EXPECT_EQ(cast(DType::f32, DType::i32, 3e9), i32_max);
  EXPECT_EQ(cast(DType::f32, DType::i32, -inf), i32_min);
  EXPECT_EQ(cast(DType::f32, DType::i32, nan), 0);
  EXPECT_EQ(cast(DType::f32, DType::u32, -5), 0);
  EXPECT_EQ(cast(DType::f32, DType::u32, inf), u32_max);
  EXPECT_EQ(cast(DType::i32, DType::u32, -1), u32_max);
  EXPECT_EQ(cast(DType::u32, DType::i32, u32_max), -1);
  EXPECT_EQ(cast(DType::f32, DType::bool_, nan), 1);
  EXPECT_EQ(cast(DType::f32, DType::bool_, -0.0), 0);
  EXPECT_EQ(cast(DType::i32, DType::bool_, -4), 1);
  EXPECT_EQ(cast(DType::bool_, DType::f32, 1), 1);
}

TEST(Evaluate, BitcastsKeepBits) {
  EXPECT_EQ(bitcast(DType::f32, DType::u32, 1.0), 1065353216.0);
  EXPECT_EQ(bitcast(DType::f32, DType::i32, -0.0), i32_min);
  EXPECT_EQ(bitcast(DType::i32, DType::f32, i32_min), 0.0);
  EXPECT_TRUE(std::signbit(bitcast(DType::u32, DType::f32, 2147483648.0)));
  EXPECT_EQ(bitcast(DType::i32, DType::u32, -1), u32_max);
}

TEST(Evaluate, RoundTo) {
  EXPECT_EQ(round_to(DType::f32, 0.1), static_cast<double>(0.1F));
  EXPECT_EQ(round_to(DType::f32, 1e300), inf);
  EXPECT_EQ(round_to(DType::i32, -1e12), i32_min);
  EXPECT_FALSE(std::signbit(round_to(DType::i32, -0.5)));
  EXPECT_EQ(round_to(DType::bool_, 0.5), 1);
}

TEST(Evaluate, DtypesAreChecked) {
  EXPECT_THROW(u32(Fn::neg, {1}), GraphError);
  EXPECT_THROW(i32(Fn::exp, {1}), GraphError);
  EXPECT_THROW(f32(Fn::bit_and, {1, 1}), GraphError);
  EXPECT_THROW(f32(Fn::load, {}), GraphError);
  EXPECT_THROW(f32(Fn::add, {1}), GraphError);
  EXPECT_EQ(result_dtype(Fn::lt, DType::f32), DType::bool_);
  EXPECT_EQ(result_dtype(Fn::select, DType::i32), DType::i32);
  EXPECT_THROW(result_dtype(Fn::cast, DType::f32), GraphError);
}

}  // namespace
}  // namespace tensorgrad::kernel
