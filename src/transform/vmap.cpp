// Batching: rebuilds a function's nodes by each op's batching rule.
#include <fmt/format.h>

#include <unordered_map>

#include "ops/operands.h"
#include "ops/primitives.h"
#include "tensorgrad/transforms.h"

namespace tensorgrad {

std::vector<Tensor> vmap(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> batched, std::int64_t size) {
  std::unordered_map<const Node*, Tensor> values;  // nodes that have a batch dimension
  for (std::size_t i = 0; i < inputs.size(); ++i) values[&inputs[i].node()] = batched[i];
  for (const Node* n : topological(outputs, inputs)) {
    if (values.contains(n) || n->operands.empty()) continue;
    std::vector<Tensor> operands;
    std::vector<bool> flags;
    bool any = false;
    for (const Tensor& o : n->operands) {
      const auto it = values.find(&o.node());
      flags.push_back(it != values.end());
      operands.push_back(flags.back() ? it->second : o);
      any = any || flags.back();
    }
    if (!any) continue;
    const SiteScope scope(n->site);
    values[n] = (*n->op->vmap)(handle_of(*n), operands, flags, size);
  }
  std::vector<Tensor> out;
  for (const Tensor& y : outputs) {
    const auto it = values.find(&y.node());
    out.push_back(it != values.end() ? it->second : prim::add_leading(y, size));
  }
  return out;
}

namespace detail {

Tensor move_axis_to_front(const Tensor& x, int axis, const Site& site) {
  return prim::move_to_front(x, normal_axis("vmap", axis, x.rank(), x.shape(), site));
}

Tensor element_of_batch(const Tensor& x, const Site& site) {
  return prim::input(InputRole::argument, "element",
                     {Shape(x.shape().begin() + 1, x.shape().end()), x.dtype()}, site);
}

std::int64_t common_batch(std::span<const Tensor> batched, const Site& site) {
  for (const Tensor& b : batched) {
    if (b.dim(0) != batched[0].dim(0)) {
      throw ShapeError(fmt::format("vmap: arguments have {} and {} elements along the mapped axis.",
                                   batched[0].dim(0), b.dim(0)),
                       site);
    }
  }
  return batched.empty() ? 0 : batched[0].dim(0);
}

}  // namespace detail
}  // namespace tensorgrad
