#include "schedule/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <unordered_map>

#include "graph/site.h"
#include "ops/rules.h"
#include "schedule/state.h"
#include "transform/passes.h"

namespace tensorgrad {
namespace {

using namespace schedule;  // NOLINT: the passes are this file's vocabulary

constexpr std::array pass_names{
    "simplify",       "match_attention",  "merge_contractions", "thin_products",
    "fuse_maps",      "place_parts",      "fuse_epilogues",     "fuse_rows",
    "fuse_siblings",  "drop_stores",      "overwrite",          "split_loops",
    "collapse_loops", "rebase_arguments", "share_kernels",      "reuse_memory"};

// "relu", "add": what a person would call the value.
std::string op_label(const Item& item) {
  const Node& n = item.value.node();
  if (std::holds_alternative<DotAttr>(n.attrs)) return "contract";
  return std::string(*n.op->name);
}

std::string group_name(const State& s, const std::vector<int>& items, const kernel::Kernel& k) {
  std::string name;
  std::vector<std::string> seen;
  for (int i : items) {
    std::string label = op_label(s.items[static_cast<std::size_t>(i)]);
    if (const auto* m = k.contraction ? std::get_if<kernel::Matmul>(&*k.contraction) : nullptr;
        m && s.items[static_cast<std::size_t>(i)].kind == ItemKind::contract) {
      label = m->batch.empty()
                  ? fmt::format("contract {}x{}x{}", m->m, m->n, m->depth())
                  : fmt::format("contract {}x{}x{}x{}", m->batches(), m->m, m->n, m->depth());
    }
    if (const auto* a = k.contraction ? std::get_if<kernel::Attention>(&*k.contraction) : nullptr) {
      const std::int64_t batches =
          std::accumulate(a->batch.begin(), a->batch.end(), std::int64_t{1}, std::multiplies<>());
      label = fmt::format("attention{} {}x{}x{}x{}",
                          a->mode == kernel::Attention::Mode::forward ? "" : " gradients", batches,
                          a->queries, a->keys, a->depth);
    }
    if (std::find(seen.begin(), seen.end(), label) != seen.end()) continue;
    if (seen.size() == 4) {
      name += " + …";
      break;
    }
    name += (name.empty() ? "" : " + ") + label;
    seen.push_back(label);
  }
  return name;
}

std::string site_of(const State& s, const std::vector<int>& items) {
  const Site& site = s.items[static_cast<std::size_t>(items.back())].value.node().site;
  if (site.line() == 0) return "";
  return short_text(site);
}

class Pipeline {
 public:
  Pipeline(const PassOptions& options, std::vector<PassReport>* report)
      : options_(options), report_(report) {}

  // Runs `pass` unless `name` is switched off (an empty `off` means it always runs, told whether it
  // is on).
  void step(const char* name, const std::function<void()>& pass,
            const std::function<std::string()>& result = {}) {
    const bool on = options_.on(name);
    const auto start = std::chrono::steady_clock::now();
    if (on) pass();
    if (!report_) return;
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    report_->push_back({name, took.count(), on, result ? result() : ""});
  }
  void always(const char* name, const std::function<void()>& pass,
              const std::function<std::string()>& result = {}) {
    const auto start = std::chrono::steady_clock::now();
    pass();
    if (!report_) return;
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    report_->push_back({name, took.count(), true, result ? result() : ""});
  }

 private:
  const PassOptions& options_;
  std::vector<PassReport>* report_;
};

// Lowers every group, in order, into a plan.
Plan emit(State& s, const Target& target, const PassOptions& options) {
  Plan plan;
  plan.buffers = s.buffers;
  std::vector<int> groups;
  std::vector<Lowered> kernels;
  for (const int g : s.group_order()) {
    const auto& items = s.groups[static_cast<std::size_t>(g)].items;
    const bool empty = std::all_of(items.begin(), items.end(), [&](int i) {
      return s.items[static_cast<std::size_t>(i)].value.size() == 0;
    });
    if (empty) continue;
    Lowered l = lower(s, items);
    if (!l.failure.empty()) {
      throw GraphError(
          fmt::format("schedule: a kernel that was one before cannot be lowered: {}.", l.failure));
    }
    groups.push_back(g);
    kernels.push_back(std::move(l));
  }
  if (options.on("overwrite")) overwrite_temporaries(plan.buffers, kernels);
  std::unordered_map<std::string, int> known;
  for (std::size_t n = 0; n < kernels.size(); ++n) {
    Lowered& l = kernels[n];
    const auto& items = s.groups[static_cast<std::size_t>(groups[n])].items;
    if (options.on("split_loops")) split_loops(l.kernel);
    if (options.on("collapse_loops")) collapse_loops(l.kernel);
    Dispatch d;
    if (options.on("rebase_arguments")) d.offsets = rebase_arguments(l.kernel, target);
    l.kernel.name = group_name(s, items, l.kernel);
#ifndef __wasm__  // 8 kB of a page's module, for kernels that other builds make the same
    kernel::verify(l.kernel);
#endif
    d.buffers = std::move(l.buffers);
    const std::string site = site_of(s, items);
    d.name = site.empty() ? l.kernel.name : fmt::format("{}  ({})", l.kernel.name, site);
    int id = -1;
    if (options.on("share_kernels")) {
      std::string text = kernel::to_string(l.kernel);
      const auto [at, inserted] =
          known.try_emplace(std::move(text), static_cast<int>(plan.kernels.size()));
      if (inserted) plan.kernels.push_back(std::move(l.kernel));
      id = at->second;
    } else {
      id = static_cast<int>(plan.kernels.size());
      plan.kernels.push_back(std::move(l.kernel));
    }
    d.kernel = id;
    plan.dispatches.push_back(std::move(d));
  }
  return plan;
}

}  // namespace

PassOptions::PassOptions(const std::string& list) {
  std::size_t from = 0;
  while (from <= list.size() && !list.empty()) {
    const std::size_t to = std::min(list.find(',', from), list.size());
    std::string name = list.substr(from, to - from);
    from = to + 1;
    if (name.empty()) continue;
    const bool off = name[0] == '-';
    if (off || name[0] == '+') name.erase(0, 1);
    if (std::find(pass_names.begin(), pass_names.end(), name) == pass_names.end()) {
      throw ValueError(fmt::format("TENSORGRAD_PASSES: there is no pass `{}`; there are {}.", name,
                                   fmt::join(pass_names, ", ")));
    }
    if (off) {
      off_.insert(name);
    } else {
      off_.erase(name);
    }
  }
}

PassOptions PassOptions::from_environment() {
#ifdef __wasm__
  return {};  // a page has no environment
#else
  const char* list = std::getenv("TENSORGRAD_PASSES");  // NOLINT(concurrency-mt-unsafe)
  return list ? PassOptions(list) : PassOptions();
#endif
}

std::vector<std::string> PassOptions::names() { return {pass_names.begin(), pass_names.end()}; }

Plan make_plan(Graph graph, const Target& target, const PassOptions& options,
               std::vector<PassReport>* report) {
  Pipeline run(options, report);
  const auto nodes = [&] { return fmt::format("{} nodes", graph.order().size()); };
  Prepared prepared;

  run.always("widen_halves", [&] { graph = widen_halves(graph); }, nodes);
  run.step("simplify", [&] { graph = simplify(graph); }, nodes);
  run.step(
      "match_attention",
      [&] {
        if (target.attention) graph = simplify(match_attention(graph));
      },
      nodes);
  run.step("merge_contractions", [&] { graph = simplify(merge_contractions(graph)); }, nodes);
  run.step("thin_products", [&] { graph = simplify(thin_products(graph)); }, nodes);
  // Without fused maps a widening is a kernel of its own.
  const bool half_operands = target.half_operands && options.on("fuse_maps");
  run.always(
      "prepare_contractions", [&] { prepared = prepare_contractions(graph, half_operands); },
      nodes);
  run.always("verify", [&] { verify(graph); });

  State state(graph, target.max_buffers);
  const auto groups = [&] {
    return fmt::format("{} kernels",
                       std::count_if(state.groups.begin(), state.groups.end(),
                                     [](const Group& g) { return !g.items.empty(); }));
  };
  run.always(
      "realise",
      [&] { realise(state, prepared, options.on("fuse_maps"), options.on("place_parts")); },
      groups);
  run.always("fuse_attention", [&] { fuse_attention(state); }, groups);
  run.step("fuse_epilogues", [&] { fuse_epilogues(state); }, groups);
  run.step("fuse_rows", [&] { fuse_rows(state); }, groups);
  run.step("fuse_siblings", [&] { fuse_siblings(state); }, groups);
  run.step("drop_stores", [&] { drop_stores(state); });

  Plan plan;
  run.always(
      "lower", [&] { plan = emit(state, target, options); },
      [&] { return fmt::format("{} distinct", plan.kernels.size()); });
  run.always(
      "place_memory", [&] { place_memory(plan, target, options.on("reuse_memory")); },
      [&] { return fmt::format("{} bytes", plan.arena_bytes); });
  return plan;
}

}  // namespace tensorgrad
