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

// One dimension of a contraction, with its stride in each operand and in the result.
struct Dim {
  std::int64_t extent = 1, lhs = 0, rhs = 0, out = 0;
};

// Drops extents of 1 and joins neighbours that every operand walks as one.
std::vector<Dim> merged(const std::vector<Dim>& dims) {
  std::vector<Dim> out;
  for (const Dim& d : dims) {
    if (d.extent == 1) continue;
    if (!out.empty()) {
      Dim& last = out.back();
      if (last.lhs == d.lhs * d.extent && last.rhs == d.rhs * d.extent &&
          last.out == d.out * d.extent) {
        last = {last.extent * d.extent, d.lhs, d.rhs, d.out};
        continue;
      }
    }
    out.push_back(d);
  }
  return out;
}

// Shorter inner dimensions than this are not worth many small products: a copy makes one of them.
constexpr std::int64_t shortest_inner = 16;
// Calls that add up to one result.
constexpr std::int64_t most_segments = 64;

// A contraction over operands with these strides, or nothing where a copy of an operand is better.
std::optional<kernel::Matmul> matmul_of(const DotAttr& d, const Tensor& a, const Shape& lhs,
                                        const Tensor& b, const Shape& rhs, const Shape& out) {
  std::vector<Dim> batch;
  std::vector<Dim> rows;
  std::vector<Dim> columns;
  std::vector<Dim> depth;
  std::size_t next = 0;
  for (std::size_t i = 0; i < d.lhs_batch.size(); ++i) {
    const auto l = static_cast<std::size_t>(d.lhs_batch[i]);
    batch.push_back(
        {a.shape()[l], lhs[l], rhs[static_cast<std::size_t>(d.rhs_batch[i])], out[next++]});
  }
  for (int i : free_axes(a, d.lhs_batch, d.lhs_contract)) {
    const auto l = static_cast<std::size_t>(i);
    rows.push_back({a.shape()[l], lhs[l], 0, out[next++]});
  }
  for (int i : free_axes(b, d.rhs_batch, d.rhs_contract)) {
    const auto r = static_cast<std::size_t>(i);
    columns.push_back({b.shape()[r], 0, rhs[r], out[next++]});
  }
  for (std::size_t i = 0; i < d.lhs_contract.size(); ++i) {
    const auto l = static_cast<std::size_t>(d.lhs_contract[i]);
    depth.push_back({a.shape()[l], lhs[l], rhs[static_cast<std::size_t>(d.rhs_contract[i])], 0});
  }
  rows = merged(rows);
  columns = merged(columns);
  depth = merged(depth);
  // Rows and columns beyond one dimension are repeated products.
  const auto innermost = [&](std::vector<Dim>& dims) {
    if (dims.empty()) return Dim{};
    const Dim last = dims.back();
    if (dims.size() > 1 && last.extent < shortest_inner) return Dim{-1, 0, 0, 0};
    batch.insert(batch.end(), dims.begin(), dims.end() - 1);
    return last;
  };
  const Dim m = innermost(rows);
  const Dim n = innermost(columns);
  const Dim k = depth.empty() ? Dim{} : depth.back();
  if (m.extent < 0 || n.extent < 0) return std::nullopt;
  if (depth.size() > 1) {
    std::int64_t segments = 1;
    for (std::size_t i = 0; i + 1 < depth.size(); ++i) segments *= depth[i].extent;
    if (k.extent < shortest_inner || segments > most_segments) return std::nullopt;
  }
  batch = merged(batch);
  const auto unit = [](std::int64_t extent, std::int64_t stride) {
    return extent <= 1 || stride == 1;
  };
  const auto repeats = [](std::int64_t extent, std::int64_t stride) {
    return extent > 1 && stride == 0;
  };
  if ((!unit(m.extent, m.lhs) && !unit(k.extent, k.lhs)) ||
      (!unit(n.extent, n.rhs) && !unit(k.extent, k.rhs)) ||
      (!unit(m.extent, m.out) && !unit(n.extent, n.out)) || repeats(m.extent, m.lhs) ||
      repeats(k.extent, k.lhs) || repeats(n.extent, n.rhs) || repeats(k.extent, k.rhs)) {
    return std::nullopt;
  }
  kernel::Matmul result;
  result.m = m.extent;
  result.n = n.extent;
  for (const Dim& x : batch) {
    result.batch.push_back(x.extent);
    result.lhs.strides.push_back(x.lhs);
    result.rhs.strides.push_back(x.rhs);
    result.out.strides.push_back(x.out);
  }
  result.lhs.strides.push_back(m.lhs);
  for (const Dim& x : depth) {
    result.k.push_back(x.extent);
    result.lhs.strides.push_back(x.lhs);
    result.rhs.strides.push_back(x.rhs);
  }
  result.rhs.strides.push_back(n.rhs);
  result.out.strides.insert(result.out.strides.end(), {m.out, n.out});
  return result;
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

// Leaves and results of non-views will be stored, dense. Numbers are made where they are used.
std::optional<Location> will_be_stored(const Node& n) {
  if (lowering_as<LowerView>(n) || lowering_as<LowerGenerate>(n)) return std::nullopt;
  return dense(0, 0, n.type.shape);
}

// Adds offset and strides of buffer elements at `index`, if loops are all that it is made of and
// none runs backwards: no backend takes that.
bool add_strides(Pool& pool, std::span<const Index> index, const Location& location, Strided& out) {
  Index flat = pool.number(location.offset);
  for (std::size_t d = 0; d < index.size(); ++d) {
    flat = pool.add(flat, pool.mul(index[d], location.strides[d]));
  }
  const auto add = [&](const IndexNode& atom, std::int64_t factor) {
    if (atom.kind != IndexNode::Kind::loop || factor < 0) return false;
    out.strides[static_cast<std::size_t>(atom.var)] += factor;
    return true;
  };
  const IndexNode& sum = pool.node(flat);
  if (sum.kind != IndexNode::Kind::sum) return add(sum, 1);
  out.offset = sum.constant;
  return std::all_of(sum.terms.begin(), sum.terms.end(), [&](const auto& term) {
    return add(pool.node(Index{term.first}), term.second);
  });
}

}  // namespace

std::optional<Strided> strided(const Tensor& t, const Locate& locate) {
  Pool pool;
  std::vector<Index> index;
  for (std::size_t d = 0; d < t.shape().size(); ++d) {
    index.push_back(pool.loop(static_cast<int>(d), t.shape()[d]));
  }
  const Node* n = &t.node();
  while (true) {
    if (const std::optional<Location> location = locate(*n)) {
      Strided out{n, location->buffer, 0, Shape(t.shape().size(), 0)};
      return add_strides(pool, index, *location, out) ? std::optional(out) : std::nullopt;
    }
    if (!widens(*n)) {
      const auto* view = lowering_as<LowerView>(*n);
      if (!view) return std::nullopt;
      Source s = view->fn(pool, *n, index);
      if (s.valid.defined()) return std::nullopt;
      index = std::move(s.index);
    }
    n = &n->operand(0).node();
  }
}

std::optional<std::pair<const Node*, std::int64_t>> dense_access(const Tensor& t,
                                                                 const Locate& locate) {
  const auto s = strided(t, locate);
  if (!s || !is_dense({0, 0, s->strides}, t.shape())) return std::nullopt;
  return std::pair(s->node, s->offset);
}

std::optional<DotAccess> dot_access(const Node& n, const Shape& out, const Locate& locate) {
  const auto lhs = strided(n.operand(0), locate);
  const auto rhs = strided(n.operand(1), locate);
  if (!lhs || !rhs) return std::nullopt;
  auto matmul =
      matmul_of(n.attr<DotAttr>(), n.operand(0), lhs->strides, n.operand(1), rhs->strides, out);
  if (!matmul) return std::nullopt;
  DotAccess result{std::move(*matmul), lhs->node, rhs->node};
  result.matmul.lhs.buffer = lhs->buffer;
  result.matmul.lhs.offset = lhs->offset;
  result.matmul.rhs.buffer = rhs->buffer;
  result.matmul.rhs.offset = rhs->offset;
  return result;
}

std::optional<Shape> strides_for_view(const Node& n, const Node& view) {
  // What only reshapes the view keeps its order.
  const Node& v = storage_node(handle_of(view));
  if (&v == &n) return strides_of(n.type.shape);
  const Shape own = strides_of(n.type.shape);
  const auto seen = strided(handle_of(v), [&](const Node& m) -> std::optional<Location> {
    return &m == &n ? std::optional(dense(0, 0, n.type.shape)) : std::nullopt;
  });
  if (!seen || seen->offset != 0 || numel(v.type.shape) != numel(n.type.shape)) return std::nullopt;
  const Shape wanted = strides_of(v.type.shape);
  Shape result(own.size(), 0);
  std::size_t found = 0;
  std::size_t needed = 0;
  for (std::size_t d = 0; d < own.size(); ++d) {
    if (n.type.shape[d] == 1) continue;
    ++needed;
    for (std::size_t e = 0; e < wanted.size(); ++e) {
      if (v.type.shape[e] == n.type.shape[d] && seen->strides[e] == own[d]) {
        result[d] = wanted[e];
        ++found;
      }
    }
  }
  if (found != needed) return std::nullopt;
  return result;
}

namespace {

using Users = std::unordered_map<const Node*, std::vector<const Node*>>;

Users users_of(const Graph& graph) {
  Users users;
  for (const Node* n : graph.order()) {
    for (const Tensor& o : n->operands) users[&o.node()].push_back(n);
  }
  return users;
}

// A result that only contractions and attention read, through views, lies in the order of the first
// view that differs from its own.
std::optional<Shape> wanted_layout(const Node& n, const Users& users) {
  std::optional<Shape> layout;
  std::vector<const Node*> pending{&n};
  while (!pending.empty()) {
    const Node* v = pending.back();
    pending.pop_back();
    const auto u = users.find(v);
    if (u == users.end()) return std::nullopt;  // a result of the program
    for (const Node* user : u->second) {
      if (lowering_as<LowerView>(*user)) {
        pending.push_back(user);
      } else if (!lowering_as<LowerDot>(*user) && !lowering_as<LowerAttention>(*user)) {
        return std::nullopt;
      } else if (v != &n && !layout) {
        const auto strides = strides_for_view(n, *v);
        if (strides && !is_dense({0, 0, *strides}, n.type.shape)) layout = strides;
      }
    }
  }
  return layout;
}

}  // namespace

Prepared prepare_contractions(Graph& graph, bool half_operands) {
  Prepared prepared;
  const Users users = users_of(graph);
  std::unordered_set<const Node*> roots;
  for (const Named& o : graph.outputs) roots.insert(&storage_node(o.value));
  for (const Tensor& u : graph.updates) {
    if (u.defined()) roots.insert(&storage_node(u));
  }
  std::unordered_set<const Node*> widenings;
  const Locate locate = [&](const Node& n) -> std::optional<Location> {
    if (const auto at = prepared.layouts.find(&n); at != prepared.layouts.end()) {
      return Location{0, 0, at->second};
    }
    // A result of the program is stored although it is a view.
    if (roots.contains(&n)) return dense(0, 0, n.type.shape);
    return widenings.contains(&n) ? std::nullopt : will_be_stored(n);
  };
  // A widening below views that only this operand has, so that nothing else has it stored.
  const auto own_widening = [&](const Tensor& t) {
    std::vector<const Node*> views;
    const Node* n = &t.node();
    for (; lowering_as<LowerView>(*n); n = &n->operand(0).node()) views.push_back(n);
    if (!widens(*n)) return t;
    Tensor own = remake(*n, {n->operand(0)});
    widenings.insert(&own.node());
    for (auto view = views.rbegin(); view != views.rend(); ++view) own = remake(**view, {own});
    return own;
  };
  std::unordered_map<const Node*, Tensor> copies;
  const auto prepare = [&](const Node& n, std::vector<Tensor> x) -> Tensor {
    const auto keep = [&] {
      const bool same =
          std::equal(x.begin(), x.end(), n.operands.begin(), n.operands.end(),
                     [](const Tensor& p, const Tensor& q) { return p.handle() == q.handle(); });
      return same ? handle_of(n) : remake(n, x);
    };
    const auto force = [&](const Node* base) {
      if (!base->operands.empty()) prepared.stored.insert(base);
    };
    // What has no place yet is copied; results that share a kernel read one copy.
    const auto place = [&](Tensor& t, const Node* base) {
      if (!base) {
        Tensor& copy = copies[&t.node()];
        if (!copy.defined()) copy = prim::identity(t);
        t = copy;
        base = &t.node();
      }
      force(base);
    };
    if (half_operands && (lowering_as<LowerConv>(n) || lowering_as<LowerDot>(n))) {
      for (Tensor& t : x) t = own_widening(t);
    }
    if (lowering_as<LowerConv>(n) || lowering_as<LowerSort>(n)) {
      // Dense operands: stored here unless they are a whole stored tensor.
      for (Tensor& t : x) {
        const auto s = dense_access(t, locate);
        place(t, s ? s->first : nullptr);
      }
      return keep();
    }
    if (lowering_as<LowerAttention>(n)) {
      // Rows of operands and results are dense.
      const auto has_dense_rows = [](const Shape& shape, const Shape& strides) {
        const std::size_t last = shape.size() - 1;
        return (shape[last] == 1 || strides[last] == 1) &&
               (last == 0 || shape[last - 1] == 1 || strides[last - 1] >= shape[last]);
      };
      for (Tensor& t : x) {
        const auto s = strided(t, locate);
        place(t, s && has_dense_rows(t.shape(), s->strides) ? s->node : nullptr);
      }
      const Tensor result = keep();
      const auto wanted = wanted_layout(n, users);
      if (wanted && has_dense_rows(n.type.shape, *wanted) && !roots.contains(&n)) {
        prepared.layouts[&result.node()] = *wanted;
      }
      return result;
    }
    if (!lowering_as<LowerDot>(n)) return n.operands.empty() ? handle_of(n) : keep();

    auto d = n.attr<DotAttr>();
    // Strides say nothing of a matrix without elements.
    if (x[0].size() == 0 && numel(n.type.shape) > 0) {
      return prim::full(n.type.shape, 0, n.type.dtype, n.site);
    }
    const std::size_t nb = d.lhs_batch.size();
    const std::size_t nk = d.lhs_contract.size();
    const auto copy = [&](std::size_t i, const std::vector<int>& order) {
      x[i] = prim::identity(prim::permute(x[i], order));
      prepared.stored.insert(&x[i].node());
      return strides_of(x[i].shape());
    };
    const auto copy_lhs = [&] {
      const std::vector<int> free = free_axes(x[0], d.lhs_batch, d.lhs_contract);
      const Shape strides = copy(0, join({d.lhs_batch, free, d.lhs_contract}));
      d.lhs_batch = span_axes(0, nb);
      d.lhs_contract = span_axes(nb + free.size(), nk);
      return strides;
    };
    const auto copy_rhs = [&] {
      const std::vector<int> free = free_axes(x[1], d.rhs_batch, d.rhs_contract);
      const Shape strides = copy(1, join({d.rhs_batch, d.rhs_contract, free}));
      d.rhs_batch = span_axes(0, nb);
      d.rhs_contract = span_axes(nb, nk);
      return strides;
    };
    const auto s0 = strided(x[0], locate);
    const auto s1 = strided(x[1], locate);
    const Shape lhs = s0 ? s0->strides : copy_lhs();
    const Shape rhs = s1 ? s1->strides : copy_rhs();
    const Shape own = strides_of(n.type.shape);
    Shape out = own;
    if (const auto wanted = wanted_layout(n, users); wanted && !roots.contains(&n)) out = *wanted;
    // Copies of one operand or both make any contraction one that strides can reach.
    const auto fits = [&](const Shape& l, const Shape& r) {
      return matmul_of(d, x[0], l, x[1], r, out).has_value();
    };
    if (!fits(lhs, rhs)) {
      if (out != own) out = own;
      if (!fits(lhs, rhs)) {
        const DotAttr before = d;
        const Tensor operand = x[1];
        const Shape copied = copy_rhs();
        if (!fits(lhs, copied)) {
          prepared.stored.erase(&x[1].node());
          d = before;
          x[1] = operand;
          const Shape left = copy_lhs();
          if (!fits(left, rhs)) copy_rhs();
        }
      }
    }
    for (const Tensor& t : x) {
      if (const auto s = strided(t, locate)) force(s->node);
    }
    const Tensor result = prim::dot_general(x[0], x[1], d, n.site);
    if (out != own) prepared.layouts[&result.node()] = out;
    return result;
  };
  graph = rebuild(graph, [&](const Node& n, std::vector<Tensor> x) {
    Tensor result = prepare(n, std::move(x));
    if (roots.contains(&n)) roots.insert(&result.node());
    return result;
  });
  return prepared;
}

}  // namespace tensorgrad::schedule
