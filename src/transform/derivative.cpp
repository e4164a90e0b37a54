// Derivatives: jvp walks forward by each op's rule; vjp linearises and transposes.
#include "transform/derivative.h"

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

// Whether a derivative travels from operand `i` to the node.
bool carries(const Node& n, std::size_t i) {
  return is_floating(n.operand(i).dtype()) && (!n.op->carries || n.op->carries(n, i));
}

// The nodes that derivatives of `outputs` travel through, operands first, as `topological` lists
// them.
std::vector<const Node*> travelled(std::span<const Tensor> outputs,
                                   std::span<const Tensor> inputs) {
  std::vector<const Node*> order;
  std::unordered_set<const Node*> done;
  std::unordered_set<const Node*> stops;
  for (const Tensor& t : inputs) stops.insert(&t.node());
  struct Frame {
    const Node* node;
    std::size_t next;
  };
  std::vector<Frame> stack;
  for (const Tensor& root : outputs) {
    if (!is_floating(root.dtype()) || !done.insert(&root.node()).second) continue;
    stack.push_back({&root.node(), 0});
    while (!stack.empty()) {
      Frame& f = stack.back();
      if (stops.contains(f.node) || f.next == f.node->operands.size()) {
        order.push_back(f.node);
        stack.pop_back();
        continue;
      }
      const std::size_t i = f.next++;
      if (!carries(*f.node, i)) continue;
      const Node* o = &f.node->operand(i).node();
      if (done.insert(o).second) stack.push_back({o, 0});
    }
  }
  return order;
}

// What becomes of the tangent of a `custom` node.
enum class Purpose : std::uint8_t { value, transposition };

// Tangents of every node that depends on the seeded ones.
void push_forward(std::span<const Node* const> order, Values& tangents, Purpose purpose) {
  for (const Node* n : order) {
    if (tangents.contains(n) || n->operands.empty()) continue;
    std::vector<Tensor> t;
    bool active = false;
    for (std::size_t i = 0; i < n->operands.size(); ++i) {
      t.push_back(carries(*n, i) ? value_of(tangents, n->operand(i)) : Tensor());
      active = active || t.back().defined();
    }
    if (!active) continue;
    const SiteScope scope(n->site);
    if (purpose == Purpose::transposition && std::holds_alternative<CustomAttr>(n->attrs)) {
      tangents[n] = prim::custom_tangent(handle_of(*n), t);
      continue;
    }
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

// Called for an output that has no derivative by an input. Where it is computed from the input
// through integers or bools that became floats again, somebody took a value without a derivative
// for one that has it: throws GraphError naming the op at which the derivative was lost.
void check_not_lost(std::span<const Tensor> outputs, std::span<const Tensor> inputs) {
  std::unordered_set<const Node*> by;
  for (const Tensor& x : inputs) by.insert(&x.node());
  // Nodes computed from an input, and whether only through integers.
  struct Path {
    const Node* left = nullptr;  // the op whose result is no float any more
    bool returned = false;
  };
  std::unordered_map<const Node*, Path> from;
  for (const Node* n : topological(outputs, inputs)) {
    if (by.contains(n)) {
      from[n] = {};
      continue;
    }
    if (*n->op->name == "stop_gradient") continue;
    for (std::size_t i = 0; i < n->operands.size(); ++i) {
      const auto it = from.find(&n->operand(i).node());
      if (it == from.end()) continue;
      const bool custom = n->op->carries != nullptr && !n->op->carries(*n, i);
      if (custom) continue;
      Path path = it->second;
      const bool was_float = is_floating(n->operand(i).dtype());
      const bool is_float = is_floating(n->type.dtype);
      if (was_float && !is_float && !path.left) path.left = n;
      // An index, a condition or a mask carries no derivative by nature; a number does.
      const bool number = *n->op->name == "cast" || *n->op->name == "bitcast";
      if (!was_float && is_float) {
        if (!number && !path.returned) continue;
        path.returned = true;
      }
      const auto [at, inserted] = from.try_emplace(n, path);
      if (!inserted && path.returned) at->second = path;
    }
  }
  for (const Tensor& y : outputs) {
    const auto it = from.find(&y.node());
    if (it == from.end() || !it->second.returned || !it->second.left) continue;
    const Node& n = *it->second.left;
    const auto* none = std::get_if<NotDifferentiable>(&*n.op->jvp);
    throw GraphError(fmt::format("{}: has no derivative: {}. Put stop_gradient before it if none "
                                 "is wanted.",
                                 *n.op->name,
                                 none ? std::string(none->why)
                                      : fmt::format("its result is {}", name(n.type.dtype))),
                     n.site);
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
    throw DTypeError(fmt::format("{}: derivatives are by f32 and f16 tensors, not by {} {}.", what,
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
  push_forward(travelled(outputs, inputs), tangents, Purpose::transposition);
  for (const Tensor& y : outputs) l.tangents.push_back(value_of(tangents, y));
  return l;
}

}  // namespace

std::vector<Tensor> jvp_or_zeros(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                                 std::span<const Tensor> tangents) {
  check_counts("jvp", tangents.size(), inputs.size());
  Values values;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    check_float("jvp", inputs[i]);
    check_type("jvp", tangents[i], inputs[i]);
    values[&inputs[i].node()] = tangents[i];
  }
  push_forward(travelled(outputs, inputs), values, Purpose::value);
  std::vector<Tensor> out;
  for (const Tensor& y : outputs) out.push_back(value_of(values, y));
  return out;
}

std::vector<Tensor> jvp(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                        std::span<const Tensor> tangents) {
  std::vector<Tensor> out = jvp_or_zeros(outputs, inputs, tangents);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].defined()) continue;
    if (is_floating(outputs[i].dtype())) check_not_lost(outputs.subspan(i, 1), inputs);
    out[i] = prim::zeros_like(outputs[i]);
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

std::vector<Tensor> vjp_or_zeros(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
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
  for (const Tensor& p : l.placeholders) out.push_back(value_of(cts, p));
  return out;
}

std::vector<Tensor> vjp(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                        std::span<const Tensor> cotangents) {
  std::vector<Tensor> out = vjp_or_zeros(outputs, inputs, cotangents);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (out[i].defined()) continue;
    check_not_lost(outputs, inputs.subspan(i, 1));
    out[i] = prim::zeros_like(inputs[i]);
  }
  return out;
}

namespace detail {

Tensor variable(const Tensor& x) { return prim::identity(x, x.node().site); }

void check_scalar_loss(const char* transform, const Tensor& y, const Site& site) {
  if (y.rank() != 0 || !is_floating(y.dtype())) {
    throw ShapeError(
        fmt::format("{}: the function returns {}, not a scalar of f32 or f16; reduce it, "
                    "for example with mean.",
                    transform, to_string(y.node().type)),
        site);
  }
}

Tensor seed_of(const Tensor& y) { return prim::full(y.shape(), 1, y.dtype()); }

}  // namespace detail
}  // namespace tensorgrad
