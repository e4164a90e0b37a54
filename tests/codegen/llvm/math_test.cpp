// Every scalar operation of compiled kernels against kernel::evaluate.
#include "codegen/llvm/math.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "codegen/llvm/run_kernel.h"

namespace tensorgrad {
namespace {

using kernel::Fn;

/// Distance of `got` from the exact value `want`, in units of the last place of f32 at `want`.
double ulps(float got, double want) {
  const auto rounded = static_cast<float>(want);
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e30;
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : 1e30;
  int exponent = 0;
  std::frexp(want, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - 24, -149));
  return std::fabs(static_cast<double>(got) - want) / unit;
}

const std::vector<float>& special_values() {
  using limits = std::numeric_limits<float>;
  static const std::vector<float> values{0.0F,
                                         -0.0F,
                                         1.0F,
                                         -1.0F,
                                         0.5F,
                                         -0.5F,
                                         2.0F,
                                         -2.0F,
                                         3.0F,
                                         -3.0F,
                                         1.5F,
                                         -1.5F,
                                         2.5F,
                                         -2.5F,
                                         limits::infinity(),
                                         -limits::infinity(),
                                         limits::quiet_NaN(),
                                         limits::max(),
                                         limits::lowest(),
                                         limits::min(),
                                         -limits::min(),
                                         limits::denorm_min(),
                                         -limits::denorm_min(),
                                         limits::epsilon(),
                                         1e-40F,
                                         -1e-40F,
                                         1e-30F,
                                         1e30F,
                                         -1e30F,
                                         88.7F,
                                         88.73F,
                                         89.0F,
                                         -87.3F,
                                         -88.0F,
                                         -103.0F,
                                         -103.97F,
                                         -104.0F,
                                         -105.0F,
                                         1e-8F,
                                         -1e-8F,
                                         1e-4F,
                                         0.99999994F,
                                         -0.99999994F,
                                         1.0000001F,
                                         -1.0000001F,
                                         3.14159265F,
                                         -3.14159265F,
                                         1.57079633F,
                                         -1.57079633F,
                                         0.785398163F,
                                         2147483520.0F,
                                         2147483648.0F,
                                         -2147483648.0F,
                                         4294967040.0F,
                                         4294967296.0F,
                                         16777216.0F,
                                         16777217.0F,
                                         8388607.5F,
                                         10.06F,
                                         9.0F,
                                         -9.5F,
                                         4.0F,
                                         4.1F};
  return values;
}

struct Bound {
  Fn fn;
  double most_ulps;
  float low, high;  ///< range of uniform random arguments, beside those of random bits
  double largest = std::numeric_limits<double>::infinity();  ///< magnitude that the bound holds to
};

// The accuracy of each function, in units of the last place.
const Bound unary_bounds[] = {
    {Fn::neg, 0, -10, 10},           {Fn::abs, 0, -10, 10},
    {Fn::sign, 0, -10, 10},          {Fn::exp, 1, -105, 90},
    {Fn::expm1, 1.5, -20, 90},       {Fn::log, 1, 0, 10},
    {Fn::log1p, 2, -1, 10},          {Fn::sqrt, 0.5, 0, 100},
    {Fn::rsqrt, 1.5, 0, 100},        {Fn::reciprocal, 0.5, -9, 9},
    {Fn::tanh, 3, -10, 10},          {Fn::logistic, 2.5, -105, 20},
    {Fn::erf, 1.5, -4.5, 4.5},       {Fn::erfc, 0.6, -4, 10.25F},
    {Fn::asin, 0.6, -1, 1},          {Fn::acos, 0.6, -1, 1},
    {Fn::atan, 0.6, -20, 20},        {Fn::floor, 0, -100, 100},
    {Fn::ceil, 0, -100, 100},        {Fn::round, 0, -100, 100},
    {Fn::relu, 0, -10, 10},          {Fn::sin, 1.5, -1e5, 1e5, 1e12},
    {Fn::cos, 1.5, -1e5, 1e5, 1e12}, {Fn::tan, 0.6, -1e5, 1e5, 1e12},
};

std::vector<float> random_arguments(float low, float high, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> values = special_values();
  while (values.size() < count) {
    values.push_back(uniform(random));
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    values.push_back(uniform(random) * std::ldexp(1.0F, -static_cast<int>(random() % 30)));
  }
  return values;
}

kernel::Kernel map_kernel(Fn fn, DType operand, DType result, int operands, std::int64_t count) {
  KernelBuilder b(fmt::format("{} of {}", kernel::name(fn), name(operand)));
  std::vector<kernel::Expr> args;
  const int loop = b.outer(count);
  for (int i = 0; i < operands; ++i) {
    const bool is_condition = fn == Fn::select && i == 0;
    args.push_back(b.load(b.input(count, is_condition ? DType::bool_ : operand), b.at(loop)));
  }
  kernel::Expr value;
  if (fn == Fn::cast) {
    value = b.kernel.pool.cast(args[0], result);
  } else if (fn == Fn::bitcast) {
    value = b.kernel.pool.bitcast(args[0], result);
  } else {
    value = b.kernel.pool.apply(fn, args);
  }
  b.store({}, b.output(count, result), b.at(loop), value);
  return std::move(b.kernel);
}

TEST(LlvmMath, UnaryFunctionsStayWithinTheirBounds) {
  for (const Bound& bound : unary_bounds) {
    std::vector<float> x = random_arguments(bound.low, bound.high, 60000, 7);
    std::vector<float> y(x.size());
    const auto kernel =
        map_kernel(bound.fn, DType::f32, DType::f32, 1, static_cast<std::int64_t>(x.size()));
    run_kernel(kernel, {x.data(), y.data()});
    double worst = 0;
    float worst_at = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (std::isfinite(x[i]) && std::fabs(x[i]) > bound.largest) {
        EXPECT_FALSE(std::isnan(y[i])) << kernel::name(bound.fn) << " of " << x[i];
        continue;
      }
      const double wide = x[i];
      const double want = kernel::evaluate(bound.fn, DType::f32, DType::f32, {&wide, 1});
      const double error = ulps(y[i], want);
      if (error > worst) {
        worst = error;
        worst_at = x[i];
      }
      if (want == 0 && bound.fn != Fn::expm1 && bound.fn != Fn::exp) {
        EXPECT_EQ(std::signbit(y[i]), std::signbit(want))
            << kernel::name(bound.fn) << " of " << x[i];
      }
    }
    fmt::print("{:<11} {:.3f} ulp (at {})\n", kernel::name(bound.fn), worst, worst_at);
    EXPECT_LE(worst, bound.most_ulps) << kernel::name(bound.fn) << " of " << worst_at;
  }
}

TEST(LlvmMath, SineAndCosineStayInRangeForHugeAngles) {
  std::vector<float> x{1e13F, 1e16F, 1e20F, 3e38F, -1e25F, -3e38F};
  for (const Fn fn : {Fn::sin, Fn::cos}) {
    std::vector<float> y(x.size());
    run_kernel(map_kernel(fn, DType::f32, DType::f32, 1, 6), {x.data(), y.data()});
    for (const float value : y) EXPECT_LE(std::fabs(value), 1.0F);
  }
}

TEST(LlvmMath, BinaryFloatFunctionsStayWithinTheirBounds) {
  const std::pair<Fn, double> bounds[] = {{Fn::add, 0.5}, {Fn::sub, 0.5}, {Fn::mul, 0.5},
                                          {Fn::div, 0.5}, {Fn::rem, 0},   {Fn::min, 0},
                                          {Fn::max, 0},   {Fn::pow, 0.6}, {Fn::atan2, 0.6}};
  std::vector<float> a;
  std::vector<float> b;
  for (const float x : special_values()) {
    for (const float y : special_values()) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  std::mt19937 random(11);
  std::uniform_real_distribution<float> uniform(-4, 4);
  for (int i = 0; i < 40000; ++i) {
    const bool positive = i % 2 == 0;
    const float x = uniform(random);
    a.push_back(positive ? std::fabs(x) * std::ldexp(1.0F, static_cast<int>(random() % 60) - 30)
                         : x);
    b.push_back(i % 8 < 4 ? uniform(random) : std::round(uniform(random) * 4));
  }
  for (int i = 0; i < 20000; ++i) {
    a.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    b.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
  }
  for (const auto& [fn, most] : bounds) {
    std::vector<float> y(a.size());
    run_kernel(map_kernel(fn, DType::f32, DType::f32, 2, static_cast<std::int64_t>(a.size())),
               {a.data(), b.data(), y.data()});
    double worst = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double args[] = {a[i], b[i]};
      const double error = ulps(y[i], kernel::evaluate(fn, DType::f32, DType::f32, args));
      if (error > worst) {
        worst = error;
        at = i;
      }
    }
    fmt::print("{:<11} {:.3f} ulp (at {}, {})\n", kernel::name(fn), worst, a[at], b[at]);
    EXPECT_LE(worst, most) << kernel::name(fn) << " of " << a[at] << ", " << b[at] << " gives "
                           << y[at];
  }
}

/// Interesting and random 32-bit patterns, in all pairs.
std::vector<std::uint32_t> patterns() {
  std::vector<std::uint32_t> values{0,          1,          2,          3,          5,
                                    7,          31,         32,         33,         100,
                                    0xFFFFFFFF, 0xFFFFFFFE, 0xFFFFFFFD, 0x80000000, 0x80000001,
                                    0x7FFFFFFF, 0x7FFFFFFE, 12345,      0xFFFF};
  std::mt19937 random(3);
  for (int i = 0; i < 30; ++i) values.push_back(static_cast<std::uint32_t>(random()));
  return values;
}

double number(DType dtype, std::uint32_t bits) {
  switch (dtype) {
    case DType::i32:
      return static_cast<std::int32_t>(bits);
    case DType::u32:
      return bits;
    case DType::f32:
      return std::bit_cast<float>(bits);
    case DType::f16:
      return Half::from_bits(static_cast<std::uint16_t>(bits));
    case DType::bool_:
      return bits & 1U;
  }
  return 0;
}

/// Values in memory as the dtype has them, from one 32-bit pattern each.
std::vector<std::byte> memory(DType dtype, const std::vector<std::uint32_t>& bits) {
  std::vector<std::byte> result(bits.size() * info(dtype).bytes);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const std::uint32_t value = dtype == DType::bool_ ? bits[i] & 1U : bits[i];
    std::memcpy(result.data() + i * info(dtype).bytes, &value, info(dtype).bytes);
  }
  return result;
}

double element(DType dtype, const std::vector<std::byte>& data, std::size_t i) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, data.data() + i * info(dtype).bytes, info(dtype).bytes);
  return dtype == DType::bool_ ? bits : number(dtype, bits);
}

void check_exact(Fn fn, DType operand, DType result, int operands) {
  const auto values = patterns();
  std::vector<std::uint32_t> bits[3];
  for (const std::uint32_t a : values) {
    for (const std::uint32_t b : values) {
      bits[0].push_back(a);
      bits[1].push_back(b);
      bits[2].push_back(a ^ (b * 2654435761U));
    }
  }
  std::vector<std::vector<std::byte>> data;
  std::vector<DType> dtypes;
  for (int i = 0; i < operands; ++i) {
    dtypes.push_back(fn == Fn::select && i == 0 ? DType::bool_ : operand);
    data.push_back(memory(dtypes.back(), bits[i]));
  }
  const std::size_t count = bits[0].size();
  std::vector<std::byte> out(count * info(result).bytes);
  std::vector<void*> pointers;
  for (auto& item : data) pointers.push_back(item.data());
  pointers.push_back(out.data());
  run_kernel(map_kernel(fn, operand, result, operands, static_cast<std::int64_t>(count)), pointers);
  for (std::size_t i = 0; i < count; ++i) {
    double args[3] = {};
    for (int k = 0; k < operands; ++k) {
      args[k] = element(dtypes[static_cast<std::size_t>(k)], data[static_cast<std::size_t>(k)], i);
    }
    double want = kernel::evaluate(fn, operand, result, {args, static_cast<std::size_t>(operands)});
    if (result == DType::f32) want = static_cast<double>(static_cast<float>(want));
    const double got = element(result, out, i);
    ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
        << kernel::name(fn) << " of " << name(operand) << " " << args[0] << ", " << args[1] << ", "
        << args[2] << " gives " << got << ", not " << want;
  }
}

TEST(LlvmMath, IntegerAndBoolOperationsAreExact) {
  for (int id = static_cast<int>(Fn::neg); id <= static_cast<int>(Fn::select); ++id) {
    const auto fn = static_cast<Fn>(id);
    for (const DType dtype : {DType::bool_, DType::i32, DType::u32}) {
      if (!kernel::accepts(fn, dtype)) continue;
      check_exact(fn, dtype, kernel::result_dtype(fn, dtype), kernel::arity(fn));
    }
  }
}

TEST(LlvmMath, FloatComparisonsAndSelectAreExact) {
  for (const Fn fn : {Fn::eq, Fn::ne, Fn::lt, Fn::le, Fn::gt, Fn::ge}) {
    check_exact(fn, DType::f32, DType::bool_, 2);
  }
  check_exact(Fn::select, DType::f32, DType::f32, 3);
}

TEST(LlvmMath, ConversionsAreExact) {
  const DType all[] = {DType::bool_, DType::i32, DType::u32, DType::f32};
  for (const DType from : all) {
    for (const DType to : all) {
      check_exact(Fn::cast, from, to, 1);
      if (from != DType::bool_ && to != DType::bool_) check_exact(Fn::bitcast, from, to, 1);
    }
  }
}

TEST(LlvmMath, EveryFunctionHasABound) {
  // Functions of f32 that no other test of this file covers would go unnoticed.
  for (int id = static_cast<int>(Fn::neg); id <= static_cast<int>(Fn::relu); ++id) {
    const auto fn = static_cast<Fn>(id);
    const bool listed = std::any_of(std::begin(unary_bounds), std::end(unary_bounds),
                                    [&](const Bound& bound) { return bound.fn == fn; });
    EXPECT_TRUE(listed) << kernel::name(fn);
  }
}

}  // namespace
}  // namespace tensorgrad
