#include "kernel/overwrite.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "graph/order.h"
#include "kernel/visit.h"

namespace tensorgrad::kernel {
namespace {

std::int64_t extent_of(const Kernel& kernel, int loop) {
  return kernel.loops[static_cast<std::size_t>(loop)].extent;
}

std::vector<Index> loads_of(const Kernel& kernel, const Stage& stage, int buffer) {
  std::vector<Index> result;
  for_each_part(
      kernel.pool, roots(stage), [](const IndexNode&) {},
      [&](const ExprNode& n) {
        if (n.fn == Fn::load && n.buffer == buffer) result.push_back(n.index);
      });
  return result;
}

// Ranges of two indices do not meet: parts of one buffer.
bool disjoint(const Pool& pool, Index a, Index b) {
  const IndexNode& x = pool.node(a);
  const IndexNode& y = pool.node(b);
  return x.hi < y.lo || y.hi < x.lo;
}

// Whether no load of `from` meets a store to `to`, but for loads that come before if those count.
bool spares(const Kernel& kernel, int from, int to, bool earlier_counts) {
  const auto& stages = kernel.nest.stages;
  for (std::size_t reader = 0; reader < stages.size(); ++reader) {
    for (const Index load : loads_of(kernel, stages[reader], from)) {
      for (std::size_t writer = 0; writer < stages.size(); ++writer) {
        for (const Store& store : stages[writer].stores) {
          if (store.buffer != to || disjoint(kernel.pool, load, store.index)) continue;
          if (!earlier_counts || load != store.index || writer < reader) return false;
        }
      }
    }
  }
  return true;
}

// Whether the points of a stage have different values of an index: each term of the sum is a loop,
// and steps over all that the smaller terms reach together.
bool is_injective(const Kernel& kernel, const Stage& stage, Index index) {
  std::vector<std::int64_t> strides(kernel.loops.size());
  const auto add = [&](Index atom, std::int64_t factor) {
    const IndexNode& node = kernel.pool.node(atom);
    if (node.kind != IndexNode::Kind::loop) return false;
    strides[static_cast<std::size_t>(node.var)] += factor;
    return true;
  };
  const IndexNode& node = kernel.pool.node(index);
  if (node.kind == IndexNode::Kind::sum) {
    for (const auto& [atom, factor] : node.terms) {
      if (!add(Index{atom}, factor)) return false;
    }
  } else if (!add(index, 1)) {
    return false;
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // stride, extent
  for (const auto* loops : {&kernel.nest.outer, &stage.loops}) {
    for (const int loop : *loops) {
      const std::int64_t extent = extent_of(kernel, loop);
      if (extent != 1) steps.emplace_back(strides[static_cast<std::size_t>(loop)], extent);
    }
  }
  sort_values(steps);
  std::int64_t reach = 0;
  for (const auto& [stride, extent] : steps) {
    if (stride <= reach) return false;
    reach += stride * (extent - 1);
  }
  return true;
}

}  // namespace

Kernel share_loops(const Kernel& kernel) {
  Kernel result = kernel;
  std::vector<std::vector<int>> known;
  for (Stage& stage : result.nest.stages) {
    const auto same = std::find_if(known.begin(), known.end(), [&](const std::vector<int>& loops) {
      return std::equal(loops.begin(), loops.end(), stage.loops.begin(), stage.loops.end(),
                        [&](int a, int b) { return extent_of(result, a) == extent_of(result, b); });
    });
    if (same == known.end()) {
      known.push_back(stage.loops);
      continue;
    }
    if (*same == stage.loops) continue;
    std::vector<int> names(result.loops.size());
    std::iota(names.begin(), names.end(), 0);
    for (std::size_t i = 0; i < stage.loops.size(); ++i) {
      names[static_cast<std::size_t>(stage.loops[i])] = (*same)[i];
    }
    Pool& pool = result.pool;
    const Pool::Mapping mapping{.loop =
                                    [&](int var, std::int64_t extent) {
                                      return pool.loop(names[static_cast<std::size_t>(var)],
                                                       extent);
                                    },
                                .load = nullptr,
                                .acc = nullptr};
    stage.loops = *same;
    for (auto& accumulator : stage.accumulators) {
      accumulator.value = pool.rewrite(accumulator.value, mapping);
      if (accumulator.position.id >= 0) {
        accumulator.position = pool.rewrite(accumulator.position, mapping);
      }
    }
    for (auto& store : stage.stores) {
      store.index = pool.rewrite(store.index, mapping);
      store.value = pool.rewrite(store.value, mapping);
      if (store.cond.defined()) store.cond = pool.rewrite(store.cond, mapping);
    }
  }
  return result;
}

bool reads_before_writing(const Kernel& kernel, int from, int to) {
  return spares(kernel, from, to, true);
}

bool reads_elsewhere(const Kernel& kernel, int arg) { return spares(kernel, arg, arg, false); }

bool stores_once(const Kernel& kernel, int to) {
  for (const Stage& stage : kernel.nest.stages) {
    for (const Store& store : stage.stores) {
      if (store.buffer != to) continue;
      if (store.accumulate || !is_injective(kernel, stage, store.index)) return false;
    }
  }
  return true;
}

}  // namespace tensorgrad::kernel
