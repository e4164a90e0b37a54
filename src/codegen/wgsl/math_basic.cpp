// Helpers that make comparisons, conversions and integer operations defined for every input.
#include "codegen/wgsl/math_text.h"

namespace tensorgrad::wgsl {
namespace {

// WGSL rejects constant expressions that are infinite or NaN, and its implementations may assume
// that no value is: what must see them looks at bits. Values are made with & and |, which do not
// branch as && and || do: a loop with 16 maxima took SwiftShader's compiler all memory there is.
constexpr Helper table[] = {
    {"tg_bits", {}, R"(fn tg_bits(x: u32) -> f32 {
  return bitcast<f32>(x);
}
)"},
    {"tg_is_nan", {}, R"(fn tg_is_nan(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}
)"},
    {"tg_copysign", {}, R"(fn tg_copysign(x: f32, s: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(s) & 0x80000000u));
}
)"},
    // Compilers see a builtin in the inner choice, which may drop a NaN on either side.
    {"tg_min", {"tg_is_nan"}, R"(fn tg_min(a: f32, b: f32) -> f32 {
  return select(select(b, a, (a < b) | tg_is_nan(a)), b, tg_is_nan(b));
}
)"},
    {"tg_max", {"tg_is_nan"}, R"(fn tg_max(a: f32, b: f32) -> f32 {
  return select(select(b, a, (a > b) | tg_is_nan(a)), b, tg_is_nan(b));
}
)"},
    {"tg_relu", {"tg_is_nan"}, R"(fn tg_relu(x: f32) -> f32 {
  return select(0f, x, (x > 0f) | tg_is_nan(x));
}
)"},
    {"tg_sign", {}, R"(fn tg_sign(x: f32) -> f32 {
  return select(x, select(-1f, 1f, x > 0f), (x > 0f) | (x < 0f));
}
)"},
    // Drivers multiply by the reciprocal, which they take for 0 where it is denormal: for divisors
    // beyond 2^126. Scaled by a power of two they are below.
    {"tg_div", {}, R"(fn tg_div(a: f32, b: f32) -> f32 {
  if (abs(b) > 8e37f) {
    return (a * 0.0625f) / (b * 0.0625f);
  }
  return a / b;
}
)"},
    // Compilers take 0 times anything, and 0 over anything, for 0.
    {"tg_zero_times", {}, R"(fn tg_zero_times(zero: f32, x: f32) -> f32 {
  let bits = bitcast<u32>(zero) ^ bitcast<u32>(x);
  let finite = (bits & 0x7f800000u) != 0x7f800000u;
  return bitcast<f32>(select(0x7fc00000u, bits & 0x80000000u, finite));
}
)"},
    {"tg_zero_over", {}, R"(fn tg_zero_over(zero: f32, x: f32) -> f32 {
  let bits = bitcast<u32>(zero) ^ bitcast<u32>(x);
  let number = (bits & 0x7fffffffu) - 1u < 0x7f800000u;
  return bitcast<f32>(select(0x7fc00000u, bits & 0x80000000u, number));
}
)"},
    {"tg_sqrt", {}, R"(fn tg_sqrt(x: f32) -> f32 {
  let special = (x == 0f) | (bitcast<u32>(x) == 0x7f800000u);
  return select(sqrt(x), x, special);
}
)"},
    // Implementations take a != b to be false with NaN.
    {"tg_ne", {"tg_is_nan"}, R"(fn tg_ne(a: f32, b: f32) -> bool {
  return (a != b) | tg_is_nan(a) | tg_is_nan(b);
}
)"},
    {"tg_not_zero", {}, R"(fn tg_not_zero(x: f32) -> bool {
  return (bitcast<u32>(x) & 0x7fffffffu) != 0u;
}
)"},
    // Whether (a, i) comes before (b, j) as the first largest or least; NaN is the extremum.
    {"tg_above", {"tg_is_nan"}, R"(fn tg_above(a: f32, i: i32, b: f32, j: i32) -> bool {
  let first = tg_is_nan(a);
  let second = tg_is_nan(b);
  let equal = (first & second) | (a == b);
  return (first & !second) | (!second & (a > b)) | (equal & (i < j));
}
)"},
    {"tg_below", {"tg_is_nan"}, R"(fn tg_below(a: f32, i: i32, b: f32, j: i32) -> bool {
  let first = tg_is_nan(a);
  let second = tg_is_nan(b);
  let equal = (first & second) | (a == b);
  return (first & !second) | (!second & (a < b)) | (equal & (i < j));
}
)"},
    {"tg_to_i32", {"tg_is_nan"}, R"(fn tg_to_i32(x: f32) -> i32 {
  let high = select(i32(x), 2147483647i, x >= 2147483648f);
  let low = select(high, i32(-2147483648), x <= -2147483648f);
  return select(low, 0i, tg_is_nan(x));
}
)"},
    {"tg_to_u32", {"tg_is_nan"}, R"(fn tg_to_u32(x: f32) -> u32 {
  let high = select(u32(max(x, 0f)), 4294967295u, x >= 4294967296f);
  return select(high, 0u, (x <= 0f) | tg_is_nan(x));
}
)"},
    // Either neighbour may result from a conversion: of the halves each is exact, and their sum is
    // rounded once.
    {"tg_from_i32", {}, R"(fn tg_from_i32(x: i32) -> f32 {
  return f32(x >> 16u) * 65536f + f32(x & 0xffffi);
}
)"},
    {"tg_from_u32", {}, R"(fn tg_from_u32(x: u32) -> f32 {
  return f32(x >> 16u) * 65536f + f32(x & 0xffffu);
}
)"},
    {"tg_div_i32", {}, R"(fn tg_div_i32(a: i32, b: i32) -> i32 {
  let wraps = (b == 0i) | ((b == -1i) & (a == i32(-2147483648)));
  return select(a / select(b, 1i, wraps), 0i, b == 0i);
}
)"},
    {"tg_div_u32", {}, R"(fn tg_div_u32(a: u32, b: u32) -> u32 {
  return select(a / max(b, 1u), 0u, b == 0u);
}
)"},
    {"tg_rem_i32", {}, R"(fn tg_rem_i32(a: i32, b: i32) -> i32 {
  let wraps = (b == 0i) | ((b == -1i) & (a == i32(-2147483648)));
  return a - (a / select(b, 1i, wraps)) * select(b, 1i, wraps);
}
)"},
    {"tg_rem_u32", {}, R"(fn tg_rem_u32(a: u32, b: u32) -> u32 {
  return a % max(b, 1u);
}
)"},
    {"tg_shl_i32", {}, R"(fn tg_shl_i32(a: i32, b: i32) -> i32 {
  return select(0i, a << (u32(b) & 31u), u32(b) < 32u);
}
)"},
    {"tg_shl_u32", {}, R"(fn tg_shl_u32(a: u32, b: u32) -> u32 {
  return select(0u, a << (b & 31u), b < 32u);
}
)"},
    {"tg_shr_i32", {}, R"(fn tg_shr_i32(a: i32, b: i32) -> i32 {
  return a >> min(u32(b), 31u);
}
)"},
    {"tg_shr_u32", {}, R"(fn tg_shr_u32(a: u32, b: u32) -> u32 {
  return select(0u, a >> (b & 31u), b < 32u);
}
)"},
    {"tg_pow_u32", {}, R"(fn tg_pow_u32(x: u32, y: u32) -> u32 {
  var result = 1u;
  var power = x;
  for (var left = y; left != 0u; left >>= 1u) {
    result *= select(1u, power, (left & 1u) != 0u);
    power *= power;
  }
  return result;
}
)"},
    {"tg_pow_i32", {"tg_pow_u32"}, R"(fn tg_pow_i32(x: i32, y: i32) -> i32 {
  if (y >= 0i) {
    return i32(tg_pow_u32(u32(x), u32(y)));
  }
  if (x == -1i) {
    return select(1i, -1i, (y & 1i) != 0i);
  }
  return select(0i, 1i, x == 1i);
}
)"},
    // Division of mantissas eight bits at a time: exact for any quotient.
    {"tg_rem", {"tg_is_nan", "tg_bits"}, R"(fn tg_rem(x: f32, y: f32) -> f32 {
  let a = bitcast<u32>(x) & 0x7fffffffu;
  let b = bitcast<u32>(y) & 0x7fffffffu;
  if (a >= 0x7f800000u || b > 0x7f800000u || b == 0u) {
    return tg_bits(0x7fc00000u);
  }
  if (a < b) {
    return x;
  }
  let ea = max(a >> 23u, 1u);
  let eb = max(b >> 23u, 1u);
  let mb = (b & 0x7fffffu) | select(0u, 0x800000u, b >= 0x800000u);
  var m = ((a & 0x7fffffu) | select(0u, 0x800000u, a >= 0x800000u)) % mb;
  for (var left = ea - eb; left > 0u;) {
    let step = min(left, 8u);
    m = (m << step) % mb;
    left -= step;
  }
  let shift = min(countLeadingZeros(m | 1u) - 8u, eb - 1u);
  let shifted = m << shift;
  let bits = select(shifted, (shifted & 0x7fffffu) | ((eb - shift) << 23u), shifted >= 0x800000u);
  return bitcast<f32>(bits | (bitcast<u32>(x) & 0x80000000u));
}
)"},
};

}  // namespace

std::span<const Helper> basic_helpers() { return table; }

}  // namespace tensorgrad::wgsl
