// Compiled training.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

#include "graph/order.h"
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

/// The keys of initial values: fold_in(key(seed), hash32(name)), computed here and laid out so that
/// every device can bind each by itself. Programs then read them, and parameters of one shape and
/// distribution share their code.
class InitialKeys {
 public:
  InitialKeys(std::uint64_t seed, std::span<const std::string> names, const Site& site)
      : site_(site) {
    const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed >> 32),
                                           static_cast<std::uint32_t>(seed)};
    std::vector<std::uint32_t> words(names.size() * stride, 0);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto block = prim::threefry_words(key, {0, hash32(names[i])});
      std::copy(block.begin(), block.end(),
                words.begin() + static_cast<std::ptrdiff_t>(i * stride));
    }
    words_ = array(words, {static_cast<std::int64_t>(words.size())}, site);
  }
  /// The key of name `i`.
  Tensor operator[](std::size_t i) const {
    const auto from = static_cast<std::int64_t>(i * stride);
    return prim::slice(words_, {from}, {from + 2}, {1}, site_);
  }

 private:
  static constexpr std::size_t stride = 64;  // WebGPU binds at multiples of 256 bytes
  Tensor words_;
  Site site_;
};

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
      engine_(open_engine(options_.device, options_.tune)) {
  if (options_.clip_norm && !(*options_.clip_norm > 0)) {
    throw ValueError(
        fmt::format("compile: clip_norm is {}, not a positive number.", *options_.clip_norm), site);
  }
  for (const ParamGroup& g : options_.groups) {
    if (!(std::isfinite(g.lr_scale) && g.lr_scale >= 0)) {
      throw ValueError(fmt::format("compile: the lr_scale of a group is {}, not a finite number of "
                                   "at least 0.",
                                   g.lr_scale),
                       site);
    }
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
  Slot slot{name, param, 0, numel(param.shape)};
  const auto group =
      std::find_if(options_.groups.begin(), options_.groups.end(),
                   [&](const ParamGroup& g) { return g.applies && g.applies(name, param.shape); });
  if (group != options_.groups.end()) {
    slot.lr_scale = group->lr_scale;
    slot.param.decay = group->decay.value_or(param.decay);
  }
  slots_.push_back(std::move(slot));
}

void TrainingCore::declare(const std::string& name, const Buffer& buffer) {
  const std::int64_t size = numel(buffer.shape);
  buffer_slots_.push_back({name, buffer, buffer_size_, size});
  buffer_size_ += size;
}

// Parameters of the same options lie side by side, and sizes that would leave what follows
// unaligned come last in each half: [plain aligned | decayed aligned | decayed odd | plain odd] for
// every factor of the learning rate.
void TrainingCore::lay_out() {
  const auto place = [&](double lr_scale, bool decay, bool aligned) {
    const std::int64_t from = arena_size_;
    for (Slot& s : slots_) {
      if (s.lr_scale != lr_scale || s.param.decay != decay ||
          (s.size % alignment == 0) != aligned) {
        continue;
      }
      s.offset = arena_size_;
      arena_size_ += s.size;
    }
    if (arena_size_ == from) return;
    if (!ranges_.empty() && ranges_.back().decay == decay && ranges_.back().lr_scale == lr_scale) {
      ranges_.back().to = arena_size_;
    } else {
      ranges_.push_back({from, arena_size_, decay, lr_scale});
    }
  };
  std::vector<double> scales;
  for (const Slot& s : slots_) {
    if (std::find(scales.begin(), scales.end(), s.lr_scale) == scales.end()) {
      scales.push_back(s.lr_scale);
    }
  }
  for (double scale : scales) {
    place(scale, false, true);
    place(scale, true, true);
    place(scale, true, false);
    place(scale, false, false);
  }
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

Tensor TrainingCore::buffer(const std::string& name) {
  if (!buffer_arena_.defined()) {
    buffer_arena_ = prim::input(InputRole::state, "buffers", {{buffer_size_}, DType::f32}, site_);
  }
  for (const BufferSlot& s : buffer_slots_) {
    if (s.name != name) continue;
    const Tensor part = prim::slice(buffer_arena_, {s.offset}, {s.offset + s.size}, {1}, site_);
    return prim::named(name, prim::reshape(part, s.buffer.shape, site_), site_);
  }
  throw GraphError(fmt::format("There is no buffer `{}`.", name), site_);
}

std::vector<Tensor> TrainingCore::shared_states() const {
  std::vector<Tensor> out{arena_};
  if (has_buffers()) out.push_back(buffer_arena_);
  return out;
}

std::vector<DeviceBuffer*> TrainingCore::shared_memory() {
  std::vector<DeviceBuffer*> out{buffers_.at(0).get()};
  if (has_buffers()) out.push_back(buffers_.at(buffer_index()).get());
  return out;
}

std::vector<const Slot*> TrainingCore::by_offset() const {
  std::vector<const Slot*> out;
  for (const Slot& s : slots_) out.push_back(&s);
  sort_values(out, [](const Slot* a, const Slot* b) {
    return a->offset != b->offset ? a->offset < b->offset : a->size < b->size;
  });
  return out;
}

std::pair<Tensor, Tensor> TrainingCore::element_options() const {
  const Tensor position = prim::iota({arena_size_}, 0, DType::i32);
  const auto within = [&](const Range& r) {
    return (position >= static_cast<double>(r.from)) & (position < static_cast<double>(r.to));
  };
  Tensor decays;
  Tensor scales;
  for (const Range& r : ranges_) {
    if (r.decay) decays = decays.defined() ? decays | within(r) : within(r);
    if (r.lr_scale != 1) {
      scales = where(within(r), r.lr_scale,
                     scales.defined() ? scales : prim::full({arena_size_}, 1, DType::f32));
    }
  }
  if (!decays.defined()) decays = prim::full({arena_size_}, 0, DType::bool_);
  return {decays, scales};
}

Tensor TrainingCore::updated_buffers(const Tensor& loss) const {
  const std::vector<Named> assigned = find_assignments(loss);
  if (assigned.empty()) return {};
  std::vector<Tensor> parts;
  for (const BufferSlot& s : buffer_slots_) {
    const auto it = std::find_if(assigned.begin(), assigned.end(),
                                 [&](const Named& n) { return n.name == s.name; });
    parts.push_back(it == assigned.end()
                        ? prim::slice(buffer_arena_, {s.offset}, {s.offset + s.size}, {1})
                        : prim::reshape(it->value, {s.size}));
  }
  return prim::concat(parts, 0);
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
  if (has_buffers()) buffers_.push_back(engine_->allocate(DType::f32, buffer_size_));
  reset();
}

std::unique_ptr<Compiled> TrainingCore::compile(const std::vector<Shape>& shapes) {
  auto out = std::make_unique<Compiled>();
  out->shapes = shapes;
  const auto [placeholders, inputs] = make_inputs(feeds_.specs(), shapes, site_);
  const Tensor computed = loss_(inputs);
  detail::check_scalar_loss("compile", computed, site_);
  const Tensor loss = prim::cast(computed, DType::f32, site_);

  // Gradients by the parameters as the loss sees them, side by side in the arena's order.
  const std::vector<const Slot*> order = by_offset();
  std::vector<Tensor> wrt;
  for (const Slot* s : order) wrt.push_back(s->tensor);
  const std::vector<bool> used = reaches(std::span(&loss, 1), wrt);
  if (std::find(used.begin(), used.end(), true) == used.end()) {
    throw GraphError("compile: the loss does not depend on any parameter of the model.", site_);
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) {
      warn(options_,
           fmt::format("the loss never uses parameter `{}`; it is not trained.", order[i]->name));
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
  const auto [decays, scales] = element_options();
  const Updated updated =
      update(options_.optimizer, arena_, gradient, slot_arenas_, numbers, decays, scales);

  Graph graph;
  graph.inputs = placeholders;
  graph.inputs.push_back(numbers);
  graph.states = {arena_};
  graph.states.insert(graph.states.end(), slot_arenas_.begin(), slot_arenas_.end());
  graph.updates = {updated.params};
  graph.updates.insert(graph.updates.end(), updated.slots.begin(), updated.slots.end());
  if (has_buffers()) {
    graph.states.push_back(buffer_arena_);
    graph.updates.push_back(updated_buffers(loss));
  }
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
  return std::make_shared<Outcome>(c.outputs, std::move(completion), options_.check_nan ? step : 0);
}

std::vector<float> TrainingCore::read_arena(std::size_t slot) const {
  std::vector<float> values(buffers_[slot]->bytes() / sizeof(float));
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

std::vector<ParamValue> TrainingCore::buffers() const {
  std::vector<ParamValue> out;
  if (!has_buffers()) return out;
  const std::vector<float> arena = read_arena(buffer_index());
  for (const BufferSlot& s : buffer_slots_) {
    out.push_back(
        {s.name, s.buffer.shape, {arena.begin() + s.offset, arena.begin() + s.offset + s.size}});
  }
  return out;
}

void TrainingCore::set_params(std::span<const ParamValue> values, const Site& site) {
  std::vector<float> arena = read_arena(0);
  std::vector<float> buffers = has_buffers() ? read_arena(buffer_index()) : std::vector<float>();
  const auto copy = [&](const char* kind, const ParamValue& v, const Shape& shape,
                        std::int64_t offset, std::vector<float>& to) {
    if (v.shape != shape || static_cast<std::int64_t>(v.values.size()) != numel(shape)) {
      throw ShapeError(fmt::format("{} `{}` has shape {}, not {} with {} values.", kind, v.name,
                                   to_string(shape), to_string(v.shape), v.values.size()),
                       site);
    }
    std::copy(v.values.begin(), v.values.end(), to.begin() + offset);
  };
  for (const ParamValue& v : values) {
    const auto s = std::find_if(slots_.begin(), slots_.end(),
                                [&](const Slot& slot) { return slot.name == v.name; });
    const auto b = std::find_if(buffer_slots_.begin(), buffer_slots_.end(),
                                [&](const BufferSlot& slot) { return slot.name == v.name; });
    if (s != slots_.end()) {
      copy("Parameter", v, s->param.shape, s->offset, arena);
    } else if (b != buffer_slots_.end()) {
      copy("Buffer", v, b->buffer.shape, b->offset, buffers);
    } else {
      throw GraphError(fmt::format("The model has no parameter `{}`.", v.name), site);
    }
  }
  write_arena(0, arena);
  if (has_buffers()) write_arena(buffer_index(), buffers);
}

std::vector<Tensor> TrainingCore::initial_values() const {
  const std::vector<const Slot*> slots = by_offset();
  std::vector<std::string> names;
  for (const Slot* s : slots) names.push_back(s->name);
  for (const BufferSlot& s : buffer_slots_) names.push_back(s.name);
  const InitialKeys keys(options_.seed, names, site_);
  std::vector<Tensor> parts;
  for (const Slot* s : slots) {
    parts.push_back(
        prim::reshape(s->param.init.make(s->param.shape, keys[parts.size()], site_), {s->size}));
  }
  std::vector<Tensor> initial{prim::concat(parts, 0)};
  if (has_buffers()) {
    parts.clear();
    for (const BufferSlot& s : buffer_slots_) {
      parts.push_back(prim::reshape(
          s.buffer.init.make(s.buffer.shape, keys[slots.size() + parts.size()], site_), {s.size}));
    }
    initial.push_back(prim::concat(parts, 0));
  }
  return initial;
}

Graph TrainingCore::initial_graph() const {
  Graph graph;
  graph.states = shared_states();
  graph.updates = initial_values();
  return bind_context(graph, false, {});
}

void TrainingCore::reset() {
  if (engine_->runs()) {
    const std::vector<Tensor> initial = initial_values();
    const std::vector<HostValue> values = evaluate(initial, engine_.get());
    buffers_[0]->write(0, values[0]->bytes);
    if (has_buffers()) buffers_[buffer_index()]->write(0, values[1]->bytes);
  }
  const std::vector<float> zeros(static_cast<std::size_t>(arena_size_), 0.0F);
  for (std::size_t i = 1; i <= slot_arenas_.size(); ++i) write_arena(i, zeros);
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
  graph.states = training_->shared_states();
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
  const std::vector<DeviceBuffer*> states = training_->shared_memory();
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
void declare(TrainingCore& core, const std::string& name, const Buffer& buffer) {
  core.declare(name, buffer);
}
Tensor parameter(TrainingCore& core, const std::string& name) { return core.parameter(name); }
Tensor buffer(TrainingCore& core, const std::string& name) { return core.buffer(name); }
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
std::vector<ParamValue> AnyTraining::buffers() const { return core_->buffers(); }
void AnyTraining::set_params(std::span<const ParamValue> values, Site site) {
  core_->set_params(values, site);
}
void AnyTraining::set_lr(Schedule lr) { core_->set_lr(std::move(lr)); }
void AnyTraining::reset() { core_->reset(); }
RunResult Forward::run(const Feed& feed, Site site) { return RunResult(core_->run(feed, site)); }

}  // namespace tensorgrad
