// Graph to graph passes that run before scheduling.
#pragma once

#include <functional>

#include "graph/graph.h"

namespace tensorgrad {

/// Rebuilds every node the program needs, operands first. `f(node, operands)` returns the
/// replacement of a node whose operands have been replaced; leaves are passed through it too.
Graph rebuild(const Graph& graph,
              const std::function<Tensor(const Node&, std::vector<Tensor> operands)>& f);

/// Binds what only a program knows: the training flag becomes a constant, and the k-th stochastic
/// call gets fold_in(key, k). `key` (u32[2]) may be empty: then a stochastic call that is still
/// needed after simplification is a GraphError with its line.
Graph bind_context(const Graph& graph, bool training, const Tensor& key);

/// Constant folding, algebra that is exact in IEEE arithmetic, merging of views, common
/// subexpressions; what nothing needs disappears.
Graph simplify(const Graph& graph);

/// Products too thin for a matrix unit (an extent of 1 among rows, columns or the contracted
/// dimensions) become multiplications and sums, which fuse with their neighbours.
Graph thin_products(const Graph& graph);

}  // namespace tensorgrad
