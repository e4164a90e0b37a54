#include "fuzz/minimise.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "tensorgrad/error.h"

namespace tensorgrad::fuzz {
namespace {

using NodeMap = std::unordered_map<const Node*, Tensor>;

/// The program with some nodes replaced; inputs that nothing needs any more are dropped. A type
/// error of the replacement is thrown.
Program rebuilt(const Program& from, NodeMap map, Program to = {}) {
  for (const Node* n : topological(from.graph.roots())) {
    if (map.contains(n)) continue;
    std::vector<Tensor> operands;
    for (const Tensor& o : n->operands) operands.push_back(map.at(&o.node()));
    map[n] = n->operands.empty() ? handle_of(*n) : remake(*n, std::move(operands));
  }
  for (const Named& o : from.graph.outputs)
    to.graph.outputs.push_back({o.name, map.at(&o.value.node())});
  for (std::size_t i = 0; i < from.graph.states.size(); ++i) {
    to.graph.states.push_back(from.graph.states[i]);
    to.states.push_back(from.states[i]);
    const Tensor& update = from.graph.updates[i];
    to.graph.updates.push_back(update.defined() ? map.at(&update.node()) : Tensor());
  }
  for (std::size_t i = 0; i < from.inputs.size(); ++i) {
    to.graph.inputs.push_back(from.graph.inputs[i]);
    to.inputs.push_back(from.inputs[i]);
  }
  std::set<const Node*> needed;
  for (const Node* n : to.graph.order()) needed.insert(n);
  for (std::size_t i = to.inputs.size(); i-- > 0;) {
    if (needed.contains(&to.graph.inputs[i].node())) continue;
    to.graph.inputs.erase(to.graph.inputs.begin() + static_cast<std::ptrdiff_t>(i));
    to.inputs.erase(to.inputs.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return to;
}

class Minimiser {
 public:
  Minimiser(Program& program, Compilation& how, const Fails& fails)
      : program_(program), how_(how), fails_(fails) {}

  void run() {
    constexpr int most_rounds = 8;
    for (int round = 0; round < most_rounds; ++round) {
      changed_ = false;
      drop_passes();
      drop_outputs();
      drop_states();
      cut_nodes();
      bypass_nodes();
      shrink_extents();
      simplify_values();
      if (!changed_) return;
    }
  }

 private:
  bool take(const std::function<Program()>& make) {
    try {
      Program smaller = make();
      if (!fails_(smaller, how_)) return false;
      program_ = std::move(smaller);
      return changed_ = true;
    } catch (const Error&) {
      return false;  // the pieces do not fit together
    }
  }

  void drop_passes() {
    for (std::size_t i = how_.off.size(); i-- > 0;) {
      Compilation fewer = how_;
      fewer.off.erase(fewer.off.begin() + static_cast<std::ptrdiff_t>(i));
      if (fails_(program_, fewer)) {
        how_ = fewer;
        changed_ = true;
      }
    }
  }
  void drop_outputs() {
    for (std::size_t i = program_.graph.outputs.size(); i-- > 0;) {
      if (program_.graph.outputs.size() + program_.states.size() < 2) return;
      take([&] {
        Program p = program_;
        p.graph.outputs.erase(p.graph.outputs.begin() + static_cast<std::ptrdiff_t>(i));
        return rebuilt(p, {});
      });
    }
  }
  /// A state that is an input after all.
  void drop_states() {
    for (std::size_t i = program_.states.size(); i-- > 0;) {
      if (program_.graph.outputs.empty()) return;
      take([&] {
        Program p = program_;
        const Tensor old = p.graph.states[i];
        const Tensor fresh =
            prim::input(InputRole::input, fmt::format("was_{}", old.node().attr<InputAttr>().name),
                        old.node().type);
        p.graph.inputs.push_back(fresh);
        p.inputs.push_back(p.states[i]);
        p.graph.states.erase(p.graph.states.begin() + static_cast<std::ptrdiff_t>(i));
        p.graph.updates.erase(p.graph.updates.begin() + static_cast<std::ptrdiff_t>(i));
        p.states.erase(p.states.begin() + static_cast<std::ptrdiff_t>(i));
        return rebuilt(p, {{&old.node(), fresh}});
      });
    }
  }
  std::vector<const Node*> inner_nodes() const {
    std::vector<const Node*> nodes;
    for (const Node* n : program_.graph.order()) {
      if (!std::holds_alternative<InputAttr>(n->attrs)) nodes.push_back(n);
    }
    std::reverse(nodes.begin(), nodes.end());
    return nodes;
  }
  /// Feeds what a node computes.
  void cut_nodes() {
    for (bool again = true; again;) {
      again = false;
      for (const Node* n : inner_nodes()) {
        if (n->operands.empty()) continue;
        again = take([&] {
          const Tensor t = handle_of(*n);
          const Tensor in = prim::input(InputRole::input, fmt::format("c{}", next_++), n->type);
          Program p = program_;
          p.inputs.push_back(interpret(t, bind(program_), RefRounding::results));
          p.graph.inputs.push_back(in);
          return rebuilt(p, {{n, in}});
        });
        if (again) break;
      }
    }
  }
  /// Puts an operand in the place of a node.
  void bypass_nodes() {
    for (bool again = true; again;) {
      again = false;
      for (const Node* n : inner_nodes()) {
        for (const Tensor& o : n->operands) {
          if (!(o.node().type == n->type)) continue;
          again = take([&] { return rebuilt(program_, {{n, o}}); });
          if (again) break;
        }
        if (again) break;
      }
    }
  }

  static void replace(Shape& shape, std::int64_t from, std::int64_t to) {
    for (std::int64_t& e : shape) {
      if (e == from) e = to;
    }
  }
  /// An extent that is smaller everywhere.
  Program with_extent(std::int64_t from, std::int64_t to) const {
    Program p;
    NodeMap map;
    for (const Node* n : program_.graph.order()) {
      if (const auto* in = std::get_if<InputAttr>(&n->attrs)) {
        Type type = n->type;
        replace(type.shape, from, to);
        map[n] = prim::input(in->role, in->name, type);
        continue;
      }
      if (std::holds_alternative<DataAttr>(n->attrs)) {
        map[n] = handle_of(*n);
        continue;
      }
      Attrs attrs = n->attrs;
      if (auto* s = std::get_if<ShapeAttr>(&attrs)) replace(s->shape, from, to);
      if (auto* s = std::get_if<SliceAttr>(&attrs)) replace(s->limit, from, to);
      if (auto* s = std::get_if<AxisAttr>(&attrs); s && s->size == from) s->size = to;
      if (auto* s = std::get_if<ConvAttr>(&attrs)) {
        replace(s->input_size, from, to);
        replace(s->kernel_size, from, to);
      }
      std::vector<Tensor> operands;
      for (const Tensor& o : n->operands) operands.push_back(map.at(&o.node()));
      map[n] = make(*n->op, std::move(operands), std::move(attrs), n->site);
    }
    const auto copy = [&](const std::vector<Tensor>& leaves, const std::vector<RefArray>& values,
                          std::vector<Tensor>& new_leaves, std::vector<RefArray>& new_values) {
      for (std::size_t i = 0; i < leaves.size(); ++i) {
        if (!map.contains(&leaves[i].node())) throw GraphError("unused");
        const Tensor t = map.at(&leaves[i].node());
        RefArray v{t.node().type, values[i].data};
        v.data.resize(static_cast<std::size_t>(t.size()), 0.0);
        new_leaves.push_back(t);
        new_values.push_back(std::move(v));
      }
    };
    copy(program_.graph.inputs, program_.inputs, p.graph.inputs, p.inputs);
    copy(program_.graph.states, program_.states, p.graph.states, p.states);
    for (const Named& o : program_.graph.outputs)
      p.graph.outputs.push_back({o.name, map.at(&o.value.node())});
    for (const Tensor& u : program_.graph.updates) {
      p.graph.updates.push_back(u.defined() ? map.at(&u.node()) : Tensor());
    }
    return p;
  }
  void shrink_extents() {
    std::set<std::int64_t, std::greater<>> extents;
    for (const Node* n : program_.graph.order()) {
      extents.insert(n->type.shape.begin(), n->type.shape.end());
    }
    for (const std::int64_t extent : extents) {
      for (const std::int64_t to : {std::int64_t{1}, std::int64_t{2}, extent / 2, extent - 1}) {
        if (to < 1 || to >= extent) continue;
        if (take([&] { return with_extent(extent, to); })) break;
      }
    }
  }
  void simplify_values() {
    for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
      const auto with = [&](auto f) {
        bool same = true;
        Program p = program_;
        for (std::size_t k = 0; k < p.inputs[i].data.size(); ++k) {
          double& v = p.inputs[i].data[k];
          const double to = kernel::round_to(p.inputs[i].type.dtype, f(v, k));
          same = same && (to == v || (std::isnan(to) && std::isnan(v)));
          v = to;
        }
        return !same && take([&] { return p; });
      };
      if (with([](double, std::size_t) { return 0.0; })) continue;
      if (with([](double, std::size_t) { return 1.0; })) continue;
      if (with([](double, std::size_t k) { return static_cast<double>(k % 2 + 1); })) continue;
      with([](double v, std::size_t) { return std::round(v); });
    }
  }

  Program& program_;
  Compilation& how_;
  const Fails& fails_;
  bool changed_ = false;
  int next_ = 0;
};

// ---- C++ -----------------------------------------------------------------------------------------

std::string literal(double v) {
  if (std::isnan(v)) return "NAN";
  if (std::isinf(v)) return v > 0 ? "INFINITY" : "-INFINITY";
  return fmt::format("{}", v);
}
std::string literal(bool v) { return v ? "true" : "false"; }
std::string literal(std::int64_t v) { return fmt::format("{}", v); }
std::string literal(int v) { return fmt::format("{}", v); }
std::string literal(DType d) {
  return fmt::format("DType::{}", d == DType::bool_ ? "bool_" : std::string(name(d)));
}
std::string literal(const std::string& s) { return fmt::format("\"{}\"", s); }
template <class T>
std::string literal(const std::vector<T>& v) {
  std::vector<std::string> parts;
  for (const T& x : v) parts.push_back(literal(x));
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}
template <class T>
std::string literal(const T&) {
  return "/* see the graph */";
}

std::string type_name(std::size_t index) {
  static constexpr const char* names[] = {
      "std::monostate", "AxesAttr",     "ShapeAttr",  "SliceAttr",  "PadAttr",
      "AxisAttr",       "GatherAttr",   "ScanAttr",   "SortAttr",   "DotAttr",
      "ConvAttr",       "ConstantAttr", "DTypeAttr",  "DataAttr",   "InputAttr",
      "NameAttr",       "IndexAttr",    "CustomAttr", "BufferAttr", "AttentionAttr"};
  static_assert(std::size(names) == std::variant_size_v<Attrs>);
  return names[index];
}

std::string cpp(const Attrs& attrs) {
  std::vector<std::string> parts;
  std::visit(
      [&](const auto& a) {
        if constexpr (requires { a.tie(); }) {
          std::apply([&](const auto&... field) { (parts.push_back(literal(field)), ...); },
                     a.tie());
        }
      },
      attrs);
  return fmt::format("{}{{{}}}", type_name(attrs.index()), fmt::join(parts, ", "));
}

std::string cpp(const Type& type) {
  return fmt::format("{{{}, {}}}", literal(type.shape), literal(type.dtype));
}

}  // namespace

void minimise(Program& program, Compilation& how, const Fails& fails) {
  Minimiser(program, how, fails).run();
}

std::string to_text(const Program& program, const Compilation& how) {
  std::string text = to_string(program.graph);
  if (!how.off.empty()) text += fmt::format("// passes: -{}\n", fmt::join(how.off, ",-"));
  if (how.target.max_buffers < 1000)
    text += fmt::format("// max_buffers {}\n", how.target.max_buffers);
  std::unordered_map<const Node*, std::string> names;
  const auto declare = [&](const std::vector<Tensor>& leaves, const std::vector<RefArray>& values) {
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      const auto& in = leaves[i].node().attr<InputAttr>();
      names[&leaves[i].node()] = in.name;
      text += fmt::format("const Tensor {} = prim::input(InputRole::{}, \"{}\", {});  // {}\n",
                          in.name, in.role == InputRole::state ? "state" : "input", in.name,
                          cpp(leaves[i].node().type), literal(values[i].data));
    }
  };
  declare(program.graph.inputs, program.inputs);
  declare(program.graph.states, program.states);
  int next = 0;
  for (const Node* n : program.graph.order()) {
    if (std::holds_alternative<InputAttr>(n->attrs)) continue;
    const std::string& name = names[n] = fmt::format("t{}", next++);
    if (std::holds_alternative<DataAttr>(n->attrs)) {
      text += fmt::format("const Tensor {} = tensor_of({{{}, {}}});\n", name, cpp(n->type),
                          literal(interpret(handle_of(*n)).data));
      continue;
    }
    std::vector<std::string> operands;
    for (const Tensor& o : n->operands) operands.push_back(names.at(&o.node()));
    text += fmt::format("const Tensor {} = make(find_op(\"{}\"), {{{}}}, {}, Site::current());\n",
                        name, *n->op->name, fmt::join(operands, ", "), cpp(n->attrs));
  }
  for (const Named& o : program.graph.outputs) {
    text += fmt::format("graph.outputs.push_back({{\"{}\", {}}});\n", o.name,
                        names.at(&o.value.node()));
  }
  for (std::size_t i = 0; i < program.graph.states.size(); ++i) {
    const Tensor& u = program.graph.updates[i];
    text += fmt::format("graph.updates.push_back({});\n",
                        u.defined() ? names.at(&u.node()) : "Tensor()");
  }
  return text;
}

}  // namespace tensorgrad::fuzz
