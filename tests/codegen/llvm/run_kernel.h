// Runs a kernel's loop nest on vectors of this process.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codegen/llvm/render.h"
#include "kernel/kernel.h"
#include "random_values.h"
#include "runtime/cpu/jit.h"

namespace tensorgrad {

inline cpu::Jit& test_jit() {
  static cpu::Jit jit;
  return jit;
}

inline cpu::Source source_of(const kernel::Kernel& kernel) {
  return {kernel.name, llvm_ir::render(kernel, cpu::Jit::entry_name)};
}

/// Runs the part [begin, end) of the loop that is split; all of it by default.
inline void run_kernel(const kernel::Kernel& kernel, const std::vector<void*>& args,
                       std::int64_t begin = 0, std::int64_t end = -1) {
  kernel::verify(kernel);
  const cpu::Source source = source_of(kernel);
  const auto code = test_jit().compile({&source, 1}, 1);
  if (end < 0) end = llvm_ir::split_extent(kernel);
  code.front()->entry()(args.data(), begin, end);
}

/// Whether optimised code works on vectors of this processor, whole or half.
inline void expect_vectors(const kernel::Kernel& kernel) {
  const int lanes = test_jit().processor().vector_bits / 32;
  if (lanes < 8) return;
  const std::string text = test_jit().optimised(source_of(kernel));
  EXPECT_TRUE(text.find("<16 x float>") != std::string::npos ||
              text.find("<8 x float>") != std::string::npos)
      << text;
}

/// A kernel under construction: arguments and loops by number.
struct KernelBuilder {
  kernel::Kernel kernel;
  explicit KernelBuilder(std::string name) { kernel.name = std::move(name); }

  int arg(DType dtype, std::int64_t elements, bool read, bool written) {
    kernel.args.push_back({dtype, elements, read, written});
    return static_cast<int>(kernel.args.size()) - 1;
  }
  int input(std::int64_t elements, DType dtype = DType::f32) {
    return arg(dtype, elements, true, false);
  }
  int output(std::int64_t elements, DType dtype = DType::f32) {
    return arg(dtype, elements, false, true);
  }
  int loop(std::int64_t extent) {
    kernel.loops.push_back({extent});
    return static_cast<int>(kernel.loops.size()) - 1;
  }
  int outer(std::int64_t extent) {
    kernel.nest.outer.push_back(loop(extent));
    return kernel.nest.outer.back();
  }
  kernel::Index at(int loop) {
    return kernel.pool.loop(loop, kernel.loops[static_cast<std::size_t>(loop)].extent);
  }
  /// The index that is `factor` times the first loop plus the second.
  kernel::Index at(int row, std::int64_t factor, int column) {
    return kernel.pool.add(kernel.pool.mul(at(row), factor), at(column));
  }
  kernel::Expr load(int buffer, kernel::Index index, kernel::Expr condition = {}) {
    return kernel.pool.load(buffer, index, condition,
                            kernel.args[static_cast<std::size_t>(buffer)].dtype);
  }
  /// Adds a stage that reduces; returns what later stages read.
  kernel::Expr reduce(std::vector<int> loops, kernel::Combiner combiner, kernel::Expr value,
                      kernel::Index position = {}) {
    const DType dtype = kernel.pool.node(value).dtype;
    const bool indexed =
        combiner == kernel::Combiner::argmax || combiner == kernel::Combiner::argmin;
    kernel::Stage stage;
    stage.loops = std::move(loops);
    stage.accumulators.push_back({combiner, value, dtype, position});
    kernel.nest.stages.push_back(std::move(stage));
    return kernel.pool.acc(static_cast<int>(kernel.nest.stages.size()) - 1, 0,
                           indexed ? DType::i32 : dtype);
  }
  /// Adds a stage with one store.
  void store(std::vector<int> loops, int buffer, kernel::Index index, kernel::Expr value,
             kernel::Expr condition = {}, bool accumulate = false) {
    kernel::Stage stage;
    stage.loops = std::move(loops);
    stage.stores.push_back({buffer, index, value, condition, accumulate});
    kernel.nest.stages.push_back(std::move(stage));
  }
};

}  // namespace tensorgrad
