// Matrix products, convolutions and attention, cut into blocks that run side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernel/kernel.h"

namespace tensorgrad::cpu {

/// A part of a contraction: a block of its result.
struct Block {
  /// The elements of the result's buffer that the block writes lie in [begin, end); [0, 0) where
  /// that is not known.
  std::int64_t begin = 0, end = 0;
};

/// Work without a loop nest, made ready to run. How it is cut depends on its shape alone, so its
/// results are the same bits for any number of threads.
class ContractionRunner {
 public:
  /// Working memory of a run, at multiples of 64; it holds nothing between runs.
  struct Scratch {
    std::byte* shared = nullptr;  ///< `shared_bytes()`
    std::byte* own = nullptr;     ///< `own_bytes()` for each slot
  };

  virtual ~ContractionRunner() = default;
  /// At least one. Blocks may run at the same time, on slots that differ.
  virtual const std::vector<Block>& blocks() const = 0;
  /// Runs one block. `args` are the addresses of the kernel's arguments.
  virtual void run_block(std::size_t block, void* const* args, const Scratch& scratch,
                         int slot) = 0;
  /// What is left to do when all blocks are done: adding up their partial sums.
  virtual void finish(void* const* args, const Scratch& scratch) = 0;
  /// Working memory of all blocks together, and of each thread.
  virtual std::size_t shared_bytes() const = 0;
  virtual std::size_t own_bytes() const = 0;
  /// How it is computed: "oneDNN brg:avx512_core + reorder".
  virtual std::string description() const = 0;

  /// Runs all of it on this thread; `scratch` is `scratch_bytes()` bytes.
  void run(void* const* args, std::byte* scratch);
  std::size_t scratch_bytes() const { return shared_bytes() + own_bytes(); }
};

/// A runner whose work is not cut.
class WholeRunner : public ContractionRunner {
 public:
  const std::vector<Block>& blocks() const override { return blocks_; }
  void run_block(std::size_t, void* const* args, const Scratch& scratch, int) override {
    run_whole(args, scratch.own);
  }
  void finish(void* const*, const Scratch&) override {}
  std::size_t shared_bytes() const override { return 0; }

 private:
  virtual void run_whole(void* const* args, std::byte* scratch) = 0;
  std::vector<Block> blocks_{{}};
};

/// Prepares a contraction whose blocks run on slots [0, slots). Throws DeviceError with the
/// kernel's name where oneDNN has no implementation.
std::unique_ptr<ContractionRunner> make_contraction(const kernel::Kernel& kernel, int slots);

/// The version of the oneDNN library: "2.6.3".
std::string contraction_library_version();

}  // namespace tensorgrad::cpu
