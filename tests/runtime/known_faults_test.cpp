// Faults that GPU tensor libraries are known for, each on every usable device against the
// reference.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/device.h"
#include "tensorgrad/tensorgrad.h"
#include "train/evaluate.h"

namespace tensorgrad {
namespace {

using Floats = std::vector<float>;

Floats floats(const std::vector<std::byte>& bytes) {
  Floats out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

class KnownFaults : public ::testing::TestWithParam<std::string> {
 protected:
  /// Compares with the reference: elements differ by at most `tolerance` times `scale`.
  static void expect_agreement(const std::vector<Tensor>& tensors, double tolerance,
                               double scale = 1) {
    const auto actual = evaluate(tensors, open_engine(GetParam()).get());
    const auto expected = evaluate(tensors, open_engine("reference").get());
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const Floats a = floats(actual[t]);
      const Floats e = floats(expected[t]);
      ASSERT_EQ(a.size(), e.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        if (std::isnan(a[i]) && std::isnan(e[i])) continue;
        if (a[i] == e[i]) continue;
        ASSERT_NEAR(a[i], e[i], tolerance * scale) << "tensor " << t << ", element " << i;
      }
    }
  }
  static Tensor normal(std::uint64_t seed, const Shape& shape) {
    return random::normal(random::key(seed), shape);
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(KnownFaults);

std::vector<std::string> devices() {
  std::vector<std::string> names;
  for (const Backend& backend : backends()) {
    if (backend.unavailable().empty()) names.push_back(backend.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, KnownFaults, ::testing::ValuesIn(devices()),
                         [](const auto& test) { return test.param; });

TEST_P(KnownFaults, TwentyInputsOfOneExpression) {
  std::vector<Floats> values;
  Tensor sum = full({33}, 0.5);
  for (std::size_t i = 0; i < 20; ++i) {
    Floats v(33);
    for (std::size_t k = 0; k < v.size(); ++k) {
      v[k] = 0.01F * static_cast<float>((k * 7 + i * 13) % 50);
    }
    sum = sum * 0.9 + array(v, {33}) * tanh(array(v, {33}));
  }
  expect_agreement({sum}, 1e-5);
}

TEST_P(KnownFaults, SpecialValuesThroughReductions) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float inf = std::numeric_limits<float>::infinity();
  const Floats v{1, nan, 2, 3, inf, 4, -inf, 5, 6, -inf, inf, 7, 1, 2, 3, 4, -0.0F, 0, 0, -0.0F};
  const Tensor x = array(v, {5, 4});
  expect_agreement({sum(x, 1), max(x, 1), min(x, 1), mean(x, 1), prod(x, 1), max(x), sum(x, 0),
                    logsumexp(x, 1), softmax(x), maximum(x, flip(x, {1})), minimum(x, flip(x, {1})),
                    where(x < flip(x, {1}), x, 2 * x), relu(x), clamp(x, -1, 1)},
                   1e-6);
}

TEST_P(KnownFaults, BatchedProductWithABatchOfOneByEight) {
  const Tensor a = normal(1, {1, 8, 512, 512});
  const Tensor b = normal(2, {1, 8, 512, 32});
  expect_agreement({matmul(a, b)}, 1e-5, 100);
}

TEST_P(KnownFaults, ProductsOfOddSizes) {
  // Each of M, N and K over sizes beside those of tiles, the other two fixed or the same.
  const std::int64_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33, 127, 128, 129};
  std::vector<Tensor> products;
  for (const std::int64_t s : sizes) {
    products.push_back(matmul(normal(3, {s, 17}), normal(4, {17, 33})));
    products.push_back(matmul(normal(5, {33, s}), normal(6, {s, 5})));
    products.push_back(matmul(normal(7, {9, 31}), normal(8, {31, s})));
    products.push_back(matmul(normal(9, {s, s}), transpose(normal(10, {s, s}))));
  }
  expect_agreement(products, 1e-5, 50);
}

TEST_P(KnownFaults, AHelperTwiceInOneKernel) {
  const Tensor x = abs(normal(11, {100})) + 0.1;
  expect_agreement({erf(x) + erf(2 * x) * pow(x, 1.5) + pow(x, 0.5) + erfc(x) * erfc(x / 3)}, 1e-5,
                   10);
}

struct Deep {
  std::vector<nn::Linear> layers;
  TENSORGRAD_FIELDS(layers)
  Tensor operator()(Tensor x) const {
    for (const nn::Linear& l : layers) x = tanh(l(x));
    return x;
  }
};

template <class Make>
std::vector<ParamValue> train(const Make& make, int steps) {
  auto training = make();
  for (int i = 0; i < steps; ++i) {
    Floats x(8 * 16);
    for (std::size_t k = 0; k < x.size(); ++k) {
      x[k] = std::sin(static_cast<float>(k + 100 * static_cast<std::size_t>(i)));
    }
    training.step({{"x", x}});
  }
  return training.params();
}

TEST_P(KnownFaults, AnMlpOfFortyLayersUnderAdam) {
  const auto make = [](const std::string& device) {
    Deep model;
    for (int i = 0; i < 40; ++i) model.layers.emplace_back(16, 16);
    return compile(std::move(model),
                   [](const Deep& m, const Inputs& in) { return mean(square(m(in["x"]) - 0.5)); },
                   {.inputs = {{"x", {8, 16}}}, .optimizer = Adam{.lr = 1e-3}, .device = device});
  };
  const auto actual = train([&] { return make(GetParam()); }, 2);
  const auto expected = train([&] { return make("reference"); }, 2);
  for (std::size_t p = 0; p < actual.size(); ++p) {
    for (std::size_t i = 0; i < actual[p].values.size(); ++i) {
      // A step of Adam moves by the learning rate in the gradient's direction, whatever its size.
      ASSERT_NEAR(actual[p].values[i], expected[p].values[i], 2e-4) << actual[p].name;
    }
  }
}

TEST_P(KnownFaults, TwoBackwardPassesWithAndWithoutThePlannerOfMemory) {
  const auto gradients = [] {
    const Tensor x = KnownFaults::normal(12, {16, 16});
    const Tensor w = KnownFaults::normal(13, {16, 16});
    const Tensor y = mean(square(tanh(matmul(x, w))));
    const Tensor z = sum(softmax(matmul(w, x)) * x);
    const Tensor seed = full({}, 1);
    std::vector<Tensor> out;
    for (const Tensor& loss : {y, z}) {
      for (const Tensor& g : vjp(std::span(&loss, 1), std::vector{x, w}, std::span(&seed, 1))) {
        out.push_back(g);
      }
    }
    return evaluate(out, open_engine(GetParam()).get());
  };
  const auto planned = gradients();
  setenv("TENSORGRAD_PASSES", "-reuse_memory", 1);
  const auto plain = gradients();
  unsetenv("TENSORGRAD_PASSES");
  EXPECT_EQ(planned, plain);
}

TEST_P(KnownFaults, GradientsOfAnUnrolledRecurrence) {
  const Tensor w = normal(14, {6, 6}) * 0.4;
  const auto run = [&](const Tensor& weight) {
    Tensor h = normal(15, {4, 6});
    for (int t = 0; t < 10; ++t) h = tanh(matmul(h, weight) + 0.1);
    return sum(square(h));
  };
  const Tensor loss = run(w);
  const Tensor seed = full({}, 1);
  const Tensor gradient = vjp(std::span(&loss, 1), std::span(&w, 1), std::span(&seed, 1))[0];
  const Floats g = floats(evaluate(std::span(&gradient, 1), open_engine(GetParam()).get())[0]);
  const Floats at = floats(evaluate(std::span(&w, 1), open_engine("reference").get())[0]);
  const auto loss_with = [&](std::size_t i, float step) {
    Floats moved = at;
    moved[i] += step;
    const Tensor value = run(array(moved, {6, 6}));
    return floats(evaluate(std::span(&value, 1), open_engine("reference").get())[0])[0];
  };
  for (const std::size_t i : {std::size_t{0}, std::size_t{7}, std::size_t{20}, std::size_t{35}}) {
    const float h = 1e-2F;
    EXPECT_NEAR(g[i], (loss_with(i, h) - loss_with(i, -h)) / (2 * h), 2e-2) << i;
  }
}

TEST_P(KnownFaults, ResultsOfAStepDoNotChangeAfterTheNext) {
  Deep model;
  model.layers.emplace_back(16, 16);
  auto training = compile(
      std::move(model),
      [](const Deep& m, const Inputs& in) { return mean(square(capture("y", m(in["x"])))); },
      {.inputs = {{"x", {8, 16}}}, .optimizer = SGD{.lr = 0.5}, .device = GetParam()});
  const Floats x(8 * 16, 1.0F);
  const StepResult first = training.step({{"x", x}});
  const StepResult second = training.step({{"x", x}});
  const double loss = second.loss();
  const Floats y = second.captured("y");
  EXPECT_NE(first.loss(), loss);
  EXPECT_NE(first.captured("y"), y);
  training.step({{"x", x}});
  EXPECT_EQ(second.loss(), loss);
  EXPECT_EQ(second.captured("y"), y);
}

}  // namespace
}  // namespace tensorgrad
