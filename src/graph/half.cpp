#include "tensorgrad/half.h"

#include <bit>
#include <cmath>
#include <limits>

namespace tensorgrad {
namespace {

constexpr int fraction_bits = 10;
constexpr int fraction_bits_of_double = 52;
constexpr int dropped_bits = fraction_bits_of_double - fraction_bits;
constexpr int bias = 15;
constexpr int bias_of_double = 1023;
constexpr double smallest_normal = 0x1p-14;
constexpr double smallest = 0x1p-24;
constexpr std::uint16_t sign_bit = 0x8000;
constexpr std::uint16_t infinity_bits = 0x7C00;
constexpr std::uint16_t nan_bits = 0x7E00;
constexpr std::uint16_t fraction_mask = 0x03FF;

}  // namespace

double round_to_half(double value) {
  const double size = std::fabs(value);
  if (!std::isfinite(value) || size == 0) return value;
  double rounded = 0;
  if (size < smallest_normal) {
    // Doubles of this size have units of 2^-24.
    constexpr double large = 0x1.8p28;
    rounded = size + large - large;
  } else {
    const auto bits = std::bit_cast<std::uint64_t>(size);
    constexpr std::uint64_t unit = std::uint64_t{1} << dropped_bits;
    const std::uint64_t even = (bits >> dropped_bits) & 1;
    rounded = std::bit_cast<double>((bits + unit / 2 - 1 + even) & ~(unit - 1));
    if (rounded > 65504) rounded = std::numeric_limits<double>::infinity();
  }
  return std::copysign(rounded, value);
}

Half::Half(double value) {
  const double rounded = round_to_half(value);
  const double size = std::fabs(rounded);
  if (std::isnan(size)) {
    bits_ = nan_bits;
  } else if (std::isinf(size)) {
    bits_ = infinity_bits;
  } else if (size < smallest_normal) {
    bits_ = static_cast<std::uint16_t>(size / smallest);
  } else {
    // Exponent and fraction lie side by side, as they do in a double.
    constexpr std::uint64_t other_bias = std::uint64_t{bias_of_double - bias} << fraction_bits;
    bits_ = static_cast<std::uint16_t>((std::bit_cast<std::uint64_t>(size) >> dropped_bits) -
                                       other_bias);
  }
  if (std::signbit(rounded)) bits_ |= sign_bit;
}

Half Half::from_bits(std::uint16_t bits) {
  Half half;
  half.bits_ = bits;
  return half;
}

Half::operator float() const {
  const std::uint16_t size = bits_ & ~sign_bit;
  float value = 0;
  if (size > infinity_bits) {
    value = std::numeric_limits<float>::quiet_NaN();
  } else if (size == infinity_bits) {
    value = std::numeric_limits<float>::infinity();
  } else if (size <= fraction_mask) {
    value = static_cast<float>(size * smallest);
  } else {
    constexpr std::uint64_t other_bias = std::uint64_t{bias_of_double - bias} << fraction_bits;
    value = static_cast<float>(std::bit_cast<double>((size + other_bias) << dropped_bits));
  }
  return (bits_ & sign_bit) != 0 ? -value : value;
}

}  // namespace tensorgrad
