// Computing lazy tensors on the default device.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "graph/node.h"
#include "train/engine.h"

namespace tensorgrad {

/// The elements of `tensors`, each as bytes, computed together on `engine` (null: the default one).
/// Stochastic calls without a key are GraphErrors. Programs are cached by structure when the
/// default engine is used.
std::vector<std::vector<std::byte>> evaluate(std::span<const Tensor> tensors,
                                             Engine* engine = nullptr);

}  // namespace tensorgrad
