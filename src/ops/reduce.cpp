// Reductions over any set of axes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/rules.h"
#include "tensorgrad/ops.h"

namespace tensorgrad {
namespace {

using kernel::Combiner;
using kernel::Fn;

const std::vector<int>& axes_of(const Tensor& y) { return y.node().attr<AxesAttr>().axes; }

template <Combiner C>
constexpr bool positional() {
  return C == Combiner::argmax || C == Combiner::argmin;
}

template <Combiner C>
Type infer(const Op& op, std::span<const Tensor> x, const Attrs& attrs, const Site& site) {
  const auto& axes = std::get<AxesAttr>(attrs).axes;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0 || axes[i] >= x[0].rank() || (i > 0 && axes[i] <= axes[i - 1])) {
      throw ShapeError(fmt::format("{}: axes [{}] are not distinct axes of shape {}.", *op.name,
                                   fmt::join(axes, ", "), to_string(x[0].shape())),
                       site);
    }
  }
  check_dtype(op, x[0].dtype(), numbers, site);
  std::int64_t reduced = 1;
  for (int a : axes) reduced *= x[0].shape()[static_cast<std::size_t>(a)];
  if (reduced == 0 && C != Combiner::sum && C != Combiner::prod) {
    throw ShapeError(fmt::format("{}: there is nothing to choose from: axes [{}] of shape {} hold "
                                 "no element.",
                                 *op.name, fmt::join(axes, ", "), to_string(x[0].shape())),
                     site);
  }
  return {without(x[0].shape(), axes), positional<C>() ? DType::i32 : x[0].dtype()};
}

template <Combiner C>
RefArray reference(const Node& n, std::span<const RefArray* const> x) {
  const Shape& from = x[0]->type.shape;
  const auto& axes = n.attr<AxesAttr>().axes;
  const DType dtype = x[0]->type.dtype;
  RefArray out{n.type, std::vector<double>(static_cast<std::size_t>(numel(n.type.shape)))};
  std::vector<double> best(out.data.size());
  std::vector<std::int64_t> seen(out.data.size(), 0);
  const Shape out_strides = strides_of(n.type.shape);
  for (std::size_t i = 0; i < x[0]->data.size(); ++i) {
    const Shape index = unravel(static_cast<std::int64_t>(i), from);
    const Shape kept = without(index, axes);
    std::size_t o = 0;
    for (std::size_t d = 0; d < kept.size(); ++d) {
      o += static_cast<std::size_t>(kept[d] * out_strides[d]);
    }
    const double v = x[0]->data[i];
    const bool first = seen[o] == 0;
    double& acc = out.data[o];
    switch (C) {
      case Combiner::sum: {
        const double pair[] = {acc, v};
        acc = kernel::evaluate(Fn::add, dtype, dtype, pair);
        break;
      }
      case Combiner::prod: {
        const double pair[] = {first ? 1.0 : acc, v};
        acc = kernel::evaluate(Fn::mul, dtype, dtype, pair);
        break;
      }
      case Combiner::max:
      case Combiner::min: {
        const double pair[] = {first ? v : acc, v};
        acc = kernel::evaluate(C == Combiner::max ? Fn::max : Fn::min, dtype, dtype, pair);
        break;
      }
      case Combiner::argmax:
      case Combiner::argmin: {
        const bool better = C == Combiner::argmax ? v > best[o] : v < best[o];
        if (first || better || (std::isnan(v) && !std::isnan(best[o]))) {
          best[o] = v;
          acc = static_cast<double>(seen[o]);
        }
        break;
      }
    }
    ++seen[o];
  }
  if (C == Combiner::prod) {
    for (std::size_t o = 0; o < seen.size(); ++o) {
      if (seen[o] == 0) out.data[o] = 1;
    }
  }
  return out;
}

template <Combiner C>
std::vector<Sample> samples() {
  constexpr bool empty_allowed = C == Combiner::sum || C == Combiner::prod;
  std::vector<Sample> out;
  using Case = std::pair<Shape, std::vector<int>>;
  std::vector<Case> cases = {{{}, {}},
                             {{1}, {0}},
                             {{7}, {0}},
                             {{3, 5}, {0}},
                             {{3, 5}, {1}},
                             {{3, 5}, {0, 1}},
                             {{3, 5}, {}},
                             {{4, 1, 3}, {1}},
                             {{2, 3, 17}, {0, 2}},
                             {{2, 3, 4, 2}, {1, 2}},
                             {{2, 1, 3, 2, 2}, {0, 4}},
                             {{0, 3}, {1}}};
  if (empty_allowed) {
    cases.push_back({{0}, {0}});
    cases.push_back({{3, 0}, {1}});
  }
  for (DType d : numbers) {
    for (const auto& [shape, axes] : cases) out.push_back({{{shape, d}}, AxesAttr{axes}, -2, 2});
  }
  // Long enough for blocked sums, vector remainders and column tiles.
  for (const auto& [shape, axes] :
       {Case{{5000}, {0}}, Case{{37, 300}, {0}}, Case{{3, 1037}, {1}}}) {
    if (C != Combiner::prod) out.push_back({{{shape, DType::f32}}, AxesAttr{axes}, -2, 2});
  }
  return out;
}

template <Combiner C>
Op row(std::string_view doc, double ulp, std::variant<NotDifferentiable, JvpRule> jvp,
       std::variant<NotLinear, TransposeRule> transpose = NotLinear{}) {
  return {.name = kernel::name(C),
          .doc = doc,
          .infer = infer<C>,
          .jvp = std::move(jvp),
          .transpose = std::move(transpose),
          .vmap =
              [](const Tensor& y, std::span<const Tensor> x, Batched, std::int64_t) {
                std::vector<int> axes = axes_of(y);
                for (int& a : axes) ++a;
                return prim::reduce(C, x[0], axes);
              },
          .lowering = LowerReduce{C},
          .reference = reference<C>,
          .samples = samples<C>,
          .ulp = ulp};
}

// The mean of the tangents of the elements that attain the extremum.
Tensor extremum_jvp(const Tensor& y, Tangents t) {
  const auto& axes = axes_of(y);
  const Tensor& x = in(y, 0);
  // A selection: a cast would look like a derivative that is lost.
  const Tensor attained = prim::select(prim::map(Fn::eq, {x, prim::unreduce(y, x.shape(), axes)}),
                                       prim::full(x.shape(), 1, x.dtype()), prim::zeros_like(x));
  return prim::sum(t[0] * attained, axes) / prim::sum(attained, axes);
}

// Each element's factor is the product of all others: of those before it and those after it, which
// is exact where elements are 0, and so are its derivatives.
Tensor prod_jvp(const Tensor& y, Tangents t) {
  const Tensor& x = in(y, 0);
  std::vector<int> order;
  for (int d = 0; d < x.rank(); ++d) {
    if (!std::binary_search(axes_of(y).begin(), axes_of(y).end(), d)) order.push_back(d);
  }
  order.insert(order.end(), axes_of(y).begin(), axes_of(y).end());
  Shape rows = y.shape();
  rows.push_back(1);
  for (const int d : axes_of(y)) rows.back() *= x.shape()[static_cast<std::size_t>(d)];
  const int last = y.rank();
  const auto flat = [&](const Tensor& v) { return prim::reshape(prim::permute(v, order), rows); };
  const Tensor row = flat(x);
  const Tensor before = cumprod(row, last, {.reverse = false, .exclusive = true});
  const Tensor after = cumprod(row, last, {.reverse = true, .exclusive = true});
  return prim::sum(flat(t[0]) * (before * after), {last});
}

std::span<const Op> rows() {
  // In the order of Combiner.
  static const Op table[] = {
      row<Combiner::sum>(
          "sum of elements; 0 for none", 16,
          JvpRule{[](const Tensor& y, Tangents t) { return prim::sum(t[0], axes_of(y)); }},
          TransposeRule{[](const Tensor& y, const Tensor& ct, Batched) {
            return Cotangents{prim::unreduce(ct, in(y, 0).shape(), axes_of(y))};
          }}),
      row<Combiner::prod>("product of elements; 1 for none", 16, JvpRule{prod_jvp}),
      row<Combiner::max>(
          "largest element, NaN if any is; elements that attain it share the derivative", 0,
          JvpRule{extremum_jvp}),
      row<Combiner::min>(
          "smallest element, NaN if any is; elements that attain it share the derivative", 0,
          JvpRule{extremum_jvp}),
      row<Combiner::argmax>("position (i32) of the first largest element, or of the first NaN", 0,
                            JvpRule{[](const Tensor&, Tangents) { return Tensor(); }}),
      row<Combiner::argmin>("position (i32) of the first smallest element, or of the first NaN", 0,
                            JvpRule{[](const Tensor&, Tangents) { return Tensor(); }}),
  };
  return table;
}

}  // namespace

std::span<const Op> reduce_ops() { return rows(); }

namespace prim {

Tensor reduce(Combiner combiner, const Tensor& x, const std::vector<int>& axes, const Site& site) {
  return make(rows()[static_cast<std::size_t>(combiner)], {x}, AxesAttr{axes}, site);
}

Tensor unreduce(const Tensor& reduced, const Shape& shape, const std::vector<int>& axes) {
  std::vector<int> kept;
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    if (!std::binary_search(axes.begin(), axes.end(), i)) kept.push_back(i);
  }
  return broadcast(reduced, shape, kept);
}

}  // namespace prim
}  // namespace tensorgrad
