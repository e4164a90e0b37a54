// Long reductions to few values, in two stages: partial sums of fixed parts, side by side, then
// their sum.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernel/kernel.h"

namespace tensorgrad::cpu {

/// A kernel as two. Both take the arguments of the kernel, and then the partial results.
struct TwoStages {
  kernel::Kernel parts;  ///< iteration p of its outermost loop writes the partial results of part p
  kernel::Kernel rest;   ///< the kernel, with its first stage reduced to the partial results
  std::int64_t count = 0;           ///< parts
  std::vector<std::int64_t> bytes;  ///< of each argument for partial results
};

/// The kernel with the reduction of its first stage cut into about `parts` parts; nothing where
/// that stage is no reduction, gives positions, or is too short.
std::optional<TwoStages> in_two_stages(const kernel::Kernel& kernel, std::int64_t parts);

}  // namespace tensorgrad::cpu
