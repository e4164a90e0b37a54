// Running combinations along an axis: cumulative sums, products, extrema and their positions.
#include <algorithm>
#include <array>
#include <cmath>

#include "ops/rules.h"
#include "tensorgrad/ops.h"

namespace tensorgrad {
namespace {

using kernel::Combiner;
using kernel::Fn;

const ScanAttr& attr_of(const Tensor& y) { return y.node().attr<ScanAttr>(); }
std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

template <Combiner C>
constexpr bool positional() {
  return C == Combiner::argmax || C == Combiner::argmin;
}

template <Combiner C>
Type infer(const Op& op, std::span<const Tensor> x, const Attrs& attrs, const Site& site) {
  const int axis = std::get<ScanAttr>(attrs).axis;
  if (axis < 0 || axis >= x[0].rank()) {
    throw ShapeError(fmt::format("{}: axis {} is out of range for shape {}.", *op.name, axis,
                                 to_string(x[0].shape())),
                     site);
  }
  check_dtype(op, x[0].dtype(), numbers, site);
  return {x[0].shape(), positional<C>() ? DType::i32 : x[0].dtype()};
}

/// The running value once `v` takes part.
template <Combiner C>
double combined(DType dtype, double running, double v) {
  constexpr Fn fn = C == Combiner::sum    ? Fn::add
                    : C == Combiner::prod ? Fn::mul
                    : C == Combiner::max  ? Fn::max
                                          : Fn::min;
  const double pair[] = {running, v};
  return kernel::evaluate(fn, dtype, dtype, pair);
}

template <Combiner C>
RefArray reference(const Node& n, std::span<const RefArray* const> x) {
  const auto& [axis, reverse] = n.attr<ScanAttr>();
  const Shape& shape = n.type.shape;
  const DType dtype = x[0]->type.dtype;
  RefArray out{n.type, std::vector<double>(x[0]->data.size())};
  const std::int64_t length = shape[at(axis)];
  const std::int64_t stride = strides_of(shape)[at(axis)];
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    const auto flat = static_cast<std::int64_t>(i);
    if (flat / stride % length != 0) continue;  // not the start of a row
    double running = 0;
    double best = 0;
    for (std::int64_t step = 0; step < length; ++step) {
      const std::int64_t k = reverse ? length - 1 - step : step;
      const auto here = static_cast<std::size_t>(flat + k * stride);
      const double v = x[0]->data[here];
      if constexpr (positional<C>()) {
        const bool better = C == Combiner::argmax ? v > best : v < best;
        if (step == 0 || better || (std::isnan(v) && !std::isnan(best))) {
          best = v;
          running = static_cast<double>(k);
        }
      } else {
        running = step == 0 ? v : combined<C>(dtype, running, v);
      }
      out.data[here] = running;
    }
  }
  return out;
}

template <Combiner C>
std::vector<Sample> samples() {
  std::vector<Sample> out;
  using Case = std::pair<Shape, ScanAttr>;
  for (DType d : numbers) {
    for (const auto& [shape, attr] :
         {Case{{1}, {0, false}}, Case{{7}, {0, false}}, Case{{7}, {0, true}}, Case{{0}, {0, false}},
          Case{{3, 5}, {0, true}}, Case{{3, 5}, {1, false}}, Case{{4, 1, 3}, {1, false}},
          Case{{2, 0, 3}, {2, false}}, Case{{2, 3, 17}, {1, true}}, Case{{2, 3, 17}, {2, true}},
          Case{{1, 2, 3, 2}, {1, false}}, Case{{2, 1, 3, 1, 2}, {2, false}}}) {
      out.push_back({{{shape, d}}, attr, -2, 2});
    }
  }
  // Long enough for sums to lose digits, and for column tiles.
  for (const auto& [shape, attr] :
       {Case{{9000}, {0, false}}, Case{{37, 300}, {0, false}}, Case{{3, 1037}, {1, true}}}) {
    if (C != Combiner::prod) out.push_back({{{shape, DType::f32}}, attr, -2, 2});
  }
  return out;
}

template <Combiner C>
Op row(std::string_view name, std::string_view doc, double ulp, JvpRule jvp,
       std::variant<NotLinear, TransposeRule> transpose = NotLinear{}) {
  return {.name = name,
          .doc = doc,
          .infer = infer<C>,
          .jvp = jvp,
          .transpose = std::move(transpose),
          .vmap =
              [](const Tensor& y, std::span<const Tensor> x, Batched, std::int64_t) {
                return prim::scan(C, x[0], attr_of(y).axis + 1, attr_of(y).reverse);
              },
          .lowering = LowerScan{C},
          .reference = reference<C>,
          .samples = samples<C>,
          .ulp = ulp};
}

Tensor again(const Tensor& y, Combiner combiner, const Tensor& x) {
  return prim::scan(combiner, x, attr_of(y).axis, attr_of(y).reverse);
}

// The tangent of a running product follows y'[i] = x[i] y'[i-1] + y[i-1] x'[i]: running
// combinations of pairs (a, b), which double the stretch they cover with each pass (Hillis and
// Steele). Nothing is divided, so that this and all further derivatives are exact where elements
// are 0 or tiny.
Tensor product_jvp(const Tensor& y, Tangents t) {
  const int axis = attr_of(y).axis;
  const bool reverse = attr_of(y).reverse;
  const Tensor& x = in(y, 0);
  const std::int64_t n = x.shape()[at(axis)];
  Tensor a = x;
  Tensor b = t[0] * cumprod(x, axis, {.reverse = reverse, .exclusive = true});
  for (std::int64_t by = 1; by < n; by *= 2) {
    // What comes later and, as far before it, earlier in the scan's direction; then what has none
    // before it in front.
    const std::int64_t late = reverse ? 0 : by;
    const auto later = [&](const Tensor& v) { return narrow(v, axis, late, n - by); };
    const auto earlier = [&](const Tensor& v) { return narrow(v, axis, by - late, n - by); };
    const auto join = [&](const Tensor& v, const Tensor& rest) {
      const Tensor first = narrow(v, axis, reverse ? n - by : 0, by);
      return prim::concat(reverse ? std::array{rest, first} : std::array{first, rest}, axis);
    };
    const Tensor factor = later(a);
    b = join(b, later(b) + factor * earlier(b));
    a = join(a, factor * earlier(a));
  }
  return b;
}

// The tangent of the element that the running extremum is.
template <Combiner Position>
Tensor extremum_jvp(const Tensor& y, Tangents t) {
  return prim::take_along_axis(t[0], again(y, Position, in(y, 0)), attr_of(y).axis);
}

Tensor no_tangent(const Tensor&, Tangents) { return {}; }

std::span<const Op> rows() {
  // In the order of Combiner.
  static const Op table[] = {
      row<Combiner::sum>(
          "cumsum", "running sum along an axis, from the front or from the end", 16,
          [](const Tensor& y, Tangents t) { return again(y, Combiner::sum, t[0]); },
          TransposeRule{[](const Tensor& y, const Tensor& ct, Batched) {
            return Cotangents{prim::scan(Combiner::sum, ct, attr_of(y).axis, !attr_of(y).reverse)};
          }}),
      row<Combiner::prod>("cumprod", "running product along an axis", 64, product_jvp),
      row<Combiner::max>(
          "cummax",
          "largest element so far along an axis, NaN from the first NaN on; the first that "
          "attains it has the derivative",
          0, extremum_jvp<Combiner::argmax>),
      row<Combiner::min>(
          "cummin",
          "smallest element so far along an axis, NaN from the first NaN on; the first "
          "that attains it has the derivative",
          0, extremum_jvp<Combiner::argmin>),
      row<Combiner::argmax>("cumargmax",
                            "position (i32) along the axis of the first largest element so far, or "
                            "of the first NaN",
                            0, no_tangent),
      row<Combiner::argmin>(
          "cumargmin",
          "position (i32) along the axis of the first smallest element so far, or "
          "of the first NaN",
          0, no_tangent),
  };
  return table;
}

}  // namespace

std::span<const Op> scan_ops() { return rows(); }

namespace prim {

Tensor scan(Combiner combiner, const Tensor& x, int axis, bool reverse, const Site& site) {
  return make(rows()[static_cast<std::size_t>(combiner)], {x}, ScanAttr{axis, reverse}, site);
}

}  // namespace prim
}  // namespace tensorgrad
