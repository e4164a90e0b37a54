// Loops joined to one, and questions asked of accesses.
#include <fmt/format.h>

#include <limits>
#include <map>

#include "codegen/wgsl/nest.h"
#include "kernel/visit.h"
#include "tensorgrad/error.h"

namespace tensorgrad::wgsl {

using kernel::Expr;
using kernel::ExprNode;
using kernel::Fn;
using kernel::Index;
using kernel::IndexNode;
using kernel::Kernel;
using kernel::Stage;

std::int64_t points(const Kernel& kernel, const std::vector<int>& loops) {
  std::int64_t result = 1;
  for (const int var : loops) result *= kernel.loops[static_cast<std::size_t>(var)].extent;
  return result;
}

namespace {

/// Adds to `map` the value of each of `loops` in terms of one loop `var` of a pool.
void split_loop(const Kernel& source, kernel::Pool& pool, const std::vector<int>& loops, int var,
                std::map<int, Index>& map) {
  std::int64_t total = points(source, loops);
  if (total > std::numeric_limits<std::uint32_t>::max()) {
    throw GraphError(
        fmt::format("kernel {} has {} points, more than 32 bits count", source.name, total));
  }
  if (total == 0) return;  // never evaluated
  Index rest = pool.loop(var, total);
  for (const int loop : loops) {
    const std::int64_t extent = source.loops[static_cast<std::size_t>(loop)].extent;
    total /= extent;
    map[loop] = pool.div(rest, total);
    rest = pool.mod(rest, total);
  }
}

Stage import_stage(const Kernel& source, const Stage& stage, kernel::Pool& pool,
                   const std::map<int, Index>& map) {
  kernel::Pool::Mapping mapping;
  mapping.loop = [&](int var, std::int64_t) {
    const auto found = map.find(var);
    return found == map.end() ? pool.number(0) : found->second;
  };
  const auto import = [&](Expr e) {
    return e.defined() ? pool.import(source.pool, e, mapping) : e;
  };
  Stage result;
  for (const kernel::Accumulator& a : stage.accumulators) {
    kernel::Accumulator copy = a;
    copy.value = import(a.value);
    if (a.position.id >= 0) copy.position = pool.import(source.pool, a.position, mapping);
    result.accumulators.push_back(copy);
  }
  for (const kernel::Store& s : stage.stores) {
    kernel::Store copy = s;
    copy.index = pool.import(source.pool, s.index, mapping);
    copy.value = import(s.value);
    copy.cond = import(s.cond);
    result.stores.push_back(copy);
  }
  return result;
}

}  // namespace

FlatNest flatten_rows(const Kernel& kernel) {
  FlatNest flat;
  Kernel& k = flat.kernel;
  k.name = kernel.name;
  k.args = kernel.args;
  flat.rows = points(kernel, kernel.nest.outer);
  k.loops.push_back({flat.rows});
  k.nest.outer = {0};
  std::map<std::int64_t, int> vars;
  for (const Stage& stage : kernel.nest.stages) {
    std::map<int, Index> map;
    split_loop(kernel, k.pool, kernel.nest.outer, 0, map);
    FlatNest::Columns columns;
    columns.count = points(kernel, stage.loops);
    if (columns.count != 1) {
      const auto [at, is_new] = vars.try_emplace(columns.count, static_cast<int>(k.loops.size()));
      if (is_new) k.loops.push_back({columns.count});
      columns.var = at->second;
      split_loop(kernel, k.pool, stage.loops, columns.var, map);
    }
    Stage copy = import_stage(kernel, stage, k.pool, map);
    if (columns.var >= 0) copy.loops.push_back(columns.var);
    k.nest.stages.push_back(std::move(copy));
    flat.stages.push_back(columns);
  }
  return flat;
}

Kernel flatten_points(const Kernel& kernel, std::span<const std::size_t> stages) {
  Kernel k;
  k.name = kernel.name;
  k.args = kernel.args;
  std::map<std::int64_t, int> vars;
  for (const std::size_t number : stages) {
    const Stage& stage = kernel.nest.stages[number];
    std::vector<int> loops = kernel.nest.outer;
    loops.insert(loops.end(), stage.loops.begin(), stage.loops.end());
    const std::int64_t count = points(kernel, loops);
    const auto [at, is_new] = vars.try_emplace(count, static_cast<int>(k.loops.size()));
    if (is_new) k.loops.push_back({count});
    std::map<int, Index> map;
    split_loop(kernel, k.pool, loops, at->second, map);
    Stage copy = import_stage(kernel, stage, k.pool, map);
    copy.loops = {at->second};
    k.nest.stages.push_back(std::move(copy));
  }
  return k;
}

Touched touched(const Kernel& kernel, const Stage& stage) {
  Touched result;
  for (const kernel::Store& s : stage.stores) result.stores.insert(s.buffer);
  kernel::for_each_part(
      kernel.pool, kernel::roots(stage), [](const IndexNode&) {},
      [&](const ExprNode& n) {
        if (n.fn == Fn::load) result.loads.insert(n.buffer);
      });
  return result;
}

bool scans(const Stage& stage) { return !stage.accumulators.empty() && !stage.stores.empty(); }

std::optional<std::int64_t> stride(const Kernel& kernel, Index index, int var) {
  const IndexNode& node = kernel.pool.node(index);
  if (node.kind == IndexNode::Kind::loop) return node.var == var ? 1 : 0;
  if (node.kind != IndexNode::Kind::sum) {
    bool depends = false;
    kernel::for_each_part(
        kernel.pool, index,
        [&](const IndexNode& n) {
          depends = depends || (n.kind == IndexNode::Kind::loop && n.var == var);
        },
        [](const ExprNode&) {});
    return depends ? std::nullopt : std::optional<std::int64_t>(0);
  }
  std::int64_t total = 0;
  for (const auto& [atom, factor] : node.terms) {
    const auto inner = stride(kernel, Index{atom}, var);
    if (!inner) return std::nullopt;
    total += factor * *inner;
  }
  return total;
}

std::vector<Index> accesses(const Kernel& kernel, const Stage& stage) {
  std::vector<Index> result;
  for (const kernel::Store& s : stage.stores) result.push_back(s.index);
  kernel::for_each_part(
      kernel.pool, kernel::roots(stage), [](const IndexNode&) {},
      [&](const ExprNode& n) {
        if (n.fn == Fn::load) result.push_back(n.index);
      });
  return result;
}

}  // namespace tensorgrad::wgsl
