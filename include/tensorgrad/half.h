// Numbers of 16 bits.
#pragma once

#include <cstdint>

namespace tensorgrad {

/// A number of f16 (IEEE 754 binary16: 11 bits of precision, from 2^-24 to 65504) in host memory.
/// Arithmetic is that of float, which holds every f16.
class Half {
 public:
  Half() = default;
  /// `value` rounded to the nearest f16, ties to even: from 65520 on to infinity; NaN stays NaN.
  explicit Half(double value);
  /// The number with these bits.
  static Half from_bits(std::uint16_t bits);
  std::uint16_t bits() const { return bits_; }
  /// The same number.
  operator float() const;  // NOLINT(google-explicit-constructor): nothing is lost

 private:
  std::uint16_t bits_ = 0;
};

/// `value` rounded as Half rounds it.
double round_to_half(double value);

}  // namespace tensorgrad
