// Indirection: gather and its transpose, scatter_add.
#include <limits>

#include "ops/rules.h"

namespace tensorgrad {
namespace {

using kernel::Expr;
using kernel::Fn;
using kernel::Index;
using kernel::Pool;

std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

/// Shape with the `count` dimensions from `axis` replaced by `by`.
Shape replaced(const Shape& shape, std::size_t axis, std::size_t count, const Shape& by) {
  Shape out(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(axis));
  out.insert(out.end(), by.begin(), by.end());
  out.insert(out.end(), shape.begin() + static_cast<std::ptrdiff_t>(axis + count), shape.end());
  return out;
}

void check_indices(const Op& op, const Tensor& indices, const Site& site) {
  if (indices.dtype() != DType::i32) {
    throw DTypeError(
        fmt::format("{}: the indices are {}, not i32.", *op.name, name(indices.dtype())), site);
  }
}

// ---- shared by both ops
// --------------------------------------------------------------------------

// A position [a..., i..., b...] of a tensor that was gathered along `axis` by indices of rank
// `rank` stands for position [a..., indices[i...], b...] of the other tensor, along which `size`
// elements lie. `indices` is operand `operand`.
Source lower_position(Pool& pool, std::span<const Index> index, std::size_t axis, std::size_t rank,
                      std::int64_t size, int operand, const ReadOperand& read) {
  Source s;
  s.index.assign(index.begin(), index.begin() + static_cast<std::ptrdiff_t>(axis));
  const Expr i = read(operand, index.subspan(axis, rank));
  if (size == 0) {
    s.valid = pool.constant(0, DType::bool_);
    s.index.push_back(pool.number(0));
  } else {
    const Expr first = pool.constant(0, DType::i32);
    const Expr last = pool.constant(static_cast<double>(size - 1), DType::i32);
    s.valid = pool.both(pool.apply(Fn::ge, {i, first}), pool.apply(Fn::le, {i, last}));
    s.index.push_back(
        pool.value(pool.apply(Fn::min, {pool.apply(Fn::max, {i, first}), last}), 0, size - 1));
  }
  const auto rest = index.subspan(axis + rank);
  s.index.insert(s.index.end(), rest.begin(), rest.end());
  return s;
}

// Calls visit(flat position of the gathered tensor, flat position of the other or -1) for all
// elements of the gathered tensor, in order.
template <class Visit>
void for_each_position(const Shape& gathered, const RefArray& indices, std::size_t axis,
                       const Shape& other, Visit visit) {
  const std::size_t rank = indices.type.shape.size();
  const Shape index_strides = strides_of(indices.type.shape);
  const Shape strides = strides_of(other);
  for (std::int64_t g = 0; g < numel(gathered); ++g) {
    const Shape position = unravel(g, gathered);
    std::int64_t which = 0;
    for (std::size_t d = 0; d < rank; ++d) which += position[axis + d] * index_strides[d];
    const auto target = static_cast<std::int64_t>(indices.data[static_cast<std::size_t>(which)]);
    if (target < 0 || target >= other[axis]) {
      visit(static_cast<std::size_t>(g), std::int64_t{-1});
      continue;
    }
    const Shape there = replaced(position, axis, rank, {target});
    std::int64_t flat = 0;
    for (std::size_t d = 0; d < there.size(); ++d) flat += there[d] * strides[d];
    visit(static_cast<std::size_t>(g), flat);
  }
}

// Batched indices [B, i...] into an axis of extent `size`, as indices into the B * size elements of
// the axis joined with the batch; those out of range stay so.
Tensor joined_indices(const Tensor& indices, std::int64_t size) {
  const Shape& shape = indices.shape();
  const auto number = [&](std::int64_t v) {
    return prim::full(shape, static_cast<double>(v), DType::i32);
  };
  const Tensor inside = prim::map(Fn::bit_and, {prim::map(Fn::ge, {indices, number(0)}),
                                                prim::map(Fn::lt, {indices, number(size)})});
  const Tensor start = prim::mul(prim::iota(shape, 0, DType::i32), number(size));
  return prim::select(inside, prim::add(indices, start), number(-1));
}

/// Moves the dimensions [axis, axis + count) of x to position 1, behind the batch.
Tensor axes_behind_batch(const Tensor& x, int axis, int count) {
  std::vector<int> axes{0};
  for (int i = 0; i < count; ++i) axes.push_back(axis + i);
  for (int i = 1; i < x.rank(); ++i) {
    if (i < axis || i >= axis + count) axes.push_back(i);
  }
  return prim::permute(x, axes);
}
/// The inverse: dimensions [1, 1 + count) of x move to position `axis`.
Tensor axes_from_behind_batch(const Tensor& x, int axis, int count) {
  std::vector<int> axes{0};
  for (int i = 1; i < axis; ++i) axes.push_back(i + count);
  for (int i = 0; i < count; ++i) axes.push_back(1 + i);
  for (int i = axis + count; i < x.rank(); ++i) axes.push_back(i);
  return prim::permute(x, axes);
}

// ---- gather
// --------------------------------------------------------------------------------------

Type infer_gather(const Op& op, Operands x, const Attrs& attrs, const Site& site) {
  const int axis = std::get<GatherAttr>(attrs).axis;
  if (axis < 0 || axis >= x[0].rank()) {
    throw ShapeError(
        fmt::format("gather: axis {} is out of range for shape {}.", axis, to_string(x[0].shape())),
        site);
  }
  check_indices(op, x[1], site);
  return {replaced(x[0].shape(), at(axis), 1, x[1].shape()), x[0].dtype()};
}

// The fill is a constant: its tangent is 0, so the tangent's gather fills with 0 and is linear.
Tensor gather_jvp(const Tensor& y, Tangents t) {
  return prim::gather_or(t[0], in(y, 1), y.node().attr<GatherAttr>().axis, 0);
}

Cotangents gather_transpose(const Tensor& y, const Tensor& ct, Batched) {
  const int axis = y.node().attr<GatherAttr>().axis;
  return {prim::scatter_add(in(y, 1), ct, axis, in(y, 0).shape()[at(axis)]), Tensor()};
}

Tensor gather_vmap(const Tensor& y, Operands x, Batched batched, std::int64_t size) {
  const auto& [axis, fill] = y.node().attr<GatherAttr>();
  if (!batched[1]) return prim::gather_or(x[0], x[1], axis + 1, fill);
  if (!batched[0]) return prim::move_to_front(prim::gather_or(x[0], x[1], axis, fill), axis);
  const std::int64_t extent = x[0].shape()[at(axis) + 1];
  const Tensor front = axes_behind_batch(x[0], axis + 1, 1);
  const Tensor joined = prim::reshape(front, replaced(front.shape(), 0, 2, {size * extent}));
  const Tensor picked = prim::gather_or(joined, joined_indices(x[1], extent), 0, fill);
  return axes_from_behind_batch(picked, axis + 1, x[1].rank() - 1);
}

Source lower_gather(Pool& pool, const Node& n, std::span<const Index> index,
                    const ReadOperand& read) {
  const auto& [axis, fill] = n.attr<GatherAttr>();
  Source s = lower_position(pool, index, at(axis), n.operand(1).shape().size(),
                            n.operand(0).shape()[at(axis)], 1, read);
  s.fill = fill;
  return s;
}

RefArray gather_reference(const Node& n, RefOperands x) {
  const auto& [axis, fill] = n.attr<GatherAttr>();
  RefArray out{n.type, std::vector<double>(static_cast<std::size_t>(numel(n.type.shape)), fill)};
  for_each_position(n.type.shape, *x[1], at(axis), x[0]->type.shape,
                    [&](std::size_t here, std::int64_t there) {
                      if (there >= 0) out.data[here] = x[0]->data[static_cast<std::size_t>(there)];
                    });
  return out;
}

struct Case {
  Shape x, indices;
  int axis = 0;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> list = {{{5}, {}, 0},           {{5}, {7}, 0},
                                         {{1}, {3}, 0},          {{0}, {3}, 0},
                                         {{5}, {0}, 0},          {{5, 3}, {4}, 0},
                                         {{3, 5}, {4}, 1},       {{3, 5}, {2, 3}, 1},
                                         {{7, 33}, {19}, 0},     {{2, 5, 3}, {4}, 1},
                                         {{2, 5, 3}, {2, 2}, 1}, {{2, 0, 3}, {2, 2}, 1},
                                         {{4, 2, 3, 2}, {3}, 0}, {{2, 3, 1, 4}, {2, 1, 3}, 3}};
  return list;
}

// Indices are drawn from two below the axis to two above it.
std::pair<double, double> index_range(const Case& c) {
  return {-2.0, static_cast<double>(c.x[at(c.axis)] + 1)};
}

std::vector<Sample> gather_samples() {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  std::vector<Sample> s;
  const auto sample = [&](const Case& c, DType dtype, double fill) {
    s.push_back({{{c.x, dtype}, {c.indices, DType::i32}},
                 GatherAttr{c.axis, fill},
                 -2,
                 2,
                 {{-2, 2}, index_range(c)}});
  };
  for (const Case& c : cases()) {
    sample(c, DType::f32, 0);
    sample(c, DType::f32, nan);
  }
  for (DType dtype : {DType::i32, DType::u32, DType::bool_}) {
    sample({{5, 3}, {4}, 0}, dtype, 0);
    sample({{3, 5}, {2, 3}, 1}, dtype, 0);
  }
  return s;
}

// ---- scatter_add
// ---------------------------------------------------------------------------------

Type infer_scatter(const Op& op, Operands x, const Attrs& attrs, const Site& site) {
  const auto& [axis, size] = std::get<AxisAttr>(attrs);
  const Shape& indices = x[0].shape();
  const Shape& updates = x[1].shape();
  check_indices(op, x[0], site);
  check_dtype(op, x[1].dtype(), numbers, site);
  if (axis < 0 || at(axis) + indices.size() > updates.size() ||
      !std::equal(indices.begin(), indices.end(), updates.begin() + axis)) {
    throw ShapeError(fmt::format("scatter_add: updates of shape {} do not have the shape {} of the "
                                 "indices from axis {} on.",
                                 to_string(updates), to_string(indices), axis),
                     site);
  }
  if (size < 0) {
    throw ShapeError(fmt::format("scatter_add: size is {}, not at least 0.", size), site);
  }
  return {replaced(updates, at(axis), indices.size(), {size}), x[1].dtype()};
}

Tensor scatter_jvp(const Tensor& y, Tangents t) { return remake(y.node(), {in(y, 0), t[1]}); }

Cotangents scatter_transpose(const Tensor& y, const Tensor& ct, Batched) {
  return {Tensor(), prim::gather_or(ct, in(y, 0), y.node().attr<AxisAttr>().axis, 0)};
}

Tensor scatter_vmap(const Tensor& y, Operands x, Batched batched, std::int64_t size) {
  const auto& [axis, extent] = y.node().attr<AxisAttr>();
  if (!batched[0]) return prim::scatter_add(x[0], x[1], axis + 1, extent);
  const Tensor updates = batched[1] ? x[1] : prim::add_leading(x[1], size);
  const Tensor front = axes_behind_batch(updates, axis + 1, x[0].rank() - 1);
  const Tensor sums = prim::scatter_add(joined_indices(x[0], extent), front, 0, size * extent);
  return axes_from_behind_batch(prim::reshape(sums, replaced(sums.shape(), 0, 1, {size, extent})),
                                axis + 1, 1);
}

Source lower_scatter(Pool& pool, const Node& n, std::span<const Index> index,
                     const ReadOperand& read) {
  const auto& [axis, size] = n.attr<AxisAttr>();
  Source s = lower_position(pool, index, at(axis), n.operand(0).shape().size(), size, 0, read);
  s.operand = 1;
  return s;
}

RefArray scatter_reference(const Node& n, RefOperands x) {
  const auto& [axis, size] = n.attr<AxisAttr>();
  RefArray out{n.type, std::vector<double>(static_cast<std::size_t>(numel(n.type.shape)), 0)};
  for_each_position(x[1]->type.shape, *x[0], at(axis), n.type.shape,
                    [&](std::size_t here, std::int64_t there) {
                      if (there < 0) return;
                      double& sum = out.data[static_cast<std::size_t>(there)];
                      const double pair[] = {sum, x[1]->data[here]};
                      sum = kernel::evaluate(Fn::add, n.type.dtype, n.type.dtype, pair);
                    });
  return out;
}

std::vector<Sample> scatter_samples() {
  std::vector<Sample> s;
  const auto sample = [&](const Case& c, DType dtype) {
    s.push_back({{{c.indices, DType::i32}, {replaced(c.x, at(c.axis), 1, c.indices), dtype}},
                 AxisAttr{c.axis, c.x[at(c.axis)]},
                 -2,
                 2,
                 {index_range(c), {-2, 2}}});
  };
  for (const Case& c : cases()) sample(c, DType::f32);
  for (DType dtype : {DType::i32, DType::u32}) {
    sample({{5, 3}, {4}, 0}, dtype);
    sample({{3, 5}, {2, 3}, 1}, dtype);
  }
  return s;
}

enum Row : std::size_t { gather, scatter_add, row_count };

std::span<const Op> rows() {
  static const Op table[row_count] = {
      {.name = "gather",
       .doc = "Slices along one axis at i32 positions; NaN (floats) or 0 where out of range.",
       .infer = infer_gather,
       .jvp = JvpRule{gather_jvp},
       .transpose = TransposeRule{gather_transpose},
       .vmap = gather_vmap,
       .lowering = LowerIndirect{lower_gather},
       .reference = gather_reference,
       .samples = gather_samples,
       .ulp = 0},
      {.name = "scatter_add",
       .doc = "Zeros, with slices added at i32 positions along one axis, in order.",
       .infer = infer_scatter,
       .jvp = JvpRule{scatter_jvp},
       .transpose = TransposeRule{scatter_transpose},
       .vmap = scatter_vmap,
       .lowering = LowerScatter{lower_scatter},
       .reference = scatter_reference,
       .samples = scatter_samples,
       .ulp = 16},
  };
  return table;
}

}  // namespace

std::span<const Op> gather_ops() { return rows(); }

namespace prim {

Tensor gather_or(const Tensor& x, const Tensor& indices, int axis, double fill, const Site& site) {
  return make(rows()[Row::gather], {x, indices}, GatherAttr{axis, fill}, site);
}
Tensor gather(const Tensor& x, const Tensor& indices, int axis, const Site& site) {
  const double fill = is_floating(x.dtype()) ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  return gather_or(x, indices, axis, fill, site);
}
// The same element of the flattened x: its own position in every dimension but one.
Tensor take_along_axis(const Tensor& x, const Tensor& indices, int axis, double fill,
                       const Site& site) {
  const Shape& from = x.shape();
  Shape along = indices.shape();
  const bool same_rank = along.size() == from.size() && axis >= 0 && at(axis) < from.size();
  if (same_rank) along[at(axis)] = from[at(axis)];
  if (!same_rank || along != from) {
    throw ShapeError(
        fmt::format("take_along_axis: indices of shape {} do not have the shape {} but "
                    "along axis {}.",
                    to_string(indices.shape()), to_string(from), axis),
        site);
  }
  if (indices.dtype() != DType::i32) {
    throw DTypeError(
        fmt::format("take_along_axis: the indices are {}, not i32.", name(indices.dtype())), site);
  }
  if (x.size() > std::numeric_limits<std::int32_t>::max()) {
    throw ShapeError(fmt::format("take_along_axis: shape {} has more elements than i32 counts.",
                                 to_string(from)),
                     site);
  }
  const Shape& shape = indices.shape();
  const Shape strides = strides_of(from);
  const auto number = [&](std::int64_t v) {
    return full(shape, static_cast<double>(v), DType::i32, site);
  };
  Tensor flat = mul(indices, number(strides[at(axis)]));
  for (int d = 0; d < x.rank(); ++d) {
    if (d == axis || from[at(d)] == 1) continue;
    flat = add(flat, mul(iota(shape, d, DType::i32, site), number(strides[at(d)])));
  }
  const Tensor inside = map(
      Fn::bit_and,
      {map(Fn::ge, {indices, number(0)}), map(Fn::lt, {indices, number(from[at(axis)])})}, site);
  return gather_or(reshape(x, {x.size()}, site), select(inside, flat, number(-1)), 0, fill, site);
}
Tensor scatter_add(const Tensor& indices, const Tensor& updates, int axis, std::int64_t size,
                   const Site& site) {
  return make(rows()[Row::scatter_add], {indices, updates}, AxisAttr{axis, size}, site);
}

}  // namespace prim
}  // namespace tensorgrad
