// A plan made ready on the CPU: code, memory, and a table of addresses that is patched before a
// run.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>

#include "codegen/llvm/render.h"
#include "runtime/cpu/contraction.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/sort.h"
#include "tensorgrad/error.h"

namespace tensorgrad::cpu {
namespace {

/// Memory for the outputs of one run, reused once the run's Completion is gone.
class OutputPool {
 public:
  explicit OutputPool(std::size_t bytes) : bytes_(bytes) {}
  Memory take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        Memory memory = std::move(free_.back());
        free_.pop_back();
        return memory;
      }
    }
    return Memory(bytes_, "the outputs of a program");
  }
  void give_back(Memory memory) noexcept {
    const std::lock_guard lock(mutex_);
    if (free_.size() < free_.capacity()) free_.push_back(std::move(memory));
  }
  /// Makes room for blocks that are given back.
  void reserve(std::size_t blocks) { free_.reserve(blocks); }

 private:
  std::size_t bytes_;
  std::mutex mutex_;
  std::vector<Memory> free_;
};

/// A range of bytes within a block.
struct Range {
  std::size_t offset = 0, bytes = 0;
};

class CpuCompletion final : public Completion {
 public:
  CpuCompletion(std::shared_ptr<OutputPool> pool, Memory memory, std::vector<Range> outputs)
      : pool_(std::move(pool)), memory_(std::move(memory)), outputs_(std::move(outputs)) {}
  CpuCompletion(const CpuCompletion&) = delete;
  CpuCompletion& operator=(const CpuCompletion&) = delete;
  ~CpuCompletion() override { pool_->give_back(std::move(memory_)); }

  std::span<const std::byte> output(std::size_t i) override {
    if (i >= outputs_.size()) {
      throw ValueError(fmt::format("Output {} is asked of a program with {}", i, outputs_.size()));
    }
    return {memory_.data() + outputs_[i].offset, outputs_[i].bytes};
  }

 private:
  std::shared_ptr<OutputPool> pool_;
  Memory memory_;
  std::vector<Range> outputs_;
};

std::size_t aligned(std::size_t bytes) {
  return (bytes + Memory::alignment - 1) / Memory::alignment * Memory::alignment;
}

class CpuExecutable final : public Executable {
 public:
  CpuExecutable(Jit& jit, const Plan& plan, int compile_threads, int threads) {
    prepare_kernels(jit, plan, compile_threads, threads);
    place_buffers(plan);
    resolve(plan);
  }

  std::unique_ptr<Completion> run(std::span<const std::span<const std::byte>> inputs,
                                  std::span<DeviceBuffer* const> states) override {
    return run_with(inputs, states, [](const Step&, const auto& step) { step(); });
  }

  std::vector<double> profile(std::span<const std::span<const std::byte>> inputs,
                              std::span<DeviceBuffer* const> states) override {
    using clock = std::chrono::steady_clock;
    std::vector<double> seconds;
    run_with(inputs, states, [&](const Step&, const auto& step) {
      const auto start = clock::now();
      step();
      seconds.push_back(std::chrono::duration<double>(clock::now() - start).count());
    });
    return seconds;
  }

  std::string source(std::size_t kernel) const override {
    const Kernel& item = kernels_.at(kernel);
    std::string text;
    if (item.contraction) {
      text = fmt::format("; {}{}\n", item.sorts ? "" : "oneDNN ", item.contraction->description());
    }
    return text + item.source.text;
  }

  std::size_t allocated_bytes() const override {
    std::size_t total = arena_.bytes() + constants_.bytes() + copies_.bytes() + scratch_.bytes();
    for (const Range& output : outputs_) total += aligned(output.bytes);
    return total;
  }

 private:
  struct Kernel {
    Source source;  ///< empty without a nest
    std::shared_ptr<const Code> code;
    std::unique_ptr<ContractionRunner> contraction;
    bool sorts = false;       ///< `contraction` is a sort
    std::int64_t extent = 1;  ///< of the outermost loop
  };
  struct Step {
    Entry entry;
    ContractionRunner* contraction;
    std::size_t args;  ///< first slot of the address table
    std::int64_t extent;
  };
  /// A slot of the address table that changes from run to run.
  struct Patch {
    std::size_t slot, source;
  };
  struct InputCopy {
    bool always = false;  ///< a kernel writes the input's memory
    Range place;
  };

  void prepare_kernels(Jit& jit, const Plan& plan, int compile_threads, int threads) {
    std::vector<Source> sources;
    for (const kernel::Kernel& kernel : plan.kernels) {
      Kernel& item = kernels_.emplace_back();
      if (kernel.contraction) item.contraction = make_contraction(kernel, threads);
      if (kernel.sort) item.contraction = make_sort(kernel);
      item.sorts = kernel.sort.has_value();
      if (kernel.nest.stages.empty()) continue;
      item.source = {kernel.name, llvm_ir::render(kernel, Jit::entry_name)};
      if (!kernel.nest.outer.empty()) {
        item.extent = kernel.loops[static_cast<std::size_t>(kernel.nest.outer.front())].extent;
      }
      sources.push_back(item.source);
    }
    const auto code = jit.compile(sources, compile_threads);
    auto next = code.begin();
    std::size_t scratch = 0;
    for (Kernel& item : kernels_) {
      if (!item.source.text.empty()) item.code = *next++;
      if (item.contraction) scratch = std::max(scratch, item.contraction->scratch_bytes());
    }
    scratch_ = Memory(scratch, "the working memory of contractions");
  }

  void place_buffers(const Plan& plan) {
    std::vector<bool> written(plan.buffers.size(), false);
    for (const Dispatch& dispatch : plan.dispatches) {
      const auto& args = plan.kernels[static_cast<std::size_t>(dispatch.kernel)].args;
      for (std::size_t i = 0; i < args.size(); ++i) {
        if (args[i].written) written[static_cast<std::size_t>(dispatch.buffers[i])] = true;
      }
    }
    std::size_t constants = 0;
    std::size_t copies = 0;
    for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
      const PlanBuffer& buffer = plan.buffers[i];
      const auto bytes = static_cast<std::size_t>(buffer.bytes());
      switch (buffer.kind) {
        case BufferKind::input:
          inputs_.push_back({written[i], {copies, bytes}});
          copies += aligned(bytes);
          any_copies_ = any_copies_ || written[i];
          break;
        case BufferKind::output:
          outputs_.push_back({output_bytes_, bytes});
          output_bytes_ += aligned(bytes);
          break;
        case BufferKind::constant:
          constants += aligned(bytes);
          break;
        case BufferKind::state:
        case BufferKind::temp:
          break;
      }
    }
    copy_bytes_ = copies;
    if (any_copies_) copies_ = Memory(copies, "the inputs of a program");
    arena_ = Memory(static_cast<std::size_t>(plan.arena_bytes), "the temporaries of a program");
    constants_ = Memory(constants, "the constants of a program");
    pool_ = std::make_shared<OutputPool>(output_bytes_);
    constexpr std::size_t kept_blocks = 4;
    pool_->reserve(kept_blocks);
  }

  /// Fills the address table with what stays, and lists what changes.
  void resolve(const Plan& plan) {
    std::vector<std::size_t> number(plan.buffers.size());  // within the buffers of its kind
    std::vector<std::byte*> fixed(plan.buffers.size(), nullptr);
    std::size_t input = 0;
    std::size_t state = 0;
    std::size_t output = 0;
    std::size_t constant = 0;
    for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
      const PlanBuffer& buffer = plan.buffers[i];
      switch (buffer.kind) {
        case BufferKind::input:
          number[i] = input++;
          break;
        case BufferKind::state:
          number[i] = state++;
          break;
        case BufferKind::output:
          number[i] = output++;
          break;
        case BufferKind::temp:
          fixed[i] = arena_.data() + buffer.offset;
          break;
        case BufferKind::constant:
          fixed[i] = constants_.data() + constant;
          if (!buffer.data.empty()) {
            std::memcpy(fixed[i], buffer.data.data(), buffer.data.size());
          }
          constant += aligned(static_cast<std::size_t>(buffer.bytes()));
          break;
      }
    }
    states_ = state;
    for (const Dispatch& dispatch : plan.dispatches) {
      const Kernel& kernel = kernels_[static_cast<std::size_t>(dispatch.kernel)];
      steps_.push_back({kernel.code ? kernel.code->entry() : nullptr, kernel.contraction.get(),
                        table_.size(), kernel.extent});
      for (const int id : dispatch.buffers) {
        const auto buffer = static_cast<std::size_t>(id);
        const Patch patch{table_.size(), number[buffer]};
        switch (plan.buffers[buffer].kind) {
          case BufferKind::input:
            input_patches_.push_back(patch);
            break;
          case BufferKind::state:
            state_patches_.push_back(patch);
            break;
          case BufferKind::output:
            output_patches_.push_back(patch);
            break;
          case BufferKind::temp:
          case BufferKind::constant:
            break;
        }
        table_.push_back(fixed[buffer]);
      }
    }
    addresses_.resize(std::max(inputs_.size(), states_));
  }

  void bind_inputs(std::span<const std::span<const std::byte>> inputs) {
    if (inputs.size() != inputs_.size()) {
      throw ValueError(
          fmt::format("A program with {} inputs is run with {}", inputs_.size(), inputs.size()));
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const std::byte* data = inputs[i].data();
      const bool misaligned = reinterpret_cast<std::uintptr_t>(data) % alignof(float) != 0;
      if (!inputs_[i].always && !misaligned) {
        // Kernels only read it, and the run ends before the caller gets it back.
        addresses_[i] = const_cast<std::byte*>(data);
        continue;
      }
      if (copies_.bytes() < copy_bytes_) copies_ = Memory(copy_bytes_, "the inputs of a program");
      addresses_[i] = copies_.data() + inputs_[i].place.offset;
      if (!inputs[i].empty()) std::memcpy(addresses_[i], data, inputs[i].size());
    }
    for (const Patch& patch : input_patches_) table_[patch.slot] = addresses_[patch.source];
  }

  void bind_states(std::span<DeviceBuffer* const> states) {
    if (states.size() != states_) {
      throw ValueError(
          fmt::format("A program with {} states is run with {}", states_, states.size()));
    }
    for (std::size_t i = 0; i < states.size(); ++i) {
      const auto* buffer = dynamic_cast<const Buffer*>(states[i]);
      if (buffer == nullptr) {
        throw DeviceError(fmt::format("State {} of a program on the CPU is on another device", i));
      }
      addresses_[i] = buffer->data();
    }
    for (const Patch& patch : state_patches_) table_[patch.slot] = addresses_[patch.source];
  }

  template <class Around>
  std::unique_ptr<Completion> run_with(std::span<const std::span<const std::byte>> inputs,
                                       std::span<DeviceBuffer* const> states, Around around) {
    const std::lock_guard lock(mutex_);
    bind_inputs(inputs);
    bind_states(states);
    auto result = std::make_unique<CpuCompletion>(pool_, pool_->take(), outputs_);
    for (const Patch& patch : output_patches_) {
      table_[patch.slot] = const_cast<std::byte*>(result->output(patch.source).data());
    }
    for (const Step& step : steps_) {
      around(step, [&] {
        void* const* args = table_.data() + step.args;
        if (step.contraction != nullptr) step.contraction->run(args, scratch_.data());
        // The whole range on this thread; a pool of threads would split it here.
        if (step.entry != nullptr) step.entry(args, 0, step.extent);
      });
    }
    return result;
  }

  std::vector<Kernel> kernels_;
  std::vector<Step> steps_;
  std::vector<void*> table_;
  std::vector<Patch> input_patches_, state_patches_, output_patches_;
  std::vector<std::byte*> addresses_;  ///< of the inputs or states of a run
  std::vector<InputCopy> inputs_;
  std::size_t states_ = 0;
  std::vector<Range> outputs_;
  std::size_t output_bytes_ = 0, copy_bytes_ = 0;
  bool any_copies_ = false;
  Memory arena_, constants_, scratch_, copies_;
  std::shared_ptr<OutputPool> pool_;
  std::mutex mutex_;
};

}  // namespace

std::unique_ptr<Executable> load(Jit& jit, const Plan& plan, int compile_threads, int threads) {
  return std::make_unique<CpuExecutable>(jit, plan, compile_threads, threads);
}

}  // namespace tensorgrad::cpu
