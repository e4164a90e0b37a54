// Loop shapes: splitting by the digits that accesses take of a loop, and joining of adjacent loops
// that every access walks as one.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>

#include "kernel/visit.h"
#include "schedule/state.h"

namespace tensorgrad::schedule {
namespace {

using kernel::Index;
using kernel::IndexNode;
using kernel::Kernel;
using kernel::Pool;
using kernel::Stage;

// A split whose inner loop is longer than this is left: the division then costs little beside it.
constexpr std::int64_t longest_digit = 8;

const auto ignore_expr = [](const kernel::ExprNode&) {};

bool contains(const Pool& pool, Index i, int var) {
  bool found = false;
  for_each_part(
      pool, i,
      [&](const IndexNode& n) {
        found = found || (n.kind == IndexNode::Kind::loop && n.var == var);
      },
      ignore_expr);
  return found;
}

// Whether a stage divides something that contains loop `var`.
bool divides(const Pool& pool, const Stage& stage, int var) {
  bool found = false;
  for_each_part(
      pool, roots(stage),
      [&](const IndexNode& n) {
        if (n.kind == IndexNode::Kind::div || n.kind == IndexNode::Kind::mod) {
          found = found || contains(pool, Index{n.arg}, var);
        }
      },
      ignore_expr);
  return found;
}

// Merges loops `at` and `at + 1` of `list`, which stages [first, last) use, unless one then
// divides, or divides by an extent of 0.
bool merge_pair(Kernel& k, std::vector<int>& list, std::size_t at, std::size_t first,
                std::size_t last) {
  const int a = list[at];
  const int b = list[at + 1];
  const std::int64_t inner = k.loops[static_cast<std::size_t>(b)].extent;
  if (inner == 0) return false;
  const std::int64_t extent = k.loops[static_cast<std::size_t>(a)].extent * inner;
  const int merged = static_cast<int>(k.loops.size());
  std::vector<Stage> stages(k.nest.stages.begin() + static_cast<std::ptrdiff_t>(first),
                            k.nest.stages.begin() + static_cast<std::ptrdiff_t>(last));
  Pool& pool = k.pool;
  Pool::Mapping mapping;
  mapping.loop = [&](int var, std::int64_t e) {
    const Index whole = pool.loop(merged, extent);
    if (var == a) return pool.div(whole, inner);
    if (var == b) return pool.mod(whole, inner);
    return pool.loop(var, e);
  };
  for (Stage& s : stages) {
    map_stage(pool, s, mapping);
    if (divides(pool, s, merged)) return false;
  }
  k.loops.push_back({extent});
  std::copy(stages.begin(), stages.end(),
            k.nest.stages.begin() + static_cast<std::ptrdiff_t>(first));
  list[at] = merged;
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  return true;
}

// The smallest number by which a stage divides loop `var` itself and which divides its extent.
std::optional<std::int64_t> digit(const Kernel& k, std::size_t first, std::size_t last, int var) {
  std::optional<std::int64_t> best;
  const std::int64_t extent = k.loops[static_cast<std::size_t>(var)].extent;
  for (std::size_t s = first; s < last; ++s) {
    for_each_part(
        k.pool, roots(k.nest.stages[s]),
        [&](const IndexNode& n) {
          if (n.kind != IndexNode::Kind::div && n.kind != IndexNode::Kind::mod) return;
          const IndexNode& arg = k.pool.node(Index{n.arg});
          const bool bare =
              arg.kind == IndexNode::Kind::loop
                  ? arg.var == var
                  : arg.kind == IndexNode::Kind::sum && arg.terms.size() == 1 &&
                        arg.terms[0].second == 1 &&
                        k.pool.node(Index{arg.terms[0].first}).kind == IndexNode::Kind::loop &&
                        k.pool.node(Index{arg.terms[0].first}).var == var;
          if (bare && n.divisor <= longest_digit && extent % n.divisor == 0 && n.divisor < extent &&
              (!best || n.divisor < *best)) {
            best = n.divisor;
          }
        },
        ignore_expr);
  }
  return best;
}

// Splits the loops of `list` by their digits.
void split_list(Kernel& k, std::vector<int>& list, std::size_t first, std::size_t last) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    const int var = list[i];
    const auto d = digit(k, first, last, var);
    if (!d) continue;
    const std::int64_t high_extent = k.loops[static_cast<std::size_t>(var)].extent / *d;
    const int high = static_cast<int>(k.loops.size());
    k.loops.push_back({high_extent});
    const int low = static_cast<int>(k.loops.size());
    k.loops.push_back({*d});
    Pool& pool = k.pool;
    Pool::Mapping mapping;
    mapping.loop = [&](int v, std::int64_t e) {
      if (v != var) return pool.loop(v, e);
      return pool.add(pool.mul(pool.loop(high, high_extent), *d), pool.loop(low, *d));
    };
    for (std::size_t s = first; s < last; ++s) map_stage(pool, k.nest.stages[s], mapping);
    list[i] = high;
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(i) + 1, low);
  }
}

}  // namespace

void map_stage(Pool& pool, Stage& stage, const Pool::Mapping& mapping) {
  for (auto& a : stage.accumulators) {
    a.value = pool.rewrite(a.value, mapping);
    a.position = pool.rewrite(a.position, mapping);
  }
  for (auto& s : stage.stores) {
    s.value = pool.rewrite(s.value, mapping);
    s.index = pool.rewrite(s.index, mapping);
    if (s.cond.defined()) s.cond = pool.rewrite(s.cond, mapping);
  }
}

void split_loops(Kernel& k) {
  split_list(k, k.nest.outer, 0, k.nest.stages.size());
  for (std::size_t s = 0; s < k.nest.stages.size(); ++s) {
    std::vector<int> list = k.nest.stages[s].loops;
    split_list(k, list, s, s + 1);
    k.nest.stages[s].loops = list;
  }
}

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
