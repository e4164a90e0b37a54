// `tensorgrad inspect`: what the compiler made of a model.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "command.h"
#include "kernel/kernel.h"
#include "models.h"
#include "profile.h"
#include "progress.h"
#include "run.h"
#include "schedule/print.h"
#include "tensorgrad/error.h"
#include "train/core.h"
#include "workloads.h"

namespace tensorgrad::tools {
namespace {

using Json = nlohmann::ordered_json;

struct InspectArguments {
  std::string what;
  std::string device = "auto";
  bool json = false, graph = false, source = false, profile = false, plan = false;
};

// A compiled program and where it is from.
struct Subject {
  std::string work;
  std::string title;
  std::shared_ptr<AnyTraining> training;
};

std::int64_t bytes_of(const Plan& plan, BufferKind kind) {
  if (kind == BufferKind::temp) return plan.arena_bytes;
  std::int64_t total = 0;
  for (const PlanBuffer& b : plan.buffers) total += b.kind == kind ? b.bytes() : 0;
  return total;
}

std::string with_unit(double value, const char* unit) {
  constexpr const char* prefixes[] = {"", "k", "M", "G", "T"};
  std::size_t p = 0;
  while (value >= 1000 && p + 1 < std::size(prefixes)) {
    value /= 1000;
    ++p;
  }
  return fmt::format("{:.{}f} {}{}", value, p == 0 ? 0 : (value < 10 ? 2 : 1), prefixes[p], unit);
}
std::string flops_text(std::int64_t n) { return with_unit(static_cast<double>(n), "flop"); }
std::string bytes_text(std::int64_t n) { return with_unit(static_cast<double>(n), "B"); }

// Everything that is shown of one subject.
struct Insight {
  const Subject* subject = nullptr;
  const detail::Compiled* compiled = nullptr;
  const Plan* plan = nullptr;
  std::int64_t allocated = 0;
  std::vector<double> seconds;  // of each dispatch; empty if not measured
  std::vector<kernel::Cost> costs;
  kernel::Cost total;
};

Insight look_into(const Subject& subject, bool with_profile) {
  detail::TrainingCore& core = subject.training->core();
  const detail::Compiled* compiled = core.compiled();
  Program& program = *compiled->program;
  Insight insight;
  insight.subject = &subject;
  insight.compiled = compiled;
  insight.plan = program.plan();
  if (insight.plan == nullptr) {
    throw UsageError("The device reference interprets graphs and has no kernels to show.");
  }
  insight.allocated = static_cast<std::int64_t>(program.executable()->allocated_bytes()) +
                      bytes_of(*insight.plan, BufferKind::state);
  for (const Dispatch& d : insight.plan->dispatches) {
    insight.costs.push_back(
        kernel::cost(insight.plan->kernels[static_cast<std::size_t>(d.kernel)]));
    insight.total.flops += insight.costs.back().flops;
    insight.total.bytes += insight.costs.back().bytes;
  }
  if (with_profile) insight.seconds = profile(program, core.engine());
  return insight;
}

std::string source_of(const Insight& insight, const Dispatch& dispatch) {
  return insight.compiled->program->executable()->source(static_cast<std::size_t>(dispatch.kernel));
}

// ---- JSON ----------------------------------------------------------------------------------------

Json buffers_to_json(const Insight& insight, const Dispatch& dispatch) {
  const kernel::Kernel& k = insight.plan->kernels[static_cast<std::size_t>(dispatch.kernel)];
  Json list = Json::array();
  for (std::size_t i = 0; i < dispatch.buffers.size(); ++i) {
    const PlanBuffer& b = insight.plan->buffers[static_cast<std::size_t>(dispatch.buffers[i])];
    Json entry{{"kind", name(b.kind)}};
    if (!b.name.empty()) entry["name"] = b.name;
    entry["dtype"] = info(b.dtype).name;
    entry["bytes"] = b.bytes();
    if (b.kind == BufferKind::temp) entry["offset"] = b.offset;
    if (dispatch.offset(i) > 0) entry["from_element"] = dispatch.offset(i);
    entry["read"] = k.args[i].read;
    entry["written"] = k.args[i].written;
    list.push_back(std::move(entry));
  }
  return list;
}

Json to_json(const Insight& insight, const InspectArguments& arguments) {
  const Plan& plan = *insight.plan;
  Json out{{"work", insight.subject->work},
           {"device", insight.subject->training->core().engine().name()}};
  Json passes = Json::array();
  for (const PassReport& p : insight.compiled->passes) {
    passes.push_back(
        {{"name", p.name}, {"on", p.on}, {"ms", p.milliseconds}, {"result", p.result}});
  }
  out["passes"] = std::move(passes);
  Json kernels = Json::array();
  for (std::size_t i = 0; i < plan.dispatches.size(); ++i) {
    const Dispatch& d = plan.dispatches[i];
    Json entry{{"name", d.name},
               {"kernel", d.kernel},
               {"flops", insight.costs[i].flops},
               {"bytes", insight.costs[i].bytes}};
    if (!insight.seconds.empty()) entry["ms"] = 1e3 * insight.seconds[i];
    entry["buffers"] = buffers_to_json(insight, d);
    entry["source"] = source_of(insight, d);
    kernels.push_back(std::move(entry));
  }
  out["kernels"] = std::move(kernels);
  out["flops"] = insight.total.flops;
  out["traffic"] = insight.total.bytes;
  out["bytes"] = {{"planned", plan.total_bytes()},
                  {"allocated", insight.allocated},
                  {"arena", plan.arena_bytes},
                  {"inputs", bytes_of(plan, BufferKind::input)},
                  {"outputs", bytes_of(plan, BufferKind::output)},
                  {"states", bytes_of(plan, BufferKind::state)},
                  {"constants", bytes_of(plan, BufferKind::constant)}};
  if (arguments.graph) out["graph"] = to_string(insight.compiled->graph);
  return out;
}

// ---- text ----------------------------------------------------------------------------------------

void print_indented(const std::string& text) {
  std::size_t start = 0;
  while (start < text.size()) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    fmt::print("      {}\n", std::string_view(text).substr(start, end - start));
    start = end + 1;
  }
}

void print_buffers(const Insight& insight, const Dispatch& dispatch) {
  const kernel::Kernel& k = insight.plan->kernels[static_cast<std::size_t>(dispatch.kernel)];
  for (std::size_t i = 0; i < dispatch.buffers.size(); ++i) {
    const PlanBuffer& b = insight.plan->buffers[static_cast<std::size_t>(dispatch.buffers[i])];
    const std::string place =
        (b.kind == BufferKind::temp ? fmt::format("at {}", b.offset) : "`" + b.name + "`") +
        (dispatch.offset(i) > 0 ? fmt::format(" from element {}", dispatch.offset(i)) : "");
    fmt::print("      {}{} {} {}, {} {}\n", k.args[i].read ? "r" : "-",
               k.args[i].written ? "w" : "-", name(b.kind), place, b.elements, info(b.dtype).name);
  }
}

void print_text(const Insight& insight, const InspectArguments& arguments) {
  const Plan& plan = *insight.plan;
  fmt::print("{}: {}, on {}\n", insight.subject->work, insight.subject->title,
             insight.subject->training->core().engine().name());
  if (arguments.graph) {
    fmt::print("\ngraph\n");
    print_indented(to_string(insight.compiled->graph));
  }
  fmt::print("\npasses\n");
  for (const PassReport& p : insight.compiled->passes) {
    fmt::print("  {:<18} {:>8.2f} ms  {}\n", p.name, p.milliseconds, p.on ? p.result : "off");
  }
  fmt::print("\nkernels ({}, {} distinct)\n", plan.dispatches.size(), plan.kernels.size());
  for (std::size_t i = 0; i < plan.dispatches.size(); ++i) {
    const Dispatch& d = plan.dispatches[i];
    const std::string time =
        insight.seconds.empty() ? "" : fmt::format("{:>9.3f} ms", 1e3 * insight.seconds[i]);
    fmt::print("  {:>3} {:>12} {:>10}{}  {}\n", i + 1, flops_text(insight.costs[i].flops),
               bytes_text(insight.costs[i].bytes), time, d.name);
    if (!arguments.source) continue;
    print_buffers(insight, d);
    print_indented(source_of(insight, d));
  }
  double seconds = 0;
  for (const double s : insight.seconds) seconds += s;
  fmt::print("      {:>12} {:>10}{}  in all\n", flops_text(insight.total.flops),
             bytes_text(insight.total.bytes),
             insight.seconds.empty() ? "" : fmt::format("{:>9.3f} ms", 1e3 * seconds));
  fmt::print("\nmemory\n");
  const auto line = [](const char* what, std::int64_t bytes) {
    fmt::print("  {:<18} {:>15} B\n", what, grouped_number(static_cast<double>(bytes)));
  };
  line("intermediates", plan.arena_bytes);
  line("inputs", bytes_of(plan, BufferKind::input));
  line("outputs", bytes_of(plan, BufferKind::output));
  line("states", bytes_of(plan, BufferKind::state));
  line("constants", bytes_of(plan, BufferKind::constant));
  line("planned", plan.total_bytes());
  line("allocated", insight.allocated);
}

// ---- subjects ------------------------------------------------------------------------------------

Subject open_run(const std::string& path, const std::string& device) {
  const RunRecord run = read_run({path});
  Classifier c =
      start_classifier(run.config.model, device, run.optimizer, run.config.seed, run.config.batch);
  return {path,
          fmt::format("training step of {} on batches of {}", run.config.model, run.config.batch),
          c.training};
}

std::vector<std::string> split_list(const std::string& list) {
  std::vector<std::string> names;
  std::size_t start = 0;
  while (start <= list.size()) {
    const std::size_t end = std::min(list.find(',', start), list.size());
    names.push_back(list.substr(start, end - start));
    start = end + 1;
  }
  return names;
}

// Either every name is a workload's, or the argument is the folder of a run.
std::vector<std::string> workloads_in(const std::string& what) {
  std::vector<std::string> known = workload_names();
  for (const std::string& w : large_workload_names()) known.push_back(w);
  std::vector<std::string> names = split_list(what);
  const auto is_known = [&](const std::string& n) { return std::ranges::count(known, n) > 0; };
  if (std::ranges::all_of(names, is_known)) return names;
  if (std::filesystem::exists(what)) return {};
  std::string list;
  for (const std::string& n : known) list += (list.empty() ? "" : ", ") + n;
  throw UsageError(
      fmt::format("\"{}\" is neither the folder of a run nor a list of workloads; the "
                  "workloads are {}.",
                  what, list));
}

void print_plan(const Subject& subject) {
  const detail::Compiled* compiled = subject.training->core().compiled();
  fmt::print("{}{}", to_string(compiled->graph), to_string(*compiled->program->plan()));
}

int inspect(const InspectArguments& arguments) {
  if (arguments.device == "reference") {
    throw UsageError("The device reference interprets graphs and has no kernels to show.");
  }
  // A plan for the limits that every WebGPU adapter has does not depend on this machine.
  const std::string device = arguments.plan ? "web" : arguments.device;
  const auto show = [&](const Subject& subject) {
    if (arguments.plan) {
      print_plan(subject);
      return;
    }
    const Insight insight = look_into(subject, arguments.profile);
    if (arguments.json) {
      fmt::print("{}\n", to_json(insight, arguments).dump());
    } else {
      print_text(insight, arguments);
    }
  };
  const std::vector<std::string> workloads = workloads_in(arguments.what);
  if (workloads.empty()) show(open_run(arguments.what, device));
  for (const std::string& name : workloads) {
    if (!arguments.json && name != workloads.front()) fmt::print("\n");
    const WorkloadRun run = compile_workload(name, device);
    show({name, "training step of a fixed workload", run.training});
  }
  return job_done;
}

}  // namespace

Subcommand add_inspect(CLI::App& parent) {
  CLI::App* parser = parent.add_subcommand(
      "inspect", "Shows what the compiler makes of a training step: passes, kernels, memory.");
  const auto arguments = std::make_shared<InspectArguments>();
  InspectArguments& a = *arguments;
  parser->add_option("what", a.what, "Folder of a run, or fixed workloads such as W1,W3")
      ->required()
      ->type_name("RUN|WORK,...");
  add_device_option(*parser, a.device);
  parser->add_flag("--json", a.json,
                   "One JSON object a workload, with `work`, `kernels` (in order, with source) and "
                   "`bytes`");
  parser->add_flag("--graph", a.graph, "Show the graph that is compiled, too");
  parser->add_flag("--source", a.source, "Show each kernel's buffers and source");
  parser->add_flag("--plan", a.plan, "Only the graph and the plan for a web page, as text");
  parser->add_flag("--profile", a.profile, "Run a few steps on zeros and show each kernel's time");
  parser->footer(
      "Examples:\n"
      "  tensorgrad inspect runs/fashion-mnist\n"
      "  tensorgrad inspect W1,W3 --profile\n"
      "  tensorgrad inspect W3c --json --graph");
  return {parser, [arguments] { return inspect(*arguments); }};
}

}  // namespace tensorgrad::tools
