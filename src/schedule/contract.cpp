// How contractions reach their operands: strided access through views, or a rearranging copy.
#include <algorithm>
#include <numeric>

#include "ops/primitives.h"
#include "ops/rules.h"
#include "schedule/state.h"
#include "transform/passes.h"

namespace tensorgrad::schedule {
namespace {

using kernel::Index;
using kernel::IndexNode;
using kernel::Pool;
using Locate = std::function<std::optional<Location>(const Node&)>;

struct Strided {
  const Node* node = nullptr;
  int buffer = -1;
  std::int64_t offset = 0;
  Shape strides;  // one for each dimension of the operand
};

// The operand as buffer[offset + strides * index], through views that only rearrange.
std::optional<Strided> strided(const Tensor& t, const Locate& locate) {
  Pool pool;
  std::vector<Index> index;
  for (std::size_t d = 0; d < t.shape().size(); ++d) {
    index.push_back(pool.loop(static_cast<int>(d), t.shape()[d]));
  }
  const Node* n = &t.node();
  std::optional<Location> location;
  while (!(location = locate(*n))) {
    const auto* view = lowering_as<LowerView>(*n);
    if (!view) return std::nullopt;
    Source s = view->fn(pool, *n, index);
    if (s.valid.defined()) return std::nullopt;
    index = std::move(s.index);
    n = &n->operand(0).node();
  }
  Index flat = pool.number(location->offset);
  for (std::size_t d = 0; d < index.size(); ++d) {
    flat = pool.add(flat, pool.mul(index[d], location->strides[d]));
  }
  Strided out{n, location->buffer, 0, Shape(t.shape().size(), 0)};
  const IndexNode& sum = pool.node(flat);
  const auto add = [&](const IndexNode& atom, std::int64_t factor) {
    if (atom.kind != IndexNode::Kind::loop) return false;
    out.strides[static_cast<std::size_t>(atom.var)] += factor;
    return true;
  };
  if (sum.kind != IndexNode::Kind::sum) {
    if (!add(sum, 1)) return std::nullopt;
    return out;
  }
  out.offset = sum.constant;
  for (auto [atom, factor] : sum.terms) {
    if (!add(pool.node(Index{atom}), factor)) return std::nullopt;
  }
  return out;
}

struct Merged {
  std::int64_t extent = 1, stride = 0;
};

// Several dimensions as one, where their strides nest.
std::optional<Merged> merge(const Tensor& t, const Shape& strides, const std::vector<int>& axes) {
  Merged m;
  bool first = true;
  for (std::size_t i = axes.size(); i-- > 0;) {
    const auto a = static_cast<std::size_t>(axes[i]);
    const std::int64_t e = t.shape()[a];
    if (e == 1) continue;
    if (first) {
      m.stride = strides[a];
      first = false;
    } else if (strides[a] != m.stride * m.extent) {
      return std::nullopt;
    }
    m.extent *= e;
  }
  return m;
}

std::vector<int> free_axes(const Tensor& t, const std::vector<int>& batch,
                           const std::vector<int>& contract) {
  std::vector<int> out;
  for (int i = 0; i < t.rank(); ++i) {
    if (std::find(batch.begin(), batch.end(), i) == batch.end() &&
        std::find(contract.begin(), contract.end(), i) == contract.end()) {
      out.push_back(i);
    }
  }
  return out;
}

struct Side {
  const Node* node;
  kernel::Access access;  // strides {batch, rows, columns}
  std::int64_t batch, rows, columns;
};

// One operand as batch x rows x columns.
std::optional<Side> side(const Tensor& t, const Locate& locate, const std::vector<int>& batch,
                         const std::vector<int>& rows, const std::vector<int>& columns) {
  const auto s = strided(t, locate);
  if (!s) return std::nullopt;
  const auto b = merge(t, s->strides, batch);
  const auto r = merge(t, s->strides, rows);
  const auto c = merge(t, s->strides, columns);
  if (!b || !r || !c) return std::nullopt;
  const bool unit = (r->stride == 1 || r->extent == 1) || (c->stride == 1 || c->extent == 1);
  const bool repeats = (r->extent > 1 && r->stride == 0) || (c->extent > 1 && c->stride == 0);
  if (!unit || repeats) return std::nullopt;
  return Side{s->node,
              {s->buffer, s->offset, {b->stride, r->stride, c->stride}},
              b->extent,
              r->extent,
              c->extent};
}

std::vector<int> join(std::initializer_list<std::vector<int>> lists) {
  std::vector<int> out;
  for (const auto& l : lists) out.insert(out.end(), l.begin(), l.end());
  return out;
}

std::vector<int> span_axes(std::size_t from, std::size_t count) {
  std::vector<int> out(count);
  std::iota(out.begin(), out.end(), static_cast<int>(from));
  return out;
}

// Leaves and results of non-views will be stored, dense.
std::optional<Location> will_be_stored(const Node& n) {
  if (lowering_as<LowerView>(n)) return std::nullopt;
  return dense(0, 0, n.type.shape);
}

}  // namespace

std::optional<std::pair<const Node*, std::int64_t>> dense_access(const Tensor& t,
                                                                 const Locate& locate) {
  const auto s = strided(t, locate);
  if (!s || !is_dense({0, 0, s->strides}, t.shape())) return std::nullopt;
  return std::pair(s->node, s->offset);
}

std::optional<DotAccess> dot_access(const Node& n, const Locate& locate) {
  const auto& d = n.attr<DotAttr>();
  const Tensor& a = n.operand(0);
  const Tensor& b = n.operand(1);
  const auto lhs =
      side(a, locate, d.lhs_batch, free_axes(a, d.lhs_batch, d.lhs_contract), d.lhs_contract);
  const auto rhs =
      side(b, locate, d.rhs_batch, d.rhs_contract, free_axes(b, d.rhs_batch, d.rhs_contract));
  if (!lhs || !rhs) return std::nullopt;
  DotAccess out;
  out.lhs = lhs->node;
  out.rhs = rhs->node;
  out.matmul.batch = lhs->batch;
  out.matmul.m = lhs->rows;
  out.matmul.k = lhs->columns;
  out.matmul.n = rhs->columns;
  out.matmul.lhs = lhs->access;
  out.matmul.rhs = rhs->access;
  return out;
}

std::unordered_set<const Node*> prepare_contractions(Graph& graph) {
  std::unordered_set<const Node*> forced;
  graph = rebuild(graph, [&](const Node& n, std::vector<Tensor> x) -> Tensor {
    const auto keep = [&] {
      const bool same =
          std::equal(x.begin(), x.end(), n.operands.begin(), n.operands.end(),
                     [](const Tensor& p, const Tensor& q) { return p.handle() == q.handle(); });
      return same ? handle_of(n) : remake(n, x);
    };
    if (lowering_as<LowerConv>(n) || lowering_as<LowerSort>(n)) {
      // Dense operands: stored here unless they are a whole stored tensor.
      for (Tensor& t : x) {
        const auto s = dense_access(t, will_be_stored);
        const Node* base = s ? s->first : &t.node();
        if (!base->operands.empty()) forced.insert(base);
      }
      return keep();
    }
    if (!lowering_as<LowerDot>(n)) return n.operands.empty() ? handle_of(n) : keep();

    auto d = n.attr<DotAttr>();
    const std::vector<int> lhs_free = free_axes(x[0], d.lhs_batch, d.lhs_contract);
    const std::vector<int> rhs_free = free_axes(x[1], d.rhs_batch, d.rhs_contract);
    const std::size_t nb = d.lhs_batch.size();
    const std::size_t nk = d.lhs_contract.size();
    const auto force_base = [&](const Node* base) {
      if (!base->operands.empty()) forced.insert(base);
    };
    if (const auto s = side(x[0], will_be_stored, d.lhs_batch, lhs_free, d.lhs_contract)) {
      force_base(s->node);
    } else {
      x[0] = prim::identity(prim::permute(x[0], join({d.lhs_batch, lhs_free, d.lhs_contract})));
      d.lhs_batch = span_axes(0, nb);
      d.lhs_contract = span_axes(nb + lhs_free.size(), nk);
      forced.insert(&x[0].node());
    }
    if (const auto s = side(x[1], will_be_stored, d.rhs_batch, d.rhs_contract, rhs_free)) {
      force_base(s->node);
    } else {
      x[1] = prim::identity(prim::permute(x[1], join({d.rhs_batch, d.rhs_contract, rhs_free})));
      d.rhs_batch = span_axes(0, nb);
      d.rhs_contract = span_axes(nb, nk);
      forced.insert(&x[1].node());
    }
    return prim::dot_general(x[0], x[1], d, n.site);
  });
  return forced;
}

}  // namespace tensorgrad::schedule
