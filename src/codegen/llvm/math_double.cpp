// Math helpers evaluated in double: rarely used, and simple to make accurate that way. Relative
// errors of the parts are below 1e-11, so a result is within one unit of the last place of f32.
#include <limits>
#include <numbers>

#include "codegen/llvm/math_parts.h"

namespace tensorgrad::llvm_ir {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double half_pi = std::numbers::pi / 2;

Value number(const Value& like, double value) { return like.function->constant(like.type, value); }

/// e^x for |x| < 700 or NaN.
Value exp_f64(const Value& x) {
  FunctionBuilder& f = *x.function;
  constexpr double shift = 6755399441055744.0;
  const Value shifted = muladd(x, number(x, std::numbers::log2e), number(x, shift));
  const Value n = shifted - shift;
  // ln 2 in two parts; the first has 33 bits, so its product with n is exact.
  const Value rest = (x - n * 0x1.62E42FEEp-1) - n * 0x1.A39EF35793C76p-33;
  const Value tail =
      polynomial(rest, {2.7636042980820796e-07, 2.7635738930774084e-06, 2.4801476899675568e-05,
                        0.00019841183523252933, 0.0013888888958882831, 0.0083333333720789667,
                        0.041666666666476213, 0.1666666666660902, 0.50000000000000155});
  const Value e = muladd(rest * rest, tail, rest) + 1.0;
  const Value exponent = f.binary("shl", bits(shifted), f.integer(Type::i64, 52));
  return from_bits(bits(e) + exponent);
}

/// Natural logarithm of a normal x >= 0; log(0) is -infinity.
Value log_f64(const Value& x) {
  FunctionBuilder& f = *x.function;
  const Value offset = bits(x) - f.integer(Type::i64, 0x3FE6A09E667F3BCD);
  const Value exponent = f.binary("ashr", offset, f.integer(Type::i64, 52));
  const Value mantissa = from_bits(bits(x) - f.binary("shl", exponent, f.integer(Type::i64, 52)));
  const Value e = f.convert("sitofp", f.convert("trunc", exponent, Type::i32), Type::f64);
  const Value m = mantissa - 1.0;
  const Value s = m / (mantissa + 1.0);
  const Value z = s * s;
  const Value p = polynomial(z, {0.16819995442110452, 0.18123628489170748, 0.2222337210509768,
                                 0.2857141712411701, 0.40000000052306411, 0.66666666666587149});
  const Value log_mantissa = muladd(s * z, p, s * 2.0);
  const Value result = muladd(e, number(x, std::numbers::ln2), log_mantissa);
  const Value finite = select(x == infinity, x, result);
  return select(x == 0.0, -infinity, select(is_nan(x), x, finite));
}

/// atan of |t| <= tan(pi/8).
Value atan_core(const Value& t) {
  const Value z = t * t;
  const Value p = polynomial(
      z, {0.030886695030991156, -0.058905469415041829, 0.075684082988797349, -0.090791201198642285,
          0.11110448715800139, -0.14285693547311037, 0.19999999684743411, -0.33333333331691883});
  return muladd(t * z, p, t);
}

/// asin of |t| <= 1/2.
Value asin_core(const Value& t) {
  const Value z = t * t;
  const Value p = polynomial(z, {0.032084547035131035, -0.0028892124420661805, 0.018587871303259569,
                                 0.01650445187780308, 0.022464774108431777, 0.030376044230389448,
                                 0.044643060418116429, 0.074999996811173489, 0.16666666668140501});
  return muladd(t * z, p, t);
}

/// The angle in [0, pi/2] whose tangent is numerator / denominator, both >= 0.
Value first_quadrant_angle(const Value& numerator, const Value& denominator) {
  const Value swapped = numerator > denominator;
  const Value low = select(swapped, denominator, numerator);
  const Value high = select(swapped, numerator, denominator);
  // Above tan(pi/8) the angle is taken from pi/4.
  const Value upper = low > high * 0.41421356237309503;
  const Value t = select(upper, low - high, low) / select(upper, low + high, high);
  const Value base = select(upper, number(low, std::numbers::pi / 4), number(low, 0.0));
  const Value angle = base + atan_core(t);
  return select(swapped, half_pi - angle, angle);
}

Value to_f32(const Value& x) { return to_float(x); }

}  // namespace

Value erfc_f32(const Value& x) {
  const Value wide = to_double(x);
  const Value magnitude = abs(wide);
  const Value clamped = select(magnitude > 10.4, 10.4, magnitude);
  const Value t = (clamped - 3.0) / (clamped + 3.0);
  // exp(x^2) erfc(x) (1 + 2x)
  const Value p =
      polynomial(t, {-4.818995921356483e-06, -1.9475557899909995e-05, 8.8915919800651045e-06,
                     0.00012653458324555421, -0.00010650732731999258, -0.00078067625988053398,
                     0.0018888855932475551, 0.0025295837304905753, -0.023770524182593126,
                     0.068308006965225349, -0.1192736636560451, 0.12964515963388137,
                     -0.047562294334407326, -0.13562110613695455, 1.2530080582696386});
  const Value upper = exp_f64(-(clamped * clamped)) * p / (clamped * 2.0 + 1.0);
  return to_f32(select(wide < 0.0, 2.0 - upper, upper));
}

Value tan_f32(const Value& x) {
  FunctionBuilder& f = *x.function;
  const ReducedAngle angle = reduce_angle(x);
  const Value z = angle.rest * angle.rest;
  // Taylor: the next terms are below 1e-13 for |rest| <= pi/4.
  const Value sine = muladd(angle.rest * z,
                            polynomial(z, {1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880,
                                           -1.0 / 5040, 1.0 / 120, -1.0 / 6}),
                            angle.rest);
  const Value cosine = polynomial(z, {-1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
                                      1.0 / 40320, -1.0 / 720, 1.0 / 24, -0.5, 1.0});
  const Value odd =
      f.compare("icmp ne", angle.quadrant & f.integer(Type::i32, 1), f.integer(Type::i32, 0));
  const Value tangent = select(odd, -cosine, sine) / select(odd, sine, cosine);
  return select(x == 0.0, x, to_f32(tangent));
}

Value asin_f32(const Value& x) {
  const Value wide = to_double(x);
  const Value magnitude = abs(wide);
  const Value inner = magnitude < 0.5;
  const Value root = sqrt((1.0 - magnitude) * 0.5);
  const Value core = asin_core(select(inner, magnitude, root));
  return to_f32(copysign(select(inner, core, half_pi - core * 2.0), wide));
}

Value acos_f32(const Value& x) {
  const Value wide = to_double(x);
  const Value magnitude = abs(wide);
  const Value inner = magnitude < 0.5;
  const Value root = sqrt((1.0 - magnitude) * 0.5);
  const Value core = asin_core(select(inner, wide, root));
  const Value outer = core * 2.0;
  return to_f32(select(inner, half_pi - core, select(wide < 0.0, std::numbers::pi - outer, outer)));
}

Value atan_f32(const Value& x) {
  const Value wide = to_double(x);
  const Value magnitude = abs(wide);
  // An infinite angle would divide infinity by infinity.
  const Value clamped = select(magnitude > 1e40, 1e40, magnitude);
  return to_f32(copysign(first_quadrant_angle(clamped, number(wide, 1.0)), wide));
}

Value atan2_f32(const Value& y, const Value& x) {
  FunctionBuilder& f = *y.function;
  const Value wide_y = to_double(y);
  const Value wide_x = to_double(x);
  // Infinities compare with each other as equal, and above every finite f32.
  const Value rise = select(abs(wide_y) > 1e60, 1e60, abs(wide_y));
  const Value run = select(abs(wide_x) > 1e60, 1e60, abs(wide_x));
  const Value both_zero = f.binary("and", rise == 0.0, run == 0.0);
  const Value angle = first_quadrant_angle(rise, select(both_zero, 1.0, run));
  const Value left = f.compare("icmp slt", bits(wide_x), f.integer(Type::i64, 0));
  const Value result = to_f32(copysign(select(left, std::numbers::pi - angle, angle), wide_y));
  const Value invalid = f.compare("fcmp uno", x, y);
  return select(invalid, x + y, result);
}

Value pow_f32(const Value& x, const Value& y) {
  FunctionBuilder& f = *x.function;
  const Value base = to_double(x);
  const Value exponent = to_double(y);
  const Value magnitude = abs(base);
  const Value one = magnitude == 1.0;
  // 1 to any power is 1, also where 0 * infinity would be NaN.
  const Value product = select(one, 0.0, log_f64(magnitude) * exponent);
  const Value low = select(product < -110.0, -110.0, product);
  const Value clamped = select(low > 100.0, 100.0, low);
  const Value power = to_f32(exp_f64(clamped));
  const Value is_integer = trunc(exponent) == exponent;
  const Value half = exponent * 0.5;
  const Value is_odd = f.binary("and", is_integer, f.compare("fcmp une", trunc(half), half));
  const Value negative = f.compare("icmp slt", bits(x), f.integer(Type::i32, 0));
  const Value flipped = select(f.binary("and", negative, is_odd), -power, power);
  // A finite negative base has no real power of a broken exponent.
  const Value broken = f.binary("and", f.binary("and", x < 0.0, magnitude < infinity),
                                f.compare("fcmp one", trunc(exponent), exponent));
  const Value invalid = f.binary("or", broken, f.compare("fcmp uno", x, y));
  const Value real = select(invalid, std::numeric_limits<double>::quiet_NaN(), flipped);
  const Value unit = f.binary("or", x == 1.0, y == 0.0);
  return select(unit, 1.0, real);
}

Value pow_integer(const Value& x, const Value& y, bool is_signed) {
  FunctionBuilder& f = *x.function;
  const Value zero = f.integer(Type::i32, 0);
  const Value one = f.integer(Type::i32, 1);
  Value result = one;
  Value power = x;
  for (int bit = 0; bit < 32; ++bit) {
    const Value set = f.compare("icmp ne", y & f.integer(Type::i32, std::int64_t{1} << bit), zero);
    result = f.select(set, result * power, result);
    if (bit < 31) power = power * power;
  }
  if (!is_signed) return result;
  const Value odd = f.compare("icmp ne", y & one, zero);
  const Value minus_one = f.integer(Type::i32, -1);
  const Value of_minus_one = f.select(odd, minus_one, one);
  const Value reciprocal =
      f.select(f.compare("icmp eq", x, one), one,
               f.select(f.compare("icmp eq", x, minus_one), of_minus_one, zero));
  return f.select(f.compare("icmp slt", y, zero), reciprocal, result);
}

}  // namespace tensorgrad::llvm_ir
