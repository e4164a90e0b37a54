// Compiled training.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

#include "ops/primitives.h"
#include "tensorgrad/ops.h"
#include "tensorgrad/random.h"
#include "tensorgrad/transforms.h"
#include "train/core.h"
#include "train/evaluate.h"
#include "train/update.h"
#include "transform/passes.h"

namespace tensorgrad::detail {
namespace {

constexpr std::int64_t alignment = 16;  // f32 elements in the widest vector

void warn(const TrainOptions& options, const std::string& text) {
  if (options.warn) {
    options.warn(text);
  } else {
    fmt::print(stderr, "warning: {}\n", text);
  }
}

bool uses(const Graph& graph, const Tensor& leaf) {
  const auto order = graph.order();
  return std::find(order.begin(), order.end(), &leaf.node()) != order.end();
}

std::shared_ptr<const OutputList> output_list(const Graph& graph) {
  auto list = std::make_shared<OutputList>();
  for (const Named& o : graph.outputs) {
    list->outputs.emplace_back(o.name, o.value.node().type);
  }
  return list;
}

}  // namespace

TrainingCore::TrainingCore(TrainOptions options, const Site& site)
    : options_(std::move(options)),
      site_(site),
      feeds_(options_.inputs, site),
      engine_(open_engine(options_.device)) {
  if (options_.clip_norm && !(*options_.clip_norm > 0)) {
    throw ValueError(
        fmt::format("compile: clip_norm is {}, not a positive number.", *options_.clip_norm), site);
  }
  // The optimizer's numbers are checked before anything is traced.
  static_cast<void>(hyper(options_.optimizer, 1, learning_rate_of(options_.optimizer, 1)));
}

void TrainingCore::declare(const std::string& name, const Param& param) {
  for (std::int64_t d : param.shape) {
    if (d < 0) {
      throw ShapeError(fmt::format("Parameter `{}` has shape {}.", name, to_string(param.shape)),
                       site_);
    }
  }
  slots_.push_back({name, param, 0, numel(param.shape)});
}

// One range of the arena decays, and sizes that would leave what follows unaligned come last in
// each half: [plain aligned | decayed aligned | decayed odd | plain odd].
void TrainingCore::lay_out() {
  const auto place = [&](bool decay, bool aligned) {
    for (Slot& s : slots_) {
      if (s.param.decay != decay || (s.size % alignment == 0) != aligned) continue;
      s.offset = arena_size_;
      arena_size_ += s.size;
    }
  };
  place(false, true);
  decay_from_ = arena_size_;
  place(true, true);
  place(true, false);
  decay_to_ = arena_size_;
  place(false, false);
  const Type type{{arena_size_}, DType::f32};
  arena_ = prim::input(InputRole::state, "parameters", type, site_);
  for (const std::string& n : slot_names(options_.optimizer)) {
    slot_arenas_.push_back(prim::input(InputRole::state, "optimizer." + n, type, site_));
  }
}

Tensor TrainingCore::parameter(const std::string& name) {
  if (!arena_.defined()) {
    if (slots_.empty()) throw GraphError("The model has no parameters.", site_);
    lay_out();
  }
  for (Slot& s : slots_) {
    if (s.name != name) continue;
    const Tensor part = prim::slice(arena_, {s.offset}, {s.offset + s.size}, {1}, site_);
    s.tensor = prim::named(name, prim::reshape(part, s.param.shape, site_), site_);
    return s.tensor;
  }
  throw GraphError(fmt::format("There is no parameter `{}`.", name), site_);
}

void TrainingCore::finish(Trace loss, const Site& site) {
  if (!arena_.defined()) throw GraphError("The model has no parameters.", site);
  loss_ = std::move(loss);
  if (!feeds_.open()) {
    std::vector<Shape> shapes;
    for (const InputSpec& s : feeds_.specs()) shapes.push_back(s.shape);
    cache_.get(shapes, [&](const auto& sh) { return compile(sh); });
  }
  for (std::size_t i = 0; i < 1 + slot_arenas_.size(); ++i) {
    buffers_.push_back(engine_->allocate(DType::f32, arena_size_));
  }
  reset();
}

std::unique_ptr<Compiled> TrainingCore::compile(const std::vector<Shape>& shapes) {
  auto out = std::make_unique<Compiled>();
  out->shapes = shapes;
  const auto [placeholders, inputs] = make_inputs(feeds_.specs(), shapes, site_);
  const Tensor loss = loss_(inputs);
  detail::check_scalar_loss("compile", loss, site_);

  // Gradients by the parameters as the loss sees them, side by side in the arena's order.
  std::vector<const Slot*> by_offset;
  for (const Slot& s : slots_) by_offset.push_back(&s);
  std::sort(by_offset.begin(), by_offset.end(), [](const Slot* a, const Slot* b) {
    return a->offset != b->offset ? a->offset < b->offset : a->size < b->size;
  });
  std::vector<Tensor> wrt;
  for (const Slot* s : by_offset) wrt.push_back(s->tensor);
  const std::vector<bool> used = reaches(std::span(&loss, 1), wrt);
  if (std::find(used.begin(), used.end(), true) == used.end()) {
    throw GraphError("compile: the loss does not depend on any parameter of the model.", site_);
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) {
      warn(options_, fmt::format("the loss never uses parameter `{}`; it is not trained.",
                                 by_offset[i]->name));
    }
  }
  // Derivatives and rebuilt nodes speak of the model's lines; what is made here, of the call's.
  const std::vector<Tensor> grads = [&] {
    const Tensor seed = [&] {
      const SiteScope scope(site_);
      return seed_of(loss);
    }();
    return vjp(std::span(&loss, 1), wrt, std::span(&seed, 1));
  }();
  std::optional<SiteScope> scope(std::in_place, site_);
  std::vector<Tensor> flat;
  for (const Tensor& g : grads) flat.push_back(prim::reshape(g, {g.size()}));
  Tensor gradient = prim::concat(flat, 0);
  if (options_.clip_norm) gradient = clip_by_global_norm(gradient, *options_.clip_norm);

  const auto hyper_size = static_cast<std::int64_t>(
      hyper(options_.optimizer, 1, learning_rate_of(options_.optimizer, 1)).size());
  const Tensor numbers = prim::input(InputRole::input, "hyper", {{hyper_size}, DType::f32}, site_);
  const Tensor position = prim::iota({arena_size_}, 0, DType::i32);
  const Tensor decays =
      (position >= static_cast<double>(decay_from_)) & (position < static_cast<double>(decay_to_));
  const Updated updated =
      update(options_.optimizer, arena_, gradient, slot_arenas_, numbers, decays);

  Graph graph;
  graph.inputs = placeholders;
  graph.inputs.push_back(numbers);
  graph.states = {arena_};
  graph.states.insert(graph.states.end(), slot_arenas_.begin(), slot_arenas_.end());
  graph.updates = {updated.params};
  graph.updates.insert(graph.updates.end(), updated.slots.begin(), updated.slots.end());
  graph.outputs = {{"loss", loss}};
  for (Named& c : find_captures(loss)) graph.outputs.push_back(std::move(c));

  // The step's key: the seed's, folded with the step.
  const Tensor seed_and_step = prim::input(InputRole::input, "key", {{3}, DType::u32}, site_);
  const Tensor key = random::fold_in(prim::slice(seed_and_step, {0}, {2}, {1}),
                                     prim::reshape(prim::slice(seed_and_step, {2}, {3}, {1}), {}));
  scope.reset();
  graph = bind_context(graph, true, key);
  out->uses_key = uses(graph, seed_and_step);
  if (out->uses_key) graph.inputs.push_back(seed_and_step);
  out->outputs = output_list(graph);
  out->program = engine_->load(graph, &out->passes);
  out->graph = std::move(graph);
  return out;
}

std::shared_ptr<Outcome> TrainingCore::step(const Feed& feed, const Site& site) {
  const std::vector<Shape> shapes = feeds_.shapes(feed, site);
  Compiled& c = cache_.get(shapes, [&](const auto& sh) { return compile(sh); });
  const std::int64_t step = steps_ + 1;
  const std::vector<float> numbers =
      hyper(options_.optimizer, step, learning_rate_of(options_.optimizer, step));
  const std::uint32_t key[3] = {static_cast<std::uint32_t>(options_.seed >> 32),
                                static_cast<std::uint32_t>(options_.seed),
                                static_cast<std::uint32_t>(step)};
  auto inputs = ordered(feeds_.specs(), feed);
  inputs.push_back(std::as_bytes(std::span(numbers)));
  if (c.uses_key) inputs.emplace_back(std::as_bytes(std::span(key)));
  std::vector<DeviceBuffer*> states;
  for (const auto& b : buffers_) states.push_back(b.get());
  auto completion = c.program->run(inputs, states);
  steps_ = step;
  return std::make_shared<Outcome>(c.outputs, std::move(completion));
}

std::vector<float> TrainingCore::read_arena(std::size_t slot) const {
  std::vector<float> values(static_cast<std::size_t>(arena_size_));
  buffers_[slot]->read(0, std::as_writable_bytes(std::span(values)));
  return values;
}

void TrainingCore::write_arena(std::size_t slot, std::span<const float> values) {
  buffers_[slot]->write(0, std::as_bytes(values));
}

std::vector<ParamValue> TrainingCore::params() const {
  const std::vector<float> arena = read_arena(0);
  std::vector<ParamValue> out;
  for (const Slot& s : slots_) {
    out.push_back(
        {s.name, s.param.shape, {arena.begin() + s.offset, arena.begin() + s.offset + s.size}});
  }
  return out;
}

void TrainingCore::set_params(std::span<const ParamValue> values, const Site& site) {
  std::vector<float> arena = read_arena(0);
  for (const ParamValue& v : values) {
    const auto s = std::find_if(slots_.begin(), slots_.end(),
                                [&](const Slot& slot) { return slot.name == v.name; });
    if (s == slots_.end()) {
      throw GraphError(fmt::format("The model has no parameter `{}`.", v.name), site);
    }
    if (v.shape != s->param.shape || static_cast<std::int64_t>(v.values.size()) != s->size) {
      throw ShapeError(fmt::format("Parameter `{}` has shape {}, not {} with {} values.", v.name,
                                   to_string(s->param.shape), to_string(v.shape), v.values.size()),
                       site);
    }
    std::copy(v.values.begin(), v.values.end(), arena.begin() + s->offset);
  }
  write_arena(0, arena);
}

Tensor TrainingCore::initial_values() const {
  std::vector<const Slot*> by_offset;
  for (const Slot& s : slots_) by_offset.push_back(&s);
  std::sort(by_offset.begin(), by_offset.end(), [](const Slot* a, const Slot* b) {
    return a->offset != b->offset ? a->offset < b->offset : a->size < b->size;
  });
  std::vector<Tensor> parts;
  for (const Slot* s : by_offset) {
    parts.push_back(
        prim::reshape(s->param.initial_value(options_.seed, s->name, site_), {s->size}));
  }
  return prim::concat(parts, 0);
}

Graph TrainingCore::initial_graph() const {
  Graph graph;
  graph.states = {arena_};
  graph.updates = {initial_values()};
  return bind_context(graph, false, {});
}

void TrainingCore::reset() {
  if (engine_->runs()) {
    const Tensor initial = initial_values();
    buffers_[0]->write(0, evaluate(std::span(&initial, 1), engine_.get())[0]);
  }
  const std::vector<float> zeros(static_cast<std::size_t>(arena_size_), 0.0F);
  for (std::size_t i = 1; i < buffers_.size(); ++i) write_arena(i, zeros);
  steps_ = 0;
}

// ---- forward -------------------------------------------------------------------------------------

ForwardCore::ForwardCore(std::shared_ptr<TrainingCore> training, Trace f,
                         const ForwardOptions& options, const Site& site)
    : training_(std::move(training)), f_(std::move(f)), feeds_(options.inputs, site), site_(site) {
  if (!feeds_.open()) {
    std::vector<Shape> shapes;
    for (const InputSpec& s : feeds_.specs()) shapes.push_back(s.shape);
    cache_.get(shapes, [&](const auto& sh) { return compile(sh); });
  }
}

std::unique_ptr<Compiled> ForwardCore::compile(const std::vector<Shape>& shapes) {
  auto out = std::make_unique<Compiled>();
  out->shapes = shapes;
  auto [placeholders, inputs] = make_inputs(feeds_.specs(), shapes, site_);
  const Tensor value = f_(inputs);
  Graph graph;
  graph.inputs = std::move(placeholders);
  graph.states = {training_->arena()};
  graph.outputs = {{"value", value}};
  for (Named& c : find_captures(value)) graph.outputs.push_back(std::move(c));
  graph = bind_context(graph, false, {});
  out->outputs = output_list(graph);
  out->program = training_->engine().load(graph, &out->passes);
  out->graph = std::move(graph);
  return out;
}

std::shared_ptr<Outcome> ForwardCore::run(const Feed& feed, const Site& site) {
  const std::vector<Shape> shapes = feeds_.shapes(feed, site);
  Compiled& c = cache_.get(shapes, [&](const auto& sh) { return compile(sh); });
  DeviceBuffer* states[] = {&training_->arena_buffer()};
  return std::make_shared<Outcome>(c.outputs,
                                   c.program->run(ordered(feeds_.specs(), feed), states));
}

// ---- the calls of the public templates -----------------------------------------------------------

std::shared_ptr<TrainingCore> start_training(const TrainOptions& options, const Site& site) {
  return std::make_shared<TrainingCore>(options, site);
}
void declare(TrainingCore& core, const std::string& name, const Param& param) {
  core.declare(name, param);
}
Tensor parameter(TrainingCore& core, const std::string& name) { return core.parameter(name); }
void finish_training(TrainingCore& core, Trace loss, const Site& site) {
  core.finish(std::move(loss), site);
}
std::shared_ptr<ForwardCore> attach(const std::shared_ptr<TrainingCore>& core, Trace f,
                                    const ForwardOptions& options, const Site& site) {
  return std::make_shared<ForwardCore>(core, std::move(f), options, site);
}

}  // namespace tensorgrad::detail

namespace tensorgrad {

StepResult AnyTraining::step(const Feed& feed, Site site) {
  return StepResult(core_->step(feed, site));
}
std::int64_t AnyTraining::steps() const { return core_->steps(); }
std::vector<ParamValue> AnyTraining::params() const { return core_->params(); }
void AnyTraining::set_params(std::span<const ParamValue> values, Site site) {
  core_->set_params(values, site);
}
void AnyTraining::set_lr(Schedule lr) { core_->set_lr(std::move(lr)); }
void AnyTraining::reset() { core_->reset(); }
RunResult Forward::run(const Feed& feed, Site site) { return RunResult(core_->run(feed, site)); }

}  // namespace tensorgrad
