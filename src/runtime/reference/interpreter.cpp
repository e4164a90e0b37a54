#include "runtime/reference/interpreter.h"

#include <fmt/format.h>

#include <unordered_map>

namespace tensorgrad {
namespace {

bool must_be_bound(const Node& node) {
  return lowering_as<LowerLeaf>(node) != nullptr && !std::holds_alternative<DataAttr>(node.attrs);
}

RefArray bound_value(const Node& leaf, const BindLeaf& bind) {
  if (!bind) {
    throw GraphError(
        fmt::format("{} {} is not bound to a value.", *leaf.op->name, to_string(leaf.attrs)),
        leaf.site);
  }
  RefArray value = bind(leaf);
  if (!(value.type == leaf.type) ||
      static_cast<std::int64_t>(value.data.size()) != numel(leaf.type.shape)) {
    throw GraphError(fmt::format("{} {} of type {} is bound to {} elements of type {}.",
                                 *leaf.op->name, to_string(leaf.attrs), to_string(leaf.type),
                                 value.data.size(), to_string(value.type)),
                     leaf.site);
  }
  return value;
}

}  // namespace

std::vector<RefArray> interpret(std::span<const Tensor> outputs, const BindLeaf& bind,
                                RefRounding rounding) {
  const std::vector<const Node*> order = topological(outputs);
  std::unordered_map<const Node*, std::size_t> uses;
  for (const Node* n : order) {
    for (const Tensor& o : n->operands) ++uses[&o.node()];
  }
  for (const Tensor& o : outputs) ++uses[&o.node()];

  std::unordered_map<const Node*, RefArray> values;
  for (const Node* n : order) {
    if (must_be_bound(*n)) {
      values.emplace(n, bound_value(*n, bind));
      continue;
    }
    std::vector<const RefArray*> operands;
    for (const Tensor& o : n->operands) operands.push_back(&values.at(&o.node()));
    values.emplace(n, (*n->op->reference)(*n, operands));
    for (const Tensor& o : n->operands) {
      if (--uses[&o.node()] == 0) values.erase(&o.node());
    }
  }

  std::vector<RefArray> results;
  for (const Tensor& o : outputs) {
    results.push_back(values.at(&o.node()));
    if (--uses[&o.node()] == 0) values.erase(&o.node());
    if (rounding == RefRounding::results && is_floating(o.dtype())) {
      for (double& v : results.back().data) v = kernel::round_to(o.dtype(), v);
    }
  }
  return results;
}

RefArray interpret(const Tensor& output, const BindLeaf& bind, RefRounding rounding) {
  return std::move(interpret(std::span(&output, 1), bind, rounding)[0]);
}

}  // namespace tensorgrad
