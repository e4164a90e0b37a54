// `tensorgrad bench`: the fixed workloads, timed.
#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "command.h"
#include "profile.h"
#include "tensorgrad/error.h"
#include "train/core.h"
#include "workloads.h"

namespace tensorgrad::tools {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct BenchArguments {
  std::vector<std::string> works;
  std::string device = "auto";
  double seconds = 2;
  bool json = false;
  std::string profile;     // the folder for profiles, or ""
  int steps = 0;           // before the measurement; 0: those with recorded losses
  std::string checkpoint;  // the folder for checkpoints after these steps, or ""
};

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

// Runs `f` until the time is over, at least 12 times; the milliseconds of each.
template <class F>
std::vector<double> timed(double seconds, const F& f) {
  constexpr std::size_t least = 12;
  std::vector<double> out;
  const auto start = Clock::now();
  while (out.size() < least || milliseconds_since(start) < 1e3 * seconds) {
    const auto from = Clock::now();
    f();
    out.push_back(milliseconds_since(from));
  }
  return out;
}

Json bench_training(const std::string& name, const BenchArguments& a) {
  const auto start = Clock::now();
  WorkloadRun run = open_workload(name, a.device);
  const double compile_ms = milliseconds_since(start);
  std::vector<double> losses;
  const int steps = a.steps > 0 ? a.steps : run.reference_steps;
  for (int t = 0; t < steps; ++t) losses.push_back(run.step(t).loss());
  if (!a.checkpoint.empty()) {
    std::filesystem::create_directories(a.checkpoint);
    run.training->save(std::filesystem::path(a.checkpoint) / (name + ".safetensors"));
  }

  std::int64_t t = 0;
  const std::vector<double> awaited = timed(a.seconds, [&] { run.step(t++).loss(); });
  // Back to back: only the last loss is read.
  double device_ms = std::numeric_limits<double>::infinity();
  const auto k = static_cast<std::int64_t>(
      std::clamp(1e3 * a.seconds / 4 / std::max(median(awaited), 1e-3), 3.0, 2000.0));
  for (int repeat = 0; repeat < 4; ++repeat) {
    const auto from = Clock::now();
    for (std::int64_t i = 0; i + 1 < k; ++i) static_cast<void>(run.step(t++));
    run.step(t++).loss();
    device_ms = std::min(device_ms, milliseconds_since(from) / static_cast<double>(k));
  }

  detail::TrainingCore& core = run.training->core();
  Program& program = *core.compiled()->program;
  const Plan* plan = program.plan();
  Json out{{"work", name},
           {"device", core.engine().name()},
           {"step_ms", median(awaited)},
           {"step_ms_min", *std::min_element(awaited.begin(), awaited.end())},
           {"device_ms", device_ms},
           {"compile_ms", compile_ms},
           {"kernels", plan ? plan->dispatches.size() : 0}};
  if (plan) {
    std::int64_t states = 0;
    for (const PlanBuffer& b : plan->buffers) {
      if (b.kind == BufferKind::state) states += b.bytes();
    }
    out["bytes"] = {
        {"planned", plan->total_bytes()},
        {"allocated", static_cast<std::int64_t>(program.executable()->allocated_bytes()) + states}};
  }
  if (plan) {
    out["replay_ms"] =
        1e3 * replay_seconds(program, core.engine(), run.batches[0].feed(), a.seconds / 2);
  }
  out["losses"] = losses;
  if (plan && !a.profile.empty()) {
    const std::string title = fmt::format("{} on {}", name, core.engine().name());
    write_profile(a.profile, name,
                  profile_step(title, program, core.engine(), run.batches[0].feed()));
  }
  return out;
}

std::vector<Json> bench_operations(const std::string& name, const BenchArguments& a) {
  std::vector<Json> out;
  for (const OperationRun& op : open_operations(name, a.device)) {
    const auto [sum, magnitude] = op.check();
    const std::vector<double> times = timed(a.seconds / 2, op.run);
    const std::shared_ptr<Engine> engine = open_engine(a.device);
    std::vector<double> kernels;
    if (op.device_seconds) {
      timed(a.seconds / 2, [&] { kernels.push_back(1e3 * op.device_seconds()); });
    }
    // The interpreter has no kernels to time.
    const double ms = median(kernels.empty() ? times : kernels);
    out.push_back({{"work", op.name},
                   {"device", engine->name()},
                   {"step_ms", median(times)},
                   {"step_ms_min", *std::min_element(times.begin(), times.end())},
                   {"device_ms", ms},
                   {"gflops", static_cast<double>(op.flops) / ms / 1e6},
                   {"gbytes_per_s", static_cast<double>(op.bytes) / ms / 1e6},
                   {"check", {sum, magnitude}}});
  }
  return out;
}

void print(const Json& row) {
  if (row.contains("losses")) {
    fmt::print(
        "{:<6} {:<10} step {:9.4f} ms  back to back {:9.4f} ms  replay {:9.4f} ms  compile "
        "{:7.0f} ms  {:3} kernels  {:.1f} MB\n",
        row["work"].get<std::string>(), row["device"].get<std::string>(),
        row["step_ms"].get<double>(), row["device_ms"].get<double>(),
        row.value("replay_ms", row["device_ms"].get<double>()), row["compile_ms"].get<double>(),
        row["kernels"].get<std::int64_t>(),
        row.contains("bytes") ? row["bytes"]["planned"].get<double>() / 1e6 : 0.0);
  } else {
    fmt::print("{:<16} {:<10} {:9.4f} ms  device {:9.4f} ms  {:8.1f} GFLOP/s  {:7.1f} GB/s\n",
               row["work"].get<std::string>(), row["device"].get<std::string>(),
               row["step_ms"].get<double>(), row["device_ms"].get<double>(),
               row["gflops"].get<double>(), row["gbytes_per_s"].get<double>());
  }
}

int run(const BenchArguments& a) {
  std::vector<std::string> trainings = workload_names();
  for (const std::string& w : large_workload_names()) trainings.push_back(w);
  const std::vector<std::string> operations = operation_names();
  const auto is_one_of = [](const std::vector<std::string>& list, const std::string& name) {
    return std::find(list.begin(), list.end(), name) != list.end();
  };
  for (const std::string& w : a.works) {
    if (!is_one_of(trainings, w) && !is_one_of(operations, w)) {
      throw UsageError(fmt::format("there is no workload `{}`; there are {} and {}", w,
                                   fmt::join(trainings, ", "), fmt::join(operations, ", ")));
    }
  }
  for (const std::string& w : a.works) {
    std::vector<Json> rows;
    if (is_one_of(trainings, w)) {
      rows.push_back(bench_training(w, a));
    } else {
      rows = bench_operations(w, a);
    }
    for (const Json& row : rows) {
      if (a.json) {
        fmt::print("{}\n", row.dump());
      } else {
        print(row);
      }
    }
    std::fflush(stdout);
  }
  return job_done;
}

}  // namespace

Subcommand add_bench(CLI::App& parent) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* parser = parent.add_subcommand("bench", "Times the fixed workloads on a device.");
  parser
      ->add_option("works", arguments->works,
                   "Workloads, separated by commas: W1 (sine MLP), W2 and W2g (transformer), W3 "
                   "(digit MLP), W3c (digit CNN), W4 and W4l (matrix products), W5 (memory-bound "
                   "operations), W6 (a transformer of 124 million parameters, for GPUs)")
      ->required()
      ->delimiter(',');
  add_device_option(*parser, arguments->device);
  parser->add_option("--seconds", arguments->seconds, "How long each measurement runs")
      ->check(CLI::PositiveNumber);
  parser->add_flag("--json", arguments->json, "One JSON object a line");
  parser
      ->add_option("--profile", arguments->profile,
                   "Folder for the device time of each kernel of a training workload, as a table "
                   "(WORK.txt) and as a trace for Perfetto (WORK.trace.json)")
      ->type_name("DIR");
  parser
      ->add_option("--steps", arguments->steps,
                   "Steps of a training workload before the measurement, whose losses --json tells "
                   "(default: 20 to 200, those with recorded losses)")
      ->check(CLI::PositiveNumber);
  parser
      ->add_option("--checkpoint", arguments->checkpoint,
                   "Folder for the checkpoint of a training workload after these steps "
                   "(WORK.safetensors)")
      ->type_name("DIR");
  parser->footer(
      "step_ms is the median of awaited steps with the loss or result read; device_ms of an\n"
      "operation is the median of its time on the device back to back, of a training the best mean "
      "of\n"
      "steps back to back without reading the loss; replay_ms is the device's time for the step's\n"
      "kernels back to back, without a new batch. Example: tensorgrad bench W1,W3,W3c --device "
      "cpu --json");
  return {parser, [arguments] { return run(*arguments); }};
}

}  // namespace tensorgrad::tools
