// Functions compiled once and called often.
#include "tensorgrad/jit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/node.h"
#include "runtime/device.h"
#include "tensorgrad/compile.h"
#include "tensorgrad/nn.h"

namespace tensorgrad {
namespace {

using ::testing::ElementsAre;

class JitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (backends().empty()) GTEST_SKIP() << "this build has no device";
  }
};

struct State {
  Tensor position, velocity;
  int steps = 0;
  TENSORGRAD_FIELDS(position, velocity, steps)
};

TEST_F(JitTest, TracesOnceForEachSignature) {
  int traced = 0;
  const auto f = jit([&](const Tensor& x, double by) {
    ++traced;
    return x * by;
  });
  EXPECT_THAT(f(array({1, 2}), 3.0).to_vector<float>(), ElementsAre(3, 6));
  EXPECT_THAT(f(array({5, 6}), 3.0).to_vector<float>(), ElementsAre(15, 18));
  EXPECT_EQ(traced, 1);
  EXPECT_THAT(f(array({5, 6}), 2.0).to_vector<float>(), ElementsAre(10, 12));
  EXPECT_THAT(f(array({5, 6, 7}), 2.0).to_vector<float>(), ElementsAre(10, 12, 14));
  EXPECT_EQ(traced, 3);
  const auto copy = f;
  EXPECT_THAT(copy(array({1, 1}), 3.0).to_vector<float>(), ElementsAre(3, 3));
  EXPECT_EQ(traced, 3);
  for (int i = 0; i < 50; ++i) f(array({1, 2}), i);
  EXPECT_EQ(f.compiled(), 32U) << "old forms go";
}

TEST_F(JitTest, ReturnsValuesOfStructs) {
  const auto step = jit([](const State& s, const Tensor& dt) {
    return State{s.position + s.velocity * dt, s.velocity - s.position * dt, s.steps + 1};
  });
  State s{array({1, 2}), zeros({2}), 0};
  for (int i = 0; i < 3; ++i) {
    s = step(s, full({}, 0.5));
    EXPECT_TRUE(std::holds_alternative<DataAttr>(s.position.node().attrs));
  }
  // x, v = 1, 0 -> 1, -0.5 -> 0.75, -1 -> 0.25, -1.375
  EXPECT_THAT(s.position.to_vector<float>(), ElementsAre(0.25, 0.5));
  EXPECT_THAT(s.velocity.to_vector<float>(), ElementsAre(-1.375, -2.75));
  EXPECT_EQ(s.steps, 3);
}

TEST_F(JitTest, ComposesWithTransforms) {
  const Tensor factor = array({1, 10, 100});
  const auto f = jit([=](const Tensor& x) { return sum(x * x * factor); });
  const Tensor x = array({1, 2, 3});
  EXPECT_EQ(f(x).item<float>(), 941);
  EXPECT_THAT(grad(f)(x).to_vector<float>(), ElementsAre(2, 40, 600));
  const auto slope = jit(grad(f));
  EXPECT_THAT(slope(x).to_vector<float>(), ElementsAre(2, 40, 600));
  EXPECT_THAT(slope(x * 2).to_vector<float>(), ElementsAre(4, 80, 1200));
  EXPECT_THAT(vmap(f)(stack({x, x * 2})).to_vector<float>(), ElementsAre(941, 4 * 941));
  EXPECT_THAT(grad([&](const Tensor& v) { return sum(slope(v)); })(x).to_vector<float>(),
              ElementsAre(2, 20, 200));
  // A variable that is captured stays one.
  const auto outer = [&](const Tensor& w) {
    return jit([&](const Tensor& v) { return sum(v * w); })(x);
  };
  EXPECT_THAT(grad(outer)(x).to_vector<float>(), ElementsAre(1, 2, 3));
}

struct Line {
  nn::Linear l{2, 1};
  TENSORGRAD_FIELDS(l)
};

TEST_F(JitTest, TakesModelsAndIsPartOfWhatIsCompiled) {
  const auto loss = jit([](const Line& m, const Tensor& x) { return mean(square(m.l(x))); });
  Line model;
  initialise(model, 3);
  const Tensor x = array({1, 2, 3, 4});
  const Tensor batch = reshape(x, {2, 2});
  const float value = loss(model, batch).item<float>();
  EXPECT_FLOAT_EQ(value, mean(square(model.l(batch))).item<float>());
  auto training = compile(Line{}, [&](const Line& m, const Inputs& in) { return loss(m, in["x"]); },
                          {.inputs = {{"x", {2, 2}}}, .seed = 3});
  EXPECT_FLOAT_EQ(training.step({{"x", std::vector<float>{1, 2, 3, 4}}}).loss(), value);
}

}  // namespace
}  // namespace tensorgrad
