// A plan made ready on a WebGPU device: pipelines, buffers, bind groups; a run is one submission.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <mutex>
#include <optional>

#include "codegen/wgsl/program.h"
#include "runtime/webgpu/device.h"
#include "tensorgrad/error.h"

namespace tensorgrad::webgpu {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

/// An output's place in the buffer that a run's results are read through.
struct Output {
  DType dtype = DType::f32;
  std::int64_t unit = 4;  ///< bytes of an element on the device
  int buffer = -1;        ///< into Program::buffers
  std::uint64_t offset = 0;
  std::uint64_t device_bytes = 0;  ///< without padding of an empty tensor
  std::size_t host_bytes = 0;
};

class WebGpuCompletion final : public Completion {
 public:
  WebGpuCompletion(std::shared_ptr<Context> context, std::shared_ptr<StagingPool> pool,
                   std::shared_ptr<const std::vector<Output>> outputs, GpuMemory staging)
      : context_(std::move(context)),
        pool_(std::move(pool)),
        outputs_(std::move(outputs)),
        values_(outputs_->size()),
        staging_(std::move(staging)) {}
  WebGpuCompletion(const WebGpuCompletion&) = delete;
  WebGpuCompletion& operator=(const WebGpuCompletion&) = delete;
  ~WebGpuCompletion() override { give_back(); }

  std::span<const std::byte> output(std::size_t i) override {
    if (i >= values_.size()) {
      throw ValueError(fmt::format("Output {} is asked of a program with {}", i, values_.size()));
    }
    if (!values_[i]) fetch(i);
    return *values_[i];
  }

 private:
  /// Reads output `i`, and with it all small ones: most often it is the loss that is asked for, and
  /// large captures may never be.
  void fetch(std::size_t i) {
    constexpr std::size_t small = std::size_t{1} << 20U;
    context_->check();
    if (!mapped_) {
      context_->map(staging_.get(), staging_.bytes());
      mapped_ = true;
    }
    for (std::size_t k = 0; k < values_.size(); ++k) {
      const Output& out = (*outputs_)[k];
      if (!values_[k] && (k == i || out.host_bytes <= small)) values_[k] = copy(out);
    }
    const auto read = [](const auto& value) { return value.has_value(); };
    if (std::all_of(values_.begin(), values_.end(), read)) give_back();
  }

  std::vector<std::byte> copy(const Output& out) const {
    std::vector<std::byte> host(out.host_bytes);
    if (out.host_bytes == out.device_bytes) {
      context_->read_mapped(staging_.get(), out.offset, host);
      return host;
    }
    std::vector<std::byte> words(out.device_bytes);
    context_->read_mapped(staging_.get(), out.offset, words);
    wgsl::to_host(out.dtype, out.unit, words, host);
    return host;
  }

  void give_back() noexcept {
    if (staging_.get() == nullptr) return;
    if (mapped_) context_->api().buffer_unmap(staging_.get());
    mapped_ = false;
    pool_->give_back(std::move(staging_));
  }

  std::shared_ptr<Context> context_;
  std::shared_ptr<StagingPool> pool_;
  std::shared_ptr<const std::vector<Output>> outputs_;
  std::vector<std::optional<std::vector<std::byte>>> values_;
  GpuMemory staging_;
  bool mapped_ = false;
};

class WebGpuExecutable final : public Executable {
 public:
  WebGpuExecutable(std::shared_ptr<Context> context, const wgsl::Target& target, const Plan& plan,
                   const wgsl::Renderer& renderer)
      : context_(std::move(context)), dispatches_(plan.dispatches.size()) {
    wgsl::Program program = wgsl::make_program(plan, target, renderer);
    compile(program);
    keep_sources(plan, program);
    make_buffers(plan, program, target);
    for (wgsl::Pass& pass : program.passes) add_step(std::move(pass));
    pool_ = std::make_shared<StagingPool>(context_, 4 * std::max(staging_bytes_, least_kept));
  }

  std::unique_ptr<Completion> run(std::span<const std::span<const std::byte>> inputs,
                                  std::span<DeviceBuffer* const> states) override {
    const std::lock_guard lock(mutex_);
    context_->check();
    const StateGroups& groups = bind_states(states);
    upload(inputs);
    GpuMemory staging = pool_->take(staging_bytes_);
    auto encoder = context_->encoder();
    {
      const Pass pass(*context_, encoder.get(), nullptr);
      for (const Step& step : steps_) encode(pass, step, groups);
    }
    copy_outputs(encoder.get(), staging.get());
    context_->submit(std::move(encoder));
    context_->check();
    return std::make_unique<WebGpuCompletion>(context_, pool_, outputs_, std::move(staging));
  }

  std::vector<double> profile(std::span<const std::span<const std::byte>> inputs,
                              std::span<DeviceBuffer* const> states) override {
    const std::lock_guard lock(mutex_);
    context_->check();
    const StateGroups& groups = bind_states(states);
    upload(inputs);
    std::vector<double> seconds = context_->adapter().has(dawn::Feature::timestamp_query)
                                      ? profile_by_timestamps(groups)
                                      : profile_by_clock(groups);
    context_->check();
    return seconds;
  }

  double seconds(std::span<const std::span<const std::byte>> inputs,
                 std::span<DeviceBuffer* const> states, int repeats) override {
    const std::lock_guard lock(mutex_);
    context_->check();
    const StateGroups& groups = bind_states(states);
    upload(inputs);
    const double result = context_->adapter().has(dawn::Feature::timestamp_query)
                              ? time_by_timestamps(groups, repeats)
                              : time_by_clock(groups, repeats);
    context_->check();
    return result;
  }

  std::string source(std::size_t kernel) const override { return sources_.at(kernel); }

  std::size_t allocated_bytes() const override {
    std::uint64_t total = staging_bytes_;
    for (const GpuMemory& memory : memory_) total += memory.bytes();
    return total;
  }

 private:
  static constexpr std::uint64_t mapped_alignment = 8;  ///< of the offset of a mapped range
  static constexpr std::uint64_t least_kept = std::uint64_t{1} << 20U;

  /// A dispatch with all but the caller's state bound.
  struct Step {
    std::shared_ptr<const Pipeline> pipeline;
    int dispatch = -1;
    std::array<std::uint32_t, 3> groups{};
    std::vector<wgsl::Binding> bindings;
    Owned<dawn::BindGroup> fixed;  ///< null where a state is bound
    std::size_t varying = 0;       ///< into StateGroups::groups otherwise
  };
  /// The bind groups for one set of states.
  struct StateGroups {
    std::vector<std::uint64_t> ids;
    std::vector<Owned<dawn::BindGroup>> groups;
  };
  struct Input {
    DType dtype = DType::f32;
    std::int64_t unit = 4;  ///< bytes of an element on the device
    int buffer = -1;
    std::vector<std::byte> words;  ///< the device form where it is another than the host's
  };
  /// A compute pass that ends itself.
  class Pass {
   public:
    Pass(const Context& context, dawn::CommandEncoder encoder,
         const dawn::PassTimestampWrites* timestamps)
        : api_(context.api()) {
      dawn::ComputePassDescriptor descriptor;
      descriptor.timestamps = timestamps;
      pass_ = {api_.command_encoder_begin_compute_pass(encoder, &descriptor),
               api_.compute_pass_encoder_release};
    }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass() { api_.compute_pass_encoder_end(pass_.get()); }
    dawn::ComputePassEncoder get() const { return pass_.get(); }

   private:
    const dawn::Api& api_;
    Owned<dawn::ComputePassEncoder> pass_;
  };

  // ---- making ------------------------------------------------------------------------------------

  void compile(const wgsl::Program& program) {
    std::vector<Shader> shaders;
    for (const wgsl::Module& m : program.modules) shaders.push_back({m.name, m.text, m.writable});
    pipelines_ = context_->compile(shaders);
  }

  /// The text of each kernel, from the first dispatch that runs it.
  void keep_sources(const Plan& plan, const wgsl::Program& program) {
    sources_.resize(plan.kernels.size());
    std::vector<int> first(plan.kernels.size(), -1);
    for (const wgsl::Pass& pass : program.passes) {
      const std::size_t kernel = at(plan.dispatches[at(pass.dispatch)].kernel);
      if (first[kernel] < 0) first[kernel] = pass.dispatch;
      if (first[kernel] != pass.dispatch) continue;
      sources_[kernel] += fmt::format("// {}, workgroups {} x {} x {}\n{}",
                                      plan.kernels[kernel].name, pass.groups[0], pass.groups[1],
                                      pass.groups[2], program.modules[at(pass.module)].text);
    }
  }

  void make_buffers(const Plan& plan, const wgsl::Program& program, const wgsl::Target& target) {
    auto outputs = std::make_shared<std::vector<Output>>();
    for (std::size_t i = 0; i < program.buffers.size(); ++i) {
      const wgsl::GpuBuffer& b = program.buffers[i];
      state_of_.push_back(-1);
      if (b.role == wgsl::Role::state) {
        state_of_.back() = states_++;
        memory_.emplace_back();
        continue;
      }
      memory_.push_back(context_->allocate(
          static_cast<std::uint64_t>(b.bytes),
          dawn::usage::storage | dawn::usage::copy_src | dawn::usage::copy_dst, purpose(plan, b)));
      if (b.role == wgsl::Role::constant) context_->write(memory_.back().get(), 0, b.data);
      if (b.plan_buffer < 0) continue;
      const PlanBuffer& buffer = plan.buffers[at(b.plan_buffer)];
      const std::int64_t unit = wgsl::memory_bytes(buffer.dtype, target);
      if (b.role == wgsl::Role::input) {
        inputs_.push_back({buffer.dtype, unit, static_cast<int>(i), {}});
      }
      if (b.role == wgsl::Role::output) {
        const auto words = buffer.elements == 0 ? 0
                                                : static_cast<std::uint64_t>(wgsl::device_bytes(
                                                      buffer.dtype, buffer.elements, target));
        outputs->push_back({buffer.dtype, unit, static_cast<int>(i), staging_bytes_, words,
                            static_cast<std::size_t>(buffer.bytes())});
        staging_bytes_ += (words + mapped_alignment - 1) / mapped_alignment * mapped_alignment;
      }
    }
    staging_bytes_ = std::max<std::uint64_t>(staging_bytes_, wgsl::element_bytes);
    outputs_ = std::move(outputs);
  }

  static std::string purpose(const Plan& plan, const wgsl::GpuBuffer& buffer) {
    if (buffer.plan_buffer < 0) return "the intermediate results of a program";
    const PlanBuffer& b = plan.buffers[at(buffer.plan_buffer)];
    return b.name.empty() ? "a constant" : fmt::format("`{}`", b.name);
  }

  void add_step(wgsl::Pass pass) {
    Step step{
        pipelines_[at(pass.module)], pass.dispatch, pass.groups, std::move(pass.bindings), {}, 0};
    const bool varies =
        std::any_of(step.bindings.begin(), step.bindings.end(),
                    [&](const wgsl::Binding& b) { return state_of_[at(b.buffer)] >= 0; });
    if (varies) {
      step.varying = varying_++;
    } else {
      step.fixed = bind(step, {});
    }
    steps_.push_back(std::move(step));
  }

  Owned<dawn::BindGroup> bind(const Step& step, std::span<const Buffer* const> states) const {
    std::vector<dawn::BindGroupEntry> entries(step.bindings.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const wgsl::Binding& b = step.bindings[i];
      const int state = state_of_[at(b.buffer)];
      entries[i].binding = static_cast<std::uint32_t>(i);
      entries[i].buffer = state < 0 ? memory_[at(b.buffer)].get() : states[at(state)]->handle();
      entries[i].offset = static_cast<std::uint64_t>(b.offset);
      entries[i].bytes = static_cast<std::uint64_t>(b.bytes);
    }
    return context_->bind(step.pipeline->layout, entries);
  }

  // ---- running -----------------------------------------------------------------------------------

  /// The bind groups for these states, made at their first run.
  const StateGroups& bind_states(std::span<DeviceBuffer* const> states) {
    if (states.size() != at(states_)) {
      throw ValueError(
          fmt::format("A program with {} states is run with {}", states_, states.size()));
    }
    std::vector<const Buffer*> buffers;
    std::vector<std::uint64_t> ids;
    for (std::size_t i = 0; i < states.size(); ++i) {
      const auto* buffer = dynamic_cast<const Buffer*>(states[i]);
      if (buffer == nullptr || &buffer->context() != context_.get()) {
        throw DeviceError(fmt::format("State {} of a program on webgpu is on another device", i));
      }
      buffers.push_back(buffer);
      ids.push_back(buffer->id());
    }
    const auto known = std::find_if(state_groups_.begin(), state_groups_.end(),
                                    [&](const StateGroups& g) { return g.ids == ids; });
    if (known != state_groups_.end()) {
      state_groups_.splice(state_groups_.begin(), state_groups_, known);
      return state_groups_.front();
    }
    StateGroups made{std::move(ids), {}};
    for (const Step& step : steps_) {
      if (!step.fixed) made.groups.push_back(bind(step, buffers));
    }
    constexpr std::size_t kept = 4;
    if (state_groups_.size() >= kept) state_groups_.pop_back();
    state_groups_.push_front(std::move(made));
    return state_groups_.front();
  }

  void upload(std::span<const std::span<const std::byte>> inputs) {
    if (inputs.size() != inputs_.size()) {
      throw ValueError(
          fmt::format("A program with {} inputs is run with {}", inputs_.size(), inputs.size()));
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Input& input = inputs_[i];
      dawn::Buffer buffer = memory_[at(input.buffer)].get();
      const std::size_t size = info(input.dtype).bytes;
      const auto unit = static_cast<std::size_t>(input.unit);
      if (size == unit && inputs[i].size() % wgsl::element_bytes == 0) {
        context_->write(buffer, 0, inputs[i]);
        continue;
      }
      constexpr std::size_t word = wgsl::element_bytes;
      input.words.resize((inputs[i].size() / size * unit + word - 1) / word * word);
      wgsl::to_device(input.dtype, input.unit, inputs[i], input.words);
      context_->write(buffer, 0, input.words);
    }
  }

  void encode(const Pass& pass, const Step& step, const StateGroups& groups) const {
    const dawn::Api& api = context_->api();
    dawn::BindGroup group = step.fixed ? step.fixed.get() : groups.groups[step.varying].get();
    api.compute_pass_encoder_set_pipeline(pass.get(), step.pipeline->pipeline.get());
    api.compute_pass_encoder_set_bind_group(pass.get(), 0, group, 0, nullptr);
    api.compute_pass_encoder_dispatch_workgroups(pass.get(), step.groups[0], step.groups[1],
                                                 step.groups[2]);
  }

  void copy_outputs(dawn::CommandEncoder encoder, dawn::Buffer staging) const {
    for (const Output& out : *outputs_) {
      if (out.device_bytes == 0) continue;
      context_->api().command_encoder_copy_buffer_to_buffer(
          encoder, memory_[at(out.buffer)].get(), 0, staging, out.offset, out.device_bytes);
    }
  }

  // ---- profiling ---------------------------------------------------------------------------------

  /// Encodes `count` passes, pass i by `fill(pass, i)`, and runs them: the seconds of each by the
  /// device's clock.
  template <class Fill>
  std::vector<double> time_passes(std::size_t count, const Fill& fill) {
    const dawn::Api& api = context_->api();
    const std::uint64_t bytes = 2 * count * sizeof(std::uint64_t);
    dawn::QuerySetDescriptor descriptor;
    descriptor.count = static_cast<std::uint32_t>(2 * count);
    const Owned<dawn::QuerySet> queries(
        api.device_create_query_set(context_->device(), &descriptor), api.query_set_release);
    const GpuMemory resolved =
        context_->allocate(bytes, dawn::usage::query_resolve | dawn::usage::copy_src, "a profile");
    GpuMemory staging = pool_->take(bytes);
    auto encoder = context_->encoder();
    for (std::size_t i = 0; i < count; ++i) {
      dawn::PassTimestampWrites writes;
      writes.query_set = queries.get();
      writes.begin = static_cast<std::uint32_t>(2 * i);
      writes.end = static_cast<std::uint32_t>(2 * i + 1);
      fill(Pass(*context_, encoder.get(), &writes), i);
    }
    api.command_encoder_resolve_query_set(encoder.get(), queries.get(), 0,
                                          static_cast<std::uint32_t>(2 * count), resolved.get(), 0);
    api.command_encoder_copy_buffer_to_buffer(encoder.get(), resolved.get(), 0, staging.get(), 0,
                                              bytes);
    context_->submit(std::move(encoder));
    std::vector<std::uint64_t> times(2 * count);
    context_->map(staging.get(), bytes);
    context_->read_mapped(staging.get(), 0, std::as_writable_bytes(std::span(times)));
    api.buffer_unmap(staging.get());
    pool_->give_back(std::move(staging));
    std::vector<double> seconds(count, 0.0);
    for (std::size_t i = 0; i < count; ++i) {
      constexpr double nanosecond = 1e-9;
      // A clock that a driver resets between passes would give a time before the start.
      if (times[2 * i + 1] < times[2 * i]) continue;
      seconds[i] = nanosecond * static_cast<double>(times[2 * i + 1] - times[2 * i]);
    }
    return seconds;
  }

  /// A pass for each dispatch, with the device's clock before and after.
  std::vector<double> profile_by_timestamps(const StateGroups& groups) {
    constexpr std::size_t most = 2048;  // passes of a query set
    std::vector<double> seconds(dispatches_, 0.0);
    for (std::size_t from = 0; from < steps_.size(); from += most) {
      const std::size_t count = std::min(most, steps_.size() - from);
      const std::vector<double> times = time_passes(
          count, [&](const Pass& pass, std::size_t i) { encode(pass, steps_[from + i], groups); });
      for (std::size_t i = 0; i < count; ++i) seconds[at(steps_[from + i].dispatch)] += times[i];
    }
    return seconds;
  }

  double time_by_timestamps(const StateGroups& groups, int repeats) {
    const auto all = [&](const Pass& pass, std::size_t) {
      for (int r = 0; r < repeats; ++r) {
        for (const Step& step : steps_) encode(pass, step, groups);
      }
    };
    return time_passes(1, all).front();
  }

  double time_by_clock(const StateGroups& groups, int repeats) {
    using clock = std::chrono::steady_clock;
    context_->wait_idle();
    auto encoder = context_->encoder();
    {
      const Pass pass(*context_, encoder.get(), nullptr);
      for (int r = 0; r < repeats; ++r) {
        for (const Step& step : steps_) encode(pass, step, groups);
      }
    }
    const auto start = clock::now();
    context_->submit(std::move(encoder));
    context_->wait_idle();
    return std::chrono::duration<double>(clock::now() - start).count();
  }

  /// Each dispatch alone, waited for: what there is on an adapter without a clock.
  std::vector<double> profile_by_clock(const StateGroups& groups) {
    using clock = std::chrono::steady_clock;
    std::vector<double> seconds(dispatches_, 0.0);
    context_->wait_idle();
    for (const Step& step : steps_) {
      auto encoder = context_->encoder();
      encode(Pass(*context_, encoder.get(), nullptr), step, groups);
      const auto start = clock::now();
      context_->submit(std::move(encoder));
      context_->wait_idle();
      seconds[at(step.dispatch)] += std::chrono::duration<double>(clock::now() - start).count();
    }
    return seconds;
  }

  std::shared_ptr<Context> context_;
  std::vector<std::shared_ptr<const Pipeline>> pipelines_;  ///< of Program::modules
  std::vector<std::string> sources_;
  std::size_t dispatches_ = 0;
  std::vector<GpuMemory> memory_;  ///< of Program::buffers; none for states
  std::vector<int> state_of_;      ///< number of the state that a buffer is, or -1
  int states_ = 0;
  std::vector<Input> inputs_;
  std::shared_ptr<const std::vector<Output>> outputs_;
  std::uint64_t staging_bytes_ = 0;
  std::size_t varying_ = 0;
  std::vector<Step> steps_;
  std::list<StateGroups> state_groups_;  ///< used last first
  std::shared_ptr<StagingPool> pool_;
  std::mutex mutex_;
};

}  // namespace

std::unique_ptr<Executable> load(std::shared_ptr<Context> context, const wgsl::Target& target,
                                 const Plan& plan, const wgsl::Renderer& renderer) {
  return std::make_unique<WebGpuExecutable>(std::move(context), target, plan, renderer);
}

}  // namespace tensorgrad::webgpu
