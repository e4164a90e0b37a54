// How work is cut into pieces that threads claim. It depends on the kernel alone, never on the
// number of threads, so results are the same bits for any.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel/kernel.h"
#include "runtime/cpu/contraction.h"

namespace tensorgrad::cpu {

/// A nest's split loop in pieces of `chunk` iterations.
struct Cut {
  std::int64_t extent = 1, chunk = 1, chunks = 1;
};
/// One piece for what takes less than some hundred microseconds, or must run in order.
Cut cut_nest(const kernel::Kernel& kernel);
/// About `pieces` pieces of a nest that can be cut, whatever it takes.
Cut cut_evenly(const kernel::Kernel& kernel, std::int64_t pieces);
/// Into how many parts the reduction of a nest that cannot be cut is worth cutting; at least 2, or
/// 0.
std::int64_t reduction_parts(const kernel::Kernel& kernel, const Cut& cut);

/// A part of a nest's split loop.
struct Part {
  std::int64_t begin = 0, end = 0;
};
/// The part of the nest that reads each block of the contraction's result and no other block.
/// Empty where the nest cannot run block by block.
std::vector<Part> follow_blocks(const kernel::Kernel& kernel, const std::vector<Block>& blocks);

}  // namespace tensorgrad::cpu
