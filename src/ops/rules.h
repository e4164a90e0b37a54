// What the rows of several families share.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "ops/primitives.h"

namespace tensorgrad {

// The arguments of the rules, as op.h names them.
using Tangents = std::span<const Tensor>;
using Cotangents = std::vector<Tensor>;
using Operands = std::span<const Tensor>;
using Batched = const std::vector<bool>&;
using RefOperands = std::span<const RefArray* const>;

/// Operand `i` of the node behind `y`.
inline const Tensor& in(const Tensor& y, std::size_t i) { return y.node().operands[i]; }

/// Throws DTypeError unless `dtype` is one of `allowed`: "exp: takes f32, not i32."
void check_dtype(const Op& op, DType dtype, std::span<const DType> allowed, const Site& site);

/// Throws DTypeError unless the operands have one dtype: "dot_general: dtypes differ: f32 and f16."
void check_same(const Op& op, DType a, DType b, const Site& site);

inline constexpr DType floats[] = {DType::f32, DType::f16};
inline constexpr DType single[] = {DType::f32};
inline constexpr DType integers[] = {DType::i32, DType::u32};
inline constexpr DType numbers[] = {DType::f32, DType::f16, DType::i32, DType::u32};
inline constexpr DType signed_numbers[] = {DType::f32, DType::f16, DType::i32};
inline constexpr DType bits_dtypes[] = {DType::bool_, DType::i32, DType::u32};
inline constexpr DType any_dtype[] = {DType::f32, DType::f16, DType::i32, DType::u32, DType::bool_};

/// Operands without the batch dimension get one of extent `size`.
std::vector<Tensor> batch_all(Operands operands, Batched batched, std::int64_t size);
/// A vmap rule for ops whose attributes do not name dimensions.
Tensor vmap_elementwise(const Tensor& y, Operands operands, Batched batched, std::int64_t size);

/// The rows of ops that pass their first operand through unchanged.
Type infer_same(const Op& op, Operands operands, const Attrs& attrs, const Site& site);
Source lower_identity(kernel::Pool& pool, const Node& node, std::span<const kernel::Index> index);
RefArray reference_identity(const Node& node, RefOperands operands);

/// Row-major strides of a shape.
Shape strides_of(const Shape& shape);
/// The multi-index of a flat row-major position.
Shape unravel(std::int64_t flat, const Shape& shape);
/// Shape without the (sorted) axes.
Shape without(const Shape& shape, const std::vector<int>& axes);
/// Shapes that samples of most ops run over: ranks 0-5, size-1 and empty axes, odd sizes.
std::vector<Shape> sample_shapes();

}  // namespace tensorgrad
