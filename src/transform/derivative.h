// Derivatives that say where they are zero.
#pragma once

#include <span>
#include <vector>

#include "tensorgrad/tensor.h"

namespace tensorgrad {

/// jvp and vjp with empty handles for zeros, and without a complaint about derivatives that were
/// lost on the way: what other transforms are made of.
std::vector<Tensor> jvp_or_zeros(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                                 std::span<const Tensor> tangents);
std::vector<Tensor> vjp_or_zeros(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                                 std::span<const Tensor> cotangents);

}  // namespace tensorgrad
