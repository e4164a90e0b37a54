// Views that keep every element: reshape, permute, broadcast.
#include "ops/view.h"

#include <algorithm>
#include <numeric>

#include "graph/order.h"

namespace tensorgrad {
namespace {

using kernel::Index;
using kernel::Pool;

std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

// A linear view's tangent is the view of the tangent.
Tensor view_jvp(const Tensor& y, std::span<const Tensor> t) { return remake(y.node(), {t[0]}); }

std::vector<int> inverse(const std::vector<int>& axes) {
  std::vector<int> inv(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) inv[at(axes[i])] = static_cast<int>(i);
  return inv;
}

}  // namespace

std::vector<int> shifted(const std::vector<int>& axes) {
  std::vector<int> out{0};
  for (int a : axes) out.push_back(a + 1);
  return out;
}
Shape led_by(std::int64_t first, const Shape& rest) {
  Shape out{first};
  out.insert(out.end(), rest.begin(), rest.end());
  return out;
}

Op view_row(std::string_view name, std::string_view doc, InferRule infer, TransposeRule transpose,
            VmapRule vmap, Source (*lower)(Pool&, const Node&, std::span<const Index>),
            ReferenceRule reference, std::vector<Sample> (*samples)()) {
  return {.name = name,
          .doc = doc,
          .infer = infer,
          .jvp = JvpRule{view_jvp},
          .transpose = transpose,
          .vmap = vmap,
          .lowering = LowerView{lower},
          .reference = reference,
          .samples = samples,
          .ulp = 0};
}

namespace {

// ---- reshape -------------------------------------------------------------------------------------

Op reshape_row() {
  Op row = view_row(
      "reshape", "The same elements in row-major order under another shape.",
      [](const Op&, Operands x, const Attrs& attrs, const Site& site) -> Type {
        const Shape& to = std::get<ShapeAttr>(attrs).shape;
        if (numel(to) != x[0].size()) {
          throw ShapeError(
              fmt::format("reshape: {} has {} elements, {} has {}.", to_string(x[0].shape()),
                          x[0].size(), to_string(to), numel(to)),
              site);
        }
        return {to, x[0].dtype()};
      },
      [](const Tensor& y, const Tensor& ct, Batched) {
        return Cotangents{prim::reshape(ct, in(y, 0).shape())};
      },
      [](const Tensor& y, Operands x, Batched, std::int64_t size) {
        return prim::reshape(x[0], led_by(size, y.shape()));
      },
      [](Pool& pool, const Node& n, std::span<const Index> index) {
        const Shape& to = n.type.shape;
        const Shape& from = n.operand(0).shape();
        Index flat = pool.number(0);
        const Shape to_strides = strides_of(to);
        for (std::size_t i = 0; i < to.size(); ++i) {
          flat = pool.add(flat, pool.mul(index[i], to_strides[i]));
        }
        Source s;
        const Shape from_strides = strides_of(from);
        for (std::size_t i = 0; i < from.size(); ++i) {
          // With an empty dimension nothing is ever read; extents of 0 must not divide.
          s.index.push_back(from[i] <= 1 || from_strides[i] == 0
                                ? pool.number(0)
                                : pool.mod(pool.div(flat, from_strides[i]), from[i]));
        }
        return s;
      },
      [](const Node& n, RefOperands x) { return RefArray{n.type, x[0]->data}; },
      [] {
        std::vector<Sample> s;
        for (auto [from, to] : {std::pair<Shape, Shape>{{6}, {2, 3}},
                                {{2, 3, 4}, {6, 4}},
                                {{}, {1, 1}},
                                {{1}, {}},
                                {{2, 0}, {0, 5}},
                                {{4, 6}, {3, 8}},
                                {{2, 3, 5, 2}, {5, 12}},
                                {{1, 7, 1}, {7}}}) {
          s.push_back({{{from, DType::f32}}, ShapeAttr{to, {}}});
        }
        s.push_back({{{{4, 6}, DType::i32}}, ShapeAttr{{24}, {}}});
        s.push_back({{{{4, 6}, DType::bool_}}, ShapeAttr{{2, 12}, {}}});
        return s;
      });
  std::get<LowerView>(row.lowering.value).keeps_order = true;
  return row;
}

// ---- permute -------------------------------------------------------------------------------------

Op permute_row() {
  return view_row(
      "permute", "Dimensions in another order: output dimension i is operand dimension axes[i].",
      [](const Op&, Operands x, const Attrs& attrs, const Site& site) -> Type {
        const auto& axes = std::get<AxesAttr>(attrs).axes;
        std::vector<int> sorted = axes;
        sort_values(sorted);
        if (sorted != prim::all_axes(x[0].rank())) {
          throw ShapeError(fmt::format("permute: [{}] is not an order of the {} dimensions of {}.",
                                       fmt::join(axes, ", "), x[0].rank(), to_string(x[0].shape())),
                           site);
        }
        Type t{{}, x[0].dtype()};
        for (int a : axes) t.shape.push_back(x[0].shape()[at(a)]);
        return t;
      },
      [](const Tensor& y, const Tensor& ct, Batched) {
        return Cotangents{prim::permute(ct, inverse(y.node().attr<AxesAttr>().axes))};
      },
      [](const Tensor& y, Operands x, Batched, std::int64_t) {
        return prim::permute(x[0], shifted(y.node().attr<AxesAttr>().axes));
      },
      [](Pool&, const Node& n, std::span<const Index> index) {
        const auto& axes = n.attr<AxesAttr>().axes;
        Source s;
        s.index.resize(axes.size());
        for (std::size_t i = 0; i < axes.size(); ++i) s.index[at(axes[i])] = index[i];
        return s;
      },
      [](const Node& n, RefOperands x) {
        const auto& axes = n.attr<AxesAttr>().axes;
        return view_reference(n, x, [&](const Shape& out) {
          Shape index(out.size());
          for (std::size_t i = 0; i < out.size(); ++i) index[at(axes[i])] = out[i];
          return std::optional(index);
        });
      },
      [] {
        std::vector<Sample> s;
        for (auto [shape, axes] : {std::pair<Shape, std::vector<int>>{{}, {}},
                                   {{3}, {0}},
                                   {{3, 5}, {1, 0}},
                                   {{2, 3, 4}, {2, 0, 1}},
                                   {{2, 0, 4}, {1, 2, 0}},
                                   {{2, 3, 1, 4, 2}, {4, 2, 0, 3, 1}}}) {
          s.push_back({{{shape, DType::f32}}, AxesAttr{axes}});
        }
        s.push_back({{{{3, 5}, DType::u32}}, AxesAttr{{1, 0}}});
        return s;
      });
}

// ---- broadcast -----------------------------------------------------------------------------------

Op broadcast_row() {
  return view_row(
      "broadcast", "Repeats along new dimensions and along dimensions of extent 1.",
      [](const Op&, Operands x, const Attrs& attrs, const Site& site) -> Type {
        const auto& a = std::get<ShapeAttr>(attrs);
        const Shape& from = x[0].shape();
        bool good = a.axes.size() == from.size();
        for (std::size_t i = 0; good && i < from.size(); ++i) {
          good = a.axes[i] >= 0 && at(a.axes[i]) < a.shape.size() &&
                 (i == 0 || a.axes[i] > a.axes[i - 1]) &&
                 (from[i] == 1 || from[i] == a.shape[at(a.axes[i])]);
        }
        if (!good) {
          throw ShapeError(fmt::format("broadcast: {} cannot be repeated to {}.", to_string(from),
                                       to_string(a.shape)),
                           site);
        }
        return {a.shape, x[0].dtype()};
      },
      [](const Tensor& y, const Tensor& ct, Batched) {
        const auto& a = y.node().attr<ShapeAttr>();
        const Shape& from = in(y, 0).shape();
        std::vector<int> summed;
        std::size_t next = 0;
        for (std::size_t d = 0; d < a.shape.size(); ++d) {
          const bool mapped = next < a.axes.size() && at(a.axes[next]) == d;
          if (!mapped || from[next] != a.shape[d]) summed.push_back(static_cast<int>(d));
          if (mapped) ++next;
        }
        const Tensor s = summed.empty() ? ct : prim::sum(ct, summed);
        return Cotangents{s.shape() == from ? s : prim::reshape(s, from)};
      },
      [](const Tensor& y, Operands x, Batched, std::int64_t size) {
        const auto& a = y.node().attr<ShapeAttr>();
        return prim::broadcast(x[0], led_by(size, a.shape), shifted(a.axes));
      },
      [](Pool& pool, const Node& n, std::span<const Index> index) {
        const auto& a = n.attr<ShapeAttr>();
        const Shape& from = n.operand(0).shape();
        Source s;
        for (std::size_t i = 0; i < from.size(); ++i) {
          s.index.push_back(from[i] == 1 ? pool.number(0) : index[at(a.axes[i])]);
        }
        return s;
      },
      [](const Node& n, RefOperands x) {
        const auto& a = n.attr<ShapeAttr>();
        return view_reference(n, x, [&](const Shape& out) {
          Shape index;
          for (std::size_t i = 0; i < a.axes.size(); ++i) {
            index.push_back(x[0]->type.shape[i] == 1 ? 0 : out[at(a.axes[i])]);
          }
          return std::optional(index);
        });
      },
      [] {
        std::vector<Sample> s;
        using Case = std::tuple<Shape, Shape, std::vector<int>>;
        for (const auto& [from, to, axes] :
             {Case{{}, {2, 3}, {}}, Case{{3}, {2, 3}, {1}}, Case{{3}, {3, 2}, {0}},
              Case{{1, 4}, {5, 4}, {0, 1}}, Case{{2, 1, 3}, {2, 4, 6, 3}, {0, 1, 3}},
              Case{{1}, {0}, {0}}, Case{{1, 1}, {3, 2, 4, 1, 2}, {1, 3}}}) {
          s.push_back({{{from, DType::f32}}, ShapeAttr{to, axes}});
        }
        s.push_back({{{{3}, DType::bool_}}, ShapeAttr{{2, 3}, {1}}});
        return s;
      });
}

enum Row : std::size_t { reshape, permute, broadcast };

std::span<const Op> rows() {
  static const Op table[] = {reshape_row(), permute_row(), broadcast_row()};
  return table;
}

}  // namespace

std::span<const Op> view_ops() { return rows(); }

namespace prim {

std::vector<int> all_axes(int rank) {
  std::vector<int> axes(at(rank));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

Tensor reshape(const Tensor& x, const Shape& shape, const Site& site) {
  if (x.shape() == shape) return x;
  return make(rows()[Row::reshape], {x}, ShapeAttr{shape, {}}, site);
}
Tensor identity(const Tensor& x, const Site& site) {
  return make(rows()[Row::reshape], {x}, ShapeAttr{x.shape(), {}}, site);
}
Tensor permute(const Tensor& x, const std::vector<int>& axes, const Site& site) {
  if (axes == all_axes(x.rank())) return x;
  return make(rows()[Row::permute], {x}, AxesAttr{axes}, site);
}
Tensor broadcast(const Tensor& x, const Shape& shape, const std::vector<int>& axes,
                 const Site& site) {
  if (x.shape() == shape) return x;
  return make(rows()[Row::broadcast], {x}, ShapeAttr{shape, axes}, site);
}
Tensor broadcast_to(const Tensor& x, const Shape& shape, const Site& site) {
  std::vector<int> axes;
  for (int i = 0; i < x.rank(); ++i) {
    axes.push_back(i + static_cast<int>(shape.size()) - x.rank());
  }
  return broadcast(x, shape, axes, site);
}
Tensor move_to_front(const Tensor& x, int from) {
  std::vector<int> axes{from};
  for (int i = 0; i < x.rank(); ++i) {
    if (i != from) axes.push_back(i);
  }
  return permute(x, axes);
}
Tensor add_leading(const Tensor& x, std::int64_t size) {
  std::vector<int> axes;
  for (int i = 0; i < x.rank(); ++i) axes.push_back(i + 1);
  return broadcast(x, led_by(size, x.shape()), axes);
}

}  // namespace prim
}  // namespace tensorgrad
