// Computing lazy tensors.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "graph/node.h"
#include "train/engine.h"

namespace tensorgrad {

using HostValue = std::shared_ptr<const HostData>;

/// The elements of `tensors`, computed together. On the default engine (`engine` is null) programs
/// are cached by structure, values that were computed before are used, and the new ones are
/// remembered. Graphs of many nodes run in parts, so that neither the stack nor the time of the
/// compiler grows with them. Throws GraphError for stochastic calls without a key and for
/// placeholders.
std::vector<HostValue> evaluate(std::span<const Tensor> tensors, Engine* engine = nullptr);

/// The program of a graph, from the cache of the default engine.
std::shared_ptr<Program> cached_program(const Graph& graph);

}  // namespace tensorgrad
