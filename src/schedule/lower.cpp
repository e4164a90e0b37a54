// From a group of items to one kernel: loops, stages, and expressions pulled back through views.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "kernel/visit.h"
#include "ops/rules.h"
#include "schedule/pull.h"
#include "schedule/state.h"

namespace tensorgrad::schedule {
namespace {

using kernel::Expr;
using kernel::ExprNode;
using kernel::Fn;
using kernel::Index;
using kernel::IndexNode;
using kernel::Kernel;
using kernel::Pool;

// A reason why a group cannot be one kernel; caught in `lower`.
struct Unfit {
  std::string why;
};

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

class GroupLowering {
 public:
  GroupLowering(const State& s, const std::vector<int>& ids) : s_(s), ids_(ids) {
    for (int i : ids_) {
      const Item& item = s_.items[static_cast<std::size_t>(i)];
      member_[&item.value.node()] = i;
      spaces_[i] = space_of(item);
    }
  }

  Lowered run() {
    const Item& first = s_.items[static_cast<std::size_t>(ids_[0])];
    if (first.kind == ItemKind::contract) {
      contraction(first);
    } else if (first.kind == ItemKind::attention) {
      out_.kernel.contraction =
          attention_of(s_, ids_, [this](int b, bool w) { return argument(b, w); });
      return finish();
    } else if (first.kind == ItemKind::scatter) {
      scatter(first);
      return finish();
    }
    bind();
    stages();
    return finish();
  }

 private:
  const Item& item(int i) const { return s_.items[static_cast<std::size_t>(i)]; }
  bool is_contraction(int i) const { return item(i).kind == ItemKind::contract; }

  std::optional<Location> located(const Node& n) const {
    const auto at = s_.locations.find(&n);
    return at == s_.locations.end() ? std::nullopt : std::optional(at->second);
  }

  int argument(int buffer, bool written = false) {
    const auto [it, inserted] =
        arguments_.try_emplace(buffer, static_cast<int>(out_.buffers.size()));
    if (inserted) {
      out_.buffers.push_back(buffer);
      const PlanBuffer& b = s_.buffers[static_cast<std::size_t>(buffer)];
      out_.kernel.args.push_back({b.dtype, b.elements, false, false});
    }
    auto& arg = out_.kernel.args[static_cast<std::size_t>(it->second)];
    (written ? arg.written : arg.read) = true;
    return it->second;
  }

  int add_loop(std::int64_t extent) {
    out_.kernel.loops.push_back({extent});
    return static_cast<int>(out_.kernel.loops.size()) - 1;
  }

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
      const Node& self = item(i).value.node();
      std::set<const Node*> inlined;
      for (const auto& [n, j] : member_) {
        if (item(j).kind == ItemKind::map) inlined.insert(n);
      }
      Puller puller(
          s_, pool, [](int buffer) { return buffer; }, inlined,
          [&](const Node& n, std::span<const Index> index) -> Expr {
            const auto m = member_.find(&n);
            if (m == member_.end() || m->second == i) return {};
            Use use{i, m->second, {}};
            bool bare = true;
            for (Index x : index) {
              const IndexNode& node = pool.node(x);
              if (node.kind == IndexNode::Kind::loop) {
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
      pull_body(puller, pool, i, loops, self);
    }
    return uses;
  }

  Expr pull_body(Puller& puller, Pool& pool, int i, const std::vector<Index>& loops,
                 const Node& self) {
    const Item& it = item(i);
    if (it.kind == ItemKind::reduce) {
      std::vector<Index> index;
      for (std::size_t p : spaces_.at(i).place) index.push_back(loops[p]);
      return puller.element(self.operand(0), index, {});
    }
    static_cast<void>(pool);
    const auto at = s_.locations.find(&self);
    if (at != s_.locations.end() && at->second.buffer != it.dest.buffer) {
      return puller.load(at->second, self.type.dtype, loops, {});  // a copy
    }
    return puller.compute(self, loops, {});
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
        s_, k.pool, [this](int buffer) { return argument(buffer); }, inlined,
        [&](const Node& n, std::span<const Index> index) -> Expr {
          const auto m = member_.find(&n);
          if (m == member_.end()) return {};
          if (is_contraction(m->second)) return self->load(*alias_, n.type.dtype, index, {});
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
      acc.value = pull_body(puller, k.pool, i, loops, item(i).value.node());
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
        value = pull_body(puller, k.pool, i, loops, it.value.node());
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

  // A buffer that is both read and written must be read at the element written, before the write;
  // and what it held before must be meant: that of a state, or a contraction's result. Another
  // buffer gets its contents from this very kernel, whose loads of a stage run before its stores.
  void check_overwrites() {
    const Kernel& k = out_.kernel;
    for (std::size_t s = 0; s < k.nest.stages.size(); ++s) {
      for (const kernel::Store& store : k.nest.stages[s].stores) {
        if (!k.args[static_cast<std::size_t>(store.buffer)].read) continue;
        const bool own_acc = store.buffer == contraction_arg_;
        const int buffer = out_.buffers[static_cast<std::size_t>(store.buffer)];
        const bool has_contents =
            own_acc || s_.buffers[static_cast<std::size_t>(buffer)].kind == BufferKind::state;
        for (std::size_t r = 0; r < k.nest.stages.size(); ++r) {
          for (const ExprNode& load : loads_of(k.nest.stages[r])) {
            if (load.buffer != store.buffer) continue;
            if (has_contents && load.index == store.index && r <= s) continue;
            if (disjoint(load.index, store.index)) continue;
            throw Unfit{own_acc ? "the epilogue reads elsewhere than it writes"
                                : "a buffer is read after it is overwritten"};
          }
        }
      }
    }
  }

  // Ranges of two indices do not meet: parts of one buffer.
  bool disjoint(Index a, Index b) const {
    const IndexNode& x = out_.kernel.pool.node(a);
    const IndexNode& y = out_.kernel.pool.node(b);
    return x.hi < y.lo || y.hi < x.lo;
  }

  std::vector<ExprNode> loads_of(const kernel::Stage& stage) const {
    std::vector<ExprNode> loads;
    for_each_part(
        out_.kernel.pool, roots(stage), [](const IndexNode&) {},
        [&](const ExprNode& n) {
          if (n.fn == Fn::load) loads.push_back(n);
        });
    return loads;
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

  // The result of a contraction that only the epilogue reads lies where the epilogue's first store
  // of the same elements goes, if there is one.
  Location alias_for(const Item& it, const Location& own) {
    const Node& n = it.value.node();
    for (int i : ids_) {
      const Item& m = item(i);
      if (m.kind != ItemKind::map || !m.stored || m.value.dtype() != n.type.dtype ||
          m.value.size() != it.value.size() || !is_dense(m.dest, m.value.shape())) {
        continue;
      }
      Pool pool;
      std::vector<Index> loops;
      for (std::size_t d = 0; d < m.value.shape().size(); ++d) {
        loops.push_back(pool.loop(static_cast<int>(d), m.value.shape()[d]));
      }
      bool same = true;
      bool seen = false;
      std::set<const Node*> inlined;
      for (const auto& [node, j] : member_) {
        if (item(j).kind == ItemKind::map) inlined.insert(node);
      }
      Puller* self = nullptr;
      Puller puller(
          s_, pool, [](int buffer) { return buffer; }, inlined,
          [&](const Node& node, std::span<const Index> index) -> Expr {
            if (&node == &n) {
              seen = true;
              const Location flat_space = dense(0, 0, n.type.shape);
              const Location mine = dense(0, 0, m.value.shape());
              same = same && self->flat(flat_space, index) == self->flat(mine, loops);
            } else if (s_.is_located(node) && s_.locations.at(&node).buffer == m.dest.buffer) {
              same = false;  // the destination's old value is read too
            }
            return {};
          });
      self = &puller;
      pull_body(puller, pool, i, loops, m.value.node());
      if (seen && same) return dense(m.dest.buffer, m.dest.offset, n.type.shape);
    }
    return own;
  }

  // ---- scatter -----------------------------------------------------------------------------------

  void scatter(const Item& it) {
    Kernel& k = out_.kernel;
    const Node& n = it.value.node();
    const auto& l = *lowering_as<LowerScatter>(n);
    Puller puller(s_, k.pool, [this](int buffer) { return argument(buffer); }, {}, {});
    const auto index_over = [&](const Shape& shape, std::vector<int>& loops) {
      std::vector<Index> index;
      for (std::int64_t e : shape) {
        if (e != 1) loops.push_back(add_loop(e));
        index.push_back(e == 1 ? k.pool.number(0) : k.pool.loop(loops.back(), e));
      }
      return index;
    };
    kernel::Stage clear;
    const std::vector<Index> all = index_over(n.type.shape, clear.loops);
    const int out = argument(it.dest.buffer, true);
    clear.stores.push_back(
        {out, puller.flat(it.dest, all), k.pool.constant(0, n.type.dtype), {}, false});
    kernel::Stage add;
    const Tensor& updates = n.operand(1);
    const std::vector<Index> at = index_over(updates.shape(), add.loops);
    const ReadOperand read = [&](int operand, std::span<const Index> index) {
      return puller.element(n.operand(static_cast<std::size_t>(operand)),
                            {index.begin(), index.end()}, {});
    };
    const Source s = l.fn(k.pool, n, at, read);
    add.stores.push_back(
        {out, puller.flat(it.dest, s.index), puller.element(updates, at, s.valid), s.valid, true});
    k.nest.stages.push_back(clear);
    if (updates.size() > 0) k.nest.stages.push_back(add);
  }

  Lowered finish() { return std::move(out_); }

  const State& s_;
  std::vector<int> ids_;
  std::unordered_map<const Node*, int> member_;
  std::map<int, Space> spaces_;
  std::map<int, std::vector<int>> bound_;  // item -> loop of each dimension, -1 for its own
  std::vector<int> outer_;                 // loop of each row dimension, -1 for extent 1
  std::map<int, std::pair<int, int>> accumulators_;
  std::map<int, int> arguments_;
  int contraction_arg_ = -1;
  std::optional<Location> alias_;
  Lowered out_;
};

}  // namespace

Lowered lower(const State& state, const std::vector<int>& items) {
  try {
    return GroupLowering(state, items).run();
  } catch (const Unfit& u) {
    Lowered out;
    out.failure = u.why;
    return out;
  }
}

}  // namespace tensorgrad::schedule
