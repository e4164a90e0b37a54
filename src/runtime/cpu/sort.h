// Stable sorts of rows.
#pragma once

#include <memory>

#include "kernel/kernel.h"
#include "runtime/cpu/contraction.h"

namespace tensorgrad::cpu {

/// Prepares the sort of a kernel.
std::unique_ptr<ContractionRunner> make_sort(const kernel::Kernel& kernel);

}  // namespace tensorgrad::cpu
