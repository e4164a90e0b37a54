// Sorting along an axis: the elements, or the positions that they come from.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/rules.h"

namespace tensorgrad {
namespace {

const SortAttr& attr_of(const Tensor& y) { return y.node().attr<SortAttr>(); }
std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

template <bool Indices>
Type infer(const Op& op, Operands x, const Attrs& attrs, const Site& site) {
  const int axis = std::get<SortAttr>(attrs).axis;
  if (axis < 0 || axis >= x[0].rank()) {
    throw ShapeError(fmt::format("{}: axis {} is out of range for shape {}.", *op.name, axis,
                                 to_string(x[0].shape())),
                     site);
  }
  check_dtype(op, x[0].dtype(), numbers, site);
  if (x[0].shape()[at(axis)] > std::numeric_limits<std::int32_t>::max()) {
    throw ShapeError(
        fmt::format("{}: axis {} of shape {} has more elements than i32 has positions.", *op.name,
                    axis, to_string(x[0].shape())),
        site);
  }
  return {x[0].shape(), Indices ? DType::i32 : x[0].dtype()};
}

/// Whether a comes before b in ascending order: NaN after every number.
bool precedes(double a, double b) {
  if (std::isnan(a)) return false;
  return std::isnan(b) || a < b;
}

template <bool Indices>
RefArray reference(const Node& n, RefOperands x) {
  const auto& [axis, descending] = n.attr<SortAttr>();
  const Shape& shape = n.type.shape;
  RefArray out{n.type, std::vector<double>(x[0]->data.size())};
  const std::int64_t length = shape[at(axis)];
  const std::int64_t stride = strides_of(shape)[at(axis)];
  for (std::int64_t start = 0; start < static_cast<std::int64_t>(out.data.size()); ++start) {
    if (start / stride % length != 0) continue;  // not the start of a row
    const auto element = [&](std::int64_t k) -> double {
      return x[0]->data[static_cast<std::size_t>(start + k * stride)];
    };
    std::vector<std::int64_t> order(static_cast<std::size_t>(length));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::stable_sort(
        order.begin(), order.end(), [&, down = descending](std::int64_t a, std::int64_t b) {
          return down ? precedes(element(b), element(a)) : precedes(element(a), element(b));
        });
    for (std::int64_t k = 0; k < length; ++k) {
      const std::int64_t from = order[static_cast<std::size_t>(k)];
      out.data[static_cast<std::size_t>(start + k * stride)] =
          Indices ? static_cast<double>(from) : element(from);
    }
  }
  return out;
}

std::vector<Sample> samples() {
  std::vector<Sample> out;
  using Case = std::pair<Shape, SortAttr>;
  for (DType d : numbers) {
    for (const auto& [shape, attr] :
         {Case{{1}, {0, false}}, Case{{7}, {0, false}}, Case{{7}, {0, true}}, Case{{0}, {0, false}},
          Case{{3, 5}, {0, true}}, Case{{3, 5}, {1, false}}, Case{{4, 1, 3}, {1, false}},
          Case{{2, 0, 3}, {2, false}}, Case{{2, 3, 17}, {1, true}}, Case{{2, 33, 3}, {1, false}},
          Case{{1, 2, 3, 2}, {1, false}}, Case{{2, 1, 3, 1, 2}, {2, true}}}) {
      out.push_back({{{shape, d}}, attr, -2, 2});
    }
    out.push_back({{{{2, 3000}, d}}, SortAttr{1, false}, -100, 100});
    out.push_back({{{{1500, 2}, d}}, SortAttr{0, true}, -2e9, 2e9});
  }
  return out;
}

Op row(std::string_view name, std::string_view doc, bool indices, JvpRule jvp) {
  return {.name = name,
          .doc = doc,
          .infer = indices ? infer<true> : infer<false>,
          .jvp = jvp,
          .transpose = NotLinear{},
          .vmap =
              [](const Tensor& y, Operands x, Batched, std::int64_t) {
                SortAttr attr = attr_of(y);
                ++attr.axis;
                return make(*y.node().op, {x[0]}, attr, y.node().site);
              },
          .lowering = LowerSort{indices},
          .reference = indices ? reference<true> : reference<false>,
          .samples = samples,
          .ulp = 0};
}

// The tangents in the elements' new order.
Tensor sort_jvp(const Tensor& y, Tangents t) {
  const auto& [axis, descending] = attr_of(y);
  return prim::take_along_axis(t[0], prim::argsort(in(y, 0), axis, descending), axis);
}

enum Row : std::size_t { sort, argsort, row_count };

std::span<const Op> rows() {
  static const Op table[row_count] = {
      row("sort", "elements along an axis in order, stable; NaN is the largest value", false,
          sort_jvp),
      row("argsort", "positions (i32) along the axis that the sorted elements come from", true,
          [](const Tensor&, Tangents) { return Tensor(); }),
  };
  return table;
}

}  // namespace

std::span<const Op> sort_ops() { return rows(); }

namespace prim {

Tensor sort(const Tensor& x, int axis, bool descending, const Site& site) {
  return make(rows()[Row::sort], {x}, SortAttr{axis, descending}, site);
}
Tensor argsort(const Tensor& x, int axis, bool descending, const Site& site) {
  return make(rows()[Row::argsort], {x}, SortAttr{axis, descending}, site);
}

}  // namespace prim
}  // namespace tensorgrad
