// Functions that generated WGSL calls where a builtin is loose, undefined for some inputs, or
// absent.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "kernel/expr.h"

namespace tensorgrad::wgsl {

/// The helper functions of one module, each defined once.
///
/// Accuracy of the f32 functions, where the device rounds +, -, * correctly and divides within 2.5
/// ULP as WGSL asks: within 5 ULP of the exact result for every argument, but where the result or
/// an argument is denormal (a device may flush those to 0). NaN, infinities and zeros are as IEEE.
class Helpers {
 public:
  /// Adds a helper, and those it calls, and returns its name. Throws GraphError for an unknown one.
  std::string use(std::string_view name);
  /// Whether `fn` on operands of `dtype` is a call of the helper `name_of(fn, dtype)`.
  static bool has(kernel::Fn fn, DType dtype);
  static std::string name_of(kernel::Fn fn, DType dtype);
  /// All that is used, callees first, in an order that does not depend on that of `use`.
  std::string definitions() const;

 private:
  std::set<std::size_t> used_;
};

}  // namespace tensorgrad::wgsl
