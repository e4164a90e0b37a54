// How rows are spread over invocations.
#pragma once

#include <string>
#include <vector>

#include "codegen/wgsl/nest.h"

namespace tensorgrad::wgsl {

/// A workgroup runs `rows` rows with `lanes` invocations each, and a `parts`-th of their columns.
struct RowLayout {
  std::int64_t lanes = 1;  ///< a power of two
  std::int64_t rows = 1;
  std::int64_t parts = 1;
  bool columns = false;  ///< neighbouring invocations run neighbouring rows, else columns
  /// Columns that an invocation runs of so many.
  std::int64_t turns(std::int64_t count) const { return (count + lanes - 1) / lanes; }
  bool operator==(const RowLayout&) const = default;
};
/// "4 rows by 64 invocations".
std::string to_string(const RowLayout& layout);

/// Layouts for a kernel, `flat` being its flat form, the one expected to be fastest first.
std::vector<RowLayout> row_layouts(const kernel::Kernel& kernel, const FlatNest& flat,
                                   const Target& target);

/// Renders with a given layout.
void render_rows(const FlatNest& flat, const RowLayout& layout, const Target& target,
                 const std::vector<bool>& writable, RenderedKernel& out);

}  // namespace tensorgrad::wgsl
