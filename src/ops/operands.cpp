#include "ops/operands.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/primitives.h"

namespace tensorgrad {

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b, const Site& site) {
  Shape out(std::max(a.size(), b.size()), 1);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const std::int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) {
      throw ShapeError(
          fmt::format("{}: shapes {} and {} do not broadcast: {} against {} in dimension {} from "
                      "the end.",
                      op, to_string(a), to_string(b), x, y, i + 1),
          site);
    }
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

DType promote(const char* op, DType a, DType b, const Site& site) {
  if (a == b) return a;
  if (is_floating(a) && is_floating(b)) return DType::f32;
  if (is_floating(a) || is_floating(b)) return is_floating(a) ? a : b;
  if (a == DType::bool_) return b;
  if (b == DType::bool_) return a;
  throw DTypeError(
      fmt::format("{}: {} and {} have no common dtype; cast one of them.", op, name(a), name(b)),
      site);
}

Tensor as_tensor(const Operand& a, DType like) {
  if (a.tensor.defined()) return a.tensor;
  DType dtype = like;
  if (a.scalar.kind == Scalar::Kind::floating && !is_floating(like)) dtype = DType::f32;
  if (a.scalar.kind == Scalar::Kind::integer && like == DType::bool_) dtype = DType::i32;
  return prim::constant(a.scalar.value, dtype, a.site);
}

std::pair<Tensor, Tensor> matched(const char* op, const Operand& a, const Operand& b) {
  if (!a.tensor.defined() && !b.tensor.defined()) {
    throw GraphError(fmt::format("{}: neither operand is a tensor with a value.", op), a.site);
  }
  Tensor x = as_tensor(a, b.tensor.defined() ? b.tensor.dtype() : DType::f32);
  Tensor y = as_tensor(b, a.tensor.defined() ? a.tensor.dtype() : DType::f32);
  const DType dtype = promote(op, x.dtype(), y.dtype(), a.site);
  const Shape shape = broadcast_shapes(op, x.shape(), y.shape(), a.site);
  x = prim::broadcast_to(prim::cast(x, dtype, a.site), shape, a.site);
  y = prim::broadcast_to(prim::cast(y, dtype, a.site), shape, a.site);
  return {x, y};
}

int normal_axis(const char* op, int axis, int rank, const Shape& shape, const Site& site) {
  if (axis < -rank || axis >= rank) {
    throw ShapeError(
        fmt::format("{}: axis {} is out of range for shape {}.", op, axis, to_string(shape)), site);
  }
  return axis < 0 ? axis + rank : axis;
}

}  // namespace tensorgrad
