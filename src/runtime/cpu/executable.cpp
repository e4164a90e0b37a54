// A plan made ready on the CPU: code, memory, and a table of addresses that is patched before a
// run.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <mutex>

#include "codegen/llvm/render.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/prepare.h"
#include "runtime/cpu/scratch.h"
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

Source source_of(const kernel::Kernel& kernel) {
  return {kernel.name, llvm_ir::render(kernel, Jit::entry_name)};
}

class CpuExecutable final : public Executable {
 public:
  CpuExecutable(Jit& jit, const Plan& plan, int compile_threads,
                std::shared_ptr<ThreadPool> threads, bool poisons)
      : threads_(std::move(threads)) {
    prepare_kernels(jit, plan, compile_threads);
    place_buffers(plan);
    resolve(plan);
    if (poisons) find_fresh(plan);
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
    if (item.how.contraction) text = fmt::format("; {}\n", item.how.contraction->description());
    if (item.parts_code) text += item.parts_source.text + "\n";
    return text + item.source.text;
  }

  std::size_t allocated_bytes() const override {
    std::size_t total = arena_.bytes() + constants_.bytes() + copies_.bytes();
    for (const Range& output : outputs_) total += aligned(output.bytes);
    return total;
  }

 private:
  struct Kernel {
    Source source;  ///< empty without a nest
    std::shared_ptr<const Code> code;
    Source parts_source;  ///< of the first of two stages
    std::shared_ptr<const Code> parts_code;
    Prepared how;
  };
  /// The buffer behind a slot of the address table, which points `offset` bytes into it.
  struct Fresh {
    std::size_t slot, offset, bytes;
  };
  struct Step {
    const Kernel* kernel;
    std::size_t args;  ///< first slot of the address table
    std::byte* scratch;
    std::vector<Fresh> fresh;  ///< poisoned before
  };
  /// A slot of the address table that changes from run to run.
  struct Patch {
    std::size_t slot, source, offset;  ///< the offset in bytes
  };
  struct InputCopy {
    bool always = false;  ///< a kernel writes the input's memory
    Range place;
  };

  void prepare_kernels(Jit& jit, const Plan& plan, int compile_threads) {
    std::vector<Source> sources;
    kernels_.reserve(plan.kernels.size());
    for (const kernel::Kernel& kernel : plan.kernels) {
      Kernel& item = kernels_.emplace_back();
      item.how = prepare(kernel, threads_->threads());
      if (kernel.nest.stages.empty()) continue;
      const auto& stages = item.how.stages;
      if (stages) sources.push_back(item.parts_source = source_of(stages->parts));
      sources.push_back(item.source = source_of(stages ? stages->rest : kernel));
    }
    const auto code = jit.compile(sources, compile_threads);
    auto next = code.begin();
    for (Kernel& item : kernels_) {
      if (!item.parts_source.text.empty()) item.parts_code = *next++;
      if (!item.source.text.empty()) item.code = *next++;
    }
    std::vector<std::size_t> scratch;
    for (const Dispatch& dispatch : plan.dispatches) {
      scratch.push_back(kernels_[static_cast<std::size_t>(dispatch.kernel)].how.scratch_bytes);
    }
    scratch_ = place_scratch(plan, scratch);
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
    arena_ = Memory(scratch_.arena_bytes, "the temporaries of a program");
    constants_ = Memory(constants, "the constants of a program");
    pool_ = std::make_shared<OutputPool>(output_bytes_);
    constexpr std::size_t kept_blocks = 4;
    pool_->reserve(kept_blocks);
  }

  /// Where argument `i` of a dispatch starts in its buffer.
  static std::size_t offset_bytes(const Plan& plan, std::size_t dispatch, std::size_t i) {
    const Dispatch& d = plan.dispatches[dispatch];
    const PlanBuffer& buffer = plan.buffers[static_cast<std::size_t>(d.buffers[i])];
    return static_cast<std::size_t>(d.offset(i)) * info(buffer.dtype).bytes;
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
      std::byte* scratch = arena_.data() + scratch_.offsets[steps_.size()];
      steps_.push_back({&kernel, table_.size(), scratch, {}});
      for (std::size_t i = 0; i < dispatch.buffers.size(); ++i) {
        const auto buffer = static_cast<std::size_t>(dispatch.buffers[i]);
        const std::size_t offset = offset_bytes(plan, steps_.size() - 1, i);
        const Patch patch{table_.size(), number[buffer], offset};
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
        table_.push_back(fixed[buffer] ? fixed[buffer] + offset : nullptr);
      }
      if (!kernel.how.stages) continue;
      for (const std::int64_t bytes : kernel.how.stages->bytes) {
        table_.push_back(scratch);
        scratch += aligned(static_cast<std::size_t>(bytes));
      }
    }
    addresses_.resize(std::max(inputs_.size(), states_));
  }

  /// Finds what each step is the first to write, to be poisoned: arguments that it does not read,
  /// and that do not take the place of one that it reads.
  void find_fresh(const Plan& plan) {
    poisons_ = true;
    std::vector<bool> used(plan.buffers.size(), false);
    for (std::size_t d = 0; d < plan.dispatches.size(); ++d) {
      const std::vector<int>& ids = plan.dispatches[d].buffers;
      const auto& args = plan.kernels[static_cast<std::size_t>(plan.dispatches[d].kernel)].args;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const PlanBuffer& buffer = plan.buffers[static_cast<std::size_t>(ids[i])];
        const bool known = used[static_cast<std::size_t>(ids[i])];
        used[static_cast<std::size_t>(ids[i])] = true;
        const bool is_private =
            buffer.kind == BufferKind::temp || buffer.kind == BufferKind::output;
        if (known || !is_private || !args[i].written) continue;
        const auto overlaps = [&](std::size_t j) {
          const PlanBuffer& other = plan.buffers[static_cast<std::size_t>(ids[j])];
          return other.kind == BufferKind::temp && buffer.kind == BufferKind::temp &&
                 other.offset < buffer.offset + buffer.bytes() &&
                 buffer.offset < other.offset + other.bytes();
        };
        bool is_fresh = true;
        for (std::size_t j = 0; j < ids.size(); ++j) {
          if (j != i && args[j].read && overlaps(j)) is_fresh = false;
        }
        if (!is_fresh) continue;
        steps_[d].fresh.push_back({steps_[d].args + i, offset_bytes(plan, d, i),
                                   static_cast<std::size_t>(buffer.bytes())});
      }
    }
  }

  void poison(const Step& step) {
    constexpr int all_ones = 0xFF;  // NaN in a float
    const std::size_t bytes = step.kernel->how.scratch_bytes;
    if (bytes > 0) std::memset(step.scratch, all_ones, bytes);
    for (const Fresh& item : step.fresh) {
      if (item.bytes == 0) continue;
      std::memset(static_cast<std::byte*>(table_[item.slot]) - item.offset, all_ones, item.bytes);
    }
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
    for (const Patch& patch : input_patches_)
      table_[patch.slot] = addresses_[patch.source] + patch.offset;
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
    for (const Patch& patch : state_patches_)
      table_[patch.slot] = addresses_[patch.source] + patch.offset;
  }

  void run_step(const Step& step) {
    if (poisons_) poison(step);
    const Kernel& kernel = *step.kernel;
    void* const* args = table_.data() + step.args;
    const Entry entry = kernel.code ? kernel.code->entry() : nullptr;
    const bool follows = !kernel.how.parts.empty();
    if (kernel.how.contraction) run_blocks(step, args, follows ? entry : nullptr);
    if (entry == nullptr || follows) return;
    if (kernel.parts_code) run_nest(kernel.parts_code->entry(), kernel.how.parts_cut, args);
    run_nest(entry, kernel.how.cut, args);
  }

  void run_nest(Entry entry, const Cut& cut, void* const* args) {
    if (cut.chunks == 1) {
      entry(args, 0, cut.extent);
      return;
    }
    threads_->run(cut.chunks, [&](std::int64_t chunk, int) {
      const std::int64_t begin = chunk * cut.chunk;
      entry(args, begin, std::min(begin + cut.chunk, cut.extent));
    });
  }

  /// The contraction's blocks, each followed by its part of the nest while it is in the cache.
  void run_blocks(const Step& step, void* const* args, Entry entry) {
    ContractionRunner& contraction = *step.kernel->how.contraction;
    const auto run = [&](std::int64_t block, int slot) {
      const auto number = static_cast<std::size_t>(block);
      std::byte* own = step.scratch + contraction.shared_bytes() +
                       static_cast<std::size_t>(slot) * contraction.own_bytes();
      contraction.run_block(number, args, {step.scratch, own}, slot);
      if (entry == nullptr) return;
      const Part& part = step.kernel->how.parts[number];
      entry(args, part.begin, part.end);
    };
    const std::size_t blocks = contraction.blocks().size();
    if (blocks == 1) {
      run(0, 0);
    } else {
      threads_->run(static_cast<std::int64_t>(blocks), run);
    }
    contraction.finish(args, {step.scratch, nullptr});
  }

  template <class Around>
  std::unique_ptr<Completion> run_with(std::span<const std::span<const std::byte>> inputs,
                                       std::span<DeviceBuffer* const> states, Around around) {
    const std::lock_guard lock(mutex_);
    bind_inputs(inputs);
    bind_states(states);
    auto result = std::make_unique<CpuCompletion>(pool_, pool_->take(), outputs_);
    for (const Patch& patch : output_patches_) {
      table_[patch.slot] =
          const_cast<std::byte*>(result->output(patch.source).data()) + patch.offset;
    }
    for (const Step& step : steps_) {
      around(step, [&] { run_step(step); });
    }
    return result;
  }

  std::shared_ptr<ThreadPool> threads_;
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
  bool poisons_ = false;
  ScratchPlan scratch_;
  Memory arena_, constants_, copies_;
  std::shared_ptr<OutputPool> pool_;
  std::mutex mutex_;
};

}  // namespace

std::unique_ptr<Executable> load(Jit& jit, const Plan& plan, int compile_threads,
                                 std::shared_ptr<ThreadPool> pool, bool poisons) {
  return std::make_unique<CpuExecutable>(jit, plan, compile_threads, std::move(pool), poisons);
}

}  // namespace tensorgrad::cpu
