#include "codegen/wgsl/nest_lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace tensorgrad::wgsl {

void LaneCombiner::combine(std::vector<Running>& running) {
  if (subgroup_lanes() > 0) {
    combine_in_subgroups(running);
  } else {
    combine_in_memory(running);
  }
}

std::int64_t LaneCombiner::subgroup_lanes() const {
  if (target_.subgroup_min < 2 || layout_.columns) return 0;
  const auto least =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(target_.subgroup_min)));
  const std::int64_t together = std::min(layout_.lanes, least);
  return layout_.lanes / together <= 16 ? together : 0;
}

// By exchanges within subgroups, then over the subgroups' results, of which there are few.
void LaneCombiner::combine_in_subgroups(std::vector<Running>& running) {
  builder_.enable_subgroups();
  const std::int64_t together = subgroup_lanes();
  writer_.open(fmt::format("for (var step = {}u; step > 0u; step >>= 1u)", together / 2));
  for (const Running& item : running) {
    const auto other = [&](const std::string& mine) {
      return writer_.let(writer_.depth(), fmt::format("subgroupShuffleXor({}, step)", mine));
    };
    const std::string value = other(item.value);
    take(builder_, item, value, item.indexed() ? other(item.position) : "");
  }
  writer_.close();
  const std::int64_t left = layout_.lanes / together;
  if (left == 1) return;
  const std::vector<Places> places =
      share(running, builder_.invocations() / together, fmt::format("local / {}u", together),
            fmt::format("local % {}u == 0u", together));
  const std::string first =
      layout_.rows == 1
          ? "0u"
          : writer_.let(writer_.depth(), fmt::format("local / {}u * {}u", layout_.lanes, left));
  for (std::size_t slot = 0; slot < running.size(); ++slot) {
    // Every lane combines them in the same order.
    running[slot].value = writer_.var(0, fmt::format("{}[{}]", places[slot].values, first));
    if (!running[slot].indexed()) continue;
    running[slot].position = writer_.var(0, fmt::format("{}[{}]", places[slot].positions, first));
  }
  writer_.open(fmt::format("for (var other = 1u; other < {}u; other++)", left));
  const std::string at = first == "0u" ? "other" : fmt::format("{} + other", first);
  for (std::size_t slot = 0; slot < running.size(); ++slot)
    take_shared(running[slot], places[slot], at);
  writer_.close();
}

void LaneCombiner::combine_in_memory(std::vector<Running>& running) {
  const std::int64_t step = layout_.columns ? layout_.rows : 1;
  const std::vector<Places> places = share(running, builder_.invocations(), "local", "");
  writer_.open(fmt::format("for (var half = {}u; half > 0u; half >>= 1u)", layout_.lanes / 2));
  writer_.open("if (lane < half)");
  const std::string other = step == 1 ? "local + half" : fmt::format("local + half * {}u", step);
  for (std::size_t slot = 0; slot < running.size(); ++slot) {
    const auto& [values, positions] = places[slot];
    take_shared(running[slot], places[slot], other);
    writer_.line(fmt::format("{}[local] = {};", values, running[slot].value));
    if (running[slot].indexed()) {
      writer_.line(fmt::format("{}[local] = {};", positions, running[slot].position));
    }
  }
  writer_.close();
  writer_.line("workgroupBarrier();");
  writer_.close();
  const std::string first =
      layout_.columns     ? (layout_.rows == 1 ? "0u" : fmt::format("local % {}u", layout_.rows))
      : layout_.rows == 1 ? "0u"
                          : fmt::format("local - lane");
  for (std::size_t slot = 0; slot < running.size(); ++slot) {
    const auto& [values, positions] = places[slot];
    running[slot].value = writer_.let(writer_.depth(), fmt::format("{}[{}]", values, first));
    if (running[slot].indexed()) {
      running[slot].position =
          writer_.let(writer_.depth(), fmt::format("{}[{}]", positions, first));
    }
  }
}

std::vector<LaneCombiner::Places> LaneCombiner::share(const std::vector<Running>& running,
                                                      std::int64_t size, const std::string& at,
                                                      const std::string& guard) {
  // An array is used again only after all have read it.
  if (!arrays_.empty()) writer_.line("workgroupBarrier();");
  std::map<std::string_view, std::size_t> taken;
  std::vector<Places> places;
  const auto array = [&](std::string_view type) {
    auto& arrays = arrays_[type];
    const std::size_t n = taken[type]++;
    if (n == arrays.size()) arrays.push_back(builder_.workgroup_array(type, size));
    return arrays[n];
  };
  for (const Running& item : running) {
    places.push_back({array(running_type(*item.accumulator)), {}});
    if (item.indexed()) places.back().positions = array("i32");
  }
  if (!guard.empty()) writer_.open(fmt::format("if ({})", guard));
  for (std::size_t slot = 0; slot < running.size(); ++slot) {
    writer_.line(fmt::format("{}[{}] = {};", places[slot].values, at, running[slot].value));
    if (!running[slot].indexed()) continue;
    writer_.line(fmt::format("{}[{}] = {};", places[slot].positions, at, running[slot].position));
  }
  if (!guard.empty()) writer_.close();
  writer_.line("workgroupBarrier();");
  return places;
}

void LaneCombiner::take_shared(const Running& running, const Places& places,
                               const std::string& at) {
  const int depth = writer_.depth();
  const std::string value = writer_.let(depth, fmt::format("{}[{}]", places.values, at));
  std::string position;
  if (running.indexed()) {
    position = writer_.let(depth, fmt::format("{}[{}]", places.positions, at));
  }
  take(builder_, running, value, position);
}

}  // namespace tensorgrad::wgsl
