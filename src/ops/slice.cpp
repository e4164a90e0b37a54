// Views of a part of a tensor, or of a tensor within zeros: slice, pad, flip.
#include <algorithm>

#include "ops/view.h"

namespace tensorgrad {
namespace {

using kernel::Index;
using kernel::Pool;

std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

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

enum Row : std::size_t { slice, pad, flip };

std::span<const Op> rows() {
  static const Op table[] = {slice_row(), pad_row(), flip_row()};
  return table;
}

}  // namespace

std::span<const Op> slice_ops() { return rows(); }

namespace prim {

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

}  // namespace prim
}  // namespace tensorgrad
