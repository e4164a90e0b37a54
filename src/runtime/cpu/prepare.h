// How a kernel of a plan is run: its contraction in blocks, its nest in pieces or in two stages.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "kernel/kernel.h"
#include "runtime/cpu/contraction.h"
#include "runtime/cpu/cut.h"
#include "runtime/cpu/two_stages.h"

namespace tensorgrad::cpu {

/// The decisions for one kernel, before it is compiled.
struct Prepared {
  std::unique_ptr<ContractionRunner> contraction;
  Cut cut;  ///< of the nest, or of its second stage
  /// The nest's part for each block of the contraction; empty where it runs after all of them.
  std::vector<Part> parts;
  std::optional<TwoStages> stages;
  Cut parts_cut;                  ///< of the first of two stages
  std::size_t scratch_bytes = 0;  ///< of working memory
};
/// Decides for a run on `threads` threads. Throws DeviceError.
Prepared prepare(const kernel::Kernel& kernel, int threads);

}  // namespace tensorgrad::cpu
