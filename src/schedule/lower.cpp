// From a group of items to one kernel: loops, stages, and expressions pulled back through views.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "kernel/visit.h"
#include "ops/rules.h"
#include "schedule/lower_base.h"
#include "schedule/pull.h"
#include "schedule/state.h"

namespace tensorgrad::schedule {
namespace {

using kernel::Expr;
using kernel::Index;
using kernel::IndexNode;
using kernel::Kernel;
using kernel::Pool;

// The dimensions an item is computed over: a reduction's output, then what it reduces.
struct Space {
  Shape dims;
  std::size_t out = 0;             // how many of them belong to the result
  std::vector<std::size_t> place;  // operand dimension -> index into dims (reductions)
};

Space space_of(const Item& item) {
  Space s;
  const Node& n = item.value.node();
  s.dims = n.type.shape;
  s.out = s.dims.size();
  if (item.kind != ItemKind::reduce) return s;
  const auto& axes = n.attr<AxesAttr>().axes;
  const Shape& from = n.operand(0).shape();
  std::size_t kept = 0;
  for (std::size_t d = 0; d < from.size(); ++d) {
    if (std::binary_search(axes.begin(), axes.end(), static_cast<int>(d))) {
      s.place.push_back(s.dims.size());
      s.dims.push_back(from[d]);
    } else {
      s.place.push_back(kept++);
    }
  }
  return s;
}

class GroupLowering : public LoweringBase {
 public:
  GroupLowering(const State& s, const std::vector<int>& ids) : LoweringBase(s, ids) {
    for (int i : ids_) spaces_[i] = space_of(item(i));
  }

  Lowered run() {
    if (item(ids_[0]).kind == ItemKind::contract) contraction(item(ids_[0]));
    bind();
    stages();
    return std::move(out_);
  }

 private:
  bool is_contraction(int i) const { return item(i).kind == ItemKind::contract; }

  // Every member's accesses to other members, in terms of its own dimensions.
  struct Use {
    int user, used;
    std::vector<int> dims;  // for each dimension of the used result, the user's, or -1 for index 0
  };

  std::vector<Use> find_uses() {
    std::vector<Use> uses;
    for (int i : ids_) {
      if (is_contraction(i)) continue;
      Pool pool;
      const Space& space = spaces_.at(i);
      std::vector<Index> loops;
      for (std::size_t d = 0; d < space.dims.size(); ++d) {
        loops.push_back(pool.loop(static_cast<int>(d), space.dims[d]));
      }
      std::set<const Node*> inlined;
      for (const auto& [n, j] : member_) {
        if (item(j).kind == ItemKind::map) inlined.insert(n);
      }
      Puller puller(
          s_, pool, [](const Location& at, const Shape&) { return at.buffer; }, inlined,
          [&](const Node& n, std::span<const Index> index) -> Expr {
            const auto m = member_.find(&n);
            if (m == member_.end() || m->second == i) return {};
            Use use{i, m->second, {}};
            bool bare = true;
            for (Index x : index) {
              const IndexNode& node = pool.node(x);
              if (node.kind == IndexNode::Kind::loop) {
                // A part, or padding around it, is not walked in step.
                bare = bare && space.dims[static_cast<std::size_t>(node.var)] ==
                                   n.type.shape[use.dims.size()];
                use.dims.push_back(node.var);
              } else {
                bare = bare && node.kind == IndexNode::Kind::sum && node.terms.empty() &&
                       node.constant == 0;
                use.dims.push_back(-1);
              }
            }
            const ItemKind kind = item(m->second).kind;
            if (!bare) {
              if (kind == ItemKind::reduce) throw Unfit{"a reduction's result is read elsewhere"};
              if (kind == ItemKind::contract) throw Unfit{"a contraction is read out of step"};
            } else {
              uses.push_back(use);
            }
            return kind == ItemKind::reduce ? pool.acc(0, m->second, n.type.dtype) : Expr{};
          });
      pull_body(puller, i, loops);
    }
    return uses;
  }

  Expr pull_body(Puller& puller, int i, const std::vector<Index>& loops) const {
    if (item(i).kind != ItemKind::reduce) return pull_map(puller, i, loops);
    std::vector<Index> index;
    for (std::size_t p : spaces_.at(i).place) index.push_back(loops[p]);
    return puller.element(item(i).value.node().operand(0), index, {});
  }

  // Assigns every dimension of every member to an outer loop or to a loop of its own.
  void bind() {
    const std::vector<Use> uses = find_uses();
    int anchor = -1;
    for (int i : ids_) {
      if (item(i).kind == ItemKind::reduce) {
        anchor = i;
        break;
      }
    }
    if (anchor < 0) {
      for (int i : ids_) {
        if (!is_contraction(i)) {
          anchor = i;
          break;
        }
      }
    }
    if (anchor < 0) return;  // a contraction alone
    const Space& row = spaces_.at(anchor);
    for (std::size_t d = 0; d < row.out; ++d) {
      outer_.push_back(row.dims[d] == 1 ? -1 : add_loop(row.dims[d]));
    }
    bound_[anchor] = std::vector<int>(row.dims.size(), -1);
    for (std::size_t d = 0; d < row.out; ++d) bound_[anchor][d] = outer_[d];

    bool progress = true;
    while (progress) {
      progress = false;
      for (const Use& u : uses) {
        if (is_contraction(u.used)) continue;
        const bool user = bound_.contains(u.user);
        const bool used = bound_.contains(u.used);
        if (user == used) continue;
        const int from = user ? u.user : u.used;
        const int to = user ? u.used : u.user;
        std::vector<int> loops(spaces_.at(to).dims.size(), -1);
        for (std::size_t d = 0; d < u.dims.size(); ++d) {
          if (u.dims[d] < 0) continue;
          const auto mine = static_cast<std::size_t>(u.dims[d]);
          if (user) {
            loops[d] = bound_[from][mine];
          } else {
            loops[mine] = bound_[from][d];
          }
        }
        bound_[to] = loops;
        progress = true;
      }
    }
    for (int i : ids_) {
      if (is_contraction(i) || bound_.contains(i)) continue;
      // Unrelated members share the outer loops position by position, extents of 1 apart.
      const Space& s = spaces_.at(i);
      bound_[i] = std::vector<int>(s.dims.size(), -1);
      std::size_t r = 0;
      for (std::size_t d = 0; d < s.out; ++d) {
        if (s.dims[d] == 1) continue;
        while (r < row.out && row.dims[r] == 1) ++r;
        if (r == row.out || row.dims[r] != s.dims[d]) throw Unfit{"unrelated index spaces"};
        bound_[i][d] = outer_[r++];
      }
      while (r < row.out && row.dims[r] == 1) ++r;
      if (r != row.out) throw Unfit{"unrelated index spaces"};
    }
    for (int i : ids_) {
      if (!is_contraction(i)) check_binding(i);
    }
    // Accumulators must be read in the row that computed them, contractions once an element.
    for (const Use& u : uses) {
      if (is_contraction(u.used) && item(u.user).value.size() != item(u.used).value.size()) {
        throw Unfit{"a contraction is read out of step"};
      }
      if (item(u.used).kind != ItemKind::reduce) continue;
      for (std::size_t d = 0; d < u.dims.size(); ++d) {
        const int expected = bound_[u.used][d];
        const int got = u.dims[d] < 0 ? -1 : bound_[u.user][static_cast<std::size_t>(u.dims[d])];
        if (expected != got) throw Unfit{"a reduction's result is read in another row"};
      }
    }
  }

  void check_binding(int i) const {
    const Space& s = spaces_.at(i);
    std::multiset<int> found;
    const auto& loops = bound_.at(i);
    for (std::size_t d = 0; d < s.dims.size(); ++d) {
      if (loops[d] >= 0) found.insert(loops[d]);
      if (item(i).kind == ItemKind::reduce && d < s.out && loops[d] < 0 && s.dims[d] != 1) {
        throw Unfit{"a reduction's result extends beyond the row"};
      }
      if (item(i).kind == ItemKind::reduce && d >= s.out && loops[d] >= 0) {
        throw Unfit{"a reduction over the rows"};
      }
    }
    for (int o : outer_) {
      if (o >= 0 && found.count(o) != 1) throw Unfit{"rows do not match"};
    }
    if (found.size() != static_cast<std::size_t>(std::count_if(outer_.begin(), outer_.end(),
                                                               [](int o) { return o >= 0; }))) {
      throw Unfit{"rows do not match"};
    }
  }

  // Loops of a stage for the dimensions that are not outer ones; equal extents share loops within
  // one stage.
  std::vector<Index> loops_of(int i, const std::vector<int>& stage_loops) {
    std::vector<Index> index;
    std::size_t next = 0;
    const Space& s = spaces_.at(i);
    for (std::size_t d = 0; d < s.dims.size(); ++d) {
      int loop = bound_.at(i)[d];
      if (loop < 0 && s.dims[d] != 1) loop = stage_loops[next++];
      index.push_back(loop < 0 ? out_.kernel.pool.number(0)
                               : out_.kernel.pool.loop(loop, s.dims[d]));
    }
    return index;
  }
  Shape inner_of(int i) const {
    Shape inner;
    const Space& s = spaces_.at(i);
    for (std::size_t d = 0; d < s.dims.size(); ++d) {
      if (bound_.at(i)[d] < 0 && s.dims[d] != 1) inner.push_back(s.dims[d]);
    }
    return inner;
  }
  std::vector<int> add_loops(const Shape& extents) {
    std::vector<int> loops;
    for (std::int64_t e : extents) loops.push_back(add_loop(e));
    return loops;
  }

  void stages() {
    Kernel& k = out_.kernel;
    for (int o : outer_) {
      if (o >= 0) k.nest.outer.push_back(o);
    }
    std::set<const Node*> inlined;
    for (const auto& [n, i] : member_) {
      if (item(i).kind == ItemKind::map) inlined.insert(n);
    }
    Puller* self = nullptr;
    Puller puller(
        s_, k.pool, [this](const auto& at, const auto& shape) { return read_argument(at, shape); },
        inlined,
        [&](const Node& n, std::span<const Index> index) -> Expr {
          const auto m = member_.find(&n);
          if (m == member_.end()) return {};
          if (is_contraction(m->second)) return self->load(*alias_, n, index, {});
          const auto a = accumulators_.find(m->second);
          if (a == accumulators_.end()) return {};
          return k.pool.acc(a->second.first, a->second.second, n.type.dtype);
        });
    self = &puller;

    // Reductions in dependency order; independent ones over equal loops share a stage.
    std::vector<Shape> inner_shapes;
    for (int i : ids_) {
      if (item(i).kind != ItemKind::reduce) continue;
      const Shape inner = inner_of(i);
      int stage = -1;
      if (!k.nest.stages.empty() && inner_shapes.back() == inner &&
          !uses_stage(puller, i, static_cast<int>(k.nest.stages.size()) - 1)) {
        stage = static_cast<int>(k.nest.stages.size()) - 1;
      } else {
        k.nest.stages.push_back({add_loops(inner), {}, {}});
        inner_shapes.push_back(inner);
        stage = static_cast<int>(k.nest.stages.size()) - 1;
      }
      kernel::Stage& st = k.nest.stages[static_cast<std::size_t>(stage)];
      const std::vector<Index> loops = loops_of(i, st.loops);
      kernel::Accumulator acc;
      acc.combiner = lowering_as<LowerReduce>(item(i).value.node())->combiner;
      acc.value = pull_body(puller, i, loops);
      acc.dtype = item(i).value.node().operand(0).dtype();
      acc.position = k.pool.number(0);
      const Space& s = spaces_.at(i);
      for (std::size_t d = s.out; d < s.dims.size(); ++d) {
        acc.position = k.pool.add(k.pool.mul(acc.position, s.dims[d]), loops[d]);
      }
      accumulators_[i] = {stage, static_cast<int>(st.accumulators.size())};
      st.accumulators.push_back(acc);
    }

    // Then the stores, one stage for each inner space.
    std::map<Shape, int> store_stages;
    for (int i : ids_) {
      const Item& it = item(i);
      if (is_contraction(i) || !it.stored) continue;
      const bool reduce = it.kind == ItemKind::reduce;
      const Shape inner = reduce ? Shape{} : inner_of(i);
      const auto [at, inserted] =
          store_stages.try_emplace(inner, static_cast<int>(k.nest.stages.size()));
      if (inserted) k.nest.stages.push_back({add_loops(inner), {}, {}});
      kernel::Stage& st = k.nest.stages[static_cast<std::size_t>(at->second)];
      std::vector<Index> loops;
      Expr value;
      if (reduce) {
        for (std::size_t d = 0; d < spaces_.at(i).out; ++d) {
          const int loop = bound_.at(i)[d];
          loops.push_back(loop < 0 ? k.pool.number(0) : k.pool.loop(loop, spaces_.at(i).dims[d]));
        }
        const auto [stage, slot] = accumulators_.at(i);
        value = k.pool.acc(stage, slot, it.value.dtype());
      } else {
        loops = loops_of(i, st.loops);
        value = pull_body(puller, i, loops);
      }
      kernel::Store store;
      store.index = puller.flat(it.dest, loops);
      store.value = value;
      store.buffer = argument(it.dest.buffer, true);
      st.stores.push_back(store);
    }
    if (k.nest.stages.empty() && !k.contraction) throw Unfit{"nothing to store"};
    check_overwrites();
  }

  // Whether item i reads an accumulator of `stage`.
  bool uses_stage(Puller&, int i, int stage) {
    const Node& n = item(i).value.node();
    std::set<const Node*> seen;
    std::vector<const Node*> pending{&n.operand(0).node()};
    while (!pending.empty()) {
      const Node* m = pending.back();
      pending.pop_back();
      if (!seen.insert(m).second) continue;
      const auto j = member_.find(m);
      if (j != member_.end() && item(j->second).kind == ItemKind::reduce) {
        if (accumulators_.at(j->second).first == stage) return true;
        continue;
      }
      if (s_.is_located(*m) && j == member_.end()) continue;
      for (const Tensor& o : m->operands) pending.push_back(&o.node());
    }
    return false;
  }

  // ---- contractions ------------------------------------------------------------------------------

  void contraction(const Item& it) {
    const Node& n = it.value.node();
    Location out = s_.locations.at(&n);
    if (!it.stored) out = alias_for(it, out);
    if (lowering_as<LowerConv>(n)) {
      out_.kernel.contraction =
          conv_of(s_, n, out, [this](int b, bool w) { return argument(b, w); });
      contraction_arg_ = kernel::result_buffer(*out_.kernel.contraction);
    } else {
      auto access = dot_access(n, out.strides, [&](const Node& m) { return located(m); });
      if (!access) {
        throw GraphError("schedule: a contraction's operand cannot be reached by strides.", n.site);
      }
      kernel::Matmul& m = access->matmul;
      m.lhs.buffer = argument(m.lhs.buffer);
      m.rhs.buffer = argument(m.rhs.buffer);
      m.out.buffer = argument(out.buffer, true);
      m.out.offset = out.offset;
      contraction_arg_ = m.out.buffer;
      out_.kernel.contraction = m;
    }
    alias_ = out;
  }

  // How item `i` of the epilogue reads the contraction's result and what lies in `buffer`.
  struct Reading {
    bool reads = false;    ///< the result at all
    bool in_step = true;   ///< only the element at the place of its own
    bool touches = false;  ///< what lies in the buffer
  };

  Reading reading(int i, const Node& result, int buffer) const {
    const Shape& shape = item(i).value.shape();
    Pool pool;
    std::vector<Index> loops;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      loops.push_back(pool.loop(static_cast<int>(d), shape[d]));
    }
    std::set<const Node*> inlined;
    for (const auto& [node, j] : member_) {
      if (item(j).kind == ItemKind::map) inlined.insert(node);
    }
    Reading found;
    Puller* self = nullptr;
    Puller puller(
        s_, pool, [](const Location& at, const Shape&) { return at.buffer; }, inlined,
        [&](const Node& node, std::span<const Index> index) -> Expr {
          if (&node == &result) {
            found.reads = true;
            const Index at = self->flat(dense(0, 0, node.type.shape), index);
            found.in_step = found.in_step && at == self->flat(dense(0, 0, shape), loops);
          } else if (s_.is_located(node) && s_.locations.at(&node).buffer == buffer) {
            found.touches = true;
          }
          return {};
        });
    self = &puller;
    pull_body(puller, i, loops);
    return found;
  }

  // The result of a contraction that only the epilogue reads lies where the epilogue's first store
  // of the same elements goes, if there is one and all of it walks in step.
  Location alias_for(const Item& it, const Location& own) const {
    const Node& n = it.value.node();
    std::optional<Location> alias;
    for (int i : ids_) {
      const Item& m = item(i);
      if (m.kind != ItemKind::map || !m.stored) continue;
      const Reading found = reading(i, n, m.dest.buffer);
      if (found.reads && !found.in_step) return own;
      if (!alias && found.reads && !found.touches && m.value.dtype() == n.type.dtype &&
          m.value.size() == it.value.size() && is_dense(m.dest, m.value.shape())) {
        alias = dense(m.dest.buffer, m.dest.offset, n.type.shape);
      }
    }
    return alias.value_or(own);
  }

  std::map<int, Space> spaces_;
  std::map<int, std::vector<int>> bound_;  // item -> loop of each dimension, -1 for its own
  std::vector<int> outer_;                 // loop of each row dimension, -1 for extent 1
  std::map<int, std::pair<int, int>> accumulators_;
  std::optional<Location> alias_;
};

}  // namespace

Lowered lower(const State& state, const std::vector<int>& items) {
  try {
    const auto kind = [&](int i) { return state.items[static_cast<std::size_t>(i)].kind; };
    const ItemKind first = kind(items[0]);
    if (first == ItemKind::attention) return lower_attention(state, items);
    if (first == ItemKind::scatter) return lower_scatter(state, items);
    if (first == ItemKind::sort) return lower_sorts(state, items);
    if (std::any_of(items.begin(), items.end(), [&](int i) { return kind(i) == ItemKind::scan; })) {
      return lower_scans(state, items);
    }
    return GroupLowering(state, items).run();
  } catch (const Unfit& u) {
    Lowered out;
    out.failure = u.why;
    return out;
  }
}

}  // namespace tensorgrad::schedule
