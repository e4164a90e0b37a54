// Random graphs over the rows of the op registry, with data for their inputs.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "ops/registry.h"
#include "ops/sampling.h"

namespace tensorgrad::fuzz {

struct GraphOptions {
  int max_nodes = 16;           ///< applications of ops; views that fit operands come on top
  double gradients = 0.4;       ///< share of the graphs that also compute a gradient
  double special_values = 0.1;  ///< share of the graphs with NaN, infinities and extremes as data
};

/// Whether random programs apply the op: it has samples, and takes operands that are drawn apart.
/// The gradients of attention take its results beside its operands; they occur where the schedule
/// makes them of the derivative of its steps.
bool is_drawn(const Op& op);

/// A graph and the values of its inputs and states.
struct Program {
  Graph graph;
  std::vector<RefArray> inputs, states;  ///< in the order of the graph's
};

/// Values of a program's leaves, for the interpreter.
BindLeaf bind(const Program& program);

/// The program of that seed. Any op with samples occurs, on operands of every dtype and of ranks 0
/// to 5, most of them views of one another; the program has several outputs, and at times states
/// with updates.
Program random_program(std::uint64_t seed, const GraphOptions& options);

}  // namespace tensorgrad::fuzz
