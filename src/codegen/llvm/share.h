// What several stages of a nest compute alike.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel/kernel.h"

namespace tensorgrad::llvm_ir {

/// Which buffers the nest itself stores to, by argument.
std::vector<bool> stored_buffers(const kernel::Kernel& kernel);

/// Values of a row that one stage computes and later ones read again.
struct SavedValue {
  kernel::Expr value;
  int stage = -1;             ///< computes it
  std::int64_t elements = 0;  ///< of the row
};
/// The values that are dear enough to be saved: they call a function, and their stages run over one
/// loop that is short enough.
std::vector<SavedValue> values_to_save(const kernel::Kernel& kernel);

}  // namespace tensorgrad::llvm_ir
