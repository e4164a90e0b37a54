// Transcendental functions in f32. Drivers turn the selects of a clamp into a minimum or maximum
// that loses NaN: where one is clamped, it is put back at the end. Coefficients are minimax fits
// over the reduced ranges.
#include "codegen/wgsl/math_text.h"

namespace tensorgrad::wgsl {
namespace {

constexpr Helper table[] = {
    // Two factors, so that a denormal result is rounded once.
    {"tg_scale", {}, R"(fn tg_scale(x: f32, n: i32) -> f32 {
  let half = n >> 1u;
  return x * bitcast<f32>((half + 127i) << 23u) * bitcast<f32>((n - half + 127i) << 23u);
}
)"},
    // (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2
    {"tg_exp_tail", {}, R"(fn tg_exp_tail(r: f32) -> f32 {
  return ((((0.000199079557f * r + 0.00139489269f) * r + 0.00833328534f) * r + 0.0416662358f) * r +
      0.166666672f) * r + 0.5f;
}
)"},
    // ln 2 is taken in two parts; the first has 9 bits, so its product with n is exact.
    {"tg_exp", {"tg_scale", "tg_exp_tail", "tg_is_nan"}, R"(fn tg_exp(x: f32) -> f32 {
  let c = select(select(x, 89f, x > 89f), -104f, x < -104f);
  let n = round(c * 1.44269502f);
  let r = (c - n * 0.693359375f) + n * 0.000212194442f;
  return select(tg_scale(r * r * tg_exp_tail(r) + r + 1f, i32(n)), x, tg_is_nan(x));
}
)"},
    {"tg_expm1", {"tg_exp_tail", "tg_is_nan"}, R"(fn tg_expm1(x: f32) -> f32 {
  let c = select(select(x, 89f, x > 89f), -30f, x < -30f);
  let n = round(c * 1.44269502f);
  let r = (c - n * 0.693359375f) + n * 0.000212194442f;
  let e = r * r * tg_exp_tail(r) + r;
  let half = bitcast<f32>((i32(n) + 126i) << 23u);
  let result = (half * e + (half - 0.5f)) * 2f;
  return select(select(result, e, n == 0f), x, (x == 0f) | tg_is_nan(x));
}
)"},
    // The mantissa is taken in [sqrt(1/2), sqrt(2)).
    {"tg_log", {"tg_bits"}, R"(fn tg_log(x: f32) -> f32 {
  let tiny = x < 1.17549435e-38f;
  let normal = select(x, x * 8388608f, tiny);
  let exponent = (bitcast<i32>(normal) - 0x3f3504f3i) >> 23u;
  let m = bitcast<f32>(bitcast<i32>(normal) - (exponent << 23u)) - 1f;
  let e = f32(exponent) - select(0f, 23f, tiny);
  var p = 0.0691348836f * m - 0.117891587f;
  p = p * m + 0.118734136f;
  p = p * m - 0.123844787f;
  p = p * m + 0.14218621f;
  p = p * m - 0.166692421f;
  p = p * m + 0.20002228f;
  p = p * m - 0.249999866f;
  p = p * m + 0.333333105f;
  let z = m * m;
  let tail = (z * m * p - e * 0.000212194442f) - z * 0.5f;
  let bits = bitcast<u32>(x);
  if (x == 0f) {
    return tg_bits(0xff800000u);
  }
  if (bits >= 0x7f800000u) {
    return tg_bits(select(0x7fc00000u, bits, bits == 0x7f800000u));
  }
  return e * 0.693359375f + (m + tail);
}
)"},
    // What 1 + x lost is added to first order. Compilers know that (1 + x) - 1 is x, but not so
    // once
    // bits are cleared.
    {"tg_log1p", {"tg_log"}, R"(fn tg_log1p(x: f32) -> f32 {
  let u = bitcast<f32>(bitcast<u32>(1f + x) & 0xfffffffcu);
  let lost = (x - (u - 1f)) / u;
  let large = tg_log(u) + select(0f, lost, (u > 0f) & (x < 16777216f));
  return select(large, x - x * x * (0.5f - x * 0.333333333f), abs(x) < 0.0001f);
}
)"},
    {"tg_mul_wide", {}, R"(fn tg_mul_wide(a: u32, b: u32) -> vec2<u32> {
  let ll = (a & 0xffffu) * (b & 0xffffu);
  let lh = (a & 0xffffu) * (b >> 16u);
  let hl = (a >> 16u) * (b & 0xffffu);
  let mid = (ll >> 16u) + (lh & 0xffffu) + (hl & 0xffffu);
  return vec2<u32>(a * b, (a >> 16u) * (b >> 16u) + (lh >> 16u) + (hl >> 16u) + (mid >> 16u));
}
)"},
    // |x| as a multiple of pi/2 in fixed point: 96 bits of 2/pi times the mantissa, modulo 4. Gives
    // the rest in [-pi/4, pi/4] and the quadrant.
    {"tg_reduce_angle", {"tg_mul_wide"}, R"(fn tg_reduce_angle(x: f32) -> vec2<f32> {
  let bits = bitcast<u32>(x) & 0x7fffffffu;
  if (bits <= 0x3f490fdbu) {
    return vec2<f32>(bitcast<f32>(bits), 0f);
  }
  var digits = array<u32, 8>(0u, 0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u,
      0xdb629599u, 0x3c439041u);
  let position = min((bits >> 23u) - 96u, 158u);
  let i = position >> 5u;
  let left = position & 31u;
  let right = 31u - left;
  let w2 = (digits[i] << left) | ((digits[i + 1u] >> 1u) >> right);
  let w1 = (digits[i + 1u] << left) | ((digits[i + 2u] >> 1u) >> right);
  let w0 = (digits[i + 2u] << left) | ((digits[i + 3u] >> 1u) >> right);
  let m = ((bits & 0x7fffffu) | 0x800000u) << 8u;
  let carry = tg_mul_wide(m, w0).y;
  let middle = tg_mul_wide(m, w1);
  let p0 = middle.x + carry;
  let p1 = middle.y + m * w2 + select(0u, 1u, p0 < carry);
  let quadrant = (p1 + 0x20000000u) >> 30u;
  let f1 = (p1 << 2u) | (p0 >> 30u);
  let negative = (f1 & 0x80000000u) != 0u;
  let g1 = select(f1, ~f1, negative);
  let g0 = select(p0 << 2u, ~(p0 << 2u), negative);
  let zeros = min(countLeadingZeros(g1), 31u);
  let top = (g1 << zeros) | ((g0 >> 1u) >> (31u - zeros));
  let rest = f32(top) * 3.6572952e-10f * bitcast<f32>((127u - zeros) << 23u);
  return vec2<f32>(select(rest, -rest, negative), f32(quadrant));
}
)"},
    {"tg_sin_part", {}, R"(fn tg_sin_part(r: f32) -> f32 {
  let z = r * r;
  return ((((2.71793988e-06f * z - 0.000198392954f) * z + 0.00833332911f) * z - 0.166666672f) * z) *
      r + r;
}
)"},
    {"tg_cos_part", {}, R"(fn tg_cos_part(r: f32) -> f32 {
  let z = r * r;
  return (((-2.72339832e-07f * z + 2.47998778e-05f) * z - 0.00138888857f) * z + 0.0416666679f) *
      (z * z) + (1f - z * 0.5f);
}
)"},
    // sin(rest + quadrant * pi/2)
    {"tg_sine",
     {"tg_sin_part", "tg_cos_part", "tg_bits"},
     R"(fn tg_sine(rest: f32, quadrant: u32) -> f32 {
  let value = select(tg_sin_part(rest), tg_cos_part(rest), (quadrant & 1u) != 0u);
  return bitcast<f32>(bitcast<u32>(value) ^ ((quadrant & 2u) << 30u));
}
)"},
    {"tg_sin", {"tg_reduce_angle", "tg_sine", "tg_bits"}, R"(fn tg_sin(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  if ((bits & 0x7fffffffu) >= 0x7f800000u) {
    return tg_bits(0x7fc00000u);
  }
  let angle = tg_reduce_angle(x);
  let result = tg_sine(angle.x, u32(angle.y));
  return bitcast<f32>(bitcast<u32>(result) ^ (bits & 0x80000000u));
}
)"},
    {"tg_cos", {"tg_reduce_angle", "tg_sine", "tg_bits"}, R"(fn tg_cos(x: f32) -> f32 {
  if ((bitcast<u32>(x) & 0x7fffffffu) >= 0x7f800000u) {
    return tg_bits(0x7fc00000u);
  }
  let angle = tg_reduce_angle(x);
  return tg_sine(angle.x, u32(angle.y) + 1u);
}
)"},
    {"tg_tan", {"tg_reduce_angle", "tg_sine", "tg_bits"}, R"(fn tg_tan(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  if ((bits & 0x7fffffffu) >= 0x7f800000u) {
    return tg_bits(0x7fc00000u);
  }
  let angle = tg_reduce_angle(x);
  let result = tg_sine(angle.x, u32(angle.y)) / tg_sine(angle.x, u32(angle.y) + 1u);
  return bitcast<f32>(bitcast<u32>(result) ^ (bits & 0x80000000u));
}
)"},
    // asin of |t| <= 1/2
    {"tg_asin_part", {}, R"(fn tg_asin_part(t: f32) -> f32 {
  let z = t * t;
  var p = 0.0320845470f * z - 0.00288921245f;
  p = p * z + 0.0185878713f;
  p = p * z + 0.0165044516f;
  p = p * z + 0.0224647745f;
  p = p * z + 0.0303760442f;
  p = p * z + 0.0446430594f;
  p = p * z + 0.0749999955f;
  p = p * z + 0.166666672f;
  return t * z * p + t;
}
)"},
    {"tg_asin", {"tg_asin_part", "tg_copysign", "tg_bits"}, R"(fn tg_asin(x: f32) -> f32 {
  let a = abs(x);
  if ((bitcast<u32>(x) & 0x7fffffffu) > 0x3f800000u) {
    return tg_bits(0x7fc00000u);
  }
  let inner = a < 0.5f;
  let core = tg_asin_part(select(sqrt((1f - a) * 0.5f), a, inner));
  let outer = (1.57079637f - 2f * core) - 4.37113883e-08f;
  return tg_copysign(select(outer, core, inner), x);
}
)"},
    {"tg_acos", {"tg_asin_part", "tg_bits"}, R"(fn tg_acos(x: f32) -> f32 {
  let a = abs(x);
  if ((bitcast<u32>(x) & 0x7fffffffu) > 0x3f800000u) {
    return tg_bits(0x7fc00000u);
  }
  if (a < 0.5f) {
    return (1.57079637f - tg_asin_part(x)) - 4.37113883e-08f;
  }
  let outer = 2f * tg_asin_part(sqrt((1f - a) * 0.5f));
  return select(outer, (3.14159274f - outer) - 8.74227766e-08f, x < 0f);
}
)"},
    // The angle in [0, pi/2] whose tangent is rise / run, both finite, not negative, not both 0.
    {"tg_angle", {}, R"(fn tg_angle(rise: f32, run: f32) -> f32 {
  let swapped = rise > run;
  let low = select(rise, run, swapped);
  let high = select(run, rise, swapped);
  let upper = low > high * 0.414213562f;
  let t = select(low, low - high, upper) / select(high, low + high, upper);
  let z = t * t;
  var p = 0.0308866950f * z - 0.0589054694f;
  p = p * z + 0.0756840830f;
  p = p * z - 0.0907912012f;
  p = p * z + 0.111104487f;
  p = p * z - 0.142856935f;
  p = p * z + 0.2f;
  p = p * z - 0.333333333f;
  let core = t * z * p + t;
  let angle = select(core, 0.785398163f + core, upper);
  return select(angle, (1.57079637f - angle) - 4.37113883e-08f, swapped);
}
)"},
    {"tg_atan", {"tg_angle", "tg_copysign", "tg_is_nan"}, R"(fn tg_atan(x: f32) -> f32 {
  let a = abs(x);
  return select(tg_copysign(tg_angle(select(a, 1e9f, a > 1e9f), 1f), x), x, tg_is_nan(x));
}
)"},
    {"tg_atan2",
     {"tg_angle", "tg_copysign", "tg_is_nan", "tg_bits"},
     R"(fn tg_atan2(y: f32, x: f32) -> f32 {
  if (tg_is_nan(x) || tg_is_nan(y)) {
    return tg_bits(0x7fc00000u);
  }
  let by = bitcast<u32>(y) & 0x7fffffffu;
  let bx = bitcast<u32>(x) & 0x7fffffffu;
  let top = max(bx, by);
  // Scaled, so that neither the sum nor the quotient overflows.
  let scale = select(select(1f, 5.42101086e-20f, top > 0x5f000000u), 1.84467441e+19f,
      top < 0x20000000u);
  var rise = bitcast<f32>(by) * scale;
  var run = bitcast<f32>(bx) * scale;
  if (top == 0x7f800000u) {
    rise = select(0f, 1f, by == top);
    run = select(0f, 1f, bx == top);
  }
  let angle = tg_angle(rise, select(run, 1f, top == 0u));
  let left = (bitcast<u32>(x) & 0x80000000u) != 0u;
  return tg_copysign(select(angle, (3.14159274f - angle) - 8.74227766e-08f, left), y);
}
)"},
    {"tg_tanh", {"tg_expm1", "tg_copysign", "tg_is_nan"}, R"(fn tg_tanh(x: f32) -> f32 {
  let a = abs(x);
  let e = tg_expm1(2f * select(a, 10f, a > 10f));
  return select(tg_copysign(e / (e + 2f), x), x, tg_is_nan(x));
}
)"},
    {"tg_logistic", {"tg_exp"}, R"(fn tg_logistic(x: f32) -> f32 {
  let e = tg_exp(-abs(x));
  return select(1f, e, x < 0f) / (1f + e);
}
)"},
    {"tg_erf", {"tg_exp", "tg_copysign", "tg_is_nan"}, R"(fn tg_erf(x: f32) -> f32 {
  let a = abs(x);
  if (a < 1f) {
    let z = x * x;
    var p = -9.68014047e-06f * z + 0.000112705457f;
    p = p * z - 0.000848471187f;
    p = p * z + 0.00522107491f;
    p = p * z - 0.0268654451f;
    p = p * z + 0.112837829f;
    p = p * z - 0.376126379f;
    p = p * z + 0.128379166f;
    return x * (p + 1f);
  }
  let c = select(a, 4f, a > 4f);
  var q = 4.3144164e-06f * c - 3.79324447e-05f;
  q = q * c - 8.88351206e-05f;
  q = q * c + 0.00303943735f;
  q = q * c - 0.0228525084f;
  q = q * c + 0.105433457f;
  q = q * c + 0.635536432f;
  q = q * c + 1.12857115f;
  return select(tg_copysign(1f - tg_exp(-(c * q)), x), x, tg_is_nan(x));
}
)"},
    // exp(x^2) erfc(x) (1 + 2x) is a polynomial in (x - 3) / (x + 3). The square of the leading 12
    // bits of x is exact.
    {"tg_erfc", {"tg_exp", "tg_erf", "tg_is_nan"}, R"(fn tg_erfc(x: f32) -> f32 {
  let a = abs(x);
  if (a < 0.5f) {
    return 1f - tg_erf(x);
  }
  let c = select(a, 10.4f, a > 10.4f);
  let t = (c - 3f) / (c + 3f);
  var p = -4.818995921e-06f * t - 1.947555790e-05f;
  p = p * t + 8.891591980e-06f;
  p = p * t + 0.000126534583f;
  p = p * t - 0.000106507327f;
  p = p * t - 0.000780676256f;
  p = p * t + 0.00188888559f;
  p = p * t + 0.00252958373f;
  p = p * t - 0.0237705246f;
  p = p * t + 0.0683080070f;
  p = p * t - 0.119273664f;
  p = p * t + 0.129645160f;
  p = p * t - 0.0475622943f;
  p = p * t - 0.135621106f;
  p = p * t + 1.25300806f;
  let h = bitcast<f32>(bitcast<u32>(c) & 0xfffff000u);
  let upper = tg_exp(-(h * h)) * tg_exp((h - c) * (h + c)) * p / (2f * c + 1f);
  return select(select(upper, 2f - upper, x < 0f), x, tg_is_nan(x));
}
)"},
    // log2 of the base is kept in two parts, so that the product with the exponent is good to
    // 2^-30.
    {"tg_pow_magnitude",
     {"tg_scale", "tg_exp_tail", "tg_bits"},
     R"(fn tg_pow_magnitude(a: f32, y: f32) -> f32 {
  let tiny = a < 1.17549435e-38f;
  let normal = select(a, a * 16777216f, tiny);
  let exponent = (bitcast<i32>(normal) - 0x3f3504f3i) >> 23u;
  let m = bitcast<f32>(bitcast<i32>(normal) - (exponent << 23u));
  let k = f32(exponent) - select(0f, 24f, tiny);
  // log2(m) = 2 / ln 2 * atanh((m - 1) / (m + 1))
  let d = bitcast<f32>(bitcast<u32>(m + 1f) & 0xfffffffcu);
  let s = (m - 1f) / d;
  let sh = bitcast<f32>(bitcast<u32>(s) & 0xfffff000u);
  let sl = s - sh;
  let dh = bitcast<f32>(bitcast<u32>(d) & 0xfffff000u);
  let lost = ((((m - 1f) - sh * dh) - sh * (d - dh)) - sl * d) - s * (m - (d - 1f));
  let z = s * s;
  let tail = ((((0.0909090909f * z + 0.111111111f) * z + 0.142857143f) * z + 0.2f) * z +
      0.333333333f) * z * s;
  let ul = sl + (lost / d + tail);
  let ph = 2.884765625f * sh;
  let pl = 2.884765625f * ul + 0.000624456778f * (sh + ul);
  let log_high = bitcast<f32>(bitcast<u32>(k + ph) & 0xfffff000u);
  let log_low = (ph - (log_high - k)) + pl;
  let estimate = y * log_high;
  if (estimate > 130f) {
    return tg_bits(0x7f800000u);
  }
  if (estimate < -152f) {
    return 0f;
  }
  let yh = bitcast<f32>(bitcast<u32>(y) & 0xfffff000u);
  let product_high = yh * log_high;
  let product_low = yh * log_low + (y - yh) * (log_high + log_low);
  let n = round(product_high + product_low);
  let r = ((product_high - n) + product_low) * 0.693147181f;
  return tg_scale(r * r * tg_exp_tail(r) + r + 1f, i32(n));
}
)"},
    {"tg_pow", {"tg_pow_magnitude", "tg_bits", "tg_is_nan"}, R"(fn tg_pow(x: f32, y: f32) -> f32 {
  if (x == 1f || y == 0f) {
    return 1f;
  }
  if (tg_is_nan(x) || tg_is_nan(y)) {
    return tg_bits(0x7fc00000u);
  }
  let a = abs(x);
  let b = abs(y);
  let whole = (b >= 8388608f) | (floor(b) == b);
  let odd = whole & (b < 16777216f) & ((u32(min(b, 16777216f)) & 1u) != 0u);
  let infinite = bitcast<u32>(a) == 0x7f800000u;
  var result = 1f;
  if (a == 0f || infinite) {
    result = select(0f, tg_bits(0x7f800000u), infinite == (y > 0f));
  } else if (x < 0f && !whole) {
    return tg_bits(0x7fc00000u);
  } else if (a != 1f) {
    result = tg_pow_magnitude(a, y);
  }
  let flips = odd & ((bitcast<u32>(x) & 0x80000000u) != 0u);
  return select(result, -result, flips);
}
)"},
};

}  // namespace

std::span<const Helper> math_helpers() { return table; }

}  // namespace tensorgrad::wgsl
