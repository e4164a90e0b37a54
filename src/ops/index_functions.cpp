// The public functions on order and position: running combinations, sorts, gather and scatter.
#include <limits>

#include "ops/operands.h"
#include "ops/rules.h"
#include "tensorgrad/ops.h"

namespace tensorgrad {
namespace {

using kernel::Combiner;
using kernel::Fn;

Tensor cumulative(const char* name, Combiner combiner, const Tensor& x, int axis, bool reverse,
                  const Site& site) {
  const int a = normal_axis(name, axis, x.rank(), x.shape(), site);
  // bool counts, as in reductions.
  const Tensor from = x.dtype() == DType::bool_ ? prim::cast(x, DType::i32, site) : x;
  return prim::scan(combiner, from, a, reverse, site);
}

Tensor exclusive(const Tensor& inclusive_of, int axis, double first, bool reverse,
                 const Site& site) {
  const Tensor& x = inclusive_of;
  const auto a = static_cast<std::size_t>(axis);
  const std::int64_t n = x.shape()[a];
  if (n == 0) return x;
  Shape edge = x.shape();
  edge[a] = 1;
  const Tensor start = prim::full(edge, first, x.dtype(), site);
  const Tensor rest = narrow(x, axis, reverse ? 1 : 0, n - 1, site);
  return reverse ? prim::concat(std::vector{rest, start}, axis, site)
                 : prim::concat(std::vector{start, rest}, axis, site);
}

Tensor cumulative(const char* name, Combiner combiner, const Tensor& x, int axis, Cumulative how,
                  double neutral, const Site& site) {
  const SiteScope scope(site);
  if (!how.exclusive) return cumulative(name, combiner, x, axis, how.reverse, site);
  const int a = normal_axis(name, axis, x.rank(), x.shape(), site);
  const Tensor from = x.dtype() == DType::bool_ ? prim::cast(x, DType::i32, site) : x;
  return prim::scan(combiner, exclusive(from, a, neutral, how.reverse, site), a, how.reverse, site);
}

double out_of_range(DType dtype) {
  return is_floating(dtype) ? std::numeric_limits<double>::quiet_NaN() : 0.0;
}

}  // namespace

// ---- running combinations and order --------------------------------------------------------------

Tensor cumsum(const Tensor& x, int axis, Cumulative how, Site site) {
  return cumulative("cumsum", Combiner::sum, x, axis, how, 0, site);
}
Tensor cumprod(const Tensor& x, int axis, Cumulative how, Site site) {
  return cumulative("cumprod", Combiner::prod, x, axis, how, 1, site);
}
Tensor cummax(const Tensor& x, int axis, bool reverse, Site site) {
  return cumulative("cummax", Combiner::max, x, axis, reverse, site);
}
Tensor cummin(const Tensor& x, int axis, bool reverse, Site site) {
  return cumulative("cummin", Combiner::min, x, axis, reverse, site);
}
Tensor cumargmax(const Tensor& x, int axis, bool reverse, Site site) {
  return cumulative("cumargmax", Combiner::argmax, x, axis, reverse, site);
}
Tensor cumargmin(const Tensor& x, int axis, bool reverse, Site site) {
  return cumulative("cumargmin", Combiner::argmin, x, axis, reverse, site);
}

Tensor sort(const Tensor& x, int axis, bool descending, Site site) {
  return prim::sort(x, normal_axis("sort", axis, x.rank(), x.shape(), site), descending, site);
}
Tensor argsort(const Tensor& x, int axis, bool descending, Site site) {
  return prim::argsort(x, normal_axis("argsort", axis, x.rank(), x.shape(), site), descending,
                       site);
}

// ---- indices -------------------------------------------------------------------------------------

Tensor gather(const Tensor& x, const Tensor& indices, int axis, Site site) {
  return prim::gather(x, indices, normal_axis("gather", axis, x.rank(), x.shape(), site), site);
}
Tensor take_along_axis(const Tensor& x, const Tensor& indices, int axis, Site site) {
  const SiteScope scope(site);
  const int a = normal_axis("take_along_axis", axis, x.rank(), x.shape(), site);
  return prim::take_along_axis(x, indices, a, out_of_range(x.dtype()), site);
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
