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

/// Numbers of f16 are stored and moved; arithmetic on them is that of f32. Results are rounded to
/// f16, but for those of reductions and those that are used once: arithmetic reads these before
/// they are rounded. A program without f16 stays as it is.
Graph widen_halves(const Graph& graph);
/// Whether a node only makes f32 of its operand, an f16.
bool widens(const Node& n);

/// softmax(scale * q k^T, causal or not) v, in steps, becomes attention, and the steps of its
/// gradients those of attention, where nothing else needs the matrix of scores.
Graph match_attention(const Graph& graph);

/// Contractions of one operand with others that lie, or can be computed, at equal distances become
/// one contraction with a batch, and sums of such contractions one with a longer sum.
Graph merge_contractions(const Graph& graph);

/// Products too thin for a matrix unit (an extent of 1 among rows, columns or the contracted
/// dimensions) become multiplications and sums, which fuse with their neighbours.
Graph thin_products(const Graph& graph);

}  // namespace tensorgrad
