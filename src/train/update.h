// The optimizer's update of all parameters at once: elementwise over flat arenas, so that it is one
// kernel however many parameters there are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensorgrad/optim.h"
#include "tensorgrad/tensor.h"

namespace tensorgrad {

/// Names of the state that an optimizer keeps for each element, such as {"m", "v"}: f32 arenas of
/// the parameters' size, zero before the first step.
std::vector<std::string> slot_names(const Optimizer& optimizer);

/// The learning rate of a step (from 1).
double learning_rate_of(const Optimizer& optimizer, std::int64_t step);

/// What the update of a step reads besides arenas: learning rate and bias corrections, computed in
/// double. How many there are depends on the kind of optimizer alone. Throws ValueError if step < 1
/// or lr is negative or not finite.
std::vector<float> hyper(const Optimizer& optimizer, std::int64_t step, double lr);

/// What an update makes: the new parameters and the new slots, in the order of `slot_names`.
struct Updated {
  Tensor params;
  std::vector<Tensor> slots;
};

/// One step. `params`, `grads` and `slots` are f32 [n]; `hyper_values` is f32 [k], fed with
/// hyper(...); `decays`, bool [n], says which elements weight decay applies to; `scales`, f32 [n]
/// or empty, has the factor of the learning rate for each element. Throws ShapeError, DTypeError or
/// ValueError for operands and optimizers that do not fit.
Updated update(const Optimizer& optimizer, const Tensor& params, const Tensor& grads,
               std::span<const Tensor> slots, const Tensor& hyper_values, const Tensor& decays,
               const Tensor& scales = {});

/// The gradients scaled by min(1, max_norm / (norm + 1e-6)), where norm is the root of their summed
/// squares. Throws ValueError unless max_norm is a positive number.
Tensor clip_by_global_norm(const Tensor& grads, double max_norm);

}  // namespace tensorgrad
