#include "transform/views.h"

#include "ops/registry.h"
#include "ops/rules.h"

namespace tensorgrad {

using kernel::Index;
using kernel::IndexNode;
using kernel::Pool;

std::optional<ViewSource> behind_views(const Node& view) {
  Pool pool;
  std::vector<Index> index;
  for (std::size_t d = 0; d < view.type.shape.size(); ++d) {
    index.push_back(pool.loop(static_cast<int>(d), view.type.shape[d]));
  }
  const Node* n = &view;
  while (const auto* l = lowering_as<LowerView>(*n)) {
    Source from = l->fn(pool, *n, index);
    if (from.valid.defined()) return std::nullopt;
    index = std::move(from.index);
    n = &n->operand(0).node();
  }
  const Shape own = strides_of(n->type.shape);
  Index flat = pool.number(0);
  for (std::size_t d = 0; d < index.size(); ++d) {
    flat = pool.add(flat, pool.mul(index[d], own[d]));
  }
  ViewSource out{n, 0, Shape(view.type.shape.size(), 0)};
  const IndexNode& sum = pool.node(flat);
  const auto add = [&](const IndexNode& atom, std::int64_t factor) {
    if (atom.kind != IndexNode::Kind::loop) return false;
    out.strides[static_cast<std::size_t>(atom.var)] = factor;
    return true;
  };
  if (sum.kind != IndexNode::Kind::sum) {
    return add(sum, 1) ? std::optional(std::move(out)) : std::nullopt;
  }
  out.offset = sum.constant;
  for (const auto& [atom, factor] : sum.terms) {
    if (!add(pool.node(Index{atom}), factor)) return std::nullopt;
  }
  return out;
}

std::optional<double> uniform_value(const Tensor& t) {
  const Node* n = &t.node();
  while (lowering_as<LowerView>(*n) && !n->operands.empty()) {
    const auto s = behind_views(*n);
    if (!s) return std::nullopt;
    n = s->node;
  }
  const auto* c = std::get_if<ConstantAttr>(&n->attrs);
  return c ? std::optional(c->value) : std::nullopt;
}

}  // namespace tensorgrad
