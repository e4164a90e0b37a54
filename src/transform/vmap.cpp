// Batching: rebuilds a function's nodes by each op's batching rule.
#include <fmt/format.h>

#include <unordered_map>

#include "ops/operands.h"
#include "ops/primitives.h"
#include "tensorgrad/transforms.h"

namespace tensorgrad {

namespace {

// Results that do not depend on the batch are empty.
std::vector<Tensor> map_batch(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
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
    out.push_back(it != values.end() ? it->second : Tensor());
  }
  return out;
}

}  // namespace

std::vector<Tensor> vmap(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> batched, std::int64_t size) {
  std::vector<Tensor> out = map_batch(outputs, inputs, batched, size);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!out[i].defined()) out[i] = prim::add_leading(outputs[i], size);
  }
  return out;
}

namespace detail {

BatchedArguments::BatchedArguments(std::vector<Axis> in_axes, std::size_t count, const Site& site)
    : axes_(std::move(in_axes)), site_(site) {
  if (axes_.size() != 1 && axes_.size() != count) {
    throw GraphError(fmt::format("vmap: in_axes has {} entries, but there are {} arguments.",
                                 axes_.size(), count),
                     site);
  }
}

Axis BatchedArguments::next_axis() {
  const std::size_t i = next_++;
  return axes_.size() == 1 ? axes_[0] : axes_[i];
}

Tensor BatchedArguments::add(const Tensor& argument, int axis) {
  const Tensor batched = prim::move_to_front(
      argument, normal_axis("vmap", axis, argument.rank(), argument.shape(), site_));
  const std::int64_t size = batched.shape()[0];
  if (size_ && *size_ != size) {
    throw ShapeError(
        fmt::format("vmap: arguments have {} and {} elements along the mapped axis.", *size_, size),
        site_);
  }
  size_ = size;
  batched_.push_back(batched);
  elements_.push_back(prim::input(
      InputRole::argument, "element",
      {Shape(batched.shape().begin() + 1, batched.shape().end()), batched.dtype()}, site_));
  return elements_.back();
}

std::vector<Tensor> BatchedArguments::batch(std::span<const Tensor> results,
                                            std::span<const Axis> out_axes) const {
  if (!size_) throw GraphError("vmap: no argument is mapped.", site_);
  if (out_axes.size() != 1 && out_axes.size() != results.size()) {
    throw GraphError(fmt::format("vmap: out_axes has {} entries, but there are {} results.",
                                 out_axes.size(), results.size()),
                     site_);
  }
  std::vector<Tensor> mapped = map_batch(results, elements_, batched_, *size_);
  for (std::size_t i = 0; i < mapped.size(); ++i) {
    const Axis axis = out_axes.size() == 1 ? out_axes[0] : out_axes[i];
    if (!axis) {
      if (mapped[i].defined()) {
        throw GraphError(
            fmt::format("vmap: result {} is unmapped in out_axes, but depends on a mapped "
                        "argument.",
                        i),
            site_);
      }
      mapped[i] = results[i];
      continue;
    }
    if (!mapped[i].defined()) mapped[i] = prim::add_leading(results[i], *size_);
    Tensor& y = mapped[i];
    const int to = normal_axis("vmap", *axis, y.rank(), y.shape(), site_);
    std::vector<int> order;
    for (int d = 1; d < y.rank(); ++d) order.push_back(d);
    order.insert(order.begin() + to, 0);
    if (to != 0) y = prim::permute(y, order, site_);
  }
  return mapped;
}

}  // namespace detail
}  // namespace tensorgrad
