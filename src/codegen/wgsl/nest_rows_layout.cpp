// How many invocations and workgroups run a row.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>
#include <string>
#include <vector>

#include "codegen/wgsl/nest_rows.h"

namespace tensorgrad::wgsl {

using kernel::Kernel;
using kernel::Stage;

namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t power_at_least(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(n)));
}

/// Whether more accesses of the reductions are contiguous from row to row than along the row.
bool prefers_columns(const Kernel& kernel) {
  if (kernel.nest.outer.empty()) return false;
  const int row_var = kernel.nest.outer.back();
  if (kernel.loops[static_cast<std::size_t>(row_var)].extent < 8) return false;
  std::int64_t by_row = 0;
  std::int64_t by_column = 0;
  for (const Stage& stage : kernel.nest.stages) {
    int inner = -1;
    for (const int var : stage.loops) {
      if (kernel.loops[static_cast<std::size_t>(var)].extent > 1) inner = var;
    }
    if (inner < 0) continue;
    const std::int64_t count = points(kernel, stage.loops);
    const auto is_near = [&](kernel::Index index, int var) {
      const auto step = stride(kernel, index, var);
      return step && *step >= -1 && *step <= 1;
    };
    for (const kernel::Index index : accesses(kernel, stage)) {
      if (is_near(index, inner)) by_row += count;
      if (is_near(index, row_var)) by_column += count;
    }
  }
  return by_column > by_row;
}

/// Buffers that one stage stores and another one touches, which workgroups could not do at a time.
bool has_shared_stores(const Kernel& kernel) {
  std::vector<Touched> all;
  for (const Stage& stage : kernel.nest.stages) all.push_back(touched(kernel, stage));
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < all.size(); ++j) {
      if (i == j || kernel.nest.stages[j].stores.empty()) continue;
      for (const int buffer : all[i].stores) {
        if (all[j].loads.contains(buffer) || all[j].stores.contains(buffer)) return true;
      }
    }
  }
  return false;
}

/// Whether each pass has a binding left for partial results: those that reduce store nothing else,
/// the last one reads only what stores and short stages need.
bool takes_scratch(const Kernel& kernel, const FlatNest& flat, std::int64_t parts,
                   const Target& target) {
  std::set<int> reducing;
  std::set<int> last;
  for (std::size_t i = 0; i < kernel.nest.stages.size(); ++i) {
    const Stage& stage = kernel.nest.stages[i];
    const Touched buffers = touched(kernel, stage);
    const bool reduces = !stage.accumulators.empty();
    if (reduces) reducing.insert(buffers.loads.begin(), buffers.loads.end());
    if (!reduces || flat.stages[i].count < 2 * parts) {
      last.insert(buffers.loads.begin(), buffers.loads.end());
      last.insert(buffers.stores.begin(), buffers.stores.end());
    }
  }
  return static_cast<int>(std::max(reducing.size(), last.size())) < target.storage_buffers;
}

/// The layout with as many parts as keep the target busy.
RowLayout with_parts(RowLayout layout, const Kernel& kernel, const FlatNest& flat,
                     const Target& target) {
  std::int64_t longest = 1;
  for (const FlatNest::Columns& columns : flat.stages) longest = std::max(longest, columns.count);
  const std::int64_t units = target.cpu ? std::max(target.units, 1) : std::max(target.units, 64);
  const std::int64_t groups = ceil_div(flat.rows, layout.rows);
  // Columns worth a workgroup, and columns of a row worth a second pass.
  const std::int64_t least = layout.lanes * (target.cpu ? 16384 : 8);
  const std::int64_t enough = target.cpu ? 2 * least : layout.lanes * 64;
  if (groups < 2 * units && longest >= enough && !has_shared_stores(kernel)) {
    // Few long rows: as many workgroups as hide the latency of memory.
    const std::int64_t wanted = longest >= layout.lanes * 1024 ? 4 * units : 2 * units;
    const std::int64_t parts =
        std::min({ceil_div(wanted, groups), longest / least, std::int64_t{512}});
    if (takes_scratch(kernel, flat, parts, target)) layout.parts = parts;
  }
  return layout;
}

RowLayout first_layout(const Kernel& kernel, const FlatNest& flat, const Target& target,
                       std::int64_t most) {
  RowLayout layout;
  std::int64_t longest = 1;
  for (const FlatNest::Columns& columns : flat.stages) longest = std::max(longest, columns.count);
  layout.columns = prefers_columns(kernel);
  if (target.cpu) {
    layout.lanes = 1;
    layout.rows = std::min<std::int64_t>(16, flat.rows);
  } else if (layout.columns) {
    // Eight neighbours read whole sectors of memory; more of them where there are rows for all.
    const std::int64_t together = flat.rows >= 32 * std::max(target.units, 64) ? 32 : 8;
    layout.rows = std::min(together, power_at_least(flat.rows));
    layout.lanes = std::clamp<std::int64_t>(power_at_least(longest) / 8, 1, most / layout.rows);
  } else {
    layout.lanes = std::clamp<std::int64_t>(power_at_least(longest) / 4, 1, most);
    if (flat.rows >= 2 * std::max(target.units, 64)) {
      // Many rows keep the device busy: longer turns of fewer invocations combine less.
      layout.lanes =
          std::min(layout.lanes, std::max<std::int64_t>(64, power_at_least(longest) / 16));
    }
    const std::int64_t together = std::max<std::int64_t>(1, 64 / layout.lanes);
    layout.rows = std::min(together, power_at_least(flat.rows));
  }
  return with_parts(layout, kernel, flat, target);
}

}  // namespace

std::string to_string(const RowLayout& layout) {
  std::string text = fmt::format("{} {} by {} {}", layout.rows, layout.rows == 1 ? "row" : "rows",
                                 layout.lanes, layout.lanes == 1 ? "invocation" : "invocations");
  if (layout.columns) text += " across";
  if (layout.parts > 1) text += fmt::format(", in {} parts", layout.parts);
  return text;
}

std::vector<RowLayout> row_layouts(const Kernel& kernel, const FlatNest& flat,
                                   const Target& target) {
  const auto most = static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(std::min<std::int64_t>(256, target.invocations))));
  const auto& stages = kernel.nest.stages;
  if (std::any_of(stages.begin(), stages.end(), scans)) {
    // One invocation runs the columns of a row in order.
    RowLayout layout;
    layout.columns = prefers_columns(kernel);
    layout.rows = std::min<std::int64_t>(target.cpu ? 16 : 64, power_at_least(flat.rows));
    return {layout};
  }
  std::vector<RowLayout> layouts{first_layout(kernel, flat, target, most)};
  if (target.cpu) return layouts;
  const auto add = [&](const RowLayout& layout) {
    if (layout.lanes < 1 || layout.rows < 1 || layout.lanes * layout.rows > most) return;
    if (std::find(layouts.begin(), layouts.end(), layout) == layouts.end()) {
      layouts.push_back(layout);
    }
  };
  const RowLayout first = layouts.front();
  RowLayout whole = first;
  whole.parts = 1;
  add(whole);
  for (const std::int64_t lanes :
       {first.lanes * 2, first.lanes / 2, first.lanes / 4, std::int64_t{1}}) {
    RowLayout other = whole;
    other.lanes = lanes;
    if (lanes < 1) continue;
    if (!first.columns) {
      other.rows = std::min(std::max<std::int64_t>(1, 64 / lanes), power_at_least(flat.rows));
    }
    add(other);
    add(with_parts(other, kernel, flat, target));
  }
  if (first.columns) {
    for (const std::int64_t rows : {8, 16, 32}) {
      RowLayout other = whole;
      other.rows = std::min(rows, power_at_least(flat.rows));
      other.lanes = most / other.rows;
      add(other);
      add(with_parts(other, kernel, flat, target));
    }
  }
  RowLayout turned = whole;
  turned.columns = !whole.columns;
  turned.rows = std::min<std::int64_t>(turned.columns ? 32 : 1, power_at_least(flat.rows));
  turned.lanes = std::min(turned.columns ? most / 32 : std::int64_t{64}, most / turned.rows);
  add(turned);
  add(with_parts(turned, kernel, flat, target));
  if (first.parts > 1) {
    for (const std::int64_t parts : {first.parts / 2, first.parts * 2, first.parts * 4}) {
      RowLayout other = first;
      other.parts = parts;
      if (parts > 1 && takes_scratch(kernel, flat, parts, target)) add(other);
    }
  }
  return layouts;
}

}  // namespace tensorgrad::wgsl
