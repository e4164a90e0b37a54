// The public operations on numbers and reductions: broadcasting and promotion, then primitives.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "graph/order.h"
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

std::vector<int> axes_for(const char* op, const Tensor& x, const Reduce& over, const Site& site) {
  if (!over.axes) return prim::all_axes(x.rank());
  std::vector<int> axes;
  for (int a : *over.axes) axes.push_back(normal_axis(op, a, x.rank(), x.shape(), site));
  sort_values(axes);
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
    throw DTypeError(
        fmt::format("{}: takes f32 or f16, not {}; cast it first.", op, name(x.dtype())), site);
  }
  return x;
}

/// f of an f16 in f32: numbers that f16 does not hold, a count of elements say, occur on the way.
template <class F>
Tensor in_single(const Tensor& x, F&& f) {
  return prim::cast(f(prim::cast(x, DType::f32)), DType::f16);
}

Tensor unary(Fn fn, const Tensor& x, const Site& site) { return prim::map(fn, {x}, site); }

// Beyond this x * x + 1 is x * x in f32, and beyond the square of it x * x overflows.
constexpr double square_safe = 1e9;

}  // namespace

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

Tensor left_shift(const Operand& a, const Operand& b) { return binary("shl", Fn::shl, a, b); }
Tensor right_shift(const Operand& a, const Operand& b) { return binary("shr", Fn::shr, a, b); }

Tensor maximum(const Operand& a, const Operand& b) { return binary("maximum", Fn::max, a, b); }
Tensor minimum(const Operand& a, const Operand& b) { return binary("minimum", Fn::min, a, b); }
Tensor pow(const Operand& a, const Operand& b) { return binary("pow", Fn::pow, a, b); }
Tensor atan2(const Operand& a, const Operand& b) { return binary("atan2", Fn::atan2, a, b); }
Tensor fmod(const Operand& a, const Operand& b) { return binary("fmod", Fn::rem, a, b); }
Tensor trunc_divide(const Operand& a, const Operand& b) {
  const SiteScope scope(a.site);
  const Tensor q = binary("trunc_divide", Fn::div, a, b);
  if (!is_floating(q.dtype())) return q;
  return trunc(q, a.site);
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
Tensor exp2(const Tensor& x, Site site) {
  const SiteScope scope(site);
  return pow(2, floating("exp2", x, site));
}
Tensor expm1(const Tensor& x, Site site) { return unary(Fn::expm1, x, site); }
Tensor log(const Tensor& x, Site site) { return unary(Fn::log, x, site); }
Tensor log2(const Tensor& x, Site site) {
  const SiteScope scope(site);
  return log(x, site) * std::numbers::log2e;
}
Tensor log10(const Tensor& x, Site site) {
  const SiteScope scope(site);
  return log(x, site) * std::numbers::log10e;
}
Tensor log1p(const Tensor& x, Site site) { return unary(Fn::log1p, x, site); }
Tensor sqrt(const Tensor& x, Site site) { return unary(Fn::sqrt, x, site); }
Tensor cbrt(const Tensor& x, Site site) {
  const SiteScope scope(site);
  return sign(x, site) * pow(abs(floating("cbrt", x, site), site), 1.0 / 3);
}
Tensor rsqrt(const Tensor& x, Site site) { return unary(Fn::rsqrt, x, site); }
Tensor reciprocal(const Tensor& x, Site site) { return unary(Fn::reciprocal, x, site); }
Tensor square(const Tensor& x, Site site) { return prim::map(Fn::mul, {x, x}, site); }
Tensor sin(const Tensor& x, Site site) { return unary(Fn::sin, x, site); }
Tensor cos(const Tensor& x, Site site) { return unary(Fn::cos, x, site); }
Tensor tan(const Tensor& x, Site site) { return unary(Fn::tan, x, site); }
Tensor asin(const Tensor& x, Site site) { return unary(Fn::asin, x, site); }
Tensor acos(const Tensor& x, Site site) { return unary(Fn::acos, x, site); }
Tensor atan(const Tensor& x, Site site) { return unary(Fn::atan, x, site); }
Tensor sinh(const Tensor& x, Site site) {
  const SiteScope scope(site);
  // Halves of the argument, so that nothing overflows before the result does.
  const Tensor e = expm1(abs(x, site) * 0.5, site) + 1;
  const Tensor small = expm1(abs(x, site), site);
  const Tensor large = (0.5 * e) * e - (0.5 / e) / e;
  return sign(x, site) * where(abs(x, site) < 1, 0.5 * (small + small / (small + 1)), large);
}
Tensor cosh(const Tensor& x, Site site) {
  const SiteScope scope(site);
  const Tensor e = exp(abs(x, site) * 0.5, site);
  return (0.5 * e) * e + (0.5 / e) / e;
}
Tensor tanh(const Tensor& x, Site site) { return unary(Fn::tanh, x, site); }
Tensor asinh(const Tensor& x, Site site) {
  const SiteScope scope(site);
  const Tensor a = abs(x, site);
  const Tensor large = a > square_safe;
  const Tensor b = where(large, 1, a);
  const Tensor near = log1p(b + b * b / (sqrt(b * b + 1) + 1));
  return sign(x, site) * where(large, log(where(large, a, 1)) + std::numbers::ln2, near);
}
Tensor acosh(const Tensor& x, Site site) {
  const SiteScope scope(site);
  const Tensor large = x > square_safe;
  const Tensor t = where(large, 1, x - 1);
  return where(large, log(where(large, x, 1)) + std::numbers::ln2, log1p(t + sqrt(t * (t + 2))));
}
Tensor atanh(const Tensor& x, Site site) {
  const SiteScope scope(site);
  return 0.5 * log1p(2 * x / (1 - x));
}
Tensor sigmoid(const Tensor& x, Site site) { return unary(Fn::logistic, x, site); }
Tensor erf(const Tensor& x, Site site) { return unary(Fn::erf, x, site); }
Tensor erfc(const Tensor& x, Site site) { return unary(Fn::erfc, x, site); }
Tensor floor(const Tensor& x, Site site) { return unary(Fn::floor, x, site); }
Tensor ceil(const Tensor& x, Site site) { return unary(Fn::ceil, x, site); }
Tensor round(const Tensor& x, Site site) { return unary(Fn::round, x, site); }
Tensor trunc(const Tensor& x, Site site) {
  const SiteScope scope(site);
  return where(x < 0, ceil(x, site), floor(x, site));
}
Tensor isnan(const Tensor& x, Site site) { return prim::map(Fn::ne, {x, x}, site); }
Tensor isfinite(const Tensor& x, Site site) {
  const SiteScope scope(site);
  return abs(x) < std::numeric_limits<double>::infinity();
}
Tensor isinf(const Tensor& x, Site site) {
  const SiteScope scope(site);
  return abs(x) == std::numeric_limits<double>::infinity();
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
  if (x.dtype() == DType::f16) return in_single(x, [&](const Tensor& v) { return mean(v, over); });
  const Tensor from = is_floating(x.dtype()) ? x : prim::cast(x, DType::f32, site);
  const Tensor total = sum(from, over, site);
  std::int64_t count = 1;
  for (int a : axes_for("mean", x, over, site)) count *= x.shape()[static_cast<std::size_t>(a)];
  // Division, not a product with the reciprocal: exact where the mean is.
  return total / static_cast<double>(count);
}
Tensor var(const Tensor& x, const Reduce& over, int ddof, Site site) {
  const SiteScope scope(site);
  if (x.dtype() == DType::f16) {
    return in_single(x, [&](const Tensor& v) { return var(v, over, ddof); });
  }
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

// ---- marks ---------------------------------------------------------------------------------------

Tensor capture(std::string_view name, const Tensor& x, Site site) {
  if (name.empty()) throw ValueError("capture: the name is empty.", site);
  return prim::capture(std::string(name), x, site);
}
Tensor stop_gradient(const Tensor& x, Site site) { return prim::stop_gradient(x, site); }

}  // namespace tensorgrad
