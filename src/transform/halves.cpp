// Arithmetic on f16 in f32.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ops/primitives.h"
#include "ops/rules.h"
#include "transform/passes.h"

namespace tensorgrad {
namespace {

bool is_half(const Tensor& t) { return t.dtype() == DType::f16; }

/// Whether the op moves elements of any dtype, or converts them.
bool moves(const Node& n) {
  return lowering_as<LowerView>(n) || lowering_as<LowerIndirect>(n) ||
         lowering_as<LowerConcat>(n) || lowering_as<LowerGenerate>(n) ||
         lowering_as<LowerLeaf>(n) || *n.op->name == "cast" || *n.op->name == "bitcast" ||
         *n.op->name == "select";
}

class Widening {
 public:
  explicit Widening(const Graph& graph) : graph_(graph) {
    for (const Node* n : graph.order()) {
      found_ = found_ || n->type.dtype == DType::f16;
      std::unordered_set<const Node*> operands;
      for (const Tensor& o : n->operands) {
        if (operands.insert(&o.node()).second) ++uses_[&o.node()];
      }
    }
    for (const Named& o : graph.outputs) ++uses_[&o.value.node()];
    for (const Tensor& u : graph.updates) {
      if (u.defined()) ++uses_[&u.node()];
    }
  }

  Graph run() {
    if (!found_) return graph_;
    return rebuild(graph_, [&](const Node& n, std::vector<Tensor> x) { return replace(n, x); });
  }

 private:
  Tensor replace(const Node& n, std::vector<Tensor>& x) {
    if (n.operands.empty()) return handle_of(n);
    const bool half =
        n.type.dtype == DType::f16 || std::any_of(n.operands.begin(), n.operands.end(), is_half);
    if (!half || moves(n)) return remake(n, std::move(x));
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (is_half(x[i])) x[i] = widened(n.operand(i).node(), x[i]);
    }
    const Tensor wide = remake(n, std::move(x));
    if (n.type.dtype != DType::f16) return wide;
    const Tensor result = prim::cast(wide, DType::f16, n.site);
    rounded_.insert(&result.node());
    return result;
  }

  /// The f32 behind `half`, which stands for `n`.
  Tensor widened(const Node& n, const Tensor& half) const {
    const bool keeps =
        rounded_.contains(&half.node()) && (uses_.at(&n) == 1 || lowering_as<LowerReduce>(n));
    return keeps ? half.node().operand(0) : prim::cast(half, DType::f32, n.site);
  }

  const Graph& graph_;
  bool found_ = false;
  std::unordered_map<const Node*, int> uses_;
  std::unordered_set<const Node*> rounded_;  ///< casts to f16 that are made here
};

}  // namespace

Graph widen_halves(const Graph& graph) { return Widening(graph).run(); }

bool widens(const Node& n) {
  return *n.op->name == "cast" && n.type.dtype == DType::f32 && is_half(n.operand(0));
}

}  // namespace tensorgrad
