// Chooses how attention is cut into pieces.
#include "codegen/wgsl/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "codegen/wgsl/attention_text.h"
#include "graph/order.h"

namespace tensorgrad::wgsl {

using kernel::Attention;
using kernel::Kernel;

std::string to_string(const AttentionTile& tile) {
  return fmt::format("{}x{} scores, {}x4 a thread", tile.own(), tile.streamed(), tile.rows);
}

namespace {

/// Workgroup memory of the pass that takes the most.
std::int64_t workgroup_bytes(const Attention& a, const AttentionTile& tile) {
  const auto row = [&](std::int64_t columns) {
    return (quads(columns) + tile.lanes - 1) / tile.lanes * tile.lanes + 1;
  };
  const std::int64_t rows = row(a.depth) + row(a.value_depth);
  const bool backward = a.mode == Attention::Mode::backward;
  const std::int64_t own = backward ? rows : row(a.depth);
  const std::int64_t weights = (backward ? 2 : 1) * (tile.lanes + 1);
  const std::int64_t vectors = tile.own() * (own + weights) + tile.streamed() * rows;
  return vectors * 16 + tile.own() * (tile.lanes + 1) * 4;
}

double cost(const Attention& a, const AttentionTile& tile, const Target& target) {
  const auto batches = [&] {
    double n = 1;
    for (const std::int64_t extent : a.batch) n *= static_cast<double>(extent);
    return n;
  }();
  const double units = std::max(target.units, 1);
  const double groups =
      batches * std::ceil(static_cast<double>(a.queries) / static_cast<double>(tile.own()));
  const double steps =
      std::ceil(static_cast<double>(a.keys) / static_cast<double>(tile.streamed()));
  const auto rows = static_cast<double>(tile.rows);
  const auto columns = static_cast<double>(quads(a.depth) + quads(a.value_depth));
  // Of an invocation and a streamed tile, in instructions: products and weighted sums, reads of
  // workgroup memory, exponentials, barriers and the latency of the next tile.
  const double work = columns * (16 * rows + 4 * (rows + 4)) + 4 * rows * 30 +
                      rows * 4 * static_cast<double>(tile.lanes);
  const double alone = 2 * work + 900;
  const double warps = std::ceil(static_cast<double>(tile.invocations()) / 32);
  const double resident =
      std::max(1.0, std::min(std::floor(4.5 * static_cast<double>(target.workgroup_bytes) /
                                        static_cast<double>(workgroup_bytes(a, tile))),
                             std::floor(48 / warps)));
  const double share = std::ceil(groups / units);
  const double held = std::min(share, resident);
  // What waits is not hidden by what the other groups compute: on an H200 the larger of the two
  // took 64x16 for 96 x 1024 x 1024 x 64, which made a step of W6 257 ms instead of 216.
  return std::ceil(share / held) * steps * (alone + work * warps * held / 4);
}

}  // namespace

std::vector<AttentionTile> attention_tiles(const Attention& attention, const Target& target) {
  if (target.cpu || attention.depth == 0 || attention.value_depth == 0) return {};
  std::vector<std::pair<double, AttentionTile>> ranked;
  for (const AttentionTile& tile :
       {AttentionTile{8, 4, 8}, AttentionTile{16, 4, 8}, AttentionTile{16, 2, 8},
        AttentionTile{8, 2, 8}, AttentionTile{4, 4, 8}, AttentionTile{8, 4, 16},
        AttentionTile{16, 4, 16}, AttentionTile{16, 2, 16}, AttentionTile{8, 4, 4},
        AttentionTile{16, 4, 4}, AttentionTile{16, 2, 4}, AttentionTile{8, 2, 4},
        AttentionTile{8, 1, 4}, AttentionTile{8, 8, 8}}) {
    if (tile.invocations() > std::min(target.invocations, target.workgroup_size_x)) continue;
    if (workgroup_bytes(attention, tile) > target.workgroup_bytes) continue;
    ranked.emplace_back(cost(attention, tile, target), tile);
  }
  sort_values(ranked, [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<AttentionTile> tiles;
  for (const auto& [cost, tile] : ranked) tiles.push_back(tile);
  return tiles;
}

std::vector<Variant> attention_variants(const Kernel& kernel, const Target& target) {
  std::vector<Variant> found;
  for (const AttentionTile& tile :
       attention_tiles(std::get<Attention>(*kernel.contraction), target)) {
    found.push_back({to_string(tile), [&kernel, &target, tile](const std::vector<bool>& writable) {
                       return render_attention_tiles(kernel, target, writable, tile);
                     }});
  }
  found.push_back({"a row an invocation", [&kernel, &target](const std::vector<bool>& writable) {
                     return render_attention_rows(kernel, target, writable);
                   }});
  return found;
}

RenderedKernel render_attention(const Kernel& kernel, const Target& target,
                                const std::vector<bool>& writable) {
  return attention_variants(kernel, target).front().render(writable);
}

}  // namespace tensorgrad::wgsl
