#include "graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "graph/site.h"
#include "ops/registry.h"

namespace tensorgrad {
namespace {

using Numbers = std::unordered_map<const Node*, std::size_t>;

Numbers number(const std::vector<const Node*>& order) {
  Numbers numbers;
  for (std::size_t i = 0; i < order.size(); ++i) numbers[order[i]] = i;
  return numbers;
}

}  // namespace

std::vector<Tensor> Graph::roots() const {
  std::vector<Tensor> all;
  for (const Named& o : outputs) all.push_back(o.value);
  for (const Tensor& u : updates) {
    if (u.defined()) all.push_back(u);
  }
  return all;
}

std::vector<const Node*> Graph::order() const { return topological(roots()); }

void verify(const Graph& graph) {
  std::unordered_set<const Node*> known;
  for (const Tensor& t : graph.inputs) known.insert(&t.node());
  for (const Tensor& t : graph.states) known.insert(&t.node());
  if (graph.updates.size() > graph.states.size()) {
    throw GraphError("A graph has more updates than states.");
  }
  for (std::size_t i = 0; i < graph.updates.size(); ++i) {
    const Tensor& u = graph.updates[i];
    if (u.defined() && !(u.node().type == graph.states[i].node().type)) {
      throw GraphError(fmt::format("The update of state {} has type {}, the state {}.",
                                   display_name(graph.states[i]), to_string(u.node().type),
                                   to_string(graph.states[i].node().type)));
    }
  }
  for (const Node* n : graph.order()) {
    if (n->operands.empty()) {
      if (lowering_as<LowerLeaf>(*n) && !std::holds_alternative<DataAttr>(n->attrs) &&
          !known.contains(n)) {
        throw GraphError(fmt::format("{} {} is used but is not bound in this program.",
                                     *n->op->name, to_string(n->attrs)),
                         n->site);
      }
    } else if (!((*n->op->infer)(*n->op, n->operands, n->attrs, n->site) == n->type)) {
      throw GraphError(fmt::format("{} has type {}, which is not what its operands give.",
                                   *n->op->name, to_string(n->type)),
                       n->site);
    }
  }
}

std::string to_string(const Graph& graph) {
  const auto order = graph.order();
  const Numbers numbers = number(order);
  std::string text;
  for (const Node* n : order) {
    std::string args;
    for (const Tensor& o : n->operands) {
      args += fmt::format("{}%{}", args.empty() ? "" : ", ", numbers.at(&o.node()));
    }
    const std::string attrs = to_string(n->attrs);
    if (!attrs.empty()) args += (args.empty() ? "" : ", ") + attrs;
    text += fmt::format("%{} = {}({}) {}", numbers.at(n), *n->op->name, args, to_string(n->type));
    if (n->site.line() != 0) {
      text += "  # " + short_text(n->site);
    }
    text += '\n';
  }
  for (const Named& o : graph.outputs) {
    text += fmt::format("output {} = %{}\n", o.name, numbers.at(&o.value.node()));
  }
  for (std::size_t i = 0; i < graph.updates.size(); ++i) {
    if (!graph.updates[i].defined()) continue;
    text += fmt::format("update {} = %{}\n", display_name(graph.states[i]),
                        numbers.at(&graph.updates[i].node()));
  }
  return text;
}

std::size_t structural_hash(const Graph& graph) {
  const auto order = graph.order();
  const Numbers numbers = number(order);
  std::size_t seed = order.size();
  const auto mix = [&seed](std::size_t v) {
    seed ^= v + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2);
  };
  for (const Node* n : order) {
    mix(std::hash<const Op*>{}(n->op));
    mix(hash(n->attrs));
    mix(static_cast<std::size_t>(n->type.dtype));
    for (std::int64_t d : n->type.shape) mix(static_cast<std::size_t>(d));
    for (const Tensor& o : n->operands) mix(numbers.at(&o.node()));
  }
  for (const Named& o : graph.outputs) mix(numbers.at(&o.value.node()));
  return seed;
}

bool same_structure(const Graph& a, const Graph& b) {
  const auto x = a.order();
  const auto y = b.order();
  if (x.size() != y.size() || a.outputs.size() != b.outputs.size() ||
      a.updates.size() != b.updates.size()) {
    return false;
  }
  const Numbers nx = number(x);
  const Numbers ny = number(y);
  const auto same = [&](const Tensor& s, const Tensor& t) {
    if (s.defined() != t.defined()) return false;
    return !s.defined() || nx.at(&s.node()) == ny.at(&t.node());
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i]->op != y[i]->op || !(x[i]->attrs == y[i]->attrs) || !(x[i]->type == y[i]->type) ||
        !std::equal(x[i]->operands.begin(), x[i]->operands.end(), y[i]->operands.begin(),
                    y[i]->operands.end(), same)) {
      return false;
    }
  }
  for (std::size_t i = 0; i < a.outputs.size(); ++i) {
    if (a.outputs[i].name != b.outputs[i].name || !same(a.outputs[i].value, b.outputs[i].value)) {
      return false;
    }
  }
  return std::equal(a.updates.begin(), a.updates.end(), b.updates.begin(), b.updates.end(), same);
}

}  // namespace tensorgrad
