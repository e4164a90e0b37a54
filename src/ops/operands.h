// Broadcasting and promotion of the public functions' operands.
#pragma once

#include <utility>

#include "tensorgrad/tensor.h"

namespace tensorgrad {

/// The NumPy broadcast of two shapes. Throws ShapeError naming `op` and both.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b, const Site& site);
/// The dtype two operands meet in. Throws DTypeError for i32 beside u32.
DType promote(const char* op, DType a, DType b, const Site& site);
/// Both operands as tensors of one shape and dtype. Throws GraphError if both are numbers.
std::pair<Tensor, Tensor> matched(const char* op, const Operand& a, const Operand& b);
/// An operand as a tensor; a number becomes a rank-0 tensor of `like`'s dtype (f32 if fractional).
Tensor as_tensor(const Operand& a, DType like);
/// `axis` counted from the front. Throws ShapeError naming `op`.
int normal_axis(const char* op, int axis, int rank, const Shape& shape, const Site& site);

}  // namespace tensorgrad
