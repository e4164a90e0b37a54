// Math helpers evaluated in f32. Coefficients are minimax fits over the reduced ranges.
#include <limits>
#include <numbers>

#include "codegen/llvm/math_parts.h"

namespace tensorgrad::llvm_ir {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double log2_e = std::numbers::log2e;
// ln 2 in two parts; the first has 9 bits, so its product with an exponent is exact.
constexpr double ln2_high = 0.693359375, ln2_low = -2.12194440054690583e-4;
// Adding 1.5 * 2^23 leaves the nearest integer in the low bits of an f32.
constexpr double round_shift = 12582912.0;

/// x = n * ln 2 + rest, |rest| <= ln 2 / 2; `n` as i32, `tail` = (e^rest - 1 - rest) / rest^2.
struct ExpParts {
  Value n, rest, tail;
};

ExpParts split_exp(const Value& x) {
  FunctionBuilder& f = *x.function;
  const Value shifted =
      muladd(x, f.constant(Type::f32, log2_e), f.constant(Type::f32, round_shift));
  const Value n = shifted - round_shift;
  const Value rest =
      muladd(n, f.constant(Type::f32, -ln2_low), muladd(n, f.constant(Type::f32, -ln2_high), x));
  const Value tail = polynomial(
      rest, {0.000199079557, 0.00139489269, 0.00833328534, 0.0416662358, 0.166666672, 0.5});
  const Value bias = f.integer(Type::i32, 0x4B400000);
  return {bits(shifted) - bias, rest, tail};
}

/// 2^n for n in [-126, 127], i32.
Value power_of_two(const Value& n) {
  FunctionBuilder& f = *n.function;
  const Value biased = n + f.integer(Type::i32, 127);
  return from_bits(f.binary("shl", biased, f.integer(Type::i32, 23)));
}

}  // namespace

Value exp_f32(const Value& x) {
  FunctionBuilder& f = *x.function;
  // Beyond these the result is infinity and zero; the selects keep NaN.
  const Value low = select(x < -104.0, -104.0, x);
  const Value clamped = select(low > 89.0, 89.0, low);
  const ExpParts parts = split_exp(clamped);
  const Value e = muladd(parts.rest * parts.rest, parts.tail, parts.rest) + 1.0;
  // Two factors, so that a denormal result is rounded once.
  const Value half = f.binary("ashr", parts.n, f.integer(Type::i32, 1));
  return e * power_of_two(half) * power_of_two(parts.n - half);
}

Value expm1_f32(const Value& x) {
  FunctionBuilder& f = *x.function;
  const Value low = select(x < -30.0, -30.0, x);
  const Value clamped = select(low > 89.0, 89.0, low);
  const ExpParts parts = split_exp(clamped);
  const Value e = muladd(parts.rest * parts.rest, parts.tail, parts.rest);
  const Value half_scale = power_of_two(parts.n - f.integer(Type::i32, 1));
  const Value result = muladd(half_scale, e, half_scale - 0.5) * 2.0;
  // e keeps denormals, which scaling by one half would round.
  const Value small = f.compare("icmp eq", parts.n, f.integer(Type::i32, 0));
  return select(x == 0.0, x, select(small, e, result));
}

Value log_f32(const Value& x) {
  FunctionBuilder& f = *x.function;
  const Value tiny = x < 1.17549435e-38;
  const Value normal = select(tiny, x * 8388608.0, x);
  const Value bias = select(tiny, f.constant(Type::f32, -23.0), f.constant(Type::f32, 0.0));
  // The mantissa is taken in [sqrt(1/2), sqrt(2)).
  const Value offset = bits(normal) - f.integer(Type::i32, 0x3F3504F3);
  const Value exponent = f.binary("ashr", offset, f.integer(Type::i32, 23));
  const Value mantissa =
      from_bits(bits(normal) - f.binary("shl", exponent, f.integer(Type::i32, 23)));
  const Value e = f.convert("sitofp", exponent, Type::f32) + bias;
  const Value m = mantissa - 1.0;
  const Value p = polynomial(m, {0.0691348836, -0.117891587, 0.118734136, -0.123844787, 0.14218621,
                                 -0.166692421, 0.20002228, -0.249999866, 0.333333105});
  const Value square = m * m;
  const Value tail = muladd(e, f.constant(Type::f32, ln2_low), square * m * p) - square * 0.5;
  const Value result = muladd(e, f.constant(Type::f32, ln2_high), m + tail);
  const Value finite = select(x == infinity, x, result);
  const Value zero = select(x == 0.0, -infinity, finite);
  const Value invalid = f.compare("fcmp ult", x, f.constant(Type::f32, 0.0));
  return select(invalid, std::numeric_limits<double>::quiet_NaN(), zero);
}

Value log1p_f32(const Value& x) {
  FunctionBuilder& f = *x.function;
  const Value u = x + 1.0;
  // The part of x that 1 + x lost, to first order.
  const Value lost = (x - (u - 1.0)) / u;
  const Value usable = f.binary("and", u > 0.0, x < 16777216.0);
  const Value result = log_f32(u) + select(usable, lost, 0.0);
  return select(x == 0.0, x, result);
}

ReducedAngle reduce_angle(const Value& x) {
  FunctionBuilder& f = *x.function;
  const Value wide = to_double(x);
  // Adding 1.5 * 2^52 leaves the nearest integer in the low bits of a double.
  constexpr double shift = 6755399441055744.0;
  const Value shifted =
      muladd(wide, f.constant(Type::f64, 2.0 / std::numbers::pi), f.constant(Type::f64, shift));
  const Value n = shifted - shift;
  // pi/2 in parts of 33 bits: products are exact up to |x| of 1.6e6 even where the target cannot
  // fuse, and up to 1e15 where it can.
  Value rest = wide - n * 0x1.921FB544p+0;
  rest = rest - n * 0x1.0B4611A6p-34;
  rest = rest - n * 0x1.3198A2E037073p-69;
  // Beyond 2^51 the multiple is not known: any angle is as good, but it stays in range.
  rest = select(rest > 0.7854, 0.7854, select(rest < -0.7854, -0.7854, rest));
  return {rest, f.convert("trunc", bits(shifted), Type::i32)};
}

namespace {

/// sin(rest + quadrant * pi/2)
Value sine_of(const Value& rest, const Value& quadrant) {
  FunctionBuilder& f = *rest.function;
  const Value r = to_float(rest);
  const Value square = r * r;
  const Value sine =
      muladd(square * r,
             polynomial(square, {2.71793988e-06, -0.000198392954, 0.00833332911, -0.166666672}), r);
  const Value cosine =
      muladd(square * square,
             polynomial(square, {-2.72339832e-07, 2.47998778e-05, -0.00138888857, 0.0416666679}),
             1.0 - square * 0.5);
  const Value zero = f.integer(Type::i32, 0);
  const Value odd = f.compare("icmp ne", quadrant & f.integer(Type::i32, 1), zero);
  const Value value = select(odd, cosine, sine);
  const Value sign = f.binary("shl", quadrant & f.integer(Type::i32, 2), f.integer(Type::i32, 30));
  return from_bits(f.binary("xor", bits(value), sign));
}

}  // namespace

Value sin_f32(const Value& x) {
  const ReducedAngle angle = reduce_angle(x);
  // The sign of zero is lost in the reduction.
  return select(x == 0.0, x, sine_of(angle.rest, angle.quadrant));
}

Value cos_f32(const Value& x) {
  const ReducedAngle angle = reduce_angle(x);
  return sine_of(angle.rest, angle.quadrant + x.function->integer(Type::i32, 1));
}

Value tanh_f32(const Value& x) {
  const Value magnitude = abs(x);
  const Value clamped = select(magnitude > 10.0, 10.0, magnitude);
  const Value e = expm1_f32(clamped * 2.0);
  return copysign(e / (e + 2.0), x);
}

Value logistic_f32(const Value& x) {
  const Value e = exp_f32(-abs(x));
  const Value numerator = select(x < 0.0, e, 1.0);
  return numerator / (e + 1.0);
}

Value erf_f32(const Value& x) {
  const Value magnitude = abs(x);
  const Value square = x * x;
  const Value small =
      muladd(x,
             polynomial(square, {-9.68014047e-06, 0.000112705457, -0.000848471187, 0.00522107491,
                                 -0.0268654451, 0.112837829, -0.376126379, 0.12837916709551257}),
             x);
  // 1 - exp(-x p(x)); from 4 on this rounds to 1.
  const Value clamped = select(magnitude > 4.0, 4.0, magnitude);
  const Value exponent =
      clamped * polynomial(clamped, {4.3144164e-06, -3.79324447e-05, -8.88351206e-05, 0.00303943735,
                                     -0.0228525084, 0.105433457, 0.635536432, 1.12857115});
  const Value large = copysign(1.0 - exp_f32(-exponent), x);
  return select(magnitude < 1.0, small, large);
}

}  // namespace tensorgrad::llvm_ir
