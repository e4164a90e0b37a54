// What layers and functions of nn check of their operands.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "graph/node.h"
#include "tensorgrad/module.h"
#include "tensorgrad/tensor.h"

namespace tensorgrad {

/// " Its weight is `l1.W`.": for the end of a message; "" if the parameter has no name.
inline std::string weight_name(const Param& p) {
  std::string shown;
  if (!p.name.empty()) {
    shown = "`" + p.name + "`";
  } else if (p.bound.defined()) {
    shown = display_name(p.bound);
  }
  return shown.empty() ? "" : " Its weight is " + shown + ".";
}

/// Throws DTypeError unless `x` is f32. `what` is the layer or function, `rest` ends the message.
inline void check_f32(const char* what, const Tensor& x, const Site& site,
                      const std::string& rest = "") {
  if (x.dtype() == DType::f32) return;
  throw DTypeError(
      fmt::format("{}: takes f32, not {}; cast it first.{}", what, name(x.dtype()), rest), site);
}

/// Throws DTypeError unless `x` is f32 or f16.
inline void check_floating(const char* what, const Tensor& x, const Site& site) {
  if (is_floating(x.dtype())) return;
  throw DTypeError(
      fmt::format("{}: takes f32 or f16, not {}; cast it first.", what, name(x.dtype())), site);
}

/// Throws ShapeError unless `x` has four dimensions.
inline void check_images(const char* what, const Tensor& x, const Site& site,
                         const std::string& rest = "") {
  check_f32(what, x, site, rest);
  if (x.rank() == 4) return;
  throw ShapeError(fmt::format("{}: takes images [N, C, H, W], not shape {}.{}", what,
                               to_string(x.shape()), rest),
                   site);
}

/// Throws ShapeError unless the last dimensions of `x`, f32, are `last`, at least one.
inline void check_last(const char* layer, const Tensor& x, const Shape& last, const Param& weight,
                       const Site& site) {
  check_f32(layer, x, site, weight_name(weight));
  if (x.rank() == 0) {
    throw ShapeError(fmt::format("{}: takes no scalars; the layer's last dimension is {}.{}", layer,
                                 last.back(), weight_name(weight)),
                     site);
  }
  if (last.size() > 1) {
    const auto rank = static_cast<std::ptrdiff_t>(last.size());
    if (x.rank() >= rank && std::equal(last.begin(), last.end(), x.shape().end() - rank)) return;
    throw ShapeError(fmt::format("{}: the input's shape {} does not end in the layer's {}.{}",
                                 layer, to_string(x.shape()), to_string(last), weight_name(weight)),
                     site);
  }
  if (x.dim(-1) != last.back()) {
    throw ShapeError(fmt::format("{}: the input's last dimension is {}, not the layer's {}.{}",
                                 layer, x.dim(-1), last.back(), weight_name(weight)),
                     site);
  }
}

/// `value`, if it is positive.
inline std::int64_t positive(const char* layer, const char* what, std::int64_t value,
                             const Site& site) {
  if (value > 0) return value;
  throw ValueError(fmt::format("{}: the {} is {}, not at least 1.", layer, what, value), site);
}

}  // namespace tensorgrad
