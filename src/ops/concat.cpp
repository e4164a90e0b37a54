// Joining tensors.
#include "ops/rules.h"

namespace tensorgrad {
namespace {

std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

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

std::span<const Op> rows() {
  static const Op table[] = {concat_row()};
  return table;
}

}  // namespace

std::span<const Op> concat_ops() { return rows(); }

namespace prim {

Tensor concat(std::span<const Tensor> parts, int axis, const Site& site) {
  if (parts.size() == 1) return parts[0];
  return make(rows()[0], {parts.begin(), parts.end()}, AxisAttr{axis, 0}, site);
}

}  // namespace prim
}  // namespace tensorgrad
