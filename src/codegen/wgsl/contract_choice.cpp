// Which tiles a contraction may be cut into, the one expected to be fastest first.
#include <algorithm>
#include <cmath>
#include <utility>

#include "codegen/wgsl/contract_text.h"
#include "graph/order.h"

namespace tensorgrad::wgsl {

std::string to_string(const Tile& tile) {
  std::string text;
  switch (tile.kind) {
    case Tile::Kind::tiled:
      text = fmt::format("tiled {}x{}x{}{}, {}x{} a thread", tile.bm, tile.bn, tile.bk,
                         tile.stages ? " double" : "", tile.tm, tile.tn);
      break;
    case Tile::Kind::direct:
      text = fmt::format("direct {}x{} a thread", tile.tm, tile.tn);
      break;
    case Tile::Kind::dot:
      text = fmt::format("dot {}x{} by {} threads", tile.tm, tile.lanes, tile.threads);
      break;
  }
  if (tile.splits > 1) text += fmt::format(", k in {} parts", tile.splits);
  return text;
}

namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t power_of_two_up_to(std::int64_t value) {
  std::int64_t power = 1;
  while (power * 2 <= value) power *= 2;
  return power;
}

/// Estimates in clocks of a unit that issues four groups of 32 invocations at a time. The figures
/// are those of current discrete GPUs; only their proportions matter for a choice.
struct Costs {
  double pass = 3500;    ///< starting and draining a dispatch
  double latency = 700;  ///< of a read from memory
  double barrier = 100;  ///< of a workgroup
  double bytes = 16;     ///< from memory for each clock and unit
  double sum_bytes = 8;  ///< the same for the pass that adds parts
  std::int64_t registers = 65536, resident = 2048;
};

Tile tiled(std::int64_t bm, std::int64_t bn, std::int64_t bk, std::int64_t tm, std::int64_t tn,
           bool stages) {
  Tile tile;
  tile.bm = bm;
  tile.bn = bn;
  tile.bk = bk;
  tile.tm = tm;
  tile.tn = tn;
  tile.stages = stages;
  tile.threads = bm / tm * (bn / tn);
  return tile;
}

std::vector<Tile> tiled_shapes() {
  return {tiled(128, 64, 16, 8, 8, false),  tiled(128, 64, 16, 8, 8, true),
          tiled(128, 128, 16, 8, 8, false), tiled(64, 64, 16, 8, 8, true),
          tiled(64, 64, 16, 8, 8, false),   tiled(32, 64, 16, 4, 8, true),
          tiled(32, 32, 16, 8, 4, true),    tiled(32, 32, 32, 4, 4, true),
          tiled(16, 64, 16, 4, 4, true),    tiled(16, 32, 32, 4, 4, true),
          tiled(16, 16, 32, 4, 4, true)};
}

/// Workgroup memory of a tile, with the padding that it may need.
std::int64_t workgroup_bytes(const Tile& tile) {
  return (tile.bm + tile.bn + 8) * tile.bk * 4 * (tile.stages ? 2 : 1);
}

double seconds_like_cost(const Problem& problem, const Tile& tile, const Target& target) {
  const Costs costs;
  const double units = target.units;
  const std::int64_t groups = ceil_div(problem.rows(), tile.bm) *
                              ceil_div(problem.columns(), tile.bn) * problem.batches() *
                              tile.splits;
  const std::int64_t steps = ceil_div(ceil_div(problem.depth(), tile.splits), tile.bk);
  const auto fmas = static_cast<double>(tile.tm * tile.tn);
  const auto reads = static_cast<double>(tile.tm + tile.tn);
  const double of_step =
      static_cast<double>(tile.bk) * (std::max(fmas + reads / 2, 3.5 * reads) + 4);
  const double warps = std::max(1.0, static_cast<double>(tile.threads) / 32);
  const double share = std::ceil(static_cast<double>(groups) / units);
  const std::int64_t resident = std::max<std::int64_t>(
      1, std::min({costs.resident / tile.threads,
                   costs.registers / (tile.threads * (2 * tile.tm * tile.tn + 40)),
                   4 * target.workgroup_bytes / workgroup_bytes(tile)}));
  const double held = std::min(share, static_cast<double>(resident));
  const double alone =
      of_step + costs.barrier +
      (tile.stages ? std::max(0.0, costs.latency - of_step) : costs.latency + costs.barrier);
  const double together = std::max(alone, of_step * warps * held / 4);
  // Of a few waves the last one is felt, full or not.
  constexpr double few_waves = 4;
  const double waves = share / held < few_waves ? std::ceil(share / held) : share / held;
  double total = costs.pass + waves * static_cast<double>(steps) * together;
  const auto outputs = static_cast<double>(problem.rows() * problem.columns() * problem.batches());
  total += outputs * 4 * static_cast<double>(tile.splits) / (costs.bytes * units);
  if (tile.splits > 1) {
    total += costs.pass / 2 +
             outputs * 4 * static_cast<double>(tile.splits + 1) / (costs.sum_bytes * units);
  }
  return total;
}

/// Few results, or one row: the sum over k is what can be shared.
std::vector<Tile> dot_tiles(const Problem& problem, const Target& target) {
  const std::vector<Dim> depth = merged(problem.k, problem.rhs.depth);
  const bool along_depth = depth.empty() || depth.back().stride == 1;
  const std::int64_t k = std::max<std::int64_t>(1, problem.depth());
  std::vector<Tile> tiles;
  const auto add = [&](std::int64_t tm, std::int64_t lanes, std::int64_t threads) {
    Tile tile;
    tile.kind = Tile::Kind::dot;
    tile.tm = std::min(tm, power_of_two_up_to(problem.rows()));
    tile.tn = 1;
    tile.lanes = lanes;
    tile.threads = std::min(threads, power_of_two_up_to(target.invocations));
    const std::int64_t groups =
        ceil_div(problem.rows(), tile.tm) * ceil_div(problem.columns(), lanes) * problem.batches();
    // A part is worth a pass of its own where each invocation still adds many products.
    const std::int64_t most = k / (tile.threads / lanes * 32);
    tile.splits =
        std::clamp<std::int64_t>(8 * target.units / groups, 1, std::max<std::int64_t>(1, most));
    if (std::find(tiles.begin(), tiles.end(), tile) == tiles.end()) tiles.push_back(tile);
  };
  if (along_depth) {
    // Neighbours read neighbours in k.
    const std::int64_t slices =
        std::clamp<std::int64_t>(power_of_two_up_to(std::max<std::int64_t>(1, k / 8)), 1, 64);
    add(1, std::max<std::int64_t>(1, 64 / slices), 64);
    add(4, std::max<std::int64_t>(1, 64 / slices), 64);
    add(1, std::max<std::int64_t>(1, 128 / slices), 128);
  } else {
    add(1, 32, 256);
    add(4, 32, 256);
    add(4, 16, 128);
  }
  return tiles;
}

std::vector<Tile> direct_tiles(const Problem& problem, const Target& target) {
  std::vector<Tile> tiles;
  const auto add = [&](std::int64_t tm, std::int64_t tn) {
    Tile tile;
    tile.kind = Tile::Kind::direct;
    tile.tm = std::min(tm, power_of_two_up_to(problem.rows()));
    tile.tn = problem.columns() < 4 ? 1 : tn;
    tile.threads = 64;
    if (std::find(tiles.begin(), tiles.end(), tile) == tiles.end()) tiles.push_back(tile);
  };
  const std::int64_t results = problem.rows() * problem.columns() * problem.batches();
  if (!target.cpu && results < 1024 * target.units) add(1, 1);
  // SwiftShader takes about the time of its loads: 7.0 ms with 4x8, 8.7 with 4x4 and 8.9 with 8x8
  // for 128x256x784 on two cores.
  const bool in_eights = problem.columns() % 8 == 0;
  if (target.cpu && in_eights) add(4, 8);
  add(4, 4);
  add(2, 4);
  add(1, 4);
  if (in_eights) add(4, 8);
  if (target.cpu) add(8, 4);
  if (target.cpu && in_eights) add(8, 8);
  return tiles;
}

}  // namespace

std::vector<Tile> candidate_tiles(const Problem& problem, const Target& target) {
  const auto work = static_cast<double>(problem.rows() * problem.columns() * problem.batches()) *
                    static_cast<double>(problem.depth());
  const std::int64_t narrow = std::min(problem.rows(), problem.columns());
  std::vector<Tile> tiles;
  const auto append = [&](const std::vector<Tile>& more) {
    tiles.insert(tiles.end(), more.begin(), more.end());
  };
  if (target.cpu) return direct_tiles(problem, target);

  std::vector<std::pair<double, Tile>> ranked;
  for (Tile tile : tiled_shapes()) {
    if (tile.threads > target.invocations || tile.threads > target.workgroup_size_x ||
        workgroup_bytes(tile) > target.workgroup_bytes) {
      continue;
    }
    for (std::int64_t splits = 1;
         splits <= 64 && splits * 2 * tile.bk <= std::max(problem.depth(), 2 * tile.bk);
         splits *= 2) {
      tile.splits = splits;
      ranked.emplace_back(seconds_like_cost(problem, tile, target), tile);
    }
  }
  sort_values(ranked, [](const auto& a, const auto& b) { return a.first < b.first; });
  constexpr std::size_t most = 10;
  std::vector<Tile> best;
  for (std::size_t i = 0; i < std::min(most, ranked.size()); ++i) best.push_back(ranked[i].second);

  // Products this small are over before workgroup memory would pay.
  constexpr double small_work = 2e6;
  const bool few = narrow <= 4 || work <= small_work;
  if (problem.depth() < 16) {
    append(direct_tiles(problem, target));
    append(best);
  } else if (few) {
    append(dot_tiles(problem, target));
    append(best);
    append(direct_tiles(problem, target));
  } else {
    append(best);
    if (work <= 16 * small_work) append(dot_tiles(problem, target));
  }
  return tiles;
}

}  // namespace tensorgrad::wgsl
