// The general contraction.
#include <algorithm>
#include <set>

#include "graph/order.h"
#include "ops/rules.h"

namespace tensorgrad {
namespace {

std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

/// Dimensions of a tensor of `rank` that are in neither list, ascending.
std::vector<int> free_axes(int rank, const std::vector<int>& batch,
                           const std::vector<int>& contract) {
  std::vector<int> out;
  for (int a = 0; a < rank; ++a) {
    if (std::find(batch.begin(), batch.end(), a) == batch.end() &&
        std::find(contract.begin(), contract.end(), a) == contract.end()) {
      out.push_back(a);
    }
  }
  return out;
}

std::vector<int> lhs_free(const Tensor& lhs, const DotAttr& d) {
  return free_axes(lhs.rank(), d.lhs_batch, d.lhs_contract);
}
std::vector<int> rhs_free(const Tensor& rhs, const DotAttr& d) {
  return free_axes(rhs.rank(), d.rhs_batch, d.rhs_contract);
}

std::vector<int> range(std::size_t first, std::size_t count) {
  std::vector<int> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(static_cast<int>(first + i));
  return out;
}

// ---- shapes
// --------------------------------------------------------------------------------------

void check_axes(const Tensor& x, const char* which, const std::vector<int>& batch,
                const std::vector<int>& contract, const Site& site) {
  std::set<int> seen;
  for (const auto* list : {&batch, &contract}) {
    for (int a : *list) {
      if (a < 0 || a >= x.rank()) {
        throw ShapeError(fmt::format("dot_general: axis {} is out of range for the {} operand of "
                                     "shape {}.",
                                     a, which, to_string(x.shape())),
                         site);
      }
      if (!seen.insert(a).second) {
        throw ShapeError(
            fmt::format("dot_general: axis {} of the {} operand of shape {} is named twice.", a,
                        which, to_string(x.shape())),
            site);
      }
    }
  }
}

void check_pairs(const Tensor& a, const Tensor& b, const char* role, const std::vector<int>& lhs,
                 const std::vector<int>& rhs, const Site& site) {
  if (lhs.size() != rhs.size()) {
    throw ShapeError(fmt::format("dot_general: {} {} axes of the left operand are paired with {} "
                                 "of the right.",
                                 lhs.size(), role, rhs.size()),
                     site);
  }
  for (std::size_t i = 0; i < lhs.size(); ++i) {
    const std::int64_t m = a.shape()[at(lhs[i])];
    const std::int64_t n = b.shape()[at(rhs[i])];
    if (m != n) {
      throw ShapeError(
          fmt::format("dot_general: {} extents differ: {} along axis {} of {}, {} along axis {} of "
                      "{}.",
                      role, m, lhs[i], to_string(a.shape()), n, rhs[i], to_string(b.shape())),
          site);
    }
  }
}

Type infer(const Op& op, Operands x, const Attrs& attrs, const Site& site) {
  const auto& d = std::get<DotAttr>(attrs);
  check_dtype(op, x[0].dtype(), floats, site);
  check_dtype(op, x[1].dtype(), floats, site);
  check_same(op, x[0].dtype(), x[1].dtype(), site);
  check_axes(x[0], "left", d.lhs_batch, d.lhs_contract, site);
  check_axes(x[1], "right", d.rhs_batch, d.rhs_contract, site);
  check_pairs(x[0], x[1], "batch", d.lhs_batch, d.rhs_batch, site);
  check_pairs(x[0], x[1], "contracted", d.lhs_contract, d.rhs_contract, site);
  Type t{{}, x[0].dtype()};
  for (int a : d.lhs_batch) t.shape.push_back(x[0].shape()[at(a)]);
  for (int a : lhs_free(x[0], d)) t.shape.push_back(x[0].shape()[at(a)]);
  for (int a : rhs_free(x[1], d)) t.shape.push_back(x[1].shape()[at(a)]);
  return t;
}

// ---- derivatives
// ---------------------------------------------------------------------------------

Tensor jvp(const Tensor& y, Tangents t) {
  const auto& d = y.node().attr<DotAttr>();
  return prim::add_any(t[0].defined() ? prim::dot_general(t[0], in(y, 1), d) : Tensor(),
                       t[1].defined() ? prim::dot_general(in(y, 0), t[1], d) : Tensor());
}

/// The contracted axes of one operand in the order in which the other operand has its own.
std::vector<int> in_order_of(const std::vector<int>& other, const std::vector<int>& mine) {
  std::vector<int> out;
  for (const std::size_t i : sorted_indices(other)) out.push_back(mine[i]);
  return out;
}

/// Permutes a tensor whose dimension j belongs at `place[j]`.
Tensor put_in_place(const Tensor& x, const std::vector<int>& place) {
  std::vector<int> axes(place.size());
  for (std::size_t j = 0; j < place.size(); ++j) axes[at(place[j])] = static_cast<int>(j);
  return prim::permute(x, axes);
}

std::vector<int> joined(std::vector<int> a, const std::vector<int>& b, const std::vector<int>& c) {
  a.insert(a.end(), b.begin(), b.end());
  a.insert(a.end(), c.begin(), c.end());
  return a;
}

// The cotangent [batch, lhs free, rhs free] is contracted over the other operand's free dimensions,
// on the side that leaves the result of a plain matrix product in place.
Cotangents transpose(const Tensor& y, const Tensor& ct, Batched linear) {
  const auto& d = y.node().attr<DotAttr>();
  const Tensor& a = in(y, 0);
  const Tensor& b = in(y, 1);
  const std::vector<int> fa = lhs_free(a, d);
  const std::vector<int> fb = rhs_free(b, d);
  const std::size_t nb = d.lhs_batch.size();
  const std::vector<int> batch = range(0, nb);
  if (linear[0]) {
    const DotAttr dims{batch, d.rhs_batch, range(nb + fa.size(), fb.size()), fb};
    return {put_in_place(prim::dot_general(ct, b, dims),
                         joined(d.lhs_batch, fa, in_order_of(d.rhs_contract, d.lhs_contract))),
            Tensor()};
  }
  const DotAttr dims{d.lhs_batch, batch, fa, range(nb, fa.size())};
  return {Tensor(),
          put_in_place(prim::dot_general(a, ct, dims),
                       joined(d.rhs_batch, in_order_of(d.lhs_contract, d.rhs_contract), fb))};
}

// ---- batching
// ------------------------------------------------------------------------------------

std::vector<int> shifted(std::vector<int> axes) {
  for (int& a : axes) ++a;
  return axes;
}
std::vector<int> with_zero(std::vector<int> axes) {
  axes.insert(axes.begin(), 0);
  return axes;
}

Tensor vmap(const Tensor& y, Operands x, Batched batched, std::int64_t) {
  DotAttr d = y.node().attr<DotAttr>();
  const std::size_t nb = d.lhs_batch.size();
  const std::size_t free = lhs_free(in(y, 0), d).size();
  if (batched[0]) {
    d.lhs_batch = shifted(d.lhs_batch);
    d.lhs_contract = shifted(d.lhs_contract);
  }
  if (batched[1]) {
    d.rhs_batch = shifted(d.rhs_batch);
    d.rhs_contract = shifted(d.rhs_contract);
  }
  if (batched[0] && batched[1]) {
    d.lhs_batch = with_zero(d.lhs_batch);
    d.rhs_batch = with_zero(d.rhs_batch);
    return prim::dot_general(x[0], x[1], d);
  }
  // The batch is the first free dimension of its operand.
  return prim::move_to_front(prim::dot_general(x[0], x[1], d),
                             static_cast<int>(batched[0] ? nb : nb + free));
}

// ---- reference
// -----------------------------------------------------------------------------------

RefArray reference(const Node& n, RefOperands x) {
  const auto& d = n.attr<DotAttr>();
  const Shape& a = x[0]->type.shape;
  const Shape& b = x[1]->type.shape;
  const Shape sa = strides_of(a);
  const Shape sb = strides_of(b);
  const std::vector<int> fa = lhs_free(n.operand(0), d);
  const std::vector<int> fb = rhs_free(n.operand(1), d);
  Shape inner;
  for (int c : d.lhs_contract) inner.push_back(a[at(c)]);
  RefArray out{n.type, std::vector<double>(static_cast<std::size_t>(numel(n.type.shape)))};
  for (std::size_t o = 0; o < out.data.size(); ++o) {
    const Shape index = unravel(static_cast<std::int64_t>(o), n.type.shape);
    std::int64_t ia = 0;
    std::int64_t ib = 0;
    std::size_t next = 0;
    for (std::size_t i = 0; i < d.lhs_batch.size(); ++i, ++next) {
      ia += index[next] * sa[at(d.lhs_batch[i])];
      ib += index[next] * sb[at(d.rhs_batch[i])];
    }
    for (int f : fa) ia += index[next++] * sa[at(f)];
    for (int f : fb) ib += index[next++] * sb[at(f)];
    for (std::int64_t k = 0; k < numel(inner); ++k) {
      const Shape ks = unravel(k, inner);
      std::int64_t ka = ia;
      std::int64_t kb = ib;
      for (std::size_t i = 0; i < ks.size(); ++i) {
        ka += ks[i] * sa[at(d.lhs_contract[i])];
        kb += ks[i] * sb[at(d.rhs_contract[i])];
      }
      out.data[o] +=
          x[0]->data[static_cast<std::size_t>(ka)] * x[1]->data[static_cast<std::size_t>(kb)];
    }
  }
  return out;
}

std::vector<Sample> samples() {
  std::vector<Sample> s;
  struct Case {
    Shape a, b;
    DotAttr dims;
  };
  for (const auto& [a, b, dims] : std::initializer_list<Case>{
           {{3, 4}, {4, 5}, {{}, {}, {1}, {0}}},
           {{4, 3}, {4, 5}, {{}, {}, {0}, {0}}},
           {{3, 4}, {5, 4}, {{}, {}, {1}, {1}}},
           {{4, 3}, {5, 4}, {{}, {}, {0}, {1}}},
           {{7}, {7}, {{}, {}, {0}, {0}}},
           {{17, 33}, {33, 19}, {{}, {}, {1}, {0}}},
           {{1, 33}, {33, 19}, {{}, {}, {1}, {0}}},
           {{5, 33}, {33}, {{}, {}, {1}, {0}}},
           {{3, 1}, {1, 5}, {{}, {}, {1}, {0}}},
           {{}, {}, {}},
           {{}, {3}, {}},
           {{3}, {4}, {}},
           {{2, 3}, {4, 2}, {}},
           {{3, 0}, {0, 5}, {{}, {}, {1}, {0}}},
           {{0, 4}, {4, 5}, {{}, {}, {1}, {0}}},
           {{0, 3, 4}, {0, 4, 5}, {{0}, {0}, {2}, {1}}},
           {{6, 3, 4}, {6, 4, 5}, {{0}, {0}, {2}, {1}}},
           {{2, 3, 5, 4}, {2, 3, 4, 6}, {{0, 1}, {0, 1}, {3}, {2}}},
           {{2, 5, 3, 4}, {3, 4, 2, 6}, {{0, 2}, {2, 0}, {3}, {1}}},
           {{1, 3, 1, 4}, {4, 1, 2}, {{0}, {1}, {3}, {0}}},
           {{3, 2, 4}, {4, 5, 2}, {{}, {}, {1, 2}, {2, 0}}},
           {{2, 3, 4, 2}, {4, 2, 2, 3}, {{3}, {1}, {2, 1}, {0, 3}}},
           {{4, 3}, {4, 3}, {{0, 1}, {0, 1}, {}, {}}},
           {{4, 3}, {4, 3}, {{0}, {0}, {1}, {1}}},
           {{2, 3}, {2, 3, 4}, {{1}, {1}, {}, {}}},
       }) {
    s.push_back({{{a, DType::f32}, {b, DType::f32}}, dims});
  }
  return s;
}

std::span<const Op> rows() {
  static const Op table[] = {
      {.name = "dot_general",
       .doc = "Sum of products over paired dimensions, with others kept in step; summed in f32.",
       .infer = infer,
       .jvp = JvpRule{jvp},
       .transpose = TransposeRule{transpose},
       .vmap = vmap,
       .lowering = LowerDot{},
       .reference = reference,
       .samples = samples,
       .ulp = 16},
  };
  return table;
}

}  // namespace

std::span<const Op> contract_ops() { return rows(); }

namespace prim {

Tensor dot_general(const Tensor& a, const Tensor& b, const DotAttr& dims, const Site& site) {
  return make(rows()[0], {a, b}, dims, site);
}

}  // namespace prim
}  // namespace tensorgrad
