// Chooses which loop of a nest runs innermost, from the strides of its loads and stores.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>
#include <vector>

#include "codegen/llvm/render.h"
#include "kernel/visit.h"

namespace tensorgrad::llvm_ir {
namespace {

using kernel::Expr;
using kernel::ExprNode;
using kernel::Fn;
using kernel::Index;
using kernel::IndexNode;
using kernel::Kernel;
using kernel::Stage;

bool depends(const Kernel& kernel, Index index, int var);

bool depends(const Kernel& kernel, Expr expr, int var) {
  std::vector<Expr> stack{expr};
  std::set<std::int32_t> seen;
  while (!stack.empty()) {
    const ExprNode& node = kernel.pool.node(stack.back());
    stack.pop_back();
    if (node.index.id >= 0 && depends(kernel, node.index, var)) return true;
    for (const std::int32_t arg : node.args) {
      if (arg >= 0 && seen.insert(arg).second) stack.push_back(Expr{arg});
    }
  }
  return false;
}

bool depends(const Kernel& kernel, Index index, int var) {
  const IndexNode& node = kernel.pool.node(index);
  switch (node.kind) {
    case IndexNode::Kind::loop:
      return node.var == var;
    case IndexNode::Kind::div:
    case IndexNode::Kind::mod:
      return depends(kernel, Index{node.arg}, var);
    case IndexNode::Kind::value:
      return depends(kernel, node.expr, var);
    case IndexNode::Kind::sum:
      break;
  }
  for (const auto& [atom, factor] : node.terms) {
    if (depends(kernel, Index{atom}, var)) return true;
  }
  return false;
}

/// How far the access moves when `var` grows by one; nothing if that varies.
std::optional<std::int64_t> stride(const Kernel& kernel, Index index, int var) {
  const IndexNode& node = kernel.pool.node(index);
  if (node.kind == IndexNode::Kind::loop) return node.var == var ? 1 : 0;
  if (node.kind != IndexNode::Kind::sum) {
    return depends(kernel, index, var) ? std::nullopt : std::optional<std::int64_t>(0);
  }
  std::int64_t total = 0;
  for (const auto& [atom, factor] : node.terms) {
    const auto inner = stride(kernel, Index{atom}, var);
    if (!inner) return std::nullopt;
    total += factor * *inner;
  }
  return total;
}

/// The accesses of a stage, each once.
std::vector<Index> accesses(const Kernel& kernel, const Stage& stage) {
  std::vector<Index> result;
  std::vector<Expr> stack;
  for (const auto& accumulator : stage.accumulators) stack.push_back(accumulator.value);
  for (const auto& store : stage.stores) {
    result.push_back(store.index);
    stack.push_back(store.value);
    if (store.cond.defined()) stack.push_back(store.cond);
  }
  std::set<std::int32_t> seen;
  while (!stack.empty()) {
    const Expr expr = stack.back();
    stack.pop_back();
    if (!seen.insert(expr.id).second) continue;
    const ExprNode& node = kernel.pool.node(expr);
    if (node.fn == Fn::load) result.push_back(node.index);
    for (const std::int32_t arg : node.args) {
      if (arg >= 0) stack.push_back(Expr{arg});
    }
  }
  return result;
}

/// Relative cost of an access in a loop over `var`.
int cost(const Kernel& kernel, Index index, int var) {
  const auto step = stride(kernel, index, var);
  if (!step) return 8;
  return *step >= -1 && *step <= 1 ? 1 : 6;
}

}  // namespace

Order choose_order(const Kernel& kernel) {
  constexpr std::int64_t narrowest_tile = 8;
  if (kernel.nest.outer.empty()) return Order::row;
  const int column_var = kernel.nest.outer.back();
  if (kernel.loops[static_cast<std::size_t>(column_var)].extent < narrowest_tile) return Order::row;
  double row = 0;
  double column = 0;
  bool reduces = false;
  for (const Stage& stage : kernel.nest.stages) {
    for (const auto& store : stage.stores) {
      if (store.accumulate) return Order::row;  // its iterations run in order
    }
    double iterations = 1;
    int row_var = column_var;
    for (const int var : stage.loops) {
      const auto extent = kernel.loops[static_cast<std::size_t>(var)].extent;
      iterations *= static_cast<double>(extent);
      if (extent > 1) row_var = var;
    }
    reduces = reduces || (!stage.accumulators.empty() && iterations > 1);
    for (const Index index : accesses(kernel, stage)) {
      row += iterations * cost(kernel, index, row_var);
      column += iterations * cost(kernel, index, column_var);
    }
  }
  if (reduces && column < row) return Order::column;
  return crossing_loop(kernel) >= 0 ? Order::block : Order::row;
}

int crossing_loop(const Kernel& kernel) {
  // Smaller maps stay in the cache however they are run.
  constexpr std::int64_t smallest = 32;
  const auto extent = [&](int var) { return kernel.loops[static_cast<std::size_t>(var)].extent; };
  if (kernel.nest.outer.empty() || extent(kernel.nest.outer.back()) < smallest) return -1;
  const int inner = kernel.nest.outer.back();
  for (const Stage& stage : kernel.nest.stages) {
    if (!stage.accumulators.empty() || !stage.loops.empty()) return -1;
  }
  for (const Stage& stage : kernel.nest.stages) {
    for (const Index index : accesses(kernel, stage)) {
      const auto step = stride(kernel, index, inner);
      if (!step || std::abs(*step) < smallest) continue;
      for (const int var : kernel.nest.outer) {
        if (extent(var) >= smallest && stride(kernel, index, var) == 1) return var;
      }
    }
  }
  return -1;
}

int split_loop(const Kernel& kernel) {
  // Enough parts for many threads; an outer loop keeps what they write apart.
  constexpr std::int64_t plenty = 16;
  int best = -1;
  for (const int var : kernel.nest.outer) {
    const auto extent = [&](int loop) {
      return kernel.loops[static_cast<std::size_t>(loop)].extent;
    };
    if (best < 0 || (extent(best) < plenty && extent(var) > extent(best))) best = var;
  }
  return best;
}

std::int64_t split_extent(const Kernel& kernel) {
  const int var = split_loop(kernel);
  return var < 0 ? 1 : kernel.loops[static_cast<std::size_t>(var)].extent;
}

bool can_split(const Kernel& kernel) {
  for (const Stage& stage : kernel.nest.stages) {
    for (const auto& store : stage.stores) {
      if (store.accumulate) return false;  // its iterations run in order
    }
  }
  return !kernel.nest.outer.empty();
}

std::optional<Footprint> footprint(const Kernel& kernel, int loop, int buffer) {
  const std::int64_t extent = kernel.loops[static_cast<std::size_t>(loop)].extent;
  std::optional<Footprint> result;
  std::int64_t last = 0;
  bool apart = true;
  const auto touch = [&](Index index) {
    const auto step = stride(kernel, index, loop);
    if (!step || *step <= 0 || (result && result->step != *step)) {
      apart = false;
      return;
    }
    const IndexNode& node = kernel.pool.node(index);
    const std::int64_t high = node.hi - *step * (extent - 1);
    if (!result) {
      result = {node.lo, *step};
      last = high;
    }
    result->first = std::min(result->first, node.lo);
    last = std::max(last, high);
  };
  for (const Stage& stage : kernel.nest.stages) {
    kernel::for_each_part(
        kernel.pool, kernel::roots(stage), [](const IndexNode&) {},
        [&](const ExprNode& node) {
          if (node.fn == Fn::load && node.buffer == buffer) touch(node.index);
        });
    for (const auto& store : stage.stores) {
      if (store.buffer == buffer) touch(store.index);
    }
  }
  if (!apart || !result || last - result->first >= result->step) return std::nullopt;
  return result;
}

}  // namespace tensorgrad::llvm_ir
