// Loop nests as WGSL: the templates behind render_nest.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "codegen/wgsl/render.h"

namespace tensorgrad::wgsl {

/// Product of the extents of loops.
std::int64_t points(const kernel::Kernel& kernel, const std::vector<int>& loops);

/// A kernel whose outer loops are one loop, as are those of each stage: loop 0 counts the rows, and
/// stages of equal length share a loop, so that equal loads in them are one expression.
struct FlatNest {
  kernel::Kernel kernel;
  std::int64_t rows = 1;
  struct Columns {
    std::int64_t count = 1;
    int var = -1;  ///< -1 where count is 1
  };
  std::vector<Columns> stages;
};
FlatNest flatten_rows(const kernel::Kernel& kernel);

/// A copy of some stages of a kernel, in which the outer loops and those of a stage are one loop;
/// stages of equally many points share it.
kernel::Kernel flatten_points(const kernel::Kernel& kernel, std::span<const std::size_t> stages);

/// Buffers that a stage loads from and stores to.
struct Touched {
  std::set<int> loads, stores;
};
Touched touched(const kernel::Kernel& kernel, const kernel::Stage& stage);

/// Whether a stage stores at every point what has accumulated so far.
bool scans(const kernel::Stage& stage);

/// How far the access moves when loop `var` grows by one; nothing if that varies.
std::optional<std::int64_t> stride(const kernel::Kernel& kernel, kernel::Index index, int var);
/// The indices of a stage's loads and stores, each once.
std::vector<kernel::Index> accesses(const kernel::Kernel& kernel, const kernel::Stage& stage);

// ---- templates ----

/// Stages without accumulators that may run in any order of their points: a thread a point, or four
/// where render_quads takes them. Appends passes.
void render_maps(const kernel::Kernel& kernel, std::span<const std::size_t> stages,
                 const Target& target, const std::vector<bool>& writable, RenderedKernel& out);
/// The same for a kernel of flatten_points whose points are many and whose stores lie side by side:
/// a thread four points. False, with nothing appended, for others.
bool render_quads(const kernel::Kernel& flat, const Target& target,
                  const std::vector<bool>& writable, RenderedKernel& out);
/// Reductions over rows, and stores that read them.
void render_rows(const kernel::Kernel& kernel, const Target& target,
                 const std::vector<bool>& writable, RenderedKernel& out);
/// The only stage of a kernel, which scans: an invocation a row, or a workgroup a row or a part of
/// it.
void render_scan(const kernel::Kernel& kernel, const Target& target,
                 const std::vector<bool>& writable, RenderedKernel& out);
/// Stage `number`, whose stores accumulate: a thread a destination. Appends passes.
void render_scatter(const kernel::Kernel& kernel, std::size_t number, const Target& target,
                    const std::vector<bool>& writable, RenderedKernel& out);

}  // namespace tensorgrad::wgsl
