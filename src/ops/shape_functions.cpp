// The public operations on shapes.
#include <algorithm>
#include <numeric>

#include "graph/order.h"
#include "ops/operands.h"
#include "ops/rules.h"
#include "tensorgrad/ops.h"

namespace tensorgrad {
namespace {

std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape, Site site) {
  Shape to = shape;
  int open = -1;
  std::int64_t known = 1;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i] == -1 && open < 0) {
      open = static_cast<int>(i);
    } else if (to[i] < 0) {
      throw ShapeError(fmt::format("reshape: {} has {}.", to_string(shape),
                                   to[i] == -1 ? "more than one -1" : "a negative extent"),
                       site);
    } else {
      known *= to[i];
    }
  }
  if (open >= 0) {
    if (known == 0 || x.size() % known != 0) {
      throw ShapeError(fmt::format("reshape: the {} elements of {} do not divide into {}.",
                                   x.size(), to_string(x.shape()), to_string(shape)),
                       site);
    }
    to[at(open)] = x.size() / known;
  }
  return prim::reshape(x, to, site);
}

Tensor flatten(const Tensor& x, int first, int last, Site site) {
  if (x.rank() == 0) return prim::reshape(x, {1}, site);
  const int a = normal_axis("flatten", first, x.rank(), x.shape(), site);
  const int b = normal_axis("flatten", last, x.rank(), x.shape(), site);
  if (a > b) {
    throw ShapeError(fmt::format("flatten: dimension {} comes after {}.", first, last), site);
  }
  Shape to(x.shape().begin(), x.shape().begin() + a);
  to.push_back(std::accumulate(x.shape().begin() + a, x.shape().begin() + b + 1, std::int64_t{1},
                               std::multiplies<>()));
  to.insert(to.end(), x.shape().begin() + b + 1, x.shape().end());
  return prim::reshape(x, to, site);
}

Tensor transpose(const Tensor& x, Site site) {
  if (x.rank() < 2) {
    throw ShapeError(
        fmt::format("transpose: shape {} has fewer than two dimensions.", to_string(x.shape())),
        site);
  }
  return swap_axes(x, -1, -2, site);
}

Tensor permute(const Tensor& x, std::vector<int> axes, Site site) {
  for (int& a : axes) a = normal_axis("permute", a, x.rank(), x.shape(), site);
  return prim::permute(x, axes, site);
}

Tensor swap_axes(const Tensor& x, int a, int b, Site site) {
  std::vector<int> axes = prim::all_axes(x.rank());
  std::swap(axes[at(normal_axis("swap_axes", a, x.rank(), x.shape(), site))],
            axes[at(normal_axis("swap_axes", b, x.rank(), x.shape(), site))]);
  return prim::permute(x, axes, site);
}

Tensor broadcast_to(const Tensor& x, const Shape& shape, Site site) {
  return prim::broadcast_to(x, shape, site);
}

Tensor unsqueeze(const Tensor& x, int axis, Site site) {
  const int a = normal_axis("unsqueeze", axis, x.rank() + 1, x.shape(), site);
  Shape to = x.shape();
  to.insert(to.begin() + a, 1);
  return prim::reshape(x, to, site);
}

Tensor squeeze(const Tensor& x, int axis, Site site) {
  const int a = normal_axis("squeeze", axis, x.rank(), x.shape(), site);
  if (x.shape()[at(a)] != 1) {
    throw ShapeError(
        fmt::format("squeeze: dimension {} of {} is not 1.", axis, to_string(x.shape())), site);
  }
  return prim::reshape(x, without(x.shape(), {a}), site);
}

Tensor slice(const Tensor& x, int axis, Range range, Site site) {
  const int a = normal_axis("slice", axis, x.rank(), x.shape(), site);
  if (range.step < 1) {
    throw ShapeError(
        fmt::format("slice: step {} is not positive; use flip to reverse.", range.step), site);
  }
  const std::int64_t n = x.shape()[at(a)];
  const auto bound = [n](std::int64_t v) {
    return std::clamp<std::int64_t>(v < 0 ? v + n : v, 0, n);
  };
  Shape start(x.shape().size(), 0);
  Shape limit = x.shape();
  Shape stride(x.shape().size(), 1);
  start[at(a)] = bound(range.start);
  limit[at(a)] = std::max(start[at(a)], range.stop ? bound(*range.stop) : n);
  stride[at(a)] = range.step;
  return prim::slice(x, start, limit, stride, site);
}

Tensor narrow(const Tensor& x, int axis, std::int64_t start, std::int64_t length, Site site) {
  const int a = normal_axis("narrow", axis, x.rank(), x.shape(), site);
  const std::int64_t n = x.shape()[at(a)];
  if (start < 0 || length < 0 || start > n - length) {
    throw ShapeError(fmt::format("narrow: {} elements from {} leave dimension {} of {}.", length,
                                 start, axis, to_string(x.shape())),
                     site);
  }
  return slice(x, a, {.start = start, .stop = start + length}, site);
}

Tensor take(const Tensor& x, int axis, std::int64_t index, Site site) {
  const int a = normal_axis("take", axis, x.rank(), x.shape(), site);
  const std::int64_t n = x.shape()[at(a)];
  if (index < -n || index >= n) {
    throw ShapeError(fmt::format("take: index {} is out of range for dimension {} of {}.", index,
                                 axis, to_string(x.shape())),
                     site);
  }
  return squeeze(narrow(x, a, index < 0 ? index + n : index, 1, site), a, site);
}

Tensor pad(const Tensor& x, const std::vector<std::pair<std::int64_t, std::int64_t>>& widths,
           double value, Site site) {
  const SiteScope scope(site);
  Shape low;
  Shape high;
  for (auto [l, h] : widths) {
    low.push_back(l);
    high.push_back(h);
  }
  const Shape interior(widths.size(), 0);
  const Tensor padded = prim::pad(x, low, high, interior, site);
  if (value == 0) return padded;
  const Tensor inside =
      prim::pad(prim::full(x.shape(), 1, DType::bool_, site), low, high, interior, site);
  return where(inside, padded, prim::full(padded.shape(), value, x.dtype(), site));
}

Tensor flip(const Tensor& x, std::vector<int> axes, Site site) {
  for (int& a : axes) a = normal_axis("flip", a, x.rank(), x.shape(), site);
  sort_values(axes);
  return prim::flip(x, axes, site);
}

Tensor roll(const Tensor& x, std::int64_t shift, int axis, Site site) {
  const int a = normal_axis("roll", axis, x.rank(), x.shape(), site);
  const std::int64_t n = x.shape()[at(a)];
  const std::int64_t by = n == 0 ? 0 : ((shift % n) + n) % n;
  if (by == 0) return x;
  return prim::concat(std::vector{narrow(x, a, n - by, by, site), narrow(x, a, 0, n - by, site)}, a,
                      site);
}

Tensor repeat(const Tensor& x, std::int64_t count, int axis, Site site) {
  const int a = normal_axis("repeat", axis, x.rank(), x.shape(), site);
  if (count < 0) throw ShapeError(fmt::format("repeat: {} times.", count), site);
  // Along a dimension of its own behind the axis, which then joins it.
  std::vector<int> axes;
  Shape wide = x.shape();
  wide.insert(wide.begin() + a + 1, count);
  for (int d = 0; d < x.rank(); ++d) axes.push_back(d <= a ? d : d + 1);
  Shape to = x.shape();
  to[at(a)] *= count;
  return prim::reshape(prim::broadcast(x, wide, axes, site), to, site);
}

Tensor tile(const Tensor& x, const std::vector<std::int64_t>& counts, Site site) {
  if (counts.size() != x.shape().size()) {
    throw ShapeError(fmt::format("tile: {} counts for the {} dimensions of {}.", counts.size(),
                                 x.rank(), to_string(x.shape())),
                     site);
  }
  Shape wide;
  Shape to;
  std::vector<int> axes;
  for (std::size_t d = 0; d < counts.size(); ++d) {
    if (counts[d] < 0) {
      throw ShapeError(fmt::format("tile: {} has a negative count.", to_string(counts)), site);
    }
    wide.push_back(counts[d]);
    axes.push_back(static_cast<int>(wide.size()));
    wide.push_back(x.shape()[d]);
    to.push_back(counts[d] * x.shape()[d]);
  }
  return prim::reshape(prim::broadcast(x, wide, axes, site), to, site);
}

Tensor concat(const std::vector<Tensor>& parts, int axis, Site site) {
  if (parts.empty()) throw ShapeError("concat: takes at least one tensor.", site);
  return prim::concat(parts, normal_axis("concat", axis, parts[0].rank(), parts[0].shape(), site),
                      site);
}

Tensor stack(const std::vector<Tensor>& parts, int axis, Site site) {
  if (parts.empty()) throw ShapeError("stack: takes at least one tensor.", site);
  const int a = normal_axis("stack", axis, parts[0].rank() + 1, parts[0].shape(), site);
  std::vector<Tensor> grown;
  for (const Tensor& p : parts) {
    if (p.shape() != parts[0].shape()) {
      throw ShapeError(fmt::format("stack: shapes differ: {} and {}.", to_string(parts[0].shape()),
                                   to_string(p.shape())),
                       site);
    }
    grown.push_back(unsqueeze(p, a, site));
  }
  return prim::concat(grown, a, site);
}

std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int axis,
                          Site site) {
  const int a = normal_axis("split", axis, x.rank(), x.shape(), site);
  const std::int64_t total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  if (total != x.shape()[at(a)]) {
    throw ShapeError(
        fmt::format("split: sizes {} sum to {}, but dimension {} of {} is {}.", to_string(sizes),
                    total, axis, to_string(x.shape()), x.shape()[at(a)]),
        site);
  }
  std::vector<Tensor> parts;
  std::int64_t start = 0;
  for (std::int64_t n : sizes) {
    parts.push_back(narrow(x, a, start, n, site));
    start += n;
  }
  return parts;
}

std::vector<Tensor> split_equal(const Tensor& x, std::int64_t parts, int axis, Site site) {
  const int a = normal_axis("split_equal", axis, x.rank(), x.shape(), site);
  const std::int64_t n = x.shape()[at(a)];
  if (parts < 1 || n % parts != 0) {
    throw ShapeError(fmt::format("split_equal: dimension {} of {} does not divide into {} parts.",
                                 axis, to_string(x.shape()), parts),
                     site);
  }
  return split(x, std::vector<std::int64_t>(static_cast<std::size_t>(parts), n / parts), a, site);
}

}  // namespace tensorgrad
