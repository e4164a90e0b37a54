// Values and derivatives of small graphs in double, by the reference interpreter.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/primitives.h"
#include "runtime/reference/interpreter.h"
#include "tensorgrad/module.h"
#include "tensorgrad/ops.h"
#include "tensorgrad/transforms.h"

namespace tensorgrad::testing {

using Doubles = std::vector<double>;

/// What leaves stand for while a graph is evaluated.
struct Leaves {
  std::map<std::string, Doubles> inputs = {};
  bool training = true;
};

/// The elements of a tensor; inputs are known by name, step keys are all (1, 2).
inline Doubles evaluate(const Tensor& t, const Leaves& leaves = {}) {
  return interpret(t,
                   [&](const Node& leaf) -> RefArray {
                     if (*leaf.op->name == "training_flag") {
                       return {leaf.type, {leaves.training ? 1.0 : 0.0}};
                     }
                     if (*leaf.op->name == "step_key") return {leaf.type, {1, 2}};
                     return {leaf.type, leaves.inputs.at(leaf.attr<InputAttr>().name)};
                   })
      .data;
}

inline Tensor input(const std::string& name, const Shape& shape, DType dtype = DType::f32) {
  return prim::input(InputRole::input, name, {shape, dtype});
}

/// Numbers in (-range, range) that follow no pattern, no two of them equal.
inline Doubles scattered(std::int64_t count, double range = 2, std::uint32_t seed = 1) {
  Doubles out;
  std::uint32_t state = 2654435761U * seed + 12345U;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    const std::uint32_t high = state >> 8;
    out.push_back(range * (2.0 * (high + 0.5) / 16777216.0 - 1));
  }
  return out;
}

/// A tensor of doubles that f32 holds.
inline Tensor literal(const Doubles& values, const Shape& shape) {
  const std::vector<float> floats(values.begin(), values.end());
  return array(std::span<const float>(floats), shape);
}
inline Tensor literal(const std::vector<std::int32_t>& values, const Shape& shape) {
  return array(std::span<const std::int32_t>(values), shape);
}

inline void expect_near(const Doubles& actual, const Doubles& expected, double tolerance = 1e-6) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(actual[i])) << "element " << i << " is " << actual[i];
    } else if (std::isinf(expected[i])) {
      EXPECT_EQ(actual[i], expected[i]) << "element " << i;
    } else {
      EXPECT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i])))
          << "element " << i;
    }
  }
}

/// Compares the gradients of a weighted sum of `y` by the named f32 inputs with central
/// differences. Returns the gradients, by name.
inline std::map<std::string, Doubles> check_gradients(const Tensor& y,
                                                      const std::vector<Tensor>& by,
                                                      Leaves leaves) {
  const Doubles weights = scattered(y.size(), 1, 77);
  const Tensor loss = sum(y * literal(weights, y.shape()));
  const Tensor seed = full({}, 1);
  const std::vector<Tensor> gradients = vjp(std::span(&loss, 1), by, std::span(&seed, 1));
  std::map<std::string, Doubles> out;
  for (std::size_t i = 0; i < by.size(); ++i) {
    const std::string& name = by[i].node().attr<InputAttr>().name;
    EXPECT_EQ(gradients[i].shape(), by[i].shape()) << name;
    const Doubles gradient = evaluate(gradients[i], leaves);
    Doubles& x = leaves.inputs.at(name);
    for (std::size_t j = 0; j < x.size(); ++j) {
      constexpr double h = 1e-5;
      const double centre = x[j];
      x[j] = centre + h;
      const double above = evaluate(loss, leaves)[0];
      x[j] = centre - h;
      const double below = evaluate(loss, leaves)[0];
      x[j] = centre;
      const double expected = (above - below) / (2 * h);
      EXPECT_NEAR(gradient[j], expected, 1e-7 * (1 + std::abs(expected)))
          << "by element " << j << " of " << name;
    }
    out[name] = gradient;
  }
  return out;
}

/// Checks the gradients of f(x) for x of this shape.
template <class F>
void check_function(F f, const Shape& shape, double range = 2) {
  const Tensor x = input("x", shape);
  check_gradients(f(x), {x}, {.inputs = {{"x", scattered(numel(shape), range)}}});
}

/// Binds every parameter of a model to an input of its name. Values for them are added to `leaves`.
template <class M>
std::vector<Tensor> bind_inputs(M& model, Leaves& leaves) {
  std::vector<Tensor> out;
  visit_params(model, [&](const std::string& name, Param& p) {
    p.bind(input(name, p.shape), name);
    leaves.inputs[name] = scattered(numel(p.shape), 1, hash32(name));
    out.push_back(p.bound);
  });
  return out;
}

/// The message of the E that f throws, without the line that says where; that line must name the
/// file of the caller.
template <class E, class F>
std::string message_of(F f, Site site = Site::current()) {
  try {
    f();
  } catch (const E& error) {
    const std::string text = error.what();
    const std::size_t end = text.rfind("\n  at ");
    EXPECT_NE(end, std::string::npos) << text;
    EXPECT_NE(text.find(std::string("\n  at ") + site.file_name() + ":"), std::string::npos)
        << text;
    return text.substr(0, end);
  }
  return "nothing was thrown";
}

}  // namespace tensorgrad::testing
