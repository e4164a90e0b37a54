// Kernel IR -> LLVM IR text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernel/kernel.h"

namespace tensorgrad::llvm_ir {

/// How a nest is run.
enum class Order : std::uint8_t {
  row,     ///< for each outer point, the stages; the innermost loop of a stage is vectorised
  column,  ///< for each tile of the innermost outer loop, the stages; the tile is vectorised and
           ///< accumulators are arrays on the stack
  block    ///< a map that reads across its rows (a transpose): small blocks of two outer loops, so
           ///< that what one row brings into the cache is used by the next
};
/// The order in which more of the kernel's loads are contiguous.
Order choose_order(const kernel::Kernel& kernel);
/// The outer loop that an access of a map is contiguous in where it is not in the innermost one; -1
/// without such a loop.
int crossing_loop(const kernel::Kernel& kernel);

/// The outer loop that a nest is cut along; -1 without outer loops.
int split_loop(const kernel::Kernel& kernel);
/// The extent of that loop, or 1.
std::int64_t split_extent(const kernel::Kernel& kernel);
/// Whether parts of that loop may run at the same time, and in any order.
bool can_split(const kernel::Kernel& kernel);

/// Which elements of a buffer an iteration of a loop touches: iteration i, none outside of
/// [first + i * step, first + (i + 1) * step).
struct Footprint {
  std::int64_t first = 0, step = 0;
};
/// Of the loads and stores of `buffer` in a loop nest; nothing where iterations may meet.
std::optional<Footprint> footprint(const kernel::Kernel& kernel, int loop, int buffer);

/// Renders the loop nest of `kernel` as a module that defines
///   void @ENTRY(ptr args, i64 begin, i64 end)
/// where `args` is an array of the addresses of Kernel::args, and [begin, end) the part of
/// `split_loop` to run (ignored by a nest without outer loops). The text depends on the kernel
/// alone, its name apart. Throws GraphError for a nest that reads what it does not define.
std::string render(const kernel::Kernel& kernel, std::string_view entry);

}  // namespace tensorgrad::llvm_ir
