#include "codegen/llvm/share.h"

#include <algorithm>
#include <optional>
#include <set>
#include <unordered_set>

#include "codegen/llvm/math.h"
#include "kernel/visit.h"

namespace tensorgrad::llvm_ir {
namespace {

using kernel::Expr;
using kernel::ExprNode;
using kernel::Fn;
using kernel::IndexNode;
using kernel::Kernel;
using kernel::Stage;

std::int64_t extent_of(const Kernel& kernel, int loop) {
  return kernel.loops[static_cast<std::size_t>(loop)].extent;
}

/// The loop of a stage that runs more than once, if it is the only one and the stage is no scan,
/// which runs its loops by itself.
std::optional<int> only_loop(const Kernel& kernel, const Stage& stage) {
  if (!stage.accumulators.empty() && !stage.stores.empty()) return std::nullopt;
  std::optional<int> result;
  for (const int loop : stage.loops) {
    if (extent_of(kernel, loop) == 1) continue;
    if (result) return std::nullopt;
    result = loop;
  }
  return result;
}

bool calls_function(const Kernel& kernel, Expr value) {
  bool result = false;
  kernel::for_each_part(
      kernel.pool, value, [](const IndexNode&) {},
      [&](const ExprNode& node) { result = result || has_helper(node.fn, node.dtype); });
  return result;
}

bool depends_on(const Kernel& kernel, Expr value, int loop) {
  bool result = false;
  kernel::for_each_part(
      kernel.pool, value,
      [&](const IndexNode& node) {
        result = result || (node.kind == IndexNode::Kind::loop && node.var == loop);
      },
      [](const ExprNode&) {});
  return result;
}

/// The parts of a stage's values that run at every point, operands after what uses them.
std::vector<Expr> parts(const Kernel& kernel, const Stage& stage,
                        const std::unordered_set<std::int32_t>& stop) {
  std::vector<Expr> open = kernel::roots(stage).exprs;
  std::vector<Expr> result;
  std::unordered_set<std::int32_t> seen;
  while (!open.empty()) {
    const Expr expr = open.back();
    open.pop_back();
    if (!seen.insert(expr.id).second) continue;
    result.push_back(expr);
    if (stop.contains(expr.id)) continue;
    for (const std::int32_t arg : kernel.pool.node(expr).args) {
      if (arg >= 0) open.push_back(Expr{arg});
    }
  }
  return result;
}

/// Whether the value may change before a stage computes it for the last time.
bool changes(const Kernel& kernel, Expr value) {
  const auto& stages = kernel.nest.stages;
  std::size_t last = stages.size();
  const auto uses = [&](const Stage& stage) {
    const std::vector<Expr> all = parts(kernel, stage, {});
    return std::any_of(all.begin(), all.end(), [&](Expr e) { return e.id == value.id; });
  };
  while (last > 0 && !uses(stages[last - 1])) --last;
  std::set<int> stored;
  for (std::size_t i = 0; i + 1 < last; ++i) {
    for (const auto& store : stages[i].stores) stored.insert(store.buffer);
  }
  bool result = false;
  kernel::for_each_part(
      kernel.pool, value, [](const IndexNode&) {},
      [&](const ExprNode& node) {
        result = result || (node.fn == Fn::load && stored.contains(node.buffer));
      });
  return result;
}

}  // namespace

std::vector<bool> stored_buffers(const Kernel& kernel) {
  std::vector<bool> result(kernel.args.size(), false);
  for (const Stage& stage : kernel.nest.stages) {
    for (const auto& store : stage.stores) result[static_cast<std::size_t>(store.buffer)] = true;
  }
  return result;
}

std::vector<SavedValue> values_to_save(const Kernel& kernel) {
  constexpr std::int64_t longest_row = 4096;  // several rows stay in the first cache
  std::vector<SavedValue> result;
  std::unordered_set<std::int32_t> saved;
  const auto& stages = kernel.nest.stages;
  for (std::size_t first = 0; first + 1 < stages.size(); ++first) {
    const auto loop = only_loop(kernel, stages[first]);
    if (!loop || extent_of(kernel, *loop) > longest_row) continue;
    std::unordered_set<std::int32_t> computed;
    for (const Expr expr : parts(kernel, stages[first], saved)) {
      if (!saved.contains(expr.id)) computed.insert(expr.id);
    }
    for (std::size_t later = first + 1; later < stages.size(); ++later) {
      if (only_loop(kernel, stages[later]) != loop) continue;
      // Stops at what is found, so that of nested values only the outermost is saved.
      std::unordered_set<std::int32_t> stop = computed;
      stop.insert(saved.begin(), saved.end());
      for (const Expr expr : parts(kernel, stages[later], stop)) {
        if (!computed.contains(expr.id) || saved.contains(expr.id)) continue;
        if (kernel.pool.node(expr).dtype != DType::f32 || !calls_function(kernel, expr) ||
            !depends_on(kernel, expr, *loop) || changes(kernel, expr)) {
          continue;
        }
        saved.insert(expr.id);
        result.push_back({expr, static_cast<int>(first), extent_of(kernel, *loop)});
      }
    }
  }
  return result;
}

}  // namespace tensorgrad::llvm_ir
