// The public operations on shapes, and products.
#include <algorithm>
#include <numeric>

#include "ops/operands.h"
#include "ops/rules.h"
#include "tensorgrad/ops.h"

namespace tensorgrad {
namespace {

std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

// "The right operand is `head.W`." for the operands that have names.
std::string operand_names(const Tensor& a, const Tensor& b) {
  std::string text;
  if (const std::string n = display_name(a); !n.empty()) text += " The left operand is " + n + ".";
  if (const std::string n = display_name(b); !n.empty()) text += " The right operand is " + n + ".";
  return text;
}

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
  std::sort(axes.begin(), axes.end());
  return prim::flip(x, axes, site);
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

Tensor matmul(const Tensor& a, const Tensor& b, Site site) {
  const SiteScope scope(site);
  if (a.rank() == 0 || b.rank() == 0) {
    throw ShapeError(fmt::format("matmul: takes no scalars: {} x {}.{}", to_string(a.shape()),
                                 to_string(b.shape()), operand_names(a, b)),
                     site);
  }
  if (a.dtype() != b.dtype() || !is_floating(a.dtype())) {
    throw DTypeError(fmt::format("matmul: takes two f32 tensors, not {} and {}.{}", name(a.dtype()),
                                 name(b.dtype()), operand_names(a, b)),
                     site);
  }
  Tensor x = a.rank() == 1 ? unsqueeze(a, 0, site) : a;
  Tensor y = b.rank() == 1 ? unsqueeze(b, 1, site) : b;
  if (x.dim(-1) != y.dim(-2)) {
    throw ShapeError(fmt::format("matmul: inner dimensions differ: {} x {} ({} against {}).{}",
                                 to_string(a.shape()), to_string(b.shape()), x.dim(-1), y.dim(-2),
                                 operand_names(a, b)),
                     site);
  }
  const Shape lead_x(x.shape().begin(), x.shape().end() - 2);
  const Shape lead_y(y.shape().begin(), y.shape().end() - 2);
  Tensor out;
  if (lead_y.empty()) {
    // One matrix for every row of x: the leading dimensions are rows too.
    out = prim::dot_general(x, y, {{}, {}, {x.rank() - 1}, {0}}, site);
  } else {
    const Shape lead = broadcast_shapes("matmul", lead_x, lead_y, site);
    const auto spread = [&](const Tensor& t) {
      Shape to = lead;
      to.insert(to.end(), t.shape().end() - 2, t.shape().end());
      return prim::broadcast_to(t, to, site);
    };
    x = spread(x);
    y = spread(y);
    const int r = x.rank();
    const std::vector<int> batch = prim::all_axes(r - 2);
    out = prim::dot_general(x, y, {batch, batch, {r - 1}, {r - 2}}, site);
  }
  if (b.rank() == 1) out = squeeze(out, -1, site);
  if (a.rank() == 1) out = squeeze(out, b.rank() == 1 ? -1 : -2, site);
  return out;
}

Tensor dot_general(const Tensor& a, const Tensor& b, const DotDims& dims, Site site) {
  const auto axes = [&](const std::vector<int>& list, const Tensor& t) {
    std::vector<int> out;
    for (int d : list) out.push_back(normal_axis("dot_general", d, t.rank(), t.shape(), site));
    return out;
  };
  return prim::dot_general(a, b,
                           {axes(dims.a_batch, a), axes(dims.b_batch, b), axes(dims.a_contract, a),
                            axes(dims.b_contract, b)},
                           site);
}

Tensor conv(const Tensor& x, const Tensor& w, const ConvOptions& options, Site site) {
  const std::size_t spatial = x.rank() > 2 ? at(x.rank() - 2) : 0;
  const auto each = [&](const std::vector<std::int64_t>& v, const char* what) {
    if (v.size() == 1) return Shape(spatial, v[0]);
    if (v.size() != spatial) {
      throw ShapeError(fmt::format("conv: {} has {} entries for the {} spatial dimensions of {}.",
                                   what, v.size(), spatial, to_string(x.shape())),
                       site);
    }
    return Shape(v);
  };
  ConvAttr attr;
  attr.stride = each(options.stride, "stride");
  attr.pad_low = attr.pad_high = each(options.padding, "padding");
  attr.dilation = each(options.dilation, "dilation");
  attr.groups = options.groups;
  return prim::conv(x, w, attr, site);
}

}  // namespace tensorgrad
