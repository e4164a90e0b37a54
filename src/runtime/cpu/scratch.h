// Places for the working memory of a plan's dispatches, within the arena where that is free.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/plan.h"

namespace tensorgrad::cpu {

struct ScratchPlan {
  std::vector<std::size_t> offsets;  ///< into the arena, of each dispatch
  std::size_t arena_bytes = 0;       ///< of the arena that holds temporaries and working memory
};
/// Places `bytes[d]` bytes for dispatch d where no temporary is alive meanwhile, beyond the others
/// if there is no such place.
ScratchPlan place_scratch(const Plan& plan, const std::vector<std::size_t>& bytes);

}  // namespace tensorgrad::cpu
