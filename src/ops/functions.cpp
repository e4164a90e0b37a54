// The public operations on numbers and reductions: broadcasting and promotion, then primitives.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ops/operands.h"
#include "ops/rules.h"
#include "tensorgrad/ops.h"

namespace tensorgrad {
namespace {

using kernel::Combiner;
using kernel::Fn;

Tensor binary(const char* name, Fn fn, const Operand& a, const Operand& b) {
  const SiteScope scope(a.site);
  const auto [x, y] = matched(name, a, b);
  return prim::map(fn, {x, y}, a.site);
}

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

std::vector<int> axes_for(const char* op, const Tensor& x, const Reduce& over, const Site& site) {
  if (!over.axes) return prim::all_axes(x.rank());
  std::vector<int> axes;
  for (int a : *over.axes) axes.push_back(normal_axis(op, a, x.rank(), x.shape(), site));
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
    throw ShapeError(fmt::format("{}: axes [{}] name a dimension of {} twice.", op,
                                 fmt::join(*over.axes, ", "), to_string(x.shape())),
                     site);
  }
  return axes;
}

Shape kept_shape(const Tensor& x, const std::vector<int>& axes) {
  Shape shape = x.shape();
  for (int a : axes) shape[static_cast<std::size_t>(a)] = 1;
  return shape;
}

Tensor reduction(const char* name, Combiner combiner, const Tensor& x, const Reduce& over,
                 const Site& site) {
  const SiteScope scope(site);
  const std::vector<int> axes = axes_for(name, x, over, site);
  Tensor from = x;
  const bool positional = combiner == Combiner::argmax || combiner == Combiner::argmin;
  // A reduction over no axes of a bool counts, as in NumPy.
  if (x.dtype() == DType::bool_) from = prim::cast(x, DType::i32, site);
  const Tensor y = axes.empty() && !positional ? from : prim::reduce(combiner, from, axes, site);
  return over.keepdims ? prim::reshape(y, kept_shape(x, axes), site) : y;
}

Tensor floating(const char* op, const Tensor& x, const Site& site) {
  if (!is_floating(x.dtype())) {
    throw DTypeError(fmt::format("{}: takes f32, not {}; cast it first.", op, name(x.dtype())),
                     site);
  }
  return x;
}

Tensor unary(Fn fn, const Tensor& x, const Site& site) { return prim::map(fn, {x}, site); }

}  // namespace

// ---- making tensors ------------------------------------------------------------------------------

Tensor full(const Shape& shape, double value, DType dtype, Site site) {
  return prim::full(shape, value, dtype, site);
}
Tensor zeros(const Shape& shape, DType dtype, Site site) { return full(shape, 0, dtype, site); }
Tensor ones(const Shape& shape, DType dtype, Site site) { return full(shape, 1, dtype, site); }
Tensor zeros_like(const Tensor& x, Site site) { return full(x.shape(), 0, x.dtype(), site); }
Tensor ones_like(const Tensor& x, Site site) { return full(x.shape(), 1, x.dtype(), site); }
Tensor arange(std::int64_t n, DType dtype, Site site) {
  if (n < 0) throw ShapeError(fmt::format("arange: {} is negative.", n), site);
  if (dtype == DType::bool_) throw DTypeError("arange: takes f32, i32 or u32, not bool.", site);
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
Tensor array(std::span<const std::uint8_t> values, const Shape& shape, Site site) {
  for (std::uint8_t v : values) {
    if (v > 1) throw ValueError(fmt::format("array: a bool byte is {}, not 0 or 1.", v), site);
  }
  return from_values(values, shape, site);
}

// ---- arithmetic ----------------------------------------------------------------------------------

Tensor operator+(const Operand& a, const Operand& b) { return binary("add", Fn::add, a, b); }
Tensor operator-(const Operand& a, const Operand& b) { return binary("sub", Fn::sub, a, b); }
Tensor operator*(const Operand& a, const Operand& b) { return binary("mul", Fn::mul, a, b); }
Tensor operator/(const Operand& a, const Operand& b) {
  const SiteScope scope(a.site);
  auto [x, y] = matched("div", a, b);
  if (!is_floating(x.dtype())) {
    x = prim::cast(x, DType::f32, a.site);
    y = prim::cast(y, DType::f32, a.site);
  }
  return prim::map(Fn::div, {x, y}, a.site);
}
Tensor operator-(const Operand& a) { return prim::map(Fn::neg, {a.tensor}, a.site); }
Tensor operator&(const Operand& a, const Operand& b) { return binary("and", Fn::bit_and, a, b); }
Tensor operator|(const Operand& a, const Operand& b) { return binary("or", Fn::bit_or, a, b); }
Tensor operator^(const Operand& a, const Operand& b) { return binary("xor", Fn::bit_xor, a, b); }
Tensor operator~(const Operand& a) { return prim::map(Fn::bit_not, {a.tensor}, a.site); }
Tensor operator!(const Operand& a) {
  return prim::map(Fn::bit_not, {prim::cast(a.tensor, DType::bool_, a.site)}, a.site);
}
Tensor operator<<(const Operand& a, const Operand& b) { return binary("shl", Fn::shl, a, b); }
Tensor operator>>(const Operand& a, const Operand& b) { return binary("shr", Fn::shr, a, b); }
Tensor operator==(const Operand& a, const Operand& b) { return binary("eq", Fn::eq, a, b); }
Tensor operator!=(const Operand& a, const Operand& b) { return binary("ne", Fn::ne, a, b); }
Tensor operator<(const Operand& a, const Operand& b) { return binary("lt", Fn::lt, a, b); }
Tensor operator<=(const Operand& a, const Operand& b) { return binary("le", Fn::le, a, b); }
Tensor operator>(const Operand& a, const Operand& b) { return binary("gt", Fn::gt, a, b); }
Tensor operator>=(const Operand& a, const Operand& b) { return binary("ge", Fn::ge, a, b); }

Tensor maximum(const Operand& a, const Operand& b) { return binary("maximum", Fn::max, a, b); }
Tensor minimum(const Operand& a, const Operand& b) { return binary("minimum", Fn::min, a, b); }
Tensor pow(const Operand& a, const Operand& b) { return binary("pow", Fn::pow, a, b); }
Tensor atan2(const Operand& a, const Operand& b) { return binary("atan2", Fn::atan2, a, b); }
Tensor fmod(const Operand& a, const Operand& b) { return binary("fmod", Fn::rem, a, b); }
Tensor trunc_divide(const Operand& a, const Operand& b) {
  const SiteScope scope(a.site);
  const Tensor q = binary("trunc_divide", Fn::div, a, b);
  if (!is_floating(q.dtype())) return q;
  return where(q < 0, ceil(q, a.site), floor(q, a.site));
}
Tensor floor_divide(const Operand& a, const Operand& b) {
  const SiteScope scope(a.site);
  const auto [x, y] = matched("floor_divide", a, b);
  const Tensor q = prim::map(Fn::div, {x, y}, a.site);
  if (is_floating(q.dtype())) return floor(q, a.site);
  if (info(q.dtype()).kind == DTypeKind::unsigned_integer) return q;
  const Tensor r = prim::map(Fn::rem, {x, y}, a.site);
  return where((r != 0) & ((r < 0) ^ (y < 0)), q - 1, q);
}
Tensor remainder(const Operand& a, const Operand& b) {
  const SiteScope scope(a.site);
  const auto [x, y] = matched("remainder", a, b);
  const Tensor r = prim::map(Fn::rem, {x, y}, a.site);
  if (info(r.dtype()).kind == DTypeKind::unsigned_integer) return r;
  return where((r != 0) & ((r < 0) ^ (y < 0)), r + y, r);
}
Tensor clamp(const Tensor& x, const Operand& low, const Operand& high) {
  const SiteScope scope(low.site);
  return minimum(maximum(Operand(x, low.site), low), high);
}
Tensor where(const Tensor& condition, const Operand& a, const Operand& b) {
  const SiteScope scope(a.site);
  if (condition.dtype() != DType::bool_) {
    throw DTypeError(fmt::format("where: the condition is {}, not bool.", name(condition.dtype())),
                     a.site);
  }
  Tensor x = as_tensor(a, b.tensor.defined() ? b.tensor.dtype() : DType::f32);
  Tensor y = as_tensor(b, x.dtype());
  const DType dtype = promote("where", x.dtype(), y.dtype(), a.site);
  const Shape shape = broadcast_shapes(
      "where", condition.shape(), broadcast_shapes("where", x.shape(), y.shape(), a.site), a.site);
  return prim::map(Fn::select,
                   {prim::broadcast_to(condition, shape, a.site),
                    prim::broadcast_to(prim::cast(x, dtype, a.site), shape, a.site),
                    prim::broadcast_to(prim::cast(y, dtype, a.site), shape, a.site)},
                   a.site);
}

// ---- elementwise functions -----------------------------------------------------------------------

Tensor abs(const Tensor& x, Site site) { return unary(Fn::abs, x, site); }
Tensor sign(const Tensor& x, Site site) { return unary(Fn::sign, x, site); }
Tensor exp(const Tensor& x, Site site) { return unary(Fn::exp, x, site); }
Tensor expm1(const Tensor& x, Site site) { return unary(Fn::expm1, x, site); }
Tensor log(const Tensor& x, Site site) { return unary(Fn::log, x, site); }
Tensor log1p(const Tensor& x, Site site) { return unary(Fn::log1p, x, site); }
Tensor sqrt(const Tensor& x, Site site) { return unary(Fn::sqrt, x, site); }
Tensor rsqrt(const Tensor& x, Site site) { return unary(Fn::rsqrt, x, site); }
Tensor reciprocal(const Tensor& x, Site site) { return unary(Fn::reciprocal, x, site); }
Tensor square(const Tensor& x, Site site) { return prim::map(Fn::mul, {x, x}, site); }
Tensor sin(const Tensor& x, Site site) { return unary(Fn::sin, x, site); }
Tensor cos(const Tensor& x, Site site) { return unary(Fn::cos, x, site); }
Tensor tan(const Tensor& x, Site site) { return unary(Fn::tan, x, site); }
Tensor asin(const Tensor& x, Site site) { return unary(Fn::asin, x, site); }
Tensor acos(const Tensor& x, Site site) { return unary(Fn::acos, x, site); }
Tensor atan(const Tensor& x, Site site) { return unary(Fn::atan, x, site); }
Tensor tanh(const Tensor& x, Site site) { return unary(Fn::tanh, x, site); }
Tensor sigmoid(const Tensor& x, Site site) { return unary(Fn::logistic, x, site); }
Tensor erf(const Tensor& x, Site site) { return unary(Fn::erf, x, site); }
Tensor erfc(const Tensor& x, Site site) { return unary(Fn::erfc, x, site); }
Tensor floor(const Tensor& x, Site site) { return unary(Fn::floor, x, site); }
Tensor ceil(const Tensor& x, Site site) { return unary(Fn::ceil, x, site); }
Tensor round(const Tensor& x, Site site) { return unary(Fn::round, x, site); }
Tensor isnan(const Tensor& x, Site site) { return prim::map(Fn::ne, {x, x}, site); }
Tensor isfinite(const Tensor& x, Site site) {
  const SiteScope scope(site);
  return abs(x) < std::numeric_limits<double>::infinity();
}
Tensor cast(const Tensor& x, DType dtype, Site site) { return prim::cast(x, dtype, site); }
Tensor bitcast(const Tensor& x, DType dtype, Site site) { return prim::bitcast(x, dtype, site); }

// ---- reductions ----------------------------------------------------------------------------------

Tensor sum(const Tensor& x, const Reduce& over, Site site) {
  return reduction("sum", Combiner::sum, x, over, site);
}
Tensor prod(const Tensor& x, const Reduce& over, Site site) {
  return reduction("prod", Combiner::prod, x, over, site);
}
Tensor max(const Tensor& x, const Reduce& over, Site site) {
  return reduction("max", Combiner::max, x, over, site);
}
Tensor min(const Tensor& x, const Reduce& over, Site site) {
  return reduction("min", Combiner::min, x, over, site);
}
Tensor mean(const Tensor& x, const Reduce& over, Site site) {
  const SiteScope scope(site);
  const Tensor from = is_floating(x.dtype()) ? x : prim::cast(x, DType::f32, site);
  const Tensor total = sum(from, over, site);
  std::int64_t count = 1;
  for (int a : axes_for("mean", x, over, site)) count *= x.shape()[static_cast<std::size_t>(a)];
  // Division, not a product with the reciprocal: exact where the mean is.
  return total / static_cast<double>(count);
}
Tensor var(const Tensor& x, const Reduce& over, int ddof, Site site) {
  const SiteScope scope(site);
  const std::vector<int> axes = axes_for("var", x, over, site);
  std::int64_t count = 1;
  for (int a : axes) count *= x.shape()[static_cast<std::size_t>(a)];
  const Tensor centred = floating("var", x, site) - mean(x, Reduce(axes, true), site);
  return sum(square(centred), Reduce(axes, over.keepdims), site) /
         static_cast<double>(count - ddof);
}
Tensor argmax(const Tensor& x, const Reduce& over, Site site) {
  return reduction("argmax", Combiner::argmax, x, over, site);
}
Tensor argmin(const Tensor& x, const Reduce& over, Site site) {
  return reduction("argmin", Combiner::argmin, x, over, site);
}
Tensor any(const Tensor& x, const Reduce& over, Site site) {
  const SiteScope scope(site);
  return sum(prim::cast(prim::cast(x, DType::bool_, site), DType::i32, site), over, site) > 0;
}
Tensor all(const Tensor& x, const Reduce& over, Site site) {
  const SiteScope scope(site);
  return sum(prim::cast(!prim::cast(x, DType::bool_, site), DType::i32, site), over, site) == 0;
}
Tensor logsumexp(const Tensor& x, const Reduce& over, Site site) {
  const SiteScope scope(site);
  const std::vector<int> axes = axes_for("logsumexp", x, over, site);
  const Tensor top = stop_gradient(max(floating("logsumexp", x, site), Reduce(axes, true)));
  // Of an infinite maximum nothing is subtracted, so that inf - inf does not make a NaN.
  const Tensor shift = where(isfinite(top), top, 0);
  const Tensor y = log(sum(exp(x - shift), Reduce(axes, true))) + shift;
  return over.keepdims ? y : prim::reshape(y, without(x.shape(), axes), site);
}

// ---- marks and indices ---------------------------------------------------------------------------

Tensor capture(std::string_view name, const Tensor& x, Site site) {
  if (name.empty()) throw ValueError("capture: the name is empty.", site);
  return prim::capture(std::string(name), x, site);
}
Tensor stop_gradient(const Tensor& x, Site site) { return prim::stop_gradient(x, site); }

Tensor gather(const Tensor& x, const Tensor& indices, int axis, Site site) {
  return prim::gather(x, indices, normal_axis("gather", axis, x.rank(), x.shape(), site), site);
}
Tensor scatter_add(const Tensor& indices, const Tensor& updates, std::int64_t size, int axis,
                   Site site) {
  const int rank = updates.rank() - indices.rank() + 1;
  return prim::scatter_add(
      indices, updates, normal_axis("scatter_add", axis, rank, updates.shape(), site), size, site);
}
Tensor one_hot(const Tensor& indices, std::int64_t classes, Site site) {
  const SiteScope scope(site);
  if (!is_integer(indices.dtype())) {
    throw DTypeError(
        fmt::format("one_hot: takes i32 or u32 indices, not {}.", name(indices.dtype())), site);
  }
  if (classes < 0) throw ShapeError(fmt::format("one_hot: {} classes.", classes), site);
  Shape shape = indices.shape();
  shape.push_back(classes);
  const Tensor position = prim::iota(shape, indices.rank(), indices.dtype(), site);
  const Tensor index = prim::broadcast(indices, shape, prim::all_axes(indices.rank()), site);
  return prim::cast(prim::map(Fn::eq, {index, position}, site), DType::f32, site);
}

}  // namespace tensorgrad
