// Movement: views of one operand, concat, and the tags that pass a value through.
#include <algorithm>
#include <numeric>

#include "ops/rules.h"

namespace tensorgrad {
namespace {

using kernel::Index;
using kernel::Pool;
using Tangents = std::span<const Tensor>;
using Cotangents = std::vector<Tensor>;
using Operands = std::span<const Tensor>;
using Batched = const std::vector<bool>&;
using RefOperands = std::span<const RefArray* const>;

std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

// The reference of a view: `source` gives the operand's multi-index of an output's, or an empty
// optional where the output is 0.
template <class F>
RefArray view_reference(const Node& n, RefOperands x, F source) {
  RefArray out{n.type, std::vector<double>(static_cast<std::size_t>(numel(n.type.shape)))};
  const Shape& from = x[0]->type.shape;
  const Shape strides = strides_of(from);
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    const std::optional<Shape> index = source(unravel(static_cast<std::int64_t>(i), n.type.shape));
    if (!index) continue;
    out.data[i] = x[0]->data[static_cast<std::size_t>(
        std::inner_product(index->begin(), index->end(), strides.begin(), std::int64_t{0}))];
  }
  return out;
}

// A linear view's tangent is the view of the tangent.
Tensor view_jvp(const Tensor& y, Tangents t) { return remake(y.node(), {t[0]}); }

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
std::vector<int> inverse(const std::vector<int>& axes) {
  std::vector<int> inv(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) inv[at(axes[i])] = static_cast<int>(i);
  return inv;
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
        std::sort(sorted.begin(), sorted.end());
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

// ---- slice ---------------------------------------------------------------------------------------

Op slice_row() {
  return view_row(
      "slice", "Elements start, start + stride, … below limit, for each dimension.",
      [](const Op&, Operands x, const Attrs& attrs, const Site& site) -> Type {
        const auto& a = std::get<SliceAttr>(attrs);
        const Shape& from = x[0].shape();
        Type t{{}, x[0].dtype()};
        bool good = a.start.size() == from.size() && a.limit.size() == from.size() &&
                    a.stride.size() == from.size();
        for (std::size_t i = 0; good && i < from.size(); ++i) {
          good = a.start[i] >= 0 && a.start[i] <= a.limit[i] && a.limit[i] <= from[i] &&
                 a.stride[i] > 0;
          if (good) t.shape.push_back((a.limit[i] - a.start[i] + a.stride[i] - 1) / a.stride[i]);
        }
        if (!good) {
          throw ShapeError(fmt::format("slice: {} is out of range for shape {}.", to_string(attrs),
                                       to_string(from)),
                           site);
        }
        return t;
      },
      [](const Tensor& y, const Tensor& ct, Batched) {
        const auto& a = y.node().attr<SliceAttr>();
        const Shape& from = in(y, 0).shape();
        Shape high;
        Shape interior;
        for (std::size_t i = 0; i < from.size(); ++i) {
          const std::int64_t n = y.shape()[i];
          const std::int64_t covered = n == 0 ? 0 : a.start[i] + (n - 1) * a.stride[i] + 1;
          high.push_back(from[i] - (n == 0 ? a.start[i] : covered));
          interior.push_back(a.stride[i] - 1);
        }
        return Cotangents{prim::pad(ct, a.start, high, interior)};
      },
      [](const Tensor& y, Operands x, Batched, std::int64_t size) {
        const auto& a = y.node().attr<SliceAttr>();
        return prim::slice(x[0], led_by(0, a.start), led_by(size, a.limit), led_by(1, a.stride));
      },
      [](Pool& pool, const Node& n, std::span<const Index> index) {
        const auto& a = n.attr<SliceAttr>();
        Source s;
        for (std::size_t i = 0; i < index.size(); ++i) {
          s.index.push_back(pool.add(pool.number(a.start[i]), pool.mul(index[i], a.stride[i])));
        }
        return s;
      },
      [](const Node& n, RefOperands x) {
        const auto& a = n.attr<SliceAttr>();
        return view_reference(n, x, [&](Shape index) {
          for (std::size_t i = 0; i < index.size(); ++i) {
            index[i] = a.start[i] + index[i] * a.stride[i];
          }
          return std::optional(index);
        });
      },
      [] {
        std::vector<Sample> s;
        using Case = std::tuple<Shape, Shape, Shape, Shape>;
        for (const auto& [shape, start, limit, stride] :
             {Case{{7}, {1}, {6}, {2}}, Case{{4, 5}, {0, 2}, {4, 5}, {1, 1}},
              Case{{4, 5}, {3, 0}, {4, 5}, {1, 3}}, Case{{3}, {1}, {1}, {1}}, Case{{}, {}, {}, {}},
              Case{{2, 3, 4, 5}, {0, 1, 1, 0}, {2, 3, 4, 5}, {1, 1, 2, 4}}}) {
          s.push_back({{{shape, DType::f32}}, SliceAttr{start, limit, stride}});
        }
        s.push_back({{{{7}, DType::i32}}, SliceAttr{{1}, {6}, {2}}});
        return s;
      });
}

// ---- pad -----------------------------------------------------------------------------------------

Op pad_row() {
  return view_row(
      "pad", "Zeros before, after and between the elements of each dimension.",
      [](const Op&, Operands x, const Attrs& attrs, const Site& site) -> Type {
        const auto& a = std::get<PadAttr>(attrs);
        const Shape& from = x[0].shape();
        Type t{{}, x[0].dtype()};
        bool good = a.low.size() == from.size() && a.high.size() == from.size() &&
                    a.interior.size() == from.size();
        for (std::size_t i = 0; good && i < from.size(); ++i) {
          good = a.low[i] >= 0 && a.high[i] >= 0 && a.interior[i] >= 0;
          const std::int64_t body = from[i] == 0 ? 0 : from[i] + (from[i] - 1) * a.interior[i];
          t.shape.push_back(a.low[i] + body + a.high[i]);
        }
        if (!good) {
          throw ShapeError(fmt::format("pad: {} does not fit shape {}: one width >= 0 a dimension.",
                                       to_string(attrs), to_string(from)),
                           site);
        }
        return t;
      },
      [](const Tensor& y, const Tensor& ct, Batched) {
        const auto& a = y.node().attr<PadAttr>();
        Shape limit;
        Shape stride;
        for (std::size_t i = 0; i < a.low.size(); ++i) {
          limit.push_back(y.shape()[i] - a.high[i]);
          stride.push_back(a.interior[i] + 1);
        }
        return Cotangents{prim::slice(ct, a.low, limit, stride)};
      },
      [](const Tensor& y, Operands x, Batched, std::int64_t) {
        const auto& a = y.node().attr<PadAttr>();
        return prim::pad(x[0], led_by(0, a.low), led_by(0, a.high), led_by(0, a.interior));
      },
      [](Pool& pool, const Node& n, std::span<const Index> index) {
        const auto& a = n.attr<PadAttr>();
        const Shape& from = n.operand(0).shape();
        Source s;
        for (std::size_t i = 0; i < index.size(); ++i) {
          const Index shifted_index = pool.sub(index[i], pool.number(a.low[i]));
          const std::int64_t step = a.interior[i] + 1;
          s.valid = pool.both(s.valid, pool.in_range(shifted_index, 0, (from[i] - 1) * step + 1));
          if (step > 1) {
            s.valid = pool.both(s.valid, pool.in_range(pool.mod(shifted_index, step), 0, 1));
          }
          s.index.push_back(pool.div(shifted_index, step));
        }
        return s;
      },
      [](const Node& n, RefOperands x) {
        const auto& a = n.attr<PadAttr>();
        return view_reference(n, x, [&](Shape index) -> std::optional<Shape> {
          for (std::size_t i = 0; i < index.size(); ++i) {
            index[i] -= a.low[i];
            if (index[i] < 0 || index[i] % (a.interior[i] + 1) != 0) return std::nullopt;
            index[i] /= a.interior[i] + 1;
            if (index[i] >= x[0]->type.shape[i]) return std::nullopt;
          }
          return index;
        });
      },
      [] {
        std::vector<Sample> s;
        using Case = std::tuple<Shape, Shape, Shape, Shape>;
        for (const auto& [shape, low, high, interior] :
             {Case{{5}, {2}, {1}, {0}}, Case{{5}, {0}, {0}, {2}}, Case{{}, {}, {}, {}},
              Case{{0}, {2}, {1}, {0}}, Case{{3, 4}, {1, 0}, {0, 3}, {1, 0}},
              Case{{2, 1, 3}, {0, 2, 1}, {1, 2, 0}, {3, 1, 1}}}) {
          s.push_back({{{shape, DType::f32}}, PadAttr{low, high, interior}});
        }
        s.push_back({{{{5}, DType::bool_}}, PadAttr{{2}, {1}, {0}}});
        return s;
      });
}

// ---- flip ----------------------------------------------------------------------------------------

Op flip_row() {
  return view_row(
      "flip", "Reverses the order along some dimensions.",
      [](const Op&, Operands x, const Attrs& attrs, const Site& site) -> Type {
        for (int a : std::get<AxesAttr>(attrs).axes) {
          if (a < 0 || a >= x[0].rank()) {
            throw ShapeError(fmt::format("flip: axis {} is out of range for shape {}.", a,
                                         to_string(x[0].shape())),
                             site);
          }
        }
        return {x[0].shape(), x[0].dtype()};
      },
      [](const Tensor& y, const Tensor& ct, Batched) {
        return Cotangents{prim::flip(ct, y.node().attr<AxesAttr>().axes)};
      },
      [](const Tensor& y, Operands x, Batched, std::int64_t) {
        std::vector<int> axes = shifted(y.node().attr<AxesAttr>().axes);
        axes.erase(axes.begin());
        return prim::flip(x[0], axes);
      },
      [](Pool& pool, const Node& n, std::span<const Index> index) {
        Source s;
        s.index.assign(index.begin(), index.end());
        for (int a : n.attr<AxesAttr>().axes) {
          s.index[at(a)] = pool.sub(pool.number(n.type.shape[at(a)] - 1), index[at(a)]);
        }
        return s;
      },
      [](const Node& n, RefOperands x) {
        return view_reference(n, x, [&](Shape index) {
          for (int a : n.attr<AxesAttr>().axes)
            index[at(a)] = n.type.shape[at(a)] - 1 - index[at(a)];
          return std::optional(index);
        });
      },
      [] {
        std::vector<Sample> s;
        for (auto [shape, axes] : {std::pair<Shape, std::vector<int>>{{5}, {0}},
                                   {{0}, {0}},
                                   {{3, 4}, {1}},
                                   {{2, 3, 4}, {0, 2}},
                                   {{2, 3}, {}}}) {
          s.push_back({{{shape, DType::f32}}, AxesAttr{axes}});
        }
        return s;
      });
}

// ---- concat --------------------------------------------------------------------------------------

Op concat_row() {
  return {
      .name = "concat",
      .doc = "Joins tensors along one axis.",
      .infer = [](const Op&, Operands x, const Attrs& attrs, const Site& site) -> Type {
        if (x.empty()) throw ShapeError("concat: takes at least one tensor.", site);
        const int axis = std::get<AxisAttr>(attrs).axis;
        Type t{x[0].shape(), x[0].dtype()};
        if (axis < 0 || axis >= x[0].rank()) {
          throw ShapeError(fmt::format("concat: axis {} is out of range for shape {}.", axis,
                                       to_string(t.shape)),
                           site);
        }
        for (std::size_t i = 1; i < x.size(); ++i) {
          if (x[i].dtype() != t.dtype) {
            throw DTypeError(
                fmt::format("concat: dtypes differ: {} and {}.", name(t.dtype), name(x[i].dtype())),
                site);
          }
          Shape expected = x[0].shape();
          const bool same_rank = x[i].rank() == x[0].rank();
          if (same_rank) expected[at(axis)] = x[i].shape()[at(axis)];
          if (!same_rank || expected != x[i].shape()) {
            throw ShapeError(
                fmt::format("concat: part {} of shape {} does not join {} along axis {}.", i,
                            to_string(x[i].shape()), to_string(x[0].shape()), axis),
                site);
          }
          t.shape[at(axis)] += x[i].shape()[at(axis)];
        }
        return t;
      },
      .jvp = JvpRule{[](const Tensor& y, Tangents t) {
        std::vector<Tensor> parts;
        for (std::size_t i = 0; i < t.size(); ++i) {
          parts.push_back(t[i].defined() ? t[i] : prim::zeros_like(in(y, i)));
        }
        return prim::concat(parts, y.node().attr<AxisAttr>().axis);
      }},
      .transpose = TransposeRule{[](const Tensor& y, const Tensor& ct, Batched linear) {
        const int axis = y.node().attr<AxisAttr>().axis;
        Cotangents out;
        Shape start(y.shape().size(), 0);
        for (std::size_t i = 0; i < linear.size(); ++i) {
          Shape limit = y.shape();
          limit[at(axis)] = start[at(axis)] + in(y, i).shape()[at(axis)];
          out.push_back(linear[i] ? prim::slice(ct, start, limit, Shape(start.size(), 1))
                                  : Tensor());
          start[at(axis)] = limit[at(axis)];
        }
        return out;
      }},
      .vmap =
          [](const Tensor& y, Operands x, Batched batched, std::int64_t size) {
            return prim::concat(batch_all(x, batched, size), y.node().attr<AxisAttr>().axis + 1);
          },
      .lowering = LowerConcat{},
      .reference =
          [](const Node& n, RefOperands x) {
            RefArray out{n.type, {}};
            const std::size_t axis = at(n.attr<AxisAttr>().axis);
            std::int64_t outer = 1;
            for (std::size_t d = 0; d < axis; ++d) outer *= n.type.shape[d];
            for (std::int64_t o = 0; o < outer; ++o) {
              for (const RefArray* part : x) {
                const std::int64_t chunk = static_cast<std::int64_t>(part->data.size()) / outer;
                out.data.insert(out.data.end(), part->data.begin() + o * chunk,
                                part->data.begin() + (o + 1) * chunk);
              }
            }
            return out;
          },
      .samples =
          [] {
            std::vector<Sample> s;
            using Case = std::pair<std::vector<Shape>, int>;
            for (const auto& [shapes, axis] :
                 {Case{{{3}}, 0}, Case{{{3}, {4}}, 0}, Case{{{2, 3}, {2, 1}, {2, 5}}, 1},
                  Case{{{2, 3}, {0, 3}, {1, 3}}, 0}, Case{{{2, 2, 3}, {2, 4, 3}}, 1}}) {
              std::vector<Type> types;
              for (const Shape& shape : shapes) types.push_back({shape, DType::f32});
              s.push_back({types, AxisAttr{axis, 0}});
            }
            return s;
          },
      .ulp = 0};
}

enum Row : std::size_t { reshape, permute, broadcast, slice, pad, flip, concat };

std::span<const Op> rows() {
  static const Op table[] = {reshape_row(), permute_row(), broadcast_row(), slice_row(),
                             pad_row(),     flip_row(),    concat_row()};
  return table;
}

}  // namespace

std::span<const Op> movement_ops() { return rows(); }

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
Tensor slice(const Tensor& x, const Shape& start, const Shape& limit, const Shape& stride,
             const Site& site) {
  if (limit == x.shape() &&
      std::all_of(start.begin(), start.end(), [](auto v) { return v == 0; }) &&
      std::all_of(stride.begin(), stride.end(), [](auto v) { return v == 1; })) {
    return x;
  }
  return make(rows()[Row::slice], {x}, SliceAttr{start, limit, stride}, site);
}
Tensor pad(const Tensor& x, const Shape& low, const Shape& high, const Shape& interior,
           const Site& site) {
  const Tensor y = make(rows()[Row::pad], {x}, PadAttr{low, high, interior}, site);
  return y.shape() == x.shape() ? x : y;
}
Tensor flip(const Tensor& x, const std::vector<int>& axes, const Site& site) {
  if (axes.empty()) return x;
  return make(rows()[Row::flip], {x}, AxesAttr{axes}, site);
}
Tensor concat(std::span<const Tensor> parts, int axis, const Site& site) {
  if (parts.size() == 1) return parts[0];
  return make(rows()[Row::concat], {parts.begin(), parts.end()}, AxisAttr{axis, 0}, site);
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
