// The public functions that make tensors.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/operands.h"
#include "ops/rules.h"
#include "tensorgrad/ops.h"

namespace tensorgrad {
namespace {

using kernel::Fn;

template <class T>
Tensor from_values(std::span<const T> values, const Shape& shape, const Site& site) {
  for (std::int64_t d : shape) {
    if (d < 0) {
      throw ShapeError(fmt::format("array: shape {} has a negative extent.", to_string(shape)),
                       site);
    }
  }
  if (static_cast<std::int64_t>(values.size()) != numel(shape)) {
    throw ShapeError(fmt::format("array: {} values do not fill shape {} of {} elements.",
                                 values.size(), to_string(shape), numel(shape)),
                     site);
  }
  const auto bytes = std::as_bytes(values);
  return prim::data({shape, dtype_of<T>::value}, {bytes.begin(), bytes.end()}, site);
}

/// Whether the column is `offset` or more to the right of the row (compared by `fn`), over the last
/// two dimensions of `shape`.
Tensor diagonal_mask(Fn fn, const Shape& shape, int offset, const Site& site) {
  const int rank = static_cast<int>(shape.size());
  const Tensor row = prim::iota(shape, rank - 2, DType::i32, site);
  const Tensor column = prim::iota(shape, rank - 1, DType::i32, site);
  return prim::map(fn, {column, row + offset}, site);
}

Tensor triangle(const char* name, Fn fn, const Tensor& x, int diagonal, const Site& site) {
  const SiteScope scope(site);
  if (x.rank() < 2) {
    throw ShapeError(
        fmt::format("{}: shape {} has fewer than two dimensions.", name, to_string(x.shape())),
        site);
  }
  return where(diagonal_mask(fn, x.shape(), diagonal, site), x, prim::zeros_like(x));
}

}  // namespace

Tensor full(const Shape& shape, double value, DType dtype, Site site) {
  return prim::full(shape, value, dtype, site);
}
Tensor zeros(const Shape& shape, DType dtype, Site site) { return full(shape, 0, dtype, site); }
Tensor ones(const Shape& shape, DType dtype, Site site) { return full(shape, 1, dtype, site); }
Tensor zeros_like(const Tensor& x, Site site) { return full(x.shape(), 0, x.dtype(), site); }
Tensor ones_like(const Tensor& x, Site site) { return full(x.shape(), 1, x.dtype(), site); }
Tensor arange(std::int64_t n, DType dtype, Site site) {
  if (n < 0) throw ShapeError(fmt::format("arange: {} is negative.", n), site);
  if (dtype == DType::bool_)
    throw DTypeError("arange: takes f32, f16, i32 or u32, not bool.", site);
  return prim::iota({n}, 0, dtype, site);
}
Tensor array(std::initializer_list<float> values, Site site) {
  return from_values(std::span<const float>(values.begin(), values.size()),
                     {static_cast<std::int64_t>(values.size())}, site);
}
Tensor array(std::span<const float> values, const Shape& shape, Site site) {
  return from_values(values, shape, site);
}
Tensor array(std::span<const std::int32_t> values, const Shape& shape, Site site) {
  return from_values(values, shape, site);
}
Tensor array(std::span<const std::uint32_t> values, const Shape& shape, Site site) {
  return from_values(values, shape, site);
}
Tensor array(std::span<const Half> values, const Shape& shape, Site site) {
  return from_values(values, shape, site);
}
Tensor array(std::span<const std::uint8_t> values, const Shape& shape, Site site) {
  for (std::uint8_t v : values) {
    if (v > 1) throw ValueError(fmt::format("array: a bool byte is {}, not 0 or 1.", v), site);
  }
  return from_values(values, shape, site);
}
Tensor arange(double start, double stop, double step, Site site) {
  const SiteScope scope(site);
  if (!std::isfinite(start) || !std::isfinite(stop) || !std::isfinite(step) || step == 0) {
    throw ValueError(
        fmt::format("arange: from {} to {} by {} is not a finite range.", start, stop, step), site);
  }
  const double count = std::max(0.0, std::ceil((stop - start) / step));
  if (count > std::numeric_limits<std::int32_t>::max()) {
    throw ValueError(
        fmt::format("arange: from {} to {} by {} are {} elements.", start, stop, step, count),
        site);
  }
  return arange(static_cast<std::int64_t>(count), DType::f32, site) * step + start;
}
Tensor linspace(double start, double stop, std::int64_t count, Site site) {
  const SiteScope scope(site);
  if (count < 0) throw ShapeError(fmt::format("linspace: {} is negative.", count), site);
  if (count <= 1) return full({count}, start, DType::f32, site);
  // From both ends, so that both are met exactly.
  const Tensor i = arange(count, DType::f32, site);
  const double step = (stop - start) / static_cast<double>(count - 1);
  const std::int64_t middle = count / 2;
  return where(i < static_cast<double>(middle), i * step + start,
               (i - static_cast<double>(count - 1)) * step + stop);
}
Tensor eye(std::int64_t rows, std::int64_t columns, int diagonal, DType dtype, Site site) {
  const SiteScope scope(site);
  if (rows < 0 || columns < 0) {
    throw ShapeError(fmt::format("eye: [{}, {}] has a negative extent.", rows, columns), site);
  }
  return prim::cast(diagonal_mask(Fn::eq, {rows, columns}, diagonal, site), dtype, site);
}
Tensor eye(std::int64_t n, Site site) { return eye(n, n, 0, DType::f32, site); }
Tensor tril(const Tensor& x, int diagonal, Site site) {
  return triangle("tril", Fn::le, x, diagonal, site);
}
Tensor triu(const Tensor& x, int diagonal, Site site) {
  return triangle("triu", Fn::ge, x, diagonal, site);
}

}  // namespace tensorgrad
