// Attention in WGSL: the templates behind render_attention.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/wgsl/pass_builder.h"
#include "codegen/wgsl/render.h"

namespace tensorgrad::wgsl {

/// How a workgroup covers a tile of scores: each invocation has `rows` of its own rows (of queries;
/// of keys in their backward) and four of the rows that stream past, `lanes` invocations share
/// their own rows.
struct AttentionTile {
  std::int64_t groups = 8, rows = 4, lanes = 8;
  std::int64_t own() const { return groups * rows; }
  std::int64_t streamed() const { return 4 * lanes; }
  std::int64_t invocations() const { return groups * lanes; }
  /// Tiles of so many own rows.
  std::int64_t tiles(std::int64_t count) const { return (count + own() - 1) / own(); }
};
/// "32x32 scores, 4x4 a thread".
std::string to_string(const AttentionTile& tile);

/// The tiles that the target has room for, the one expected to be fastest first; none for software
/// adapters.
std::vector<AttentionTile> attention_tiles(const kernel::Attention& attention,
                                           const Target& target);

/// Attention by tiles of scores in workgroup memory.
RenderedKernel render_attention_tiles(const kernel::Kernel& kernel, const Target& target,
                                      const std::vector<bool>& writable, const AttentionTile& tile);
/// Attention by an invocation for each row, which needs no room in workgroup memory.
RenderedKernel render_attention_rows(const kernel::Kernel& kernel, const Target& target,
                                     const std::vector<bool>& writable);

}  // namespace tensorgrad::wgsl
