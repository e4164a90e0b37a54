// Every op on every usable device, against the reference in double: all samples of the registry, on
// ordinary operands and on special values.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <ostream>
#include <unordered_map>

#include "ops/sampling.h"
#include "runtime/device.h"
#include "schedule/schedule.h"

namespace tensorgrad::testing {
namespace {

/// The samples of one op as one program, so that its kernels compile together.
class SampleProgram {
 public:
  SampleProgram(const std::string& device, const Op& op, const std::vector<Sample>& samples) {
    for (std::size_t s = 0; s < samples.size(); ++s) {
      std::vector<Tensor> operands;
      for (std::size_t i = 0; i < samples[s].operands.size(); ++i) {
        const std::string name = input_name(s, i);
        operands.push_back(prim::input(InputRole::input, name, samples[s].operands[i]));
        graph_.inputs.push_back(operands.back());
      }
      graph_.outputs.push_back({fmt::format("y{}", s), apply(op, samples[s], operands)});
    }
    device_ = open_device(device);
    plan_ = make_plan(graph_, device_->target());
    executable_ = device_->load(plan_);
  }

  /// The results for `operands[sample][operand]`, as the device computes them.
  std::vector<RefArray> run(const std::vector<std::vector<RefArray>>& operands) {
    std::unordered_map<std::string, std::vector<std::byte>> bytes;
    for (std::size_t s = 0; s < operands.size(); ++s) {
      for (std::size_t i = 0; i < operands[s].size(); ++i) {
        bytes[input_name(s, i)] = bytes_of(operands[s][i]);
      }
    }
    std::vector<std::span<const std::byte>> inputs;
    for (const PlanBuffer& b : plan_.buffers) {
      if (b.kind == BufferKind::input) inputs.emplace_back(bytes.at(b.name));
    }
    const std::unique_ptr<Completion> completion = executable_->run(inputs, {});
    std::unordered_map<std::string, RefArray> by_name;
    std::size_t next = 0;
    for (const PlanBuffer& b : plan_.buffers) {
      if (b.kind != BufferKind::output) continue;
      const auto out = completion->output(next++);
      const Tensor t = prim::data({b.shape, b.dtype}, {out.begin(), out.end()});
      by_name[b.name] = interpret(t);
    }
    std::vector<RefArray> results;
    for (const Named& output : graph_.outputs) results.push_back(by_name.at(output.name));
    return results;
  }

  const Node& node(std::size_t sample) const { return graph_.outputs[sample].value.node(); }

 private:
  static std::string input_name(std::size_t sample, std::size_t operand) {
    return fmt::format("x{}.{}", sample, operand);
  }
  Graph graph_;
  Plan plan_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<Executable> executable_;
};

RefArray run_reference(const Node& node, std::span<const RefArray> operands) {
  std::vector<const RefArray*> pointers;
  for (const RefArray& a : operands) pointers.push_back(&a);
  return (*node.op->reference)(node, pointers);
}

/// What rounding errors of an element are relative to: its value, or for a sum the sum of the
/// absolute values of its terms, for attention the largest result.
RefArray scale_of(const Node& node, const RefArray& expected, std::vector<RefArray> operands) {
  RefArray scale = expected;
  if (sums(*node.op)) {
    for (RefArray& a : operands) {
      // Indices keep their signs; those of floats do not matter to which terms are summed.
      if (!is_floating(a.type.dtype)) continue;
      for (double& v : a.data) v = std::fabs(v);
    }
    scale = run_reference(node, operands);
  }
  for (double& v : scale.data) v = std::fabs(v);
  if (lowering_as<LowerAttention>(node) && !scale.data.empty()) {
    // Differences of sums of weights: errors are relative to the largest.
    scale.data.assign(scale.data.size(), *std::max_element(scale.data.begin(), scale.data.end()));
  }
  return scale;
}

/// The terms of each element of a sum that are not zero.
RefArray terms_of(const Node& node, std::vector<RefArray> operands) {
  for (RefArray& a : operands) {
    if (!is_floating(a.type.dtype)) continue;
    for (double& v : a.data) v = v == 0 ? 0 : 1;
  }
  return run_reference(node, operands);
}

void expect_agreement(const Node& node, const RefArray& actual,
                      const std::vector<RefArray>& operands, bool flushes) {
  const RefArray expected = run_reference(node, operands);
  ASSERT_EQ(to_string(actual.type), to_string(expected.type));
  ASSERT_EQ(actual.data.size(), expected.data.size());
  const RefArray scale = scale_of(node, expected, operands);
  const RefArray terms =
      flushes && sums(*node.op) ? terms_of(node, operands) : RefArray{expected.type, {}};
  const double ulp = *node.op->ulp;
  for (std::size_t i = 0; i < actual.data.size(); ++i) {
    const double e = kernel::round_to(node.type.dtype, expected.data[i]);
    const double a = actual.data[i];
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    if (flushes && a == 0 && std::fabs(e) < std::numeric_limits<float>::min()) continue;
    double tolerance = 0;
    if (is_floating(node.type.dtype) && ulp > 0) {
      using Limits = std::numeric_limits<float>;
      // Results below the smallest normal number may be flushed to 0, and so may what comes of each
      // term of a sum.
      constexpr double most_terms = 64;
      const double flushed = terms.data.empty() ? 1 : std::clamp(terms.data[i], 1.0, most_terms);
      tolerance = ulp * Limits::epsilon() * scale.data[i] + flushed * Limits::min();
      // Computed in f32, then rounded: what lies between two numbers of f16 may become either.
      if (node.type.dtype == DType::f16) tolerance += 0x1p-10 * std::fabs(e) + 0x1p-24;
    }
    std::string at;
    for (const RefArray& x : operands) {
      if (x.data.size() == actual.data.size()) at += fmt::format(" {}", x.data[i]);
    }
    ASSERT_TRUE(std::isfinite(a) && std::isfinite(e) && std::fabs(a - e) <= tolerance)
        << "element " << i << " is " << a << " instead of " << e << ", operands there:" << at;
  }
}

/// Whether the device may take subnormal numbers for zeros, as WGSL allows.
bool may_flush(const std::string& device) { return device == "webgpu"; }

/// Zeros in place of subnormal operands.
void flush_subnormals(std::vector<RefArray>& operands) {
  for (RefArray& a : operands) {
    if (!is_floating(a.type.dtype)) continue;
    for (double& v : a.data) {
      if (std::fabs(v) < std::numeric_limits<float>::min()) v = std::copysign(0.0, v);
    }
  }
}

/// Runs all samples of `op` on the device of that name and compares with the reference.
void compare_with_reference(const std::string& device, const Op& op) {
  const std::vector<Sample> samples = (*op.samples)();
  SampleProgram program(device, op, samples);
  for (const bool special : {false, true}) {
    std::vector<std::vector<RefArray>> operands;
    for (std::size_t s = 0; s < samples.size(); ++s) {
      Rng rng = rng_for(op, s, special ? 7 : 6);
      operands.push_back(draw_operands(samples[s], rng));
      if (special && samples[s].special_values) sprinkle_special(op, operands.back(), rng);
      if (may_flush(device)) flush_subnormals(operands.back());
    }
    const std::vector<RefArray> results = program.run(operands);
    for (std::size_t s = 0; s < samples.size(); ++s) {
      SCOPED_TRACE(describe(op, samples[s]) + (special ? " on special values" : ""));
      expect_agreement(program.node(s), results[s], operands[s], may_flush(device));
    }
  }
}

struct Case {
  std::string device, op;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.op << " on " << c.device; }
};

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const Backend& backend : backends()) {
    if (!backend.unavailable().empty()) continue;
    for (const Op* op : registry()) {
      if (!(*op->samples)().empty()) out.push_back({backend.name, std::string(*op->name)});
    }
  }
  return out;
}

class BackendTest : public ::testing::TestWithParam<Case> {};

TEST_P(BackendTest, AgreesWithTheReference) {
  compare_with_reference(GetParam().device, find_op(GetParam().op));
}

INSTANTIATE_TEST_SUITE_P(Ops, BackendTest, ::testing::ValuesIn(cases()),
                         [](const auto& name) { return name.param.device + "_" + name.param.op; });

}  // namespace
}  // namespace tensorgrad::testing
