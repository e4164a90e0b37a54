// Matrix products and convolutions through oneDNN.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "kernel/kernel.h"

namespace tensorgrad::cpu {

/// A contraction made ready to run. Not thread-safe.
class ContractionRunner {
 public:
  virtual ~ContractionRunner() = default;
  /// Runs once. `args` are the addresses of the kernel's arguments, `scratch` is `scratch_bytes()`
  /// bytes at a multiple of 64 that hold nothing between runs.
  virtual void run(void* const* args, std::byte* scratch) = 0;
  /// The implementation that oneDNN chose, and the layout changes around it: "brg:avx512_core".
  virtual std::string description() const = 0;
  /// Bytes of working memory and of copies in other layouts.
  virtual std::size_t scratch_bytes() const = 0;
};

/// Prepares a contraction for `threads` threads. Throws DeviceError with the kernel's name where
/// oneDNN has no implementation.
std::unique_ptr<ContractionRunner> make_contraction(const kernel::Kernel& kernel, int threads);

/// The version of the oneDNN library: "2.6.3".
std::string contraction_library_version();

}  // namespace tensorgrad::cpu
