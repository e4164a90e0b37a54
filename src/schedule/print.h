// A plan as text.
#pragma once

#include <string>

#include "schedule/plan.h"

namespace tensorgrad {

/// "input", "state", "output", "temp", "constant".
const char* name(BufferKind kind);
/// Buffers, kernels and dispatches in order. Two plans with the same text compute the same.
std::string to_string(const Plan& plan);

}  // namespace tensorgrad
