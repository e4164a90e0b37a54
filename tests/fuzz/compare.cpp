#include "fuzz/compare.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "tensorgrad/error.h"

namespace tensorgrad::fuzz {
namespace {

using testing::Rng;
using Values = std::vector<RefArray>;

constexpr double epsilon = std::numeric_limits<float>::epsilon();

/// The relative distance of numbers of `dtype`.
double epsilon_of(DType dtype) { return dtype == DType::f16 ? 0x1p-10 : epsilon; }

RefArray from_bytes(const Type& type, std::span<const std::byte> bytes) {
  return interpret(prim::data(type, {bytes.begin(), bytes.end()}));
}

/// Every root that is compared: outputs, and states after the run.
std::vector<Tensor> compared(const Graph& graph) {
  std::vector<Tensor> out;
  for (const Named& o : graph.outputs) out.push_back(o.value);
  for (std::size_t i = 0; i < graph.states.size(); ++i) {
    out.push_back(graph.updates[i].defined() ? graph.updates[i] : graph.states[i]);
  }
  return out;
}

/// What rounding errors of an element are relative to: its value, for a sum the sum of the
/// absolute values of its terms, for attention the largest result.
std::vector<double> scale_of(const Node& node, const RefArray& value,
                             std::span<const RefArray* const> operands) {
  std::vector<double> scale = value.data;
  if (testing::sums(*node.op)) {
    std::vector<RefArray> positive;
    for (const RefArray* a : operands) {
      positive.push_back(*a);
      if (!is_floating(a->type.dtype)) continue;
      for (double& v : positive.back().data) v = std::fabs(v);
    }
    std::vector<const RefArray*> pointers;
    for (const RefArray& a : positive) pointers.push_back(&a);
    scale = (*node.op->reference)(node, pointers).data;
  }
  double largest = 0;
  for (double& v : scale) largest = std::max(largest, v = std::fabs(v));
  if (lowering_as<LowerAttention>(node)) {
    // Differences of weighted means: what cancels is not seen in the result.
    for (const RefArray* a : operands) {
      for (double v : a->data) largest = std::max(largest, std::fabs(v));
    }
    scale.assign(scale.size(), largest);
  }
  return scale;
}

/// Whether f32 sums and products of such values are exact in any order.
bool is_coarse(std::span<const RefArray* const> operands) {
  return std::all_of(operands.begin(), operands.end(), [](const RefArray* a) {
    return std::all_of(a->data.begin(), a->data.end(),
                       [](double v) { return std::fabs(v) <= 32 && v * 8 == std::trunc(v * 8); });
  });
}

/// Whether a node sums products with a softmax: of a numerator, through a few operations.
bool sums_softmax(const Node& node) {
  if (*node.op->name != "sum") return false;
  std::vector<const Node*> level{&node};
  for (int depth = 0; depth < 4; ++depth) {
    std::vector<const Node*> next;
    for (const Node* n : level) {
      for (const Tensor& o : n->operands) {
        if (*o.node().op->name == "exp") return true;
        if (lowering_as<LowerMap>(o.node())) next.push_back(&o.node());
      }
    }
    level = std::move(next);
  }
  return false;
}

/// A value without its denormals.
void flush(RefArray& value) {
  if (value.type.dtype != DType::f32) return;
  for (double& v : value.data) {
    if (std::fabs(v) < std::numeric_limits<float>::min()) v = std::copysign(0.0, v);
  }
}

/// The program in double with an error in every float that an op computes. With `flushes` no value
/// is a denormal.
Values perturbed(const Program& program, double size, bool flushes, Rng& rng) {
  const std::vector<Tensor> roots = compared(program.graph);
  const BindLeaf leaves = bind(program);
  std::unordered_map<const Node*, RefArray> values;
  double products = 0;  // the largest sum of absolute terms of a product so far
  for (const Node* n : topological(roots)) {
    if (std::holds_alternative<InputAttr>(n->attrs)) {
      RefArray& leaf = values.emplace(n, leaves(*n)).first->second;
      if (flushes) flush(leaf);
      continue;
    }
    std::vector<const RefArray*> operands;
    for (const Tensor& o : n->operands) operands.push_back(&values.at(&o.node()));
    RefArray value = (*n->op->reference)(*n, operands);
    if (is_floating(n->type.dtype)) {
      const bool moves = lowering_as<LowerView>(*n) || lowering_as<LowerIndirect>(*n) ||
                         lowering_as<LowerConcat>(*n) || lowering_as<LowerGenerate>(*n) ||
                         lowering_as<LowerLeaf>(*n);
      const double ulp = *n->op->ulp;
      // Simplification may take other roads to the same number, such as a product for a quotient.
      const bool exact = moves || ulp == 0 || (ulp <= 2 && is_coarse(operands));
      std::vector<double> scale;
      if (!exact) scale = scale_of(*n, value, operands);
      if (*n->op->name == "dot_general") {
        for (const double s : scale_of(*n, value, operands)) products = std::max(products, s);
      }
      // The gradients of attention take the sum of dO O for that of P dP: what cancels in the terms
      // of the first is not seen in the second.
      if (!exact && sums_softmax(*n)) {
        for (double& s : scale) s = std::max(s, products);
      }
      // An f16 that is used at once may not be rounded.
      const bool wide = n->type.dtype == DType::f16 && size > 0 && rng() % 2 == 0;
      const bool zero_signs = !moves && !lowering_as<LowerMap>(*n);
      for (std::size_t i = 0; i < value.data.size(); ++i) {
        double& v = value.data[i];
        if (!exact && std::isfinite(v) &&
            (ulp > 2 || v != static_cast<double>(static_cast<float>(v)) || testing::sums(*n->op))) {
          const double noise = size * ulp * epsilon * scale[i];
          v += noise * (2 * testing::unit(rng) - 1);
          // What cancels may cancel to nothing, which no drawn error hits.
          if (std::fabs(v) <= noise && rng() % 4 == 0) v = 0;
        }
        // The order of a sum decides the sign of a zero.
        if (zero_signs && v == 0) v = rng() % 2 == 0 ? 0.0 : -0.0;
        // Nothing decides that of a NaN, which a bitcast shows.
        if (!moves && std::isnan(v)) v = std::copysign(v, rng() % 2 == 0 ? 1.0 : -1.0);
        if (!moves) v = kernel::round_to(wide ? DType::f32 : n->type.dtype, v);
      }
    }
    if (flushes) flush(value);
    values.emplace(n, std::move(value));
  }
  Values out;
  for (const Tensor& t : roots) out.push_back(values.at(&t.node()));
  return out;
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

/// Compares with the reference and `runs` perturbed references, besides one that is only rounded.
std::optional<Difference> compare_values(const Program& program, const Values& actual, int runs,
                                         double size, bool flushes) {
  const std::vector<Tensor> roots = compared(program.graph);
  Values expected = interpret(roots, bind(program));
  std::vector<std::vector<std::size_t>> doubtful(roots.size());
  // First without the cost of knowing the tolerance.
  for (std::size_t r = 0; r < roots.size(); ++r) {
    const DType dtype = roots[r].dtype();
    if (actual[r].data.size() != expected[r].data.size() || actual[r].type.dtype != dtype ||
        actual[r].type.shape != roots[r].shape()) {
      return Difference{fmt::format("result {} is {} instead of {}", r, to_string(actual[r].type),
                                    to_string(roots[r].node().type))};
    }
    for (std::size_t i = 0; i < actual[r].data.size(); ++i) {
      const double e = kernel::round_to(dtype, expected[r].data[i]);
      const double a = actual[r].data[i];
      if (same(a, e)) continue;
      // A single rounding is never a fault.
      if (is_floating(dtype) && std::fabs(a - e) <= epsilon_of(dtype) * std::fabs(e)) continue;
      doubtful[r].push_back(i);
    }
  }
  if (std::all_of(doubtful.begin(), doubtful.end(), [](const auto& d) { return d.empty(); })) {
    return std::nullopt;
  }
  Rng rng(12345);
  // The first of them rounds as f32 does, which can be without an error where the double has one.
  std::vector<Values> others{perturbed(program, 0, false, rng)};
  for (int i = 0; i < runs; ++i) {
    others.push_back(perturbed(program, size, flushes && i % 2 == 0, rng));
  }
  for (std::size_t r = 0; r < roots.size(); ++r) {
    const DType dtype = roots[r].dtype();
    for (const std::size_t i : doubtful[r]) {
      const double e = expected[r].data[i];
      const double a = actual[r].data[i];
      bool defined = true;
      double spread = 0;
      for (const Values& other : others) {
        const double o = other[r].data[i];
        if (same(o, e)) continue;
        if (!is_floating(dtype) || !std::isfinite(o) || !std::isfinite(e)) {
          defined = false;
        } else {
          spread = std::max(spread, std::fabs(o - e));
        }
      }
      if (!defined) continue;
      // Below the normal numbers precision is lost, and some results are flushed to zero.
      const double tolerance = is_floating(dtype)
                                   ? 4 * spread + 4 * epsilon_of(dtype) * std::fabs(e) +
                                         (dtype == DType::f16 ? 0x1p-22 : 1e-36)
                                   : 0;
      if (std::isfinite(a) && std::isfinite(e) && std::fabs(a - e) <= tolerance) continue;
      return Difference{
          fmt::format("result {} ({}) has {} at element {} instead of {}, tolerance {}", r,
                      to_string(roots[r].node().type), a, i, e, tolerance)};
    }
  }
  return std::nullopt;
}

}  // namespace

PassOptions Compilation::passes() const {
  std::string list;
  for (const std::string& pass : off) list += (list.empty() ? "-" : ",-") + pass;
  return PassOptions(list);
}

Values run(const Program& program, const Compilation& how) {
  const Plan plan = make_plan(program.graph, how.target, how.passes());
  const auto executable = how.device->load(plan);
  std::unordered_map<std::string, std::vector<std::byte>> feeds;
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    feeds[program.graph.inputs[i].node().attr<InputAttr>().name] =
        testing::bytes_of(program.inputs[i]);
  }
  std::unordered_map<std::string, std::unique_ptr<DeviceBuffer>> memory;
  for (std::size_t i = 0; i < program.states.size(); ++i) {
    const RefArray& value = program.states[i];
    auto& buffer = memory[program.graph.states[i].node().attr<InputAttr>().name];
    buffer = how.device->allocate(value.type.dtype, static_cast<std::int64_t>(value.data.size()));
    buffer->write(0, testing::bytes_of(value));
  }
  std::vector<std::span<const std::byte>> inputs;
  std::vector<DeviceBuffer*> states;
  for (const PlanBuffer& b : plan.buffers) {
    if (b.kind == BufferKind::input) inputs.emplace_back(feeds.at(b.name));
    if (b.kind == BufferKind::state) states.push_back(memory.at(b.name).get());
  }
  const auto completion = executable->run(inputs, states);
  std::unordered_map<std::string, RefArray> by_name;
  std::size_t next = 0;
  for (const PlanBuffer& b : plan.buffers) {
    if (b.kind == BufferKind::output) {
      by_name[b.name] = from_bytes({b.shape, b.dtype}, completion->output(next++));
    }
  }
  Values out;
  for (const Named& o : program.graph.outputs) out.push_back(by_name.at(o.name));
  for (std::size_t i = 0; i < program.states.size(); ++i) {
    const auto& buffer = memory.at(program.graph.states[i].node().attr<InputAttr>().name);
    std::vector<std::byte> bytes(buffer->bytes());
    buffer->read(0, bytes);
    out.push_back(from_bytes(program.states[i].type, bytes));
  }
  return out;
}

std::optional<Difference> compare(const Program& program, const Compilation& how) {
  Values actual;
  try {
    actual = run(program, how);
  } catch (const std::exception& e) {
    return Difference{fmt::format("an exception: {}", e.what())};
  }
  auto difference = compare_values(program, actual, 4, 2, how.flushes);
  // What only some errors in many make is told from a fault by many trials.
  if (difference) difference = compare_values(program, actual, 100, 6, how.flushes);
  return difference;
}

}  // namespace tensorgrad::fuzz
