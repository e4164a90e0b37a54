// Chooses the templates that run a nest.
#include "codegen/wgsl/nest.h"

#include <algorithm>
#include <memory>

#include "codegen/wgsl/nest_rows.h"

namespace tensorgrad::wgsl {

using kernel::Kernel;
using kernel::Stage;

namespace {

bool accumulates(const Stage& stage) {
  return std::any_of(stage.stores.begin(), stage.stores.end(),
                     [](const kernel::Store& s) { return s.accumulate; });
}

bool intersect(const std::set<int>& a, const std::set<int>& b) {
  return std::any_of(a.begin(), a.end(), [&](int x) { return b.contains(x); });
}

/// Whether two stages may run at the same time.
bool are_independent(const Touched& a, const Touched& b) {
  return !intersect(a.stores, b.stores) && !intersect(a.stores, b.loads) &&
         !intersect(a.loads, b.stores);
}

}  // namespace

std::vector<Variant> nest_variants(const Kernel& kernel, const Target& target) {
  const auto& stages = kernel.nest.stages;
  if (points(kernel, kernel.nest.outer) == 0) return {};
  if (std::any_of(stages.begin(), stages.end(), scans)) return {};
  if (std::all_of(stages.begin(), stages.end(),
                  [](const Stage& stage) { return stage.accumulators.empty(); })) {
    return {};
  }
  const auto flat = std::make_shared<const FlatNest>(flatten_rows(kernel));
  std::vector<Variant> found;
  for (const RowLayout& layout : row_layouts(kernel, *flat, target)) {
    found.push_back({to_string(layout), [flat, layout, &target](const std::vector<bool>& writable) {
                       RenderedKernel out;
                       render_rows(*flat, layout, target, writable, out);
                       return out;
                     }});
  }
  return found;
}

RenderedKernel render_nest(const Kernel& kernel, const Target& target,
                           const std::vector<bool>& writable) {
  RenderedKernel out;
  const auto& stages = kernel.nest.stages;
  if (points(kernel, kernel.nest.outer) == 0) return out;
  if (stages.size() == 1 && scans(stages[0])) {
    render_scan(kernel, target, writable, out);
    return out;
  }
  const auto reduces = [](const Stage& stage) { return !stage.accumulators.empty(); };
  if (std::any_of(stages.begin(), stages.end(), reduces)) {
    render_rows(kernel, target, writable, out);
    return out;
  }
  // Stages that do not disturb one another share a pass.
  std::vector<std::size_t> together;
  std::vector<Touched> touches;
  const auto flush = [&] {
    if (!together.empty()) render_maps(kernel, together, target, writable, out);
    together.clear();
    touches.clear();
  };
  for (std::size_t i = 0; i < stages.size(); ++i) {
    if (points(kernel, stages[i].loops) == 0) continue;
    if (accumulates(stages[i])) {
      flush();
      render_scatter(kernel, i, target, writable, out);
      continue;
    }
    const Touched mine = touched(kernel, stages[i]);
    const bool fits = std::all_of(touches.begin(), touches.end(), [&](const Touched& other) {
      return are_independent(mine, other);
    });
    if (!fits) flush();
    together.push_back(i);
    touches.push_back(mine);
  }
  flush();
  return out;
}

}  // namespace tensorgrad::wgsl
