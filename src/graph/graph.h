// Graph: a closed program over primitive ops, before it is scheduled.
#pragma once

#include <string>
#include <vector>

#include "graph/node.h"

namespace tensorgrad {

/// A tensor under a name.
struct Named {
  std::string name;
  Tensor value;
};

/// What a program reads and what it makes. `inputs` and `states` are the `input` nodes the program
/// may refer to; `updates[i]` replaces states[i] after the run, or is empty where the state is only
/// read. Outputs are handed back by name.
struct Graph {
  std::vector<Tensor> inputs;
  std::vector<Tensor> states;
  std::vector<Tensor> updates;
  std::vector<Named> outputs;

  /// Everything that must be computed: outputs, then updates.
  std::vector<Tensor> roots() const;
  /// All nodes, operands before users.
  std::vector<const Node*> order() const;
};

/// Throws GraphError unless the graph is closed (every `input` node is listed, nothing is left
/// unbound) and every node's type is what its op infers from its operands.
void verify(const Graph& graph);
/// One line a node: "%3 = add(%1, %2) f32[2, 3]  # train.cpp:41".
std::string to_string(const Graph& graph);
/// A hash of the structure: equal for programs that differ in nothing but sites.
std::size_t structural_hash(const Graph& graph);
/// Whether two programs differ in nothing but sites.
bool same_structure(const Graph& a, const Graph& b);

}  // namespace tensorgrad
