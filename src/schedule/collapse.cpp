// Adjacent loops that every access walks as one loop become one: longer vectors, less overhead.
#include <functional>
#include <set>

#include "schedule/state.h"

namespace tensorgrad::schedule {
namespace {

using kernel::Expr;
using kernel::ExprNode;
using kernel::Index;
using kernel::IndexNode;
using kernel::Kernel;
using kernel::Pool;
using kernel::Stage;

// Whether an index or expression divides by something that contains loop `var`.
class DivisionFinder {
 public:
  DivisionFinder(const Pool& pool, int var) : pool_(pool), var_(var) {}
  bool in(Expr e) {
    if (e.id < 0 || !exprs_.insert(e.id).second) return false;
    const ExprNode& n = pool_.node(e);
    for (std::int32_t a : n.args) {
      if (in(Expr{a})) return true;
    }
    return n.index.id >= 0 && in(n.index);
  }
  bool in(Index i) {
    if (!indices_.insert(i.id).second) return false;
    const IndexNode& n = pool_.node(i);
    switch (n.kind) {
      case IndexNode::Kind::div:
      case IndexNode::Kind::mod:
        return contains(Index{n.arg}) || in(Index{n.arg});
      case IndexNode::Kind::value:
        return in(n.expr);
      case IndexNode::Kind::sum:
        for (auto [atom, factor] : n.terms) {
          if (in(Index{atom})) return true;
        }
        return false;
      case IndexNode::Kind::loop:
        return false;
    }
    return false;
  }

 private:
  bool contains(Index i) const {
    const IndexNode& n = pool_.node(i);
    switch (n.kind) {
      case IndexNode::Kind::loop:
        return n.var == var_;
      case IndexNode::Kind::div:
      case IndexNode::Kind::mod:
        return contains(Index{n.arg});
      case IndexNode::Kind::value:
        return false;
      case IndexNode::Kind::sum:
        for (auto [atom, factor] : n.terms) {
          if (contains(Index{atom})) return true;
        }
        return false;
    }
    return false;
  }
  const Pool& pool_;
  int var_;
  std::set<std::int32_t> exprs_, indices_;
};

// Every expression of a stage, replaced by `f`.
void map_stage(Stage& stage, const std::function<Expr(Expr)>& f,
               const std::function<Index(Index)>& g) {
  for (auto& a : stage.accumulators) {
    a.value = f(a.value);
    a.position = g(a.position);
  }
  for (auto& s : stage.stores) {
    s.value = f(s.value);
    s.index = g(s.index);
    if (s.cond.defined()) s.cond = f(s.cond);
  }
}

bool divides(const Pool& pool, const Stage& stage, int var) {
  DivisionFinder finder(pool, var);
  for (const auto& a : stage.accumulators) {
    if (finder.in(a.value) || finder.in(a.position)) return true;
  }
  for (const auto& s : stage.stores) {
    if (finder.in(s.value) || finder.in(s.index) || (s.cond.defined() && finder.in(s.cond))) {
      return true;
    }
  }
  return false;
}

// Merges loops `at` and `at + 1` of `list` if no stage then divides; `affected` stages use them.
bool merge_pair(Kernel& k, std::vector<int>& list, std::size_t at, std::size_t first_stage,
                std::size_t last_stage) {
  const int a = list[at];
  const int b = list[at + 1];
  const std::int64_t inner = k.loops[static_cast<std::size_t>(b)].extent;
  const std::int64_t extent = k.loops[static_cast<std::size_t>(a)].extent * inner;
  const int merged = static_cast<int>(k.loops.size());
  std::vector<Stage> stages(k.nest.stages.begin() + static_cast<std::ptrdiff_t>(first_stage),
                            k.nest.stages.begin() + static_cast<std::ptrdiff_t>(last_stage));
  Pool& pool = k.pool;
  Pool::Mapping mapping;
  mapping.loop = [&](int var, std::int64_t e) {
    const Index whole = pool.loop(merged, extent);
    if (var == a) return pool.div(whole, inner);
    if (var == b) return pool.mod(whole, inner);
    return pool.loop(var, e);
  };
  for (Stage& s : stages) {
    map_stage(
        s, [&](Expr e) { return pool.rewrite(e, mapping); },
        [&](Index i) { return pool.rewrite(i, mapping); });
    if (divides(pool, s, merged)) return false;
  }
  k.loops.push_back({extent});
  std::copy(stages.begin(), stages.end(),
            k.nest.stages.begin() + static_cast<std::ptrdiff_t>(first_stage));
  list[at] = merged;
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  return true;
}

}  // namespace

void collapse_loops(Kernel& k) {
  for (std::size_t i = k.nest.outer.size(); i-- > 1;) {
    merge_pair(k, k.nest.outer, i - 1, 0, k.nest.stages.size());
  }
  for (std::size_t s = 0; s < k.nest.stages.size(); ++s) {
    for (std::size_t i = k.nest.stages[s].loops.size(); i-- > 1;) {
      std::vector<int> list = k.nest.stages[s].loops;
      if (merge_pair(k, list, i - 1, s, s + 1)) k.nest.stages[s].loops = list;
    }
  }
}

}  // namespace tensorgrad::schedule
