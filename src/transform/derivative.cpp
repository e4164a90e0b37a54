// Derivatives: jvp walks forward by each op's rule; vjp linearises and transposes.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ops/primitives.h"
#include "tensorgrad/transforms.h"

namespace tensorgrad {
namespace {

using Values = std::unordered_map<const Node*, Tensor>;

Tensor value_of(const Values& values, const Tensor& t) {
  const auto it = values.find(&t.node());
  return it == values.end() ? Tensor() : it->second;
}

// Tangents of every node that depends on the seeded ones.
void push_forward(std::span<const Node* const> order, Values& tangents) {
  for (const Node* n : order) {
    if (tangents.contains(n) || n->operands.empty()) continue;
    std::vector<Tensor> t;
    bool active = false;
    for (const Tensor& o : n->operands) {
      t.push_back(value_of(tangents, o));
      active = active || t.back().defined();
    }
    if (!active) continue;
    const SiteScope scope(n->site);
    const auto& rule = *n->op->jvp;
    if (const auto* none = std::get_if<NotDifferentiable>(&rule)) {
      throw GraphError(fmt::format("{}: has no derivative: {}. Put stop_gradient before it if none "
                                   "is wanted.",
                                   *n->op->name, none->why),
                       n->site);
    }
    const Tensor tangent = std::get<JvpRule>(rule)(handle_of(*n), t);
    if (tangent.defined()) tangents[n] = tangent;
  }
}

void check_counts(const char* what, std::size_t got, std::size_t expected) {
  if (got != expected) {
    throw GraphError(fmt::format("{}: {} values are given for {} tensors.", what, got, expected));
  }
}

void check_type(const char* what, const Tensor& given, const Tensor& of) {
  if (!(given.node().type == of.node().type)) {
    throw ShapeError(fmt::format("{}: {} is given for a tensor of type {}.", what,
                                 to_string(given.node().type), to_string(of.node().type)),
                     given.node().site);
  }
}

void check_float(const char* what, const Tensor& t) {
  if (!is_floating(t.dtype())) {
    throw DTypeError(fmt::format("{}: derivatives are by f32 tensors, not by {} {}.", what,
                                 name(t.dtype()), display_name(t)),
                     t.node().site);
  }
}

struct Linearised {
  std::vector<Tensor> placeholders;  // tangents of the inputs
  std::vector<Tensor> tangents;      // of the outputs; empty where zero
};

Linearised linearise(std::span<const Tensor> outputs, std::span<const Tensor> inputs) {
  Linearised l;
  Values tangents;
  for (const Tensor& x : inputs) {
    check_float("vjp", x);
    l.placeholders.push_back(
        prim::input(InputRole::argument, "tangent", x.node().type, x.node().site));
    tangents[&x.node()] = l.placeholders.back();
  }
  push_forward(topological(outputs, inputs), tangents);
  for (const Tensor& y : outputs) l.tangents.push_back(value_of(tangents, y));
  return l;
}

}  // namespace

std::vector<Tensor> jvp(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                        std::span<const Tensor> tangents) {
  check_counts("jvp", tangents.size(), inputs.size());
  Values values;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_float("jvp", inputs[i]);
    check_type("jvp", tangents[i], inputs[i]);
    values[&inputs[i].node()] = tangents[i];
  }
  push_forward(topological(outputs, inputs), values);
  std::vector<Tensor> out;
  for (const Tensor& y : outputs) {
    const Tensor t = value_of(values, y);
    out.push_back(t.defined() ? t : prim::zeros_like(y));
  }
  return out;
}

std::vector<bool> reaches(std::span<const Tensor> outputs, std::span<const Tensor> inputs) {
  const Linearised l = linearise(outputs, inputs);
  std::vector<Tensor> defined;
  std::copy_if(l.tangents.begin(), l.tangents.end(), std::back_inserter(defined),
               [](const Tensor& t) { return t.defined(); });
  const auto order = topological(defined);
  const std::unordered_set<const Node*> used(order.begin(), order.end());
  std::vector<bool> out;
  for (const Tensor& p : l.placeholders) out.push_back(used.contains(&p.node()));
  return out;
}

std::vector<Tensor> vjp(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                        std::span<const Tensor> cotangents) {
  check_counts("vjp", cotangents.size(), outputs.size());
  const Linearised l = linearise(outputs, inputs);

  Values cts;
  std::vector<Tensor> roots;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    check_type("vjp", cotangents[i], outputs[i]);
    if (!l.tangents[i].defined()) continue;
    roots.push_back(l.tangents[i]);
    Tensor& ct = cts[&l.tangents[i].node()];
    ct = prim::add_any(ct, cotangents[i]);
  }

  // The linear part: what depends on a placeholder.
  const auto order = topological(roots, l.placeholders);
  std::unordered_set<const Node*> linear;
  for (const Tensor& p : l.placeholders) linear.insert(&p.node());
  for (const Node* n : order) {
    if (std::any_of(n->operands.begin(), n->operands.end(),
                    [&](const Tensor& o) { return linear.contains(&o.node()); })) {
      linear.insert(n);
    }
  }

  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const Node* n = *it;
    const auto ct = cts.find(n);
    if (ct == cts.end() || n->operands.empty() || !linear.contains(n)) continue;
    const SiteScope scope(n->site);
    std::vector<bool> flags;
    for (const Tensor& o : n->operands) flags.push_back(linear.contains(&o.node()));
    const auto* rule = std::get_if<TransposeRule>(&*n->op->transpose);
    if (!rule) {
      throw GraphError(
          fmt::format("{}: a derivative rule uses it on a tangent, but it is not linear.",
                      *n->op->name),
          n->site);
    }
    const std::vector<Tensor> back = (*rule)(handle_of(*n), ct->second, flags);
    for (std::size_t i = 0; i < n->operands.size(); ++i) {
      if (!flags[i] || !back[i].defined()) continue;
      Tensor& sum = cts[&n->operands[i].node()];
      sum = prim::add_any(sum, back[i]);
    }
  }

  std::vector<Tensor> out;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor ct = value_of(cts, l.placeholders[i]);
    out.push_back(ct.defined() ? ct : prim::zeros_like(inputs[i]));
  }
  return out;
}

namespace detail {

Tensor variable(const Tensor& x) { return prim::identity(x); }

void check_scalar_loss(const char* transform, const Tensor& y, const Site& site) {
  if (y.rank() != 0 || !is_floating(y.dtype())) {
    throw ShapeError(fmt::format("{}: the function returns {}, not an f32 scalar; reduce it, for "
                                 "example with mean.",
                                 transform, to_string(y.node().type)),
                     site);
  }
}

Tensor seed_of(const Tensor& y) { return prim::full(y.shape(), 1, y.dtype()); }

}  // namespace detail
}  // namespace tensorgrad
