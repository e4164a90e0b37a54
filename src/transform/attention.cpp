// Attention in steps, forward and backward, becomes attention as one operation.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "ops/primitives.h"
#include "ops/rules.h"
#include "transform/passes.h"
#include "transform/views.h"

namespace tensorgrad {
namespace {

bool is(const Node& n, std::string_view name) { return *n.op->name == name; }

/// Sums of products coefficient * e^i * z^j * g^k * r^l over a matrix of scores: e is the
/// exponential of a score, z the sum of e over its row, g the gradient of a probability and r the
/// sum of e * g over the row.
using Powers = std::array<int, 4>;
enum : std::size_t { e_power, z_power, g_power, r_power };
using Polynomial = std::map<Powers, double>;

Polynomial plus(Polynomial a, const Polynomial& b, double factor) {
  for (const auto& [powers, c] : b) {
    double& sum = a[powers];
    sum += factor * c;
    if (sum == 0) a.erase(powers);
  }
  return a;
}

Polynomial times(const Polynomial& a, const Polynomial& b) {
  Polynomial out;
  for (const auto& [p, x] : a) {
    for (const auto& [q, y] : b) {
      Powers sum{};
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = p[i] + q[i];
      out[sum] += x * y;
    }
  }
  return out;
}

std::optional<Polynomial> inverse(const Polynomial& a) {
  if (a.size() != 1 || a.begin()->second == 0) return std::nullopt;
  Powers p = a.begin()->first;
  for (int& power : p) power = -power;
  return Polynomial{{p, 1 / a.begin()->second}};
}

bool equal(const Polynomial& a, const Polynomial& b) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [](const auto& x, const auto& y) {
           return x.first == y.first && std::abs(x.second - y.second) <= 1e-5 * std::abs(y.second);
         });
}

/// One operand of a dot with the single dimensions that it pairs and keeps.
struct Side {
  Tensor tensor;
  std::vector<int> batch;
  int contract = -1, free = -1;
};

std::optional<std::pair<Side, Side>> sides(const Node& n) {
  if (!lowering_as<LowerDot>(n)) return std::nullopt;
  const auto& d = n.attr<DotAttr>();
  const auto side = [](const Tensor& t, const std::vector<int>& batch,
                       const std::vector<int>& contract) -> std::optional<Side> {
    if (contract.size() != 1 || t.rank() != static_cast<int>(batch.size()) + 2) {
      return std::nullopt;
    }
    Side s{t, batch, contract[0], -1};
    for (int a = 0; a < t.rank(); ++a) {
      if (a != s.contract && std::find(batch.begin(), batch.end(), a) == batch.end()) s.free = a;
    }
    return s;
  };
  const auto a = side(n.operand(0), d.lhs_batch, d.lhs_contract);
  const auto b = side(n.operand(1), d.rhs_batch, d.rhs_contract);
  if (!a || !b) return std::nullopt;
  return std::pair(*a, *b);
}

bool is_leading(const std::vector<int>& batch) {
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (batch[i] != static_cast<int>(i)) return false;
  }
  return true;
}

/// [batch..., first, second] of an operand.
std::vector<int> order(const Side& s, int first, int second) {
  std::vector<int> axes = s.batch;
  axes.push_back(first);
  axes.push_back(second);
  return axes;
}

using Users = std::unordered_map<const Node*, std::vector<const Node*>>;

/// What becomes of a contraction over the matrix of scores or of its gradient.
struct Target {
  LowerAttention::Result result = LowerAttention::Result::out;
  bool swapped = false;  ///< the result's last two dimensions
};

/// One softmax over scores and all that is computed from it.
class Match {
 public:
  Match(const Node& exponential, const Users& users) : e_(&exponential), users_(users) {}

  bool find() { return find_scores() && find_users() && find_roles(); }

  AttentionAttr attr{1, false};
  Side q, k, v, dout;
  std::vector<std::pair<const Node*, Target>> targets;

 private:
  const Shape& shape() const { return e_->type.shape; }
  std::size_t last() const { return shape().size() - 1; }

  /// Whether `t`, as large as the scores or with one element a row, repeats a row's element of the
  /// node it is a view of.
  const Node* row_source(const Node& t) const {
    const auto s = behind_views(t);
    if (!s || s->offset != 0) return nullptr;
    Shape rows(shape().begin(), shape().end() - 1);
    if (numel(s->node->type.shape) != numel(rows)) return nullptr;
    const Shape& seen = t.type.shape;
    if (seen.size() != rows.size() && seen.size() != shape().size()) return nullptr;
    const Shape steps = strides_of(rows);
    for (std::size_t d = 0; d < rows.size(); ++d) {
      if (seen[d] != rows[d] || (rows[d] != 1 && s->strides[d] != steps[d])) return nullptr;
    }
    if (seen.size() == shape().size() && seen.back() != 1 &&
        (seen.back() != shape().back() || s->strides.back() != 0)) {
      return nullptr;
    }
    return s->node;
  }

  bool is_row_reduction(const Node& n, kernel::Combiner combiner, const Node& of) const {
    const auto* l = lowering_as<LowerReduce>(n);
    return l && l->combiner == combiner && &n.operand(0).node() == &of &&
           n.attr<AxesAttr>().axes == std::vector<int>{static_cast<int>(last())};
  }

  /// key <= query over the last two dimensions.
  bool is_causal(const Tensor& t) const {
    const auto s = behind_views(t.node());
    if (!s || s->offset != 0 || !is(*s->node, "le") || s->node->type.shape.size() != 2)
      return false;
    const std::int64_t keys = shape().back();
    if (s->node->type.shape != Shape{shape()[last() - 1], keys}) return false;
    for (std::size_t d = 0; d < shape().size(); ++d) {
      const std::int64_t step = d == last() ? 1 : d + 1 == last() ? keys : 0;
      if (shape()[d] != 1 && s->strides[d] != step) return false;
    }
    const auto counts = [&](const Tensor& x, int axis) {
      return is(x.node(), "iota") && x.dtype() == DType::i32 &&
             x.node().attr<AxisAttr>().axis == axis;
    };
    return counts(s->node->operand(0), 1) && counts(s->node->operand(1), 0);
  }

  // exp(s - max(s)), s = [where(causal,] [scale *] q k^T [, -inf)]
  bool find_scores() {
    if (shape().size() < 2) return false;
    const Node& shifted = e_->operand(0).node();
    if (!is(*e_, "exp") || !is(shifted, "sub")) return false;
    const Node* s = &shifted.operand(0).node();
    const Node* top = row_source(shifted.operand(1).node());
    if (!top || !is_row_reduction(*top, kernel::Combiner::max, *s)) return false;
    if (is(*s, "select")) {
      const auto outside = uniform_value(s->operand(2));
      if (!outside || !std::isinf(*outside) || *outside > 0 || !is_causal(s->operand(0))) {
        return false;
      }
      attr.causal = true;
      s = &s->operand(1).node();
    }
    if (is(*s, "mul")) {
      for (std::size_t i : {0, 1}) {
        if (const auto u = uniform_value(s->operand(i))) {
          attr.scale = *u;
          s = &s->operand(1 - i).node();
          break;
        }
      }
    }
    const auto pair = sides(*s);
    if (!pair) return false;
    q = pair->first;
    k = pair->second;
    scores_ = s;
    return true;
  }

  /// Everything computed from the scores ends in contractions, which become the targets.
  bool find_users() {
    std::unordered_set<const Node*> seen{scores_};
    std::vector<const Node*> pending{scores_};
    while (!pending.empty()) {
      const Node* n = pending.back();
      pending.pop_back();
      const auto u = users_.find(n);
      if (u == users_.end()) return false;  // a result of the program
      for (const Node* user : u->second) {
        if (!seen.insert(user).second) continue;
        if (lowering_as<LowerDot>(*user)) {
          dots_.push_back(user);
        } else if (lowering_as<LowerMap>(*user) || lowering_as<LowerView>(*user) ||
                   lowering_as<LowerReduce>(*user)) {
          pending.push_back(user);
        } else {
          return false;
        }
      }
    }
    return true;
  }

  // Which of the contractions is the result, and which are gradients.
  bool find_roles() {
    const Polynomial p{{Powers{1, -1, 0, 0}, 1}};
    const auto matrix_side = [&](const std::pair<Side, Side>& pair) -> int {
      for (int i : {0, 1}) {
        const Side& s = i == 0 ? pair.first : pair.second;
        if (s.tensor.shape() == shape() && is_leading(s.batch) && depends(s.tensor.node()))
          return i;
      }
      return -1;
    };
    struct Use {
      const Node* dot;
      Side matrix, other;
      bool swapped;
      bool over_keys;
    };
    std::vector<Use> uses;
    for (const Node* n : dots_) {
      const auto pair = sides(*n);
      if (!pair) return false;
      const int i = matrix_side(*pair);
      if (i < 0) return false;
      const Side& matrix = i == 0 ? pair->first : pair->second;
      uses.push_back({n, matrix, i == 0 ? pair->second : pair->first, i != 0,
                      matrix.contract == static_cast<int>(last())});
    }
    // The result: probabilities times v.
    for (const Use& u : uses) {
      if (!u.over_keys) continue;
      const auto x = polynomial(u.matrix.tensor.node());
      if (x && equal(*x, p)) {
        if (v.tensor.defined()) return false;
        v = u.other;
        targets.push_back({u.dot, {LowerAttention::Result::out, u.swapped}});
      }
    }
    if (!v.tensor.defined()) return false;
    if (uses.size() == 1) return true;
    if (!find_probability_gradient()) return false;
    memo_.clear();
    const Polynomial ds{{Powers{1, -1, 1, 0}, attr.scale}, {Powers{1, -2, 0, 1}, -attr.scale}};
    for (const Use& u : uses) {
      if (u.dot == targets[0].first) continue;
      const auto x = polynomial(u.matrix.tensor.node());
      if (!x) return false;
      using Result = LowerAttention::Result;
      if (equal(*x, p) && !u.over_keys && same(u.other, dout, dout.free, dout.contract)) {
        targets.push_back({u.dot, {Result::dv, u.swapped}});
      } else if (equal(*x, ds) && u.over_keys && same(u.other, k, k.free, k.contract)) {
        targets.push_back({u.dot, {Result::dq, u.swapped}});
      } else if (equal(*x, ds) && !u.over_keys && same(u.other, q, q.free, q.contract)) {
        targets.push_back({u.dot, {Result::dk, u.swapped}});
      } else {
        return false;
      }
    }
    return true;
  }

  /// Whether `a` reads the tensor of `b`, contracted over `contract`.
  static bool same(const Side& a, const Side& b, int contract, int free) {
    return a.tensor.handle() == b.tensor.handle() && a.batch == b.batch && a.contract == contract &&
           a.free == free;
  }

  bool depends(const Node& n) const {
    if (dependent_.empty()) {
      std::vector<const Node*> pending{scores_};
      dependent_.insert(scores_);
      while (!pending.empty()) {
        const Node* m = pending.back();
        pending.pop_back();
        if (m != scores_ && lowering_as<LowerDot>(*m)) continue;
        const auto u = users_.find(m);
        if (u == users_.end()) continue;
        for (const Node* user : u->second) {
          if (dependent_.insert(user).second) pending.push_back(user);
        }
      }
    }
    return dependent_.contains(&n);
  }

  // dout v^T: the gradient of the probabilities.
  bool find_probability_gradient() {
    const auto u = users_.find(&v.tensor.node());
    if (u == users_.end()) return false;
    for (const Node* n : u->second) {
      const auto pair = sides(*n);
      if (!pair || n->type.shape != shape() || n == scores_) continue;
      if (!same(pair->second, v, v.free, v.contract)) continue;
      // Its only use is in the gradient of the scores.
      if (gradient_) return false;
      gradient_ = n;
      dout = pair->first;
    }
    return gradient_ != nullptr;
  }

  /// The value of a matrix or of a row value in terms of e, z, g and r.
  std::optional<Polynomial> polynomial(const Node& n) {
    if (const auto at = memo_.find(&n); at != memo_.end()) return at->second;
    auto result = build(n);
    memo_[&n] = result;
    return result;
  }

  std::optional<Polynomial> build(const Node& n) {
    if (&n == e_) return Polynomial{{Powers{1, 0, 0, 0}, 1}};
    if (&n == gradient_) return Polynomial{{Powers{0, 0, 1, 0}, 1}};
    if (const auto u = uniform_value(handle_of(n))) return plus({}, {{Powers{}, 1}}, *u);
    if (lowering_as<LowerView>(n)) {
      const Node* row = row_source(n);
      return row ? polynomial(*row) : std::nullopt;
    }
    if (const auto* l = lowering_as<LowerReduce>(n)) {
      if (!is_row_reduction(n, l->combiner, n.operand(0).node()) ||
          l->combiner != kernel::Combiner::sum || n.operand(0).shape() != shape()) {
        return std::nullopt;
      }
      const auto x = polynomial(n.operand(0).node());
      if (!x) return std::nullopt;
      Polynomial out;
      for (const auto& [of_element, c] : *x) {
        Powers powers = of_element;
        if (powers[e_power] != 1 || powers[g_power] < 0 || powers[g_power] > 1) return std::nullopt;
        ++powers[powers[g_power] == 1 ? r_power : z_power];
        powers[e_power] = powers[g_power] = 0;
        out[powers] += c;
      }
      return out;
    }
    if (!lowering_as<LowerMap>(n)) return std::nullopt;
    if (is(n, "select")) {
      const auto outside = uniform_value(n.operand(2));
      if (!attr.causal || !outside || *outside != 0 || !is_causal(n.operand(0))) {
        return std::nullopt;
      }
      // e is 0 there already.
      auto x = polynomial(n.operand(1).node());
      const bool vanishes = x && std::all_of(x->begin(), x->end(), [](const auto& term) {
                              return term.first[e_power] > 0;
                            });
      return vanishes ? x : std::nullopt;
    }
    std::vector<Polynomial> x;
    for (const Tensor& o : n.operands) {
      auto operand = polynomial(o.node());
      if (!operand) return std::nullopt;
      x.push_back(std::move(*operand));
    }
    if (is(n, "neg")) return plus({}, x[0], -1);
    if (is(n, "add")) return plus(x[0], x[1], 1);
    if (is(n, "sub")) return plus(x[0], x[1], -1);
    if (is(n, "mul")) return times(x[0], x[1]);
    if (is(n, "reciprocal")) return inverse(x[0]);
    if (is(n, "div")) {
      const auto y = inverse(x[1]);
      return y ? std::optional(times(x[0], *y)) : std::nullopt;
    }
    return std::nullopt;
  }

  const Node* e_;
  const Users& users_;
  const Node* scores_ = nullptr;
  const Node* gradient_ = nullptr;
  std::vector<const Node*> dots_;
  mutable std::unordered_set<const Node*> dependent_;
  std::unordered_map<const Node*, std::optional<Polynomial>> memo_;
};

}  // namespace

Graph match_attention(const Graph& graph) {
  Users users;
  for (const Node* n : graph.order()) {
    for (const Tensor& o : n->operands) {
      auto& list = users[&o.node()];
      if (list.empty() || list.back() != n) list.push_back(n);
    }
  }
  // What the program gives back is used by no node.
  for (const Named& o : graph.outputs) users.erase(&o.value.node());
  for (const Tensor& u : graph.updates) {
    if (u.defined()) users.erase(&u.node());
  }

  const std::vector<const Node*> order_of_nodes = graph.order();
  std::unordered_map<const Node*, std::size_t> position;
  for (const Node* n : order_of_nodes) position.emplace(n, position.size());
  std::vector<Match> matches;
  for (const Node* n : order_of_nodes) {
    if (!is(*n, "exp")) continue;
    Match m(*n, users);
    if (!m.find()) continue;
    // All operands come first: a target is built where it stands.
    const bool ready = std::all_of(m.targets.begin(), m.targets.end(), [&](const auto& target) {
      const auto before = [&](const Side& s) {
        return !s.tensor.defined() || position.at(&s.tensor.node()) < position.at(target.first);
      };
      const bool gradient = target.second.result != LowerAttention::Result::out;
      return before(m.q) && before(m.k) && before(m.v) && (!gradient || before(m.dout));
    });
    if (ready) matches.push_back(std::move(m));
  }
  if (matches.empty()) return graph;

  std::unordered_map<const Node*, std::pair<std::size_t, Target>> targets;
  for (std::size_t i = 0; i < matches.size(); ++i) {
    for (const auto& [n, target] : matches[i].targets) targets[n] = {i, target};
  }
  // Operands as they are rebuilt, once they are.
  std::unordered_map<const Node*, Tensor> built;
  struct Forward {
    Tensor q, k, v, out, lse;
  };
  std::unordered_map<std::size_t, Forward> forwards;
  const auto forward = [&](std::size_t i) -> const Forward& {
    Forward& f = forwards[i];
    if (f.out.defined()) return f;
    const Match& m = matches[i];
    const auto take = [&](const Side& s, int first, int second) {
      return prim::permute(built.at(&s.tensor.node()), order(s, first, second));
    };
    f.q = take(m.q, m.q.free, m.q.contract);
    f.k = take(m.k, m.k.free, m.k.contract);
    f.v = take(m.v, m.v.contract, m.v.free);
    f.out = prim::attention(LowerAttention::Result::out, f.q, f.k, f.v, {}, m.attr);
    f.lse = prim::attention(LowerAttention::Result::lse, f.q, f.k, f.v, {}, m.attr);
    return f;
  };
  return rebuild(graph, [&](const Node& n, std::vector<Tensor> x) -> Tensor {
    Tensor result;
    if (const auto at = targets.find(&n); at != targets.end()) {
      const auto& [i, target] = at->second;
      const Match& m = matches[i];
      const Forward& f = forward(i);
      if (target.result == LowerAttention::Result::out) {
        result = f.out;
      } else {
        const Tensor dout = prim::permute(built.at(&m.dout.tensor.node()),
                                          order(m.dout, m.dout.free, m.dout.contract));
        result = prim::attention_grad(target.result, f.q, f.k, f.v, f.out, f.lse, dout, {}, m.attr);
      }
      if (target.swapped) {
        std::vector<int> axes = prim::all_axes(result.rank());
        std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
        result = prim::permute(result, axes);
      }
    } else {
      const bool same =
          std::equal(x.begin(), x.end(), n.operands.begin(), n.operands.end(),
                     [](const Tensor& a, const Tensor& b) { return a.handle() == b.handle(); });
      result = same ? handle_of(n) : remake(n, std::move(x));
    }
    built[&n] = result;
    return result;
  });
}

}  // namespace tensorgrad
