#include "profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "tensorgrad/error.h"

namespace tensorgrad::tools {

double StepProfile::seconds() const {
  double total = 0;
  for (const KernelTime& k : kernels) total += k.seconds;
  return total;
}

namespace {

/// What a run of a program is given, outside the training: its states are zeros.
struct Arguments {
  Arguments(const Program& program, Engine& engine, const Feed& feed) {
    for (const PlanBuffer& b : program.plan()->buffers) {
      if (b.kind == BufferKind::input) {
        inputs.emplace_back(static_cast<std::size_t>(b.bytes()));
        const auto fed = feed.find(b.name);
        if (fed != feed.end() && fed->second.bytes().size() == inputs.back().size()) {
          std::ranges::copy(fed->second.bytes(), inputs.back().begin());
        }
      }
      if (b.kind == BufferKind::state) states.push_back(engine.allocate(b.dtype, b.elements));
    }
    feeds.assign(inputs.begin(), inputs.end());
    for (const auto& s : states) bound.push_back(s.get());
  }

  std::vector<std::vector<std::byte>> inputs;
  std::vector<std::unique_ptr<DeviceBuffer>> states;
  std::vector<std::span<const std::byte>> feeds;
  std::vector<DeviceBuffer*> bound;
};

}  // namespace

double replay_seconds(Program& program, Engine& engine, const Feed& feed, double budget) {
  const Arguments arguments(program, engine, feed);
  const auto run = [&](int repeats) {
    return program.executable()->seconds(arguments.feeds, arguments.bound, repeats) / repeats;
  };
  run(1);
  constexpr int tries = 4;
  constexpr double most = 200;  // runs that are encoded at once
  const double once = std::max(run(1), 1e-6);
  const int repeats = static_cast<int>(std::clamp(budget / tries / once, 1.0, most));
  double best = once;
  for (int i = 0; i < tries; ++i) best = std::min(best, run(repeats));
  return best;
}

std::vector<double> profile(Program& program, Engine& engine, const Feed& feed) {
  const Arguments arguments(program, engine, feed);
  constexpr int runs = 5;
  std::vector<double> best = program.executable()->profile(arguments.feeds, arguments.bound);
  for (int i = 1; i < runs; ++i) {
    const std::vector<double> seconds =
        program.executable()->profile(arguments.feeds, arguments.bound);
    std::ranges::transform(best, seconds, best.begin(),
                           [](double a, double b) { return std::min(a, b); });
  }
  return best;
}

StepProfile profile_step(const std::string& title, Program& program, Engine& engine,
                         const Feed& feed) {
  StepProfile out{title, {}};
  const Plan& plan = *program.plan();
  const std::vector<double> seconds = profile(program, engine, feed);
  for (std::size_t i = 0; i < plan.dispatches.size(); ++i) {
    const Dispatch& d = plan.dispatches[i];
    out.kernels.push_back(
        {d.name, kernel::cost(plan.kernels[static_cast<std::size_t>(d.kernel)]), seconds[i]});
  }
  return out;
}

namespace {

/// `count` a second, in thousands of millions.
double giga_rate(std::int64_t count, double seconds) {
  return seconds > 0 ? 1e-9 * static_cast<double>(count) / seconds : 0;
}

}  // namespace

std::string profile_table(const StepProfile& profile) {
  const double total = profile.seconds();
  std::string out = fmt::format("{}\n{:>4} {:>11} {:>7} {:>10} {:>9}  kernel\n", profile.title, "",
                                "us", "share", "GFLOP/s", "GB/s");
  for (std::size_t i = 0; i < profile.kernels.size(); ++i) {
    const KernelTime& k = profile.kernels[i];
    out += fmt::format("{:>4} {:>11.2f} {:>6.1f}% {:>10.1f} {:>9.1f}  {}\n", i + 1, 1e6 * k.seconds,
                       total > 0 ? 100 * k.seconds / total : 0, giga_rate(k.cost.flops, k.seconds),
                       giga_rate(k.cost.bytes, k.seconds), k.name);
  }
  out += fmt::format("{:>4} {:>11.2f} {:>7} {:>10} {:>9}  in all\n", "", 1e6 * total, "", "", "");
  return out;
}

std::string profile_trace(const StepProfile& profile) {
  using Json = nlohmann::ordered_json;
  Json events = Json::array();
  events.push_back(
      {{"name", "process_name"}, {"ph", "M"}, {"pid", 1}, {"args", {{"name", profile.title}}}});
  events.push_back({{"name", "thread_name"},
                    {"ph", "M"},
                    {"pid", 1},
                    {"tid", 1},
                    {"args", {{"name", "kernels"}}}});
  double start = 0;  // microseconds
  for (const KernelTime& k : profile.kernels) {
    const double duration = 1e6 * k.seconds;
    events.push_back({{"name", k.name},
                      {"cat", "kernel"},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", 1},
                      {"ts", start},
                      {"dur", duration},
                      {"args",
                       {{"flops", k.cost.flops},
                        {"bytes", k.cost.bytes},
                        {"GFLOP/s", giga_rate(k.cost.flops, k.seconds)},
                        {"GB/s", giga_rate(k.cost.bytes, k.seconds)}}}});
    start += duration;
  }
  return Json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ns"}}.dump(1) + "\n";
}

void write_profile(const std::filesystem::path& folder, const std::string& name,
                   const StepProfile& profile) {
  std::error_code ignored;  // writing fails if the folder is not there
  std::filesystem::create_directories(folder, ignored);
  const auto write = [&](const std::string& suffix, const std::string& text) {
    const std::filesystem::path path = folder / (name + suffix);
    std::ofstream file(path, std::ios::binary);
    file << text;
    if (!file.flush()) {
      throw FormatError(fmt::format("The profile {} cannot be written", path.string()));
    }
  };
  write(".txt", profile_table(profile));
  write(".trace.json", profile_trace(profile));
}

}  // namespace tensorgrad::tools
