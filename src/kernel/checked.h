// Integer arithmetic of index algebra: overflow throws, division is floor division.
#pragma once

#include <cstdint>
#include <string>

#include "tensorgrad/error.h"

namespace tensorgrad::kernel {

/// a + b. Throws GraphError beyond 64 bits.
inline std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) {
    throw GraphError("index " + std::to_string(a) + " + " + std::to_string(b) +
                     " does not fit in 64 bits");
  }
  return result;
}
/// a * b. Throws GraphError beyond 64 bits.
inline std::int64_t checked_mul(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) {
    throw GraphError("index " + std::to_string(a) + " * " + std::to_string(b) +
                     " does not fit in 64 bits");
  }
  return result;
}
/// floor(a / b) for b > 0.
constexpr std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b < 0 ? 1 : 0);
}
/// ceil(a / b) for b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b > 0 ? 1 : 0);
}
/// a - b * floor(a / b) for b > 0.
constexpr std::int64_t floor_mod(std::int64_t a, std::int64_t b) {
  return a % b + (a % b < 0 ? b : 0);
}

}  // namespace tensorgrad::kernel
