// Sibling contractions become one with a batch, sums of contractions one with a longer sum.
#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "graph/order.h"
#include "ops/primitives.h"
#include "ops/rules.h"
#include "transform/passes.h"
#include "transform/views.h"

namespace tensorgrad {
namespace {

using Users = std::unordered_map<const Node*, std::vector<const Node*>>;

bool is(const Node& n, std::string_view name) { return *n.op->name == name; }

bool is_dense(const ViewSource& s, const Shape& shape) {
  const Shape own = strides_of(shape);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1 && s.strides[d] != own[d]) return false;
  }
  return true;
}

/// Contractions that become one: their operands in an order that fits both sides.
struct Family {
  std::vector<const Node*> dots;
  bool shares_lhs = false, shares_rhs = false;  ///< siblings; neither: a sum
  const Node* sum = nullptr;                    ///< the last addition of a sum
  std::vector<Tensor> rest;                     ///< its other terms
};

class Merger {
 public:
  explicit Merger(const Graph& graph) : graph_(graph), order_(graph.order()) {
    for (const Node* n : order_) {
      for (const Tensor& o : n->operands) {
        auto& list = users_[&o.node()];
        if (list.empty() || list.back() != n) list.push_back(n);
      }
    }
    for (const Named& o : graph.outputs) roots_.insert(&o.value.node());
    for (const Tensor& u : graph.updates) {
      if (u.defined()) roots_.insert(&u.node());
    }
  }

  Graph run() {
    find_sums();
    find_siblings();
    if (families_.empty()) return graph_;
    for (std::size_t i = 0; i < families_.size(); ++i) {
      const Family& f = families_[i];
      if (f.sum) {
        family_of_[f.sum] = i;
      } else {
        for (const Node* n : f.dots) family_of_[n] = i;
      }
    }
    Graph out = graph_;
    for (Named& o : out.outputs) {
      if (!build(o.value.node())) return graph_;
    }
    for (Tensor& u : out.updates) {
      if (u.defined() && !build(u.node())) return graph_;
    }
    for (Named& o : out.outputs) o.value = built_.at(&o.value.node());
    for (Tensor& u : out.updates) {
      if (u.defined()) u = built_.at(&u.node());
    }
    return out;
  }

 private:
  // ---- which ------------------------------------------------------------------------------------

  bool is_used_once(const Node& n) const {
    const auto u = users_.find(&n);
    if (roots_.contains(&n) || u == users_.end() || u->second.size() != 1) return false;
    const auto& operands = u->second[0]->operands;
    return std::count_if(operands.begin(), operands.end(),
                         [&](const Tensor& t) { return &t.node() == &n; }) == 1;
  }

  static bool alike(const Node& a, const Node& b) {
    return a.attrs == b.attrs && a.operand(0).shape() == b.operand(0).shape() &&
           a.operand(1).shape() == b.operand(1).shape();
  }

  /// The positions of operand `i` of the contractions in the order in which they lie, at equal
  /// distances, in one tensor.
  static std::optional<std::vector<std::size_t>> lying_order(const std::vector<const Node*>& dots,
                                                             std::size_t i) {
    std::vector<std::pair<std::int64_t, std::size_t>> starts;
    const Node* base = nullptr;
    for (std::size_t d = 0; d < dots.size(); ++d) {
      const Tensor& t = dots[d]->operand(i);
      const auto s = behind_views(t.node());
      if (!s || !is_dense(*s, t.shape()) || (base && s->node != base)) return std::nullopt;
      base = s->node;
      starts.emplace_back(s->offset, d);
    }
    sort_values(starts);
    const std::int64_t step = starts[1].first - starts[0].first;
    const std::int64_t size = dots[0]->operand(i).size();
    const auto count = static_cast<std::int64_t>(dots.size());
    if (step < size || starts[0].first + step * count > numel(base->type.shape)) {
      return std::nullopt;
    }
    std::vector<std::size_t> order;
    for (std::size_t d = 0; d < starts.size(); ++d) {
      if (starts[d].first != starts[0].first + static_cast<std::int64_t>(d) * step) {
        return std::nullopt;
      }
      order.push_back(starts[d].second);
    }
    return order;
  }

  /// Whether the operands are results that can be computed side by side.
  bool can_lie(const std::vector<const Node*>& dots, std::size_t i) const {
    std::unordered_set<const Node*> seen;
    for (const Node* d : dots) {
      const Node* n = &d->operand(i).node();
      while (lowering_as<LowerView>(*n)) n = &n->operand(0).node();
      const bool is_result = lowering_as<LowerAttention>(*n) != nullptr;
      if (!is_result || roots_.contains(n) || !seen.insert(n).second) return false;
    }
    return true;
  }

  std::optional<std::vector<std::size_t>> known_order(const std::vector<const Node*>& dots,
                                                      std::size_t i) const {
    for (const auto& stack : stacks_) {
      if (stack.size() != dots.size()) continue;
      std::vector<std::size_t> order;
      for (const Node* part : stack) {
        for (std::size_t d = 0; d < dots.size(); ++d) {
          if (&dots[d]->operand(i).node() == part) order.push_back(d);
        }
      }
      if (order.size() == dots.size()) return order;
    }
    return std::nullopt;
  }

  /// Brings the contractions into an order in which the operands that differ lie side by side.
  bool arrange(Family& f) {
    std::vector<std::size_t> order;
    std::vector<std::size_t> free_operands;
    for (std::size_t i : {0, 1}) {
      if (i == 0 ? f.shares_lhs : f.shares_rhs) continue;
      auto lying = lying_order(f.dots, i);
      if (!lying) lying = known_order(f.dots, i);
      if (lying) {
        if (!order.empty() && order != *lying) return false;
        order = *lying;
      } else if (can_lie(f.dots, i)) {
        free_operands.push_back(i);
      } else {
        return false;
      }
    }
    if (order.empty()) {
      for (std::size_t d = 0; d < f.dots.size(); ++d) order.push_back(d);
    }
    std::vector<const Node*> dots;
    for (std::size_t d : order) dots.push_back(f.dots[d]);
    f.dots = std::move(dots);
    for (std::size_t i : free_operands) {
      std::vector<const Node*> stack;
      for (const Node* d : f.dots) stack.push_back(&d->operand(i).node());
      stacks_.push_back(std::move(stack));
    }
    return true;
  }

  void find_sums() {
    for (const Node* n : order_) {
      if (!is(*n, "add")) continue;
      const auto u = users_.find(n);
      const bool inner = u != users_.end() && is_used_once(*n) && is(*u->second[0], "add");
      if (inner) continue;
      std::vector<Tensor> terms;
      std::vector<Tensor> pending{n->operand(1), n->operand(0)};
      while (!pending.empty()) {
        const Tensor t = pending.back();
        pending.pop_back();
        if (is(t.node(), "add") && is_used_once(t.node())) {
          pending.push_back(t.node().operand(1));
          pending.push_back(t.node().operand(0));
        } else {
          terms.push_back(t);
        }
      }
      Family f;
      f.sum = n;
      for (const Tensor& t : terms) {
        const bool joins = lowering_as<LowerDot>(t.node()) && is_used_once(t.node()) &&
                           (f.dots.empty() || alike(*f.dots[0], t.node()));
        if (joins) {
          f.dots.push_back(&t.node());
        } else {
          f.rest.push_back(t);
        }
      }
      if (f.dots.size() < 2 || !arrange(f)) continue;
      for (const Node* d : f.dots) taken_.insert(d);
      families_.push_back(std::move(f));
    }
  }

  /// Whether only what takes any strides reads the result: a slice of a larger result serves.
  bool is_read_by_strides(const Node& n) const {
    std::vector<const Node*> pending{&n};
    while (!pending.empty()) {
      const Node* v = pending.back();
      pending.pop_back();
      const auto u = users_.find(v);
      if (roots_.contains(v) || u == users_.end()) return false;
      for (const Node* user : u->second) {
        if (lowering_as<LowerView>(*user)) {
          pending.push_back(user);
        } else if (!lowering_as<LowerDot>(*user) && !lowering_as<LowerAttention>(*user) &&
                   !lowering_as<LowerConcat>(*user)) {
          return false;
        }
      }
    }
    return true;
  }

  void find_siblings() {
    for (std::size_t shared : {0, 1}) {
      std::unordered_map<const Node*, std::vector<std::vector<const Node*>>> by_operand;
      std::vector<const Node*> operands;  // in order
      for (const Node* n : order_) {
        if (!lowering_as<LowerDot>(*n) || taken_.contains(n) || !is_read_by_strides(*n)) continue;
        const Node* key = &n->operand(shared).node();
        auto& lists = by_operand[key];
        if (lists.empty()) operands.push_back(key);
        const auto at = std::find_if(lists.begin(), lists.end(),
                                     [&](const auto& list) { return alike(*list[0], *n); });
        if (at == lists.end()) {
          lists.push_back({n});
        } else {
          at->push_back(n);
        }
      }
      for (const Node* key : operands) {
        for (auto& list : by_operand.at(key)) {
          if (list.size() < 2) continue;
          Family f;
          f.dots = list;
          (shared == 0 ? f.shares_lhs : f.shares_rhs) = true;
          if (!arrange(f)) continue;
          for (const Node* d : f.dots) taken_.insert(d);
          families_.push_back(std::move(f));
        }
      }
    }
  }

  // ---- what they become -------------------------------------------------------------------------

  /// Builds `root` after what it needs; false where merged contractions need each other's results.
  bool build(const Node& root) {
    std::vector<const Node*> pending{&root};
    std::unordered_set<const Node*> open;
    while (!pending.empty()) {
      const Node* n = pending.back();
      if (built_.contains(n)) {
        pending.pop_back();
        continue;
      }
      bool ready = true;
      for (const Tensor& t : needs(*n)) {
        if (built_.contains(&t.node())) continue;
        if (open.contains(&t.node())) return false;
        ready = false;
        pending.push_back(&t.node());
      }
      if (!ready) {
        open.insert(n);
        continue;
      }
      pending.pop_back();
      open.erase(n);
      make(*n);
    }
    return true;
  }

  std::vector<Tensor> needs(const Node& n) const {
    const auto at = family_of_.find(&n);
    if (at == family_of_.end()) return n.operands;
    const Family& f = families_[at->second];
    std::vector<Tensor> all = f.rest;
    for (const Node* d : f.dots) all.insert(all.end(), d->operands.begin(), d->operands.end());
    return all;
  }

  void make(const Node& n) {
    const SiteScope scope(n.site);
    const auto at = family_of_.find(&n);
    if (at == family_of_.end()) {
      std::vector<Tensor> x;
      for (const Tensor& o : n.operands) x.push_back(built_.at(&o.node()));
      const bool same =
          std::equal(x.begin(), x.end(), n.operands.begin(), n.operands.end(),
                     [](const Tensor& a, const Tensor& b) { return a.handle() == b.handle(); });
      if (is(n, "concat") && !same) x = joined_parts(std::move(x), n.attr<AxisAttr>().axis);
      built_[&n] = same                               ? handle_of(n)
                   : is(n, "concat") && x.size() == 1 ? prim::reshape(x[0], n.type.shape)
                                                      : remake(n, std::move(x));
      return;
    }
    const Family& f = families_[at->second];
    const Tensor lhs = stacked(f, 0);
    const Tensor rhs = stacked(f, 1);
    DotAttr d = f.dots[0]->attr<DotAttr>();
    for (auto* axes : {&d.lhs_batch, &d.rhs_batch, &d.lhs_contract, &d.rhs_contract}) {
      for (int& a : *axes) ++a;
    }
    if (f.sum) {
      d.lhs_contract.insert(d.lhs_contract.begin(), 0);
      d.rhs_contract.insert(d.rhs_contract.begin(), 0);
      Tensor total = prim::dot_general(lhs, rhs, d);
      for (const Tensor& t : f.rest) total = prim::add(total, built_.at(&t.node()));
      built_[&n] = total;
      return;
    }
    d.lhs_batch.insert(d.lhs_batch.begin(), 0);
    d.rhs_batch.insert(d.rhs_batch.begin(), 0);
    const Tensor all = prim::dot_general(lhs, rhs, d);
    for (std::size_t i = 0; i < f.dots.size(); ++i) {
      Shape start(all.shape().size(), 0);
      Shape limit = all.shape();
      start[0] = static_cast<std::int64_t>(i);
      limit[0] = start[0] + 1;
      const Tensor one = prim::slice(all, start, limit, Shape(start.size(), 1));
      built_[f.dots[i]] = prim::reshape(one, f.dots[i]->type.shape);
    }
  }

  /// Operand `i` of all contractions of a family with a leading dimension.
  Tensor stacked(const Family& f, std::size_t i) {
    const auto count = static_cast<std::int64_t>(f.dots.size());
    const Tensor first = built_.at(&f.dots[0]->operand(i).node());
    if (i == 0 ? f.shares_lhs : f.shares_rhs) return prim::add_leading(first, count);
    Shape shape = first.shape();
    shape.insert(shape.begin(), count);
    if (const auto order = lying_order(f.dots, i)) {
      // A view of the tensor in which all lie.
      const auto s = behind_views(f.dots[0]->operand(i).node());
      const auto next = behind_views(f.dots[1]->operand(i).node());
      const std::int64_t step = next->offset - s->offset;
      const auto base = built_.find(s->node);
      // The parts' own source is built before them.
      const Tensor flat = prim::reshape(base->second, {numel(s->node->type.shape)});
      const Tensor range = prim::slice(flat, {s->offset}, {s->offset + count * step}, {1});
      if (step == first.size()) return prim::reshape(range, shape);
      const Tensor rows = prim::reshape(range, {count, step});
      return prim::reshape(prim::slice(rows, {0, 0}, {count, first.size()}, {1, 1}), shape);
    }
    std::vector<Tensor> parts;
    for (const Node* d : f.dots) {
      const Tensor& t = built_.at(&d->operand(i).node());
      Shape one = t.shape();
      one.insert(one.begin(), 1);
      parts.push_back(prim::reshape(t, one));
    }
    return prim::concat(parts, 0);
  }

  /// Neighbouring parts that are neighbours in one tensor, as one part.
  static std::vector<Tensor> joined_parts(std::vector<Tensor> parts, int axis) {
    if (axis != 0) return parts;
    std::vector<Tensor> out;
    std::size_t i = 0;
    while (i < parts.size()) {
      const Tensor& first = parts[i];
      const auto s = behind_views(first.node());
      std::size_t end = i + 1;
      std::int64_t size = first.size();
      std::int64_t extent = first.shape()[0];
      if (s && lowering_as<LowerDot>(*s->node) && is_dense(*s, first.shape())) {
        while (end < parts.size()) {
          const auto next = behind_views(parts[end].node());
          if (!next || next->node != s->node || !is_dense(*next, parts[end].shape()) ||
              next->offset != s->offset + size) {
            break;
          }
          size += parts[end].size();
          extent += parts[end].shape()[0];
          ++end;
        }
      }
      if (end == i + 1) {
        out.push_back(first);
      } else {
        Shape shape = first.shape();
        shape[0] = extent;
        const Tensor base = handle_of(*s->node);
        if (size == base.size()) {
          out.push_back(prim::reshape(base, shape));
          i = end;
          continue;
        }
        const Tensor flat = prim::reshape(base, {base.size()});
        out.push_back(
            prim::reshape(prim::slice(flat, {s->offset}, {s->offset + size}, {1}), shape));
      }
      i = end;
    }
    return out;
  }

  const Graph& graph_;
  std::vector<const Node*> order_;
  Users users_;
  std::unordered_set<const Node*> roots_, taken_;
  std::vector<Family> families_;
  std::vector<std::vector<const Node*>> stacks_;  ///< results that are computed side by side
  std::unordered_map<const Node*, std::size_t> family_of_;
  std::unordered_map<const Node*, Tensor> built_;
};

}  // namespace

Graph merge_contractions(const Graph& graph) { return Merger(graph).run(); }

}  // namespace tensorgrad
