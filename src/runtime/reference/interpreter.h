// The reference interpreter: evaluates graphs op by op in double precision by the rules of the
// registry. It is the oracle of the tests and never fast.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "graph/node.h"
#include "ops/registry.h"

namespace tensorgrad {

/// Supplies the value of a leaf that the graph does not hold: an input, the training flag, a step
/// key.
using BindLeaf = std::function<RefArray(const Node& leaf)>;

/// Whether results stay in double or are rounded to their dtype at the end.
enum class RefRounding : std::uint8_t { none, results };

/// Values of `outputs`, in order. Constants and literal arrays enter exactly; integers and bools
/// are exact throughout; floats are computed in double and not rounded between ops. A value is
/// freed after its last use. `bind` may be null for a graph without unbound leaves. Throws
/// GraphError if a leaf is not bound, or is bound to a value of another type.
std::vector<RefArray> interpret(std::span<const Tensor> outputs, const BindLeaf& bind = nullptr,
                                RefRounding rounding = RefRounding::none);

/// The only output of a graph.
RefArray interpret(const Tensor& output, const BindLeaf& bind = nullptr,
                   RefRounding rounding = RefRounding::none);

}  // namespace tensorgrad
