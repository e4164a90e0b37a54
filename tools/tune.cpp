// `tensorgrad tune`: measures the ways to run each kernel on a device, and keeps the fastest.
#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "command.h"
#include "models.h"
#include "run.h"
#include "runtime/device.h"
#include "train/core.h"
#include "workloads.h"

namespace tensorgrad::tools {
namespace {

using Json = nlohmann::ordered_json;

struct TuneArguments {
  std::vector<std::string> works;
  std::string run;
  std::string device = "auto";
  bool again = false, all = false, json = false;
};

std::string time_text(const TunedKernel::Candidate& c) {
  if (!c.error.empty()) return "failed";
  return c.seconds > 0 ? fmt::format("{:.2f}", 1e6 * c.seconds) : "";
}

void print_row(const TunedKernel& k, bool all) {
  const TunedKernel::Candidate& first = k.candidates.front();
  const TunedKernel::Candidate& best = k.candidates[k.winner];
  fmt::print("{:>4} {:>10} {:>10}  {}\n", k.dispatches, time_text(first), time_text(best), k.name);
  fmt::print("{:28}{}{}\n", "", first.name,
             k.winner == 0 ? " stays" : fmt::format(" -> {}", best.name));
  if (!all || k.known) {
    std::fflush(stdout);
    return;
  }
  for (const TunedKernel::Candidate& c : k.candidates) {
    fmt::print("{:>26}  {}{}\n", time_text(c), c.name,
               c.error.empty() ? "" : ": " + c.error.substr(0, c.error.find('\n')));
  }
  std::fflush(stdout);
}

void print_json(const std::string& work, const TunedKernel& k) {
  Json candidates = Json::array();
  for (const TunedKernel::Candidate& c : k.candidates) {
    Json entry{{"name", c.name}};
    if (c.seconds > 0) entry["us"] = 1e6 * c.seconds;
    if (!c.error.empty()) entry["error"] = c.error;
    candidates.push_back(std::move(entry));
  }
  fmt::print("{}\n", Json{{"work", work},
                          {"kernel", k.name},
                          {"dispatches", k.dispatches},
                          {"default", k.candidates.front().name},
                          {"winner", k.candidates[k.winner].name},
                          {"known", k.known},
                          {"candidates", std::move(candidates)}}
                         .dump());
  std::fflush(stdout);
}

void tune_plan(const std::string& work, const Plan& plan, Device& device, const TuneArguments& a) {
  if (!a.json) {
    fmt::print("{} on {}\n{:>4} {:>10} {:>10}  kernel\n", work, device.info().description, "runs",
               "default us", "winner us");
  }
  const std::vector<TunedKernel> kernels = device.tune(plan, a.again, [&](const TunedKernel& k) {
    if (a.json) {
      print_json(work, k);
    } else {
      print_row(k, a.all);
    }
  });
  if (a.json) return;
  double before = 0;
  double after = 0;
  for (const TunedKernel& k : kernels) {
    before += k.dispatches * k.candidates.front().seconds;
    after += k.dispatches * k.candidates[k.winner].seconds;
  }
  const auto changed =
      std::ranges::count_if(kernels, [](const TunedKernel& k) { return k.winner != 0; });
  fmt::print(
      "{:>4} {:>10.2f} {:>10.2f}  in all; {} of {} kernels with a choice differ from the "
      "default\n",
      "", 1e6 * before, 1e6 * after, changed, kernels.size());
}

int tune(const TuneArguments& a) {
  std::vector<std::string> trainings = workload_names();
  for (const std::string& w : large_workload_names()) trainings.push_back(w);
  const std::vector<std::string> operations = operation_names();
  if (a.works.empty() == a.run.empty()) {
    throw UsageError("tune takes workloads or, with --run, the folder of a run.");
  }
  for (const std::string& w : a.works) {
    if (std::ranges::count(trainings, w) + std::ranges::count(operations, w) == 0) {
      throw UsageError(fmt::format("there is no workload `{}`; there are {} and {}", w,
                                   fmt::join(trainings, ", "), fmt::join(operations, ", ")));
    }
  }
  if (a.device == "reference") {
    throw UsageError("The device reference interprets graphs and has no kernels to tune.");
  }
  const std::shared_ptr<Device> device = open_device(a.device);
  if (!a.run.empty()) {
    const RunRecord run = read_run({a.run});
    const Classifier c = start_classifier(run.config.model, a.device, run.optimizer,
                                          run.config.seed, run.config.batch);
    tune_plan(a.run, *c.training->core().compiled()->program->plan(), *device, a);
  }
  for (const std::string& w : a.works) {
    if (std::ranges::count(trainings, w) > 0) {
      const WorkloadRun run = compile_workload(w, a.device);
      tune_plan(w, *run.training->core().compiled()->program->plan(), *device, a);
      continue;
    }
    for (const OperationRun& op : open_operations(w, a.device)) {
      tune_plan(op.name, *op.plan, *device, a);
    }
  }
  return job_done;
}

}  // namespace

Subcommand add_tune(CLI::App& parent) {
  auto arguments = std::make_shared<TuneArguments>();
  TuneArguments& a = *arguments;
  CLI::App* parser = parent.add_subcommand(
      "tune", "Times the ways to run each kernel of a program on a device, and keeps the fastest.");
  parser
      ->add_option("works,--workload", a.works,
                   "Workloads of `bench`, separated by commas, such as W2,W4")
      ->delimiter(',');
  parser->add_option("--run", a.run, "Folder of a run, whose model is tuned")->type_name("DIR");
  add_device_option(*parser, a.device);
  parser->add_flag("--again", a.again, "Time kernels that were tuned before, too");
  parser->add_flag("--all", a.all, "Show every way with its time, not only the fastest");
  parser->add_flag("--json", a.json, "One JSON object a kernel");
  parser->footer(
      "What wins is kept on disk (TENSORGRAD_CACHE_DIR) for this device, driver and kernel, and "
      "is\n"
      "what later programs run. Devices that know one way to run a kernel have nothing to tune.\n"
      "Examples:\n"
      "  tensorgrad tune W2,W4 --device webgpu\n"
      "  tensorgrad tune --run runs/fashion-mnist --device webgpu --all");
  return {parser, [arguments] { return tune(*arguments); }};
}

}  // namespace tensorgrad::tools
