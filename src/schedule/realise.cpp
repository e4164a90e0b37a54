// Which tensors are stored, and where.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "graph/order.h"
#include "kernel/expr.h"
#include "kernel/hash.h"
#include "ops/primitives.h"
#include "ops/rules.h"
#include "schedule/state.h"

namespace tensorgrad::schedule {
namespace {

// Costs of computing one element, in units of one element loaded from memory.
constexpr double load_cost = 1;
constexpr double cheap_cost = 0.05;
constexpr double transcendental_cost = 1;
// Inlining deeper than this is stored instead: expressions are walked by recursion.
constexpr int depth_limit = 200;
// Computations of one value that are told apart; more weigh the same.
constexpr std::size_t most_computations = 32;

bool is_heavy(const Node& n) {
  return lowering_as<LowerReduce>(n) || lowering_as<LowerDot>(n) || lowering_as<LowerConv>(n) ||
         lowering_as<LowerAttention>(n) || lowering_as<LowerScatter>(n) ||
         lowering_as<LowerScan>(n) || lowering_as<LowerSort>(n);
}

bool is_cheap(const Node& n) {
  static const std::unordered_set<std::string_view> expensive = {
      "exp",  "expm1", "log",  "log1p", "sqrt",     "rsqrt",   "reciprocal", "sin",
      "cos",  "tan",   "asin", "acos",  "atan",     "atan2",   "tanh",       "erf",
      "erfc", "div",   "rem",  "pow",   "logistic", "threefry"};
  return !expensive.contains(*n.op->name);
}

ItemKind kind_of(const Node& n) {
  if (lowering_as<LowerReduce>(n)) return ItemKind::reduce;
  if (lowering_as<LowerDot>(n) || lowering_as<LowerConv>(n)) return ItemKind::contract;
  if (lowering_as<LowerAttention>(n)) return ItemKind::attention;
  if (lowering_as<LowerScatter>(n)) return ItemKind::scatter;
  if (lowering_as<LowerScan>(n)) return ItemKind::scan;
  if (lowering_as<LowerSort>(n)) return ItemKind::sort;
  return ItemKind::map;
}

class Realiser {
 public:
  Realiser(State& s, const Prepared& prepared, bool fuse_maps, bool place_parts)
      : s_(s),
        stored_(prepared.stored),
        layouts_(prepared.layouts),
        fuse_maps_(fuse_maps),
        place_parts_(place_parts) {}

  void run() {
    locate_leaves();
    choose();
    place_roots();
    // Concatenations first, outermost first: their parts may be computed into them.
    for (auto it = s_.order.rbegin(); it != s_.order.rend(); ++it) {
      if (stored_.contains(*it) && lowering_as<LowerConcat>(**it)) place(**it);
    }
    for (const Node* n : s_.order) {
      if (stored_.contains(n)) place(*n);
    }
    for (const Node* n : s_.order) {
      if (stored_.contains(n)) emit(*n);
    }
    copy_roots();
    s_.find_dependencies();
  }

 private:
  /// What is loaded, and the number of its elements for each element that is computed.
  using Sources = std::unordered_map<const Node*, double>;

  void locate_leaves() {
    const auto add = [&](const Tensor& t, BufferKind kind) {
      PlanBuffer b;
      b.kind = kind;
      b.name = t.node().attr<InputAttr>().name;
      b.dtype = t.dtype();
      b.shape = t.shape();
      b.elements = t.size();
      s_.locations[&t.node()] = dense(s_.add_buffer(std::move(b)), 0, t.shape());
    };
    for (const Tensor& t : s_.graph.inputs) add(t, BufferKind::input);
    for (const Tensor& t : s_.graph.states) add(t, BufferKind::state);
    for (const Node* n : s_.order) {
      if (const auto* d = std::get_if<DataAttr>(&n->attrs)) {
        PlanBuffer b;
        b.kind = BufferKind::constant;
        b.dtype = n->type.dtype;
        b.shape = n->type.shape;
        b.elements = numel(n->type.shape);
        b.data = d->data->bytes;
        s_.locations[n] = dense(s_.add_buffer(std::move(b)), 0, n->type.shape);
      }
    }
  }

  // Forwards: what an element of each node costs when everything but leaves and heavy results is
  // recomputed, what is loaded twice counted once. Backwards: how often it would be recomputed.
  void choose() {
    for (const Named& o : s_.graph.outputs) need(o.value);
    for (const Tensor& u : s_.graph.updates) {
      if (u.defined()) need(u);
    }
    std::unordered_map<const Node*, double> cost, arithmetic;
    std::unordered_map<const Node*, int> depth;
    for (const Node* n : s_.order) {
      const bool boundary = s_.is_located(*n) || is_heavy(*n) || stored_.contains(n);
      if (is_heavy(*n)) stored_.insert(n);
      if (!n->operands.empty() && boundary) limit_sources(*n);
      if (!fuse_maps_ && (lowering_as<LowerMap>(*n) || lowering_as<LowerIndirect>(*n) ||
                          lowering_as<LowerConcat>(*n))) {
        stored_.insert(n);
      }
      if (boundary || stored_.contains(n)) {
        cost[n] = load_cost;
        depth[n] = 0;
        continue;
      }
      limit_sources(*n);
      double c = lowering_as<LowerMap>(*n) ? (is_cheap(*n) ? cheap_cost : transcendental_cost) : 0;
      int deepest = 0;
      for (const Tensor& o : n->operands) {
        if (const auto a = arithmetic.find(&o.node()); a != arithmetic.end()) {
          c += a->second * share(o.node(), *n);
        }
        deepest = std::max(deepest, depth.at(&o.node()));
      }
      arithmetic[n] = c;
      cost[n] = c + load_cost * loads(*n);
      depth[n] = deepest + 1;
      if (depth[n] > depth_limit && lowering_as<LowerMap>(*n)) {
        stored_.insert(n);
        arithmetic.erase(n);
        cost[n] = load_cost;
        depth[n] = 0;
      }
      // Chains of selects grow with the parts: many parts are stored side by side instead.
      if (lowering_as<LowerConcat>(*n) && n->operands.size() > 2) {
        stored_.insert(n);
        arithmetic.erase(n);
        cost[n] = load_cost;
      }
    }
    count_computations(cost);
    limit_all_sources();
  }

  // Loads for an element of `n`; summed by size, since the order of pointers differs between runs.
  double loads(const Node& n) const {
    std::vector<double> parts;
    for (const auto& [source, part] : sources_below(n)) parts.push_back(part);
    sort_values(parts);
    return std::accumulate(parts.begin(), parts.end(), 0.0);
  }

  // How much of `part` an element of `whole` takes: what is broadcast is read (or computed) once
  // for many elements.
  static double share(const Node& part, const Node& whole) {
    const double elements = std::max<double>(1, static_cast<double>(numel(whole.type.shape)));
    return std::clamp(static_cast<double>(numel(part.type.shape)) / elements, 0.02, 1.0);
  }

  // A kernel computes a value once however often it uses it, but again for each view it takes of
  // it: a computation is a stored consumer and the views on the way to it.
  void count_computations(const std::unordered_map<const Node*, double>& cost) {
    using Computations = std::set<std::size_t>;
    std::unordered_map<const Node*, std::size_t> position;
    for (const Node* n : s_.order) position.emplace(n, position.size());
    std::unordered_map<const Node*, Computations> computations;
    for (auto it = s_.order.rbegin(); it != s_.order.rend(); ++it) {
      const Node* n = *it;
      Computations& found = computations[n];
      const auto u = s_.users.find(n);
      if (u == s_.users.end()) continue;
      for (const Node* user : u->second) {
        const std::size_t id = position.at(user);
        if (stored_.contains(user)) {
          found.insert(id);
          continue;
        }
        for (const std::size_t c : computations.at(user)) {
          found.insert(lowering_as<LowerMap>(*user) ? c : mixed(c, id));
          if (found.size() >= most_computations) break;
        }
      }
      if (stored_.contains(n) || s_.is_located(*n) || found.size() < 2) continue;
      if (!lowering_as<LowerMap>(*n) && !lowering_as<LowerIndirect>(*n) &&
          !lowering_as<LowerConcat>(*n)) {
        continue;
      }
      // Recomputing costs (uses - 1) * cost more; storing costs a write and a read for each use.
      const auto uses = static_cast<double>(found.size());
      if ((uses - 1) * cost.at(n) > 1 + uses) stored_.insert(n);
    }
  }

  static std::size_t mixed(std::size_t computation, std::size_t view) {
    kernel::mix(computation, view);
    return computation;
  }

  // What is stored for other reasons, or for one node's sake, may be one buffer more for another.
  void limit_all_sources() {
    if (s_.max_buffers == std::numeric_limits<int>::max()) return;
    std::size_t before = 0;
    do {
      before = stored_.size();
      sources_.clear();
      for (const Node* n : s_.order) {
        if (!n->operands.empty()) limit_sources(*n);
      }
    } while (stored_.size() > before);
  }

  // What computing an element of `n` in place reads, and how much of it.
  Sources sources_below(const Node& n) const {
    Sources found;
    const auto read = [&](const Node* source, double part) {
      double& most = found[source];
      most = std::max(most, part);
    };
    for (const Tensor& o : n.operands) {
      const double part = share(o.node(), n);
      if (s_.is_located(o.node()) || stored_.contains(&o.node())) {
        read(&o.node(), part);
      } else if (const auto at = sources_.find(&o.node()); at != sources_.end()) {
        for (const auto& [source, below] : at->second) read(source, part * below);
      }
    }
    return found;
  }

  // Stores operands of `n` until it reads few enough buffers for a kernel that also writes one.
  void limit_sources(const Node& n) {
    if (lowering_as<LowerConcat>(n) && n.operands.size() > 2) return;  // a kernel for each part
    const auto most = static_cast<std::size_t>(std::max(s_.max_buffers - 1, 1));
    auto found = sources_below(n);
    while (found.size() > most) {
      const Node* widest = nullptr;
      std::size_t width = 1;
      for (const Tensor& o : n.operands) {
        if (s_.is_located(o.node()) || stored_.contains(&o.node())) continue;
        const auto at = sources_.find(&o.node());
        if (at != sources_.end() && at->second.size() > width) {
          widest = &o.node();
          width = at->second.size();
        }
      }
      if (!widest) break;  // each operand is one buffer: nothing is gained by storing it
      stored_.insert(widest);
      found = sources_below(n);
    }
    sources_[&n] = std::move(found);
  }

  void need(const Tensor& t) {
    const Node& n = storage_node(t);
    if (!s_.is_located(n)) stored_.insert(&n);
  }

  // Updates of states nobody else reads are written in place; outputs into their own buffers.
  void place_roots() {
    const auto& g = s_.graph;
    for (std::size_t i = 0; i < g.updates.size(); ++i) {
      if (!g.updates[i].defined()) continue;
      const Node& n = storage_node(g.updates[i]);
      const Location& home = s_.locations.at(&g.states[i].node());
      const bool used = std::any_of(g.outputs.begin(), g.outputs.end(),
                                    [&](const Named& o) { return &storage_node(o.value) == &n; });
      if (used || s_.is_located(n) || old_value_read_after(n, g.states[i].node()) ||
          !walks_in_step(n, g.states[i].node())) {
        continue;
      }
      s_.locations[&n] = dense(home.buffer, 0, n.type.shape);
      placed_updates_.insert(i);
    }
    for (const Named& o : g.outputs) {
      PlanBuffer b;
      b.kind = BufferKind::output;
      b.name = o.name;
      b.dtype = o.value.dtype();
      b.shape = o.value.shape();
      b.elements = o.value.size();
      const int id = s_.add_buffer(std::move(b));
      output_buffers_.push_back(id);
      const Node& n = storage_node(o.value);
      if (!s_.is_located(n)) s_.locations[&n] = dense(id, 0, n.type.shape);
    }
  }

  static const Node& behind_views(const Node& n) {
    const Node* base = &n;
    while (lowering_as<LowerView>(*base)) base = &base->operand(0).node();
    return *base;
  }

  // Whether overwriting `state` element by element while computing `n` is safe: `n` reads it only
  // at the element that it writes.
  bool walks_in_step(const Node& n, const Node& state) const {
    if (kind_of(n) != ItemKind::map) return false;
    std::unordered_set<const Node*> seen;
    // What is written in the state's place: parts of a concatenation are with it.
    std::unordered_set<const Node*> written{&n};
    std::vector<const Node*> pending{&n};
    while (!pending.empty()) {
      const Node* m = pending.back();
      pending.pop_back();
      if (m == &state || !seen.insert(m).second) continue;
      if (stored_.contains(m) && !written.contains(m)) continue;
      const bool map = lowering_as<LowerMap>(*m) != nullptr;
      const bool joins = lowering_as<LowerConcat>(*m) && written.contains(m);
      for (const Tensor& o : m->operands) {
        if (joins) written.insert(&behind_views(o.node()));
        if (!map && reaches(o.node(), state)) {
          // A view in between moves elements, unless it only renames the shape.
          const auto* view = lowering_as<LowerView>(*m);
          if (!view || !view->keeps_order) return false;
        }
        pending.push_back(&o.node());
      }
    }
    return true;
  }
  bool reaches(const Node& from, const Node& target) const {
    std::unordered_set<const Node*> seen;
    std::vector<const Node*> pending{&from};
    while (!pending.empty()) {
      const Node* m = pending.back();
      pending.pop_back();
      if (m == &target) return true;
      if (!seen.insert(m).second || stored_.contains(m)) continue;
      for (const Tensor& o : m->operands) pending.push_back(&o.node());
    }
    return false;
  }

  // Whether a stored tensor is computed from both the update `n` and the state's old value.
  bool old_value_read_after(const Node& n, const Node& state) const {
    const auto climb = [&](const Node& from, bool through_stored) {
      std::unordered_set<const Node*> seen;
      std::vector<const Node*> pending{&from};
      while (!pending.empty()) {
        const Node* m = pending.back();
        pending.pop_back();
        if (!seen.insert(m).second || (m != &from && !through_stored && stored_.contains(m))) {
          continue;
        }
        const auto u = s_.users.find(m);
        if (u != s_.users.end()) pending.insert(pending.end(), u->second.begin(), u->second.end());
      }
      return seen;
    };
    const auto later = climb(n, true);
    const auto readers = climb(state, false);
    return std::any_of(readers.begin(), readers.end(), [&](const Node* m) {
      return m != &n && stored_.contains(m) && later.contains(m);
    });
  }

  void place(const Node& n) {
    if (!s_.is_located(n)) {
      Location home = dense(s_.add_temp(n.type.dtype, numel(n.type.shape)), 0, n.type.shape);
      if (const auto at = layouts_.find(&n); at != layouts_.end()) home.strides = at->second;
      s_.locations[&n] = std::move(home);
    }
    if (lowering_as<LowerConcat>(n) && parts_placed_.insert(&n).second) place_parts_of(n);
  }

  // Parts that are computed anyway and would be copied are computed into the concatenation.
  void place_parts_of(const Node& n) {
    const Location whole = s_.locations.at(&n);
    const auto axis = static_cast<std::size_t>(n.attr<AxisAttr>().axis);
    bool contiguous = is_dense(whole, n.type.shape);
    for (std::size_t d = 0; d < axis; ++d) contiguous = contiguous && n.type.shape[d] == 1;
    std::int64_t start = 0;
    for (const Tensor& part : n.operands) {
      const std::int64_t offset = whole.offset + start * whole.strides[axis];
      start += part.shape()[axis];
      if (contiguous && place_parts_ && place_through_views(part, whole.buffer, offset)) continue;
      const Node& base = storage_node(part);
      if (!contiguous || !place_parts_ || s_.is_located(base) || lowering_as<LowerView>(base) ||
          base.operands.empty() || part.size() == 0) {
        continue;
      }
      s_.locations[&base] = dense(whole.buffer, offset, base.type.shape);
      stored_.insert(&base);
    }
  }

  // Attention writes any order of dimensions: its result may lie so that a view of it is the part.
  bool place_through_views(const Tensor& part, int buffer, std::int64_t offset) {
    const Node* base = &behind_views(part.node());
    if (base == &part.node() || !lowering_as<LowerAttention>(*base) || s_.is_located(*base)) {
      return false;
    }
    auto strides = strides_for_view(*base, part.node());
    if (!strides || (base->type.shape.back() != 1 && strides->back() != 1)) return false;
    s_.locations[base] = {buffer, offset, std::move(*strides)};
    placed_parts_.insert(base);
    return true;
  }

  void emit(const Node& n) {
    const Location home = s_.locations.at(&n);
    if (!lowering_as<LowerConcat>(n)) {
      s_.add_item({handle_of(n), kind_of(n), home, true});
      return;
    }
    const auto axis = static_cast<std::size_t>(n.attr<AxisAttr>().axis);
    std::int64_t start = 0;
    for (const Tensor& part : n.operands) {
      Location dest = home;
      dest.offset += start * home.strides[axis];
      start += part.shape()[axis];
      if (part.size() == 0) continue;
      const Node& behind = behind_views(part.node());
      const Node& base = placed_parts_.contains(&behind) ? behind : storage_node(part);
      const auto at = s_.locations.find(&base);
      if (at != s_.locations.end() && at->second.buffer == dest.buffer &&
          at->second.offset == dest.offset && !s_.writers[&base].empty()) {
        // Computed in place: whoever reads the whole waits for it.
        for (int w : s_.writers.at(&base)) s_.writers[&n].push_back(w);
        continue;
      }
      const int id = s_.add_item({part, ItemKind::map, dest, true});
      auto& list = s_.writers[&part.node()];
      list.erase(std::remove(list.begin(), list.end(), id), list.end());
      if (list.empty()) s_.writers.erase(&part.node());
      s_.writers[&n].push_back(id);
    }
  }

  // Roots that are another stored tensor or a leaf are copies of it.
  void copy_roots() {
    const auto copy = [&](const Tensor& t, int buffer) {
      Item item{t, ItemKind::map, dense(buffer, 0, t.shape()), true};
      const Node& n = storage_node(t);
      item.value = handle_of(n);
      item.dest = dense(buffer, 0, n.type.shape);
      const int id = s_.add_item(std::move(item));
      auto& list = s_.writers[&n];
      list.erase(std::remove(list.begin(), list.end(), id), list.end());
      if (list.empty()) s_.writers.erase(&n);
    };
    const auto& g = s_.graph;
    for (std::size_t i = 0; i < g.outputs.size(); ++i) {
      const Node& n = storage_node(g.outputs[i].value);
      if (s_.locations.at(&n).buffer != output_buffers_[i]) {
        copy(g.outputs[i].value, output_buffers_[i]);
      }
    }
    for (std::size_t i = 0; i < g.updates.size(); ++i) {
      if (!g.updates[i].defined() || placed_updates_.contains(i)) continue;
      const int home = s_.locations.at(&g.states[i].node()).buffer;
      if (s_.locations.at(&storage_node(g.updates[i])).buffer != home) copy(g.updates[i], home);
    }
  }

  State& s_;
  std::unordered_set<const Node*> stored_;
  const std::unordered_map<const Node*, Shape>& layouts_;
  bool fuse_maps_, place_parts_;
  std::unordered_set<std::size_t> placed_updates_;
  std::vector<int> output_buffers_;
  std::unordered_map<const Node*, Sources> sources_;
  std::unordered_set<const Node*> parts_placed_;
  std::unordered_set<const Node*> placed_parts_;  ///< results that lie in a concatenation by a view
};

}  // namespace

void realise(State& state, const Prepared& prepared, bool fuse_maps, bool place_parts) {
  Realiser(state, prepared, fuse_maps, place_parts).run();
}

}  // namespace tensorgrad::schedule
