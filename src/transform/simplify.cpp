// Simplification of graphs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ops/primitives.h"
#include "ops/rules.h"
#include "transform/passes.h"

namespace tensorgrad {
namespace {

using kernel::Fn;

bool is(const Node& n, std::string_view name) { return *n.op->name == name; }

// The value of a tensor whose elements are all one constant.
std::optional<double> uniform(const Tensor& t) {
  const Node* n = &t.node();
  while (true) {
    if (const auto* c = std::get_if<ConstantAttr>(&n->attrs)) return c->value;
    if (!is(*n, "broadcast") && !is(*n, "reshape") && !is(*n, "permute") && !is(*n, "slice") &&
        !is(*n, "flip")) {
      return std::nullopt;
    }
    n = &n->operand(0).node();
  }
}

bool same_bits(std::optional<double> v, double expected) {
  return v && *v == expected && std::signbit(*v) == std::signbit(expected);
}

std::optional<Fn> scalar_function(const Node& n) {
  static const auto by_name = [] {
    std::unordered_map<std::string_view, Fn> m;
    for (int f = static_cast<int>(Fn::neg); f <= static_cast<int>(Fn::bitcast); ++f) {
      m[prim::op_name(static_cast<Fn>(f))] = static_cast<Fn>(f);
    }
    return m;
  }();
  if (!lowering_as<LowerMap>(n)) return std::nullopt;
  const auto it = by_name.find(*n.op->name);
  return it == by_name.end() ? std::nullopt : std::optional(it->second);
}

// A map of constants is a constant.
Tensor fold(const Node& n, Fn fn, const std::vector<Tensor>& x) {
  std::vector<double> args;
  for (const Tensor& t : x) {
    const auto v = uniform(t);
    if (!v) return {};
    args.push_back(*v);
  }
  const double value =
      kernel::round_to(n.type.dtype, kernel::evaluate(fn, x.back().dtype(), n.type.dtype, args));
  return prim::full(n.type.shape, value, n.type.dtype, n.site);
}

// Identities that hold for every IEEE value, NaN and the sign of zero included.
Tensor map_identity(const Node& n, Fn fn, const std::vector<Tensor>& x) {
  const auto u = [&](std::size_t i) { return uniform(x[i]); };
  switch (fn) {
    case Fn::add:
      if (same_bits(u(1), is_floating(n.type.dtype) ? -0.0 : 0.0)) return x[0];
      if (same_bits(u(0), is_floating(n.type.dtype) ? -0.0 : 0.0)) return x[1];
      break;
    case Fn::sub:
      if (same_bits(u(1), 0.0)) return x[0];
      break;
    case Fn::mul:
      if (same_bits(u(1), 1.0)) return x[0];
      if (same_bits(u(0), 1.0)) return x[1];
      break;
    case Fn::div:
      if (same_bits(u(1), 1.0)) return x[0];
      // By a power of two the product with the reciprocal is the same number.
      if (const auto v = u(1); v && is_floating(n.type.dtype)) {
        int exponent = 0;
        if (std::abs(std::frexp(*v, &exponent)) == 0.5 && std::abs(exponent) < 100) {
          return prim::map(Fn::mul, {x[0], prim::full(n.type.shape, 1 / *v, n.type.dtype, n.site)},
                           n.site);
        }
      }
      break;
    case Fn::neg:
      if (is(x[0].node(), "neg")) return x[0].node().operand(0);
      break;
    case Fn::bit_not:
      if (is(x[0].node(), "bit_not")) return x[0].node().operand(0);
      break;
    case Fn::bit_and:
    case Fn::bit_or:
      if (n.type.dtype == DType::bool_) {
        for (std::size_t i : {0, 1}) {
          if (const auto v = u(i)) return (*v != 0) == (fn == Fn::bit_and) ? x[1 - i] : x[i];
        }
      }
      break;
    case Fn::select:
      if (const auto c = u(0)) return *c != 0 ? x[1] : x[2];
      if (x[1].handle() == x[2].handle()) return x[1];
      break;
    default:
      break;
  }
  return {};
}

Tensor view_identity(const Node& n, const Tensor& x) {
  if (is(n, "reshape")) {
    if (x.shape() == n.type.shape) return x;
    if (is(x.node(), "reshape")) {
      return prim::reshape(x.node().operand(0), n.type.shape, n.site);
    }
  } else if (is(n, "permute")) {
    const auto& outer = n.attr<AxesAttr>().axes;
    if (outer == prim::all_axes(x.rank())) return x;
    if (is(x.node(), "permute")) {
      const auto& inner = x.node().attr<AxesAttr>().axes;
      std::vector<int> axes;
      for (int a : outer) axes.push_back(inner[static_cast<std::size_t>(a)]);
      return prim::permute(x.node().operand(0), axes, n.site);
    }
  } else if (is(n, "broadcast") && is(x.node(), "broadcast")) {
    const auto& outer = n.attr<ShapeAttr>();
    std::vector<int> axes;
    for (int a : x.node().attr<ShapeAttr>().axes) {
      axes.push_back(outer.axes[static_cast<std::size_t>(a)]);
    }
    return prim::broadcast(x.node().operand(0), outer.shape, axes, n.site);
  } else if (is(n, "stop_gradient") || is(n, "named") || is(n, "custom") || is(n, "assign")) {
    return x;
  }
  return {};
}

Tensor simpler(const Node& n, const std::vector<Tensor>& x) {
  if (const auto fn = scalar_function(n)) {
    if (*fn == Fn::cast || *fn == Fn::bitcast) {
      if (x[0].dtype() == n.type.dtype) return x[0];
      return fold(n, *fn, x);
    }
    if (Tensor t = fold(n, *fn, x); t.defined()) return t;
    return map_identity(n, *fn, x);
  }
  if (lowering_as<LowerView>(n)) return view_identity(n, x[0]);
  return {};
}

struct Key {
  const Node* node;
  bool operator==(const Key& o) const {
    return node->op == o.node->op && node->attrs == o.node->attrs && node->type == o.node->type &&
           std::equal(node->operands.begin(), node->operands.end(), o.node->operands.begin(),
                      o.node->operands.end(),
                      [](const Tensor& a, const Tensor& b) { return a.handle() == b.handle(); });
  }
};
struct KeyHash {
  std::size_t operator()(const Key& k) const {
    std::size_t seed = hash(k.node->attrs);
    const auto mix = [&seed](std::size_t v) {
      seed ^= v + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2);
    };
    mix(std::hash<const Op*>{}(k.node->op));
    for (std::int64_t d : k.node->type.shape) mix(static_cast<std::size_t>(d));
    for (const Tensor& o : k.node->operands) mix(std::hash<const Node*>{}(o.handle().get()));
    return seed;
  }
};

bool unchanged(const Node& n, const std::vector<Tensor>& operands) {
  return std::equal(n.operands.begin(), n.operands.end(), operands.begin(), operands.end(),
                    [](const Tensor& a, const Tensor& b) { return a.handle() == b.handle(); });
}

}  // namespace

Graph rebuild(const Graph& graph,
              const std::function<Tensor(const Node&, std::vector<Tensor> operands)>& f) {
  std::unordered_map<const Node*, Tensor> map;
  for (const Node* n : graph.order()) {
    std::vector<Tensor> operands;
    for (const Tensor& o : n->operands) operands.push_back(map.at(&o.node()));
    const SiteScope scope(n->site);
    map[n] = f(*n, std::move(operands));
  }
  Graph out = graph;
  for (Named& o : out.outputs) o.value = map.at(&o.value.node());
  for (Tensor& u : out.updates) {
    if (u.defined()) u = map.at(&u.node());
  }
  return out;
}

Graph simplify(const Graph& graph) {
  std::unordered_set<Key, KeyHash> seen;
  std::vector<Tensor> keep;  // owns the nodes that the keys point to
  const auto canonical = [&](Tensor t) {
    // Two placeholders of one name are one; two stochastic calls never are.
    if (is(t.node(), "step_key")) return t;
    const auto [it, inserted] = seen.insert(Key{&t.node()});
    if (!inserted) return handle_of(*it->node);
    keep.push_back(t);
    return t;
  };
  return rebuild(graph, [&](const Node& n, std::vector<Tensor> operands) {
    if (n.operands.empty()) {
      return std::holds_alternative<InputAttr>(n.attrs) ? handle_of(n) : canonical(handle_of(n));
    }
    if (Tensor t = simpler(n, operands); t.defined()) {
      // A rule may have built a chain of new nodes; its last one is made canonical here, the rest
      // in the next round.
      return t.node().operands.empty() && std::holds_alternative<InputAttr>(t.node().attrs)
                 ? t
                 : canonical(t);
    }
    return canonical(unchanged(n, operands) ? handle_of(n) : remake(n, std::move(operands)));
  });
}

Graph bind_context(const Graph& graph, bool training, const Tensor& key) {
  int call = 0;
  const Graph flagged = rebuild(graph, [&](const Node& n, std::vector<Tensor> operands) -> Tensor {
    if (is(n, "training_flag")) return prim::constant(training ? 1 : 0, DType::bool_);
    if (is(n, "step_key") && key.defined()) {
      // fold_in of the call's number: its block at the key.
      const Tensor zero = prim::constant(0, DType::u32);
      const Tensor number = prim::constant(call++, DType::u32);
      const auto word_of_key = [&](std::int64_t i) {
        return prim::reshape(prim::slice(key, {i}, {i + 1}, {1}), {});
      };
      std::vector<Tensor> words;
      for (int w : {0, 1}) {
        words.push_back(
            prim::reshape(prim::threefry(word_of_key(0), word_of_key(1), zero, number, w), {1}));
      }
      return prim::concat(words, 0);
    }
    return unchanged(n, operands) ? handle_of(n) : remake(n, std::move(operands));
  });
  const Graph simple = simplify(flagged);
  for (const Node* n : simple.order()) {
    if (is(*n, "step_key")) {
      throw GraphError(
          "A random operation has no key here: inside compile it draws from the step's key; "
          "elsewhere pass it one made by random::key.",
          n->site);
    }
  }
  return simple;
}

Graph thin_products(const Graph& graph) {
  return rebuild(graph, [](const Node& n, std::vector<Tensor> x) -> Tensor {
    if (!lowering_as<LowerDot>(n)) {
      return n.operands.empty() || unchanged(n, x) ? handle_of(n) : remake(n, std::move(x));
    }
    const auto& d = n.attr<DotAttr>();
    const auto extent = [](const Tensor& t, const std::vector<int>& axes) {
      std::int64_t e = 1;
      for (int a : axes) e *= t.shape()[static_cast<std::size_t>(a)];
      return e;
    };
    const std::int64_t batch = extent(x[0], d.lhs_batch);
    const std::int64_t k = extent(x[0], d.lhs_contract);
    const std::int64_t bk = std::max<std::int64_t>(batch * k, 1);
    const std::int64_t rows = x[0].size() / bk;
    const std::int64_t columns = x[1].size() / bk;
    if (rows > 1 && columns > 1 && k > 1) return remake(n, std::move(x));

    // Both operands over [batch..., lhs free..., rhs free..., contracted...].
    const auto free_axes = [](const Tensor& t, const std::vector<int>& a,
                              const std::vector<int>& b) {
      std::vector<int> out;
      for (int i = 0; i < t.rank(); ++i) {
        if (std::find(a.begin(), a.end(), i) == a.end() &&
            std::find(b.begin(), b.end(), i) == b.end()) {
          out.push_back(i);
        }
      }
      return out;
    };
    const std::vector<int> lhs_free = free_axes(x[0], d.lhs_batch, d.lhs_contract);
    const std::vector<int> rhs_free = free_axes(x[1], d.rhs_batch, d.rhs_contract);
    const int nb = static_cast<int>(d.lhs_batch.size());
    const int nl = static_cast<int>(lhs_free.size());
    const int nr = static_cast<int>(rhs_free.size());
    const int nk = static_cast<int>(d.lhs_contract.size());
    Shape space = n.type.shape;
    for (int a : d.lhs_contract) space.push_back(x[0].shape()[static_cast<std::size_t>(a)]);
    const auto spread = [&](const Tensor& t, const std::vector<int>& b, const std::vector<int>& f,
                            const std::vector<int>& c, int free_start) {
      std::vector<int> order = b;
      order.insert(order.end(), f.begin(), f.end());
      order.insert(order.end(), c.begin(), c.end());
      std::vector<int> axes;
      for (int i = 0; i < nb; ++i) axes.push_back(i);
      for (std::size_t i = 0; i < f.size(); ++i) axes.push_back(free_start + static_cast<int>(i));
      for (int i = 0; i < nk; ++i) axes.push_back(nb + nl + nr + i);
      return prim::broadcast(prim::permute(t, order), space, axes);
    };
    const Tensor product = prim::mul(spread(x[0], d.lhs_batch, lhs_free, d.lhs_contract, nb),
                                     spread(x[1], d.rhs_batch, rhs_free, d.rhs_contract, nb + nl));
    std::vector<int> contracted;
    for (int i = 0; i < nk; ++i) contracted.push_back(nb + nl + nr + i);
    if (k == 1) return prim::reshape(product, n.type.shape);
    return prim::sum(product, contracted);
  });
}

}  // namespace tensorgrad
