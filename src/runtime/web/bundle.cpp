#include "runtime/web/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/web/engine.h"
#include "tensorgrad/error.h"
#include "tensorgrad/web.h"
#include "train/parse_json.h"
#include "train/update.h"

namespace tensorgrad::web {
namespace {

using Json = BundleWriter::Json;

constexpr std::uint32_t version = 1;
constexpr std::size_t alignment = 16;

std::size_t aligned(std::size_t n) { return (n + alignment - 1) / alignment * alignment; }

Json to_json(const std::vector<InputSpec>& specs) {
  Json out = Json::array();
  for (const InputSpec& s : specs) {
    out.push_back({{"name", s.name}, {"dtype", info(s.dtype).name}, {"shape", s.shape}});
  }
  return out;
}

std::span<const std::byte> as_bytes(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

// Throws unless every declared extent is kept.
void check_shapes(const std::vector<InputSpec>& specs, const std::vector<Shape>& shapes) {
  if (specs.size() != shapes.size()) {
    throw ShapeError(
        fmt::format("There are {} inputs, but {} shapes.", specs.size(), shapes.size()));
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    bool fits = specs[i].shape.size() == shapes[i].size();
    for (std::size_t d = 0; fits && d < shapes[i].size(); ++d) {
      fits = shapes[i][d] >= 0 && (specs[i].shape[d] == dyn || specs[i].shape[d] == shapes[i][d]);
    }
    if (!fits) {
      throw ShapeError(fmt::format("Input `{}` of shape {} cannot have shape {}.", specs[i].name,
                                   to_string(specs[i].shape), to_string(shapes[i])));
    }
  }
}

}  // namespace

int BundleWriter::module_id(const wgsl::Module& module) {
  const auto [it, inserted] = known_.try_emplace(module.text, static_cast<int>(modules_.size()));
  if (inserted) {
    Json types = Json::array();
    for (const bool writable : module.writable) {
      types.push_back(writable ? "storage" : "read-only-storage");
    }
    modules_.push_back({{"name", module.name},
                        {"entry", "main"},
                        {"types", std::move(types)},
                        {"code", module.text}});
    subgroups_ |= module.text.find("enable subgroups") != std::string::npos;
    f16_ |= module.text.find("enable f16") != std::string::npos;
    most_bindings_ = std::max(most_bindings_, module.writable.size());
  }
  return it->second;
}

Json BundleWriter::add_data(std::span<const std::byte> bytes) {
  const std::size_t begin = aligned(data_.size());
  data_.resize(begin);
  data_.insert(data_.end(), bytes.begin(), bytes.end());
  return {begin, data_.size()};
}

void BundleWriter::add_program(const std::string& role, const std::string& name, const Plan& plan,
                               const detail::OutputList& outputs, std::size_t inputs) {
  const wgsl::Program program = wgsl::make_program(plan, target_);
  std::vector<int> modules;
  for (const wgsl::Module& m : program.modules) modules.push_back(module_id(m));
  Json buffers = Json::array();
  Json fed = Json::array();
  Json read = Json::array();
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    const wgsl::GpuBuffer& b = program.buffers[i];
    const PlanBuffer* planned =
        b.plan_buffer < 0 ? nullptr : &plan.buffers[static_cast<std::size_t>(b.plan_buffer)];
    largest_buffer_ = std::max(largest_buffer_, b.bytes);
    Json entry{{"bytes", b.bytes}};
    if (b.role == wgsl::Role::state) entry["state"] = planned->name;
    if (b.role == wgsl::Role::constant) entry["data"] = add_data(b.data);
    buffers.push_back(std::move(entry));
    const auto place = [&](const std::string& as) -> Json {
      return {{"name", as},
              {"dtype", info(planned->dtype).name},
              {"shape", planned->shape},
              {"buffer", i}};
    };
    if (b.role == wgsl::Role::input) {
      fed.push_back(place((fed.size() < inputs ? "" : "$") + planned->name));
    }
    if (b.role == wgsl::Role::output) read.push_back(place(outputs.outputs[read.size()].first));
  }
  Json passes = Json::array();
  for (const wgsl::Pass& p : program.passes) {
    Json bindings = Json::array();
    for (const wgsl::Binding& b : p.bindings) {
      bindings.push_back({b.buffer, b.offset, b.bytes});
      largest_binding_ = std::max(largest_binding_, b.bytes);
    }
    for (const std::uint32_t g : p.groups) most_groups_ = std::max(most_groups_, g);
    passes.push_back({{"module", modules[static_cast<std::size_t>(p.module)]},
                      {"groups", p.groups},
                      {"bindings", std::move(bindings)}});
  }
  programs_.push_back({{"role", role},
                       {"name", name},
                       {"buffers", std::move(buffers)},
                       {"inputs", std::move(fed)},
                       {"outputs", std::move(read)},
                       {"passes", std::move(passes)}});
}

// What is beyond what every adapter guarantees. How many invocations and how much workgroup memory
// the texts use is not known here; they may use what the target has.
Json BundleWriter::needs() const {
  const wgsl::Target least;
  Json limits = Json::object();
  const auto need = [&](const char* name, auto used, auto guaranteed) {
    if (used > guaranteed) limits[name] = used;
  };
  need("maxStorageBufferBindingSize", largest_binding_, least.binding_bytes);
  need("maxBufferSize", largest_buffer_, least.buffer_bytes);
  need("maxStorageBuffersPerShaderStage", static_cast<int>(most_bindings_), least.storage_buffers);
  need("maxComputeWorkgroupsPerDimension", static_cast<std::int64_t>(most_groups_), least.groups);
  need("maxComputeInvocationsPerWorkgroup", target_.invocations, least.invocations);
  need("maxComputeWorkgroupSizeX", target_.workgroup_size_x, least.workgroup_size_x);
  need("maxComputeWorkgroupStorageSize", target_.workgroup_bytes, least.workgroup_bytes);
  if (target_.binding_alignment < least.binding_alignment) {
    limits["minStorageBufferOffsetAlignment"] = target_.binding_alignment;
  }
  Json out{{"limits", std::move(limits)}, {"features", Json::array()}};
  if (f16_) out["features"].push_back("shader-f16");
  if (subgroups_) {
    out["features"].push_back("subgroups");
    out["subgroups"] = {target_.subgroup_min, target_.subgroup_max};
  }
  return out;
}

std::vector<std::byte> BundleWriter::finish(const Json& header) {
  Json all{{"format", "tensorgrad-bundle"}, {"needs", needs()}};
  all.update(header);
  all["modules"] = std::move(modules_);
  all["programs"] = std::move(programs_);
  all["bytes"] = data_.size();
  std::string text = all.dump();
  text.resize(aligned(text.size()), ' ');
  constexpr std::size_t fixed = 16;
  std::vector<std::byte> out(fixed + text.size() + data_.size());
  const std::uint32_t numbers[2] = {version, static_cast<std::uint32_t>(text.size())};
  std::memcpy(out.data(), "tgbundle", 8);
  std::memcpy(out.data() + 8, numbers, sizeof numbers);
  std::memcpy(out.data() + fixed, text.data(), text.size());
  std::ranges::copy(data_, out.begin() + static_cast<std::ptrdiff_t>(fixed + text.size()));
  return out;
}

const wgsl::Target& target_of(Engine& engine) {
  const auto* page = dynamic_cast<const PageEngine*>(&engine);
  if (page == nullptr) {
    throw GraphError(fmt::format(
        "The model is compiled for the device {}; a page needs the device web.", engine.name()));
  }
  return page->target();
}

namespace {

const HostBuffer& held_by(detail::TrainingCore& training, std::size_t arena) {
  return dynamic_cast<const HostBuffer&>(training.buffer(arena));
}

}  // namespace

bool has_weights(detail::TrainingCore& training) { return held_by(training, 0).written(); }

Json describe(detail::TrainingCore& training, const std::map<std::string, Forward>& forwards,
              bool trains, bool weights, BundleWriter& writer) {
  Json params = Json::array();
  for (const detail::Slot& s : training.slots()) {
    params.push_back({{"name", s.name}, {"shape", s.param.shape}, {"offset", s.offset}});
  }
  Json states = Json::array();
  const auto add_state = [&](const std::string& name, std::size_t slot) {
    Json state{{"name", name}, {"bytes", 4 * training.arena_size()}};
    if (weights && (slot == 0 || held_by(training, slot).holds_values())) {
      state["data"] = writer.add_data(as_bytes(training.read_arena(slot)));
    }
    states.push_back(std::move(state));
  };
  add_state("parameters", 0);
  Json header;
  if (trains) {
    std::size_t slot = 1;
    for (const std::string& n : slot_names(training.options().optimizer)) {
      add_state("optimizer." + n, slot++);
    }
    header["optimizer"] = parse_json(to_string(training.options().optimizer));
    header["step"] = training.steps();
  }
  header["seed"] = fmt::format("{}", training.options().seed);
  header["inputs"] = trains ? to_json(training.feeds().specs()) : Json::array();
  header["params"] = std::move(params);
  header["states"] = std::move(states);
  Json list = Json::array();
  for (const auto& [name, forward] : forwards) {
    Forward handle = forward;
    list.push_back({{"name", name}, {"inputs", to_json(handle.core().feeds().specs())}});
  }
  header["forwards"] = std::move(list);
  return header;
}

void add_compiled(BundleWriter& writer, detail::TrainingCore& training,
                  std::map<std::string, Forward>& forwards, const std::string& role,
                  const std::string& name, const std::vector<Shape>& shapes) {
  if (role == "init") {
    const auto program = training.engine().load(training.initial_graph(), nullptr);
    writer.add_program(role, "", *program->plan(), {}, 0);
    return;
  }
  const auto add = [&](const std::vector<InputSpec>& specs, auto& core) {
    check_shapes(specs, shapes);
    const detail::Compiled& compiled = core.compiled_for(shapes);
    writer.add_program(role, name, *compiled.program->plan(), *compiled.outputs, specs.size());
  };
  if (role == "step") {
    add(training.feeds().specs(), training);
  } else if (const auto it = forwards.find(name); role == "forward" && it != forwards.end()) {
    add(it->second.core().feeds().specs(), it->second.core());
  } else {
    throw GraphError(fmt::format("There is no program \"{}\" of the role \"{}\".", name, role));
  }
}

namespace {

// The shapes of inputs for one value of the open extents.
std::vector<Shape> shapes_for(const std::vector<InputSpec>& specs, std::int64_t size) {
  std::vector<Shape> shapes;
  for (const InputSpec& s : specs) {
    shapes.push_back(s.shape);
    std::ranges::replace(shapes.back(), dyn, size);
  }
  return shapes;
}

}  // namespace

std::vector<std::byte> make_bundle(const Model& model, const BundleOptions& options) {
  Model held = model;
  detail::TrainingCore& training = held.training.core();
  BundleWriter writer(target_of(training.engine()));
  const auto add_sizes = [&](const std::string& role, const std::string& name,
                             const detail::FeedChecker& feeds) {
    std::vector<std::int64_t> sizes = options.sizes;
    if (!feeds.open()) sizes = {1};
    for (const std::int64_t size : sizes) {
      add_compiled(writer, training, held.forwards, role, name, shapes_for(feeds.specs(), size));
    }
  };
  const bool weights = options.weights && has_weights(training);
  if (!weights) add_compiled(writer, training, held.forwards, "init", "", {});
  if (options.trains) add_sizes("step", "", training.feeds());
  for (auto& [name, forward] : held.forwards) add_sizes("forward", name, forward.core().feeds());
  Json header = describe(training, held.forwards, options.trains, weights, writer);
  header["metadata"] = Json::object();
  for (const auto& [key, value] : options.metadata) header["metadata"][key] = value;
  return writer.finish(header);
}

}  // namespace tensorgrad::web
