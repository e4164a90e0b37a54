// The definitions behind Helpers.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace tensorgrad::wgsl {

/// A function of WGSL, and the helpers that it calls.
struct Helper {
  std::string_view name;
  std::array<std::string_view, 4> calls;
  std::string_view text;
};

/// Conversions, comparisons, integer operations. A helper calls helpers before it only; those of
/// `math_helpers` may call these.
std::span<const Helper> basic_helpers();
/// Transcendental functions.
std::span<const Helper> math_helpers();

}  // namespace tensorgrad::wgsl
