// Options of compiled training: groups of parameters, buffers, losses that are not numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "io/temp_folder.h"
#include "runtime/device.h"
#include "tensorgrad/compile.h"
#include "tensorgrad/nn.h"

namespace tensorgrad {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> devices() {
  std::vector<std::string> names{"reference"};
  for (const Backend& backend : backends()) {
    if (backend.unavailable().empty()) names.push_back(backend.name);
  }
  return names;
}

class OptionsTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Devices, OptionsTest, ::testing::ValuesIn(devices()),
                         [](const auto& test) { return test.param; });

struct Three {
  Param a{{2}, Init::constant(1)}, b{{3}, Init::constant(1)}, c{{2}, Init::constant(1)};
  TENSORGRAD_FIELDS(a, b, c)
};

std::vector<float> after_one_step(const TrainOptions& options) {
  auto training = compile(
      Three{}, [](const Three& m, const Inputs&) { return sum(m.a) + sum(m.b) + sum(m.c); },
      options);
  training.step({});
  std::vector<float> out;
  for (const ParamValue& p : training.params()) out.push_back(p.values[0]);
  return out;
}

TEST_P(OptionsTest, GroupsScaleAndFreezeAndDecay) {
  // p - 0.1 * scale * (1 + decay * 0.5)
  const TrainOptions options{
      .optimizer = SGD{.lr = 0.1, .weight_decay = 0.5},
      .device = GetParam(),
      .groups = {{.applies = [](const std::string& name, const Shape&) { return name == "a"; },
                  .lr_scale = 0},
                 {.applies = [](const std::string&, const Shape& s) { return s == Shape{3}; },
                  .lr_scale = 2,
                  .decay = false},
                 // The first that applies counts.
                 {.applies = [](const std::string& name, const Shape&) { return name != "c"; },
                  .lr_scale = 100}}};
  EXPECT_THAT(after_one_step(options), ElementsAre(1, ::testing::FloatNear(0.8F, 1e-6F),
                                                   ::testing::FloatNear(0.85F, 1e-6F)));
}

TEST(Options, GroupsAreChecked) {
  try {
    after_one_step({.device = "reference", .groups = {{.applies = {}, .lr_scale = -1}}});
    FAIL() << "nothing was thrown";
  } catch (const ValueError& error) {
    EXPECT_THAT(error.what(), HasSubstr("compile: the lr_scale of a group is -1, not a finite "
                                        "number of at least 0."));
  }
}

struct Normed {
  nn::Linear in{3, 4};
  nn::BatchNorm norm{4};
  nn::Linear out{4, 1};
  TENSORGRAD_FIELDS(in, norm, out)
  Tensor operator()(const Tensor& x) const { return out(relu(norm(in(x)))); }
};

Training<Normed> start(const std::string& device) {
  return compile(
      Normed{},
      [](const Normed& m, const Inputs& in) { return mse_loss(m(capture("x", in["x"])), in["y"]); },
      {.inputs = {{"x", {8, 3}}, {"y", {8, 1}}}, .optimizer = SGD{.lr = 0.05}, .device = device});
}

std::vector<float> ramp(std::size_t n, std::size_t step) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = static_cast<float>((i * 37 + step * 11) % 23) / 23 - 0.4F;
  }
  return values;
}

TEST_P(OptionsTest, BuffersFollowTheSteps) {
  auto training = start(GetParam());
  ASSERT_EQ(training.buffers().size(), 2U);
  EXPECT_EQ(training.buffers()[0].name, "norm.mean");
  EXPECT_EQ(training.buffers()[1].values, std::vector<float>(4, 1));
  EXPECT_EQ(training.params().size(), 6U);
  std::vector<double> mean(4, 0);
  std::vector<double> variance(4, 1);
  for (std::size_t step = 0; step < 3; ++step) {
    const auto params = training.params();
    const std::vector<float> x = ramp(24, step);
    training.step({{"x", x}, {"y", ramp(8, step + 5)}});
    for (std::size_t c = 0; c < 4; ++c) {
      double sum = 0, squares = 0;
      for (std::size_t row = 0; row < 8; ++row) {
        double h = params[1].values[c];
        for (std::size_t i = 0; i < 3; ++i) {
          h += static_cast<double>(x[row * 3 + i]) * params[0].values[i * 4 + c];
        }
        sum += h;
        squares += h * h;
      }
      const double batch = sum / 8;
      mean[c] = 0.9 * mean[c] + 0.1 * batch;
      variance[c] = 0.9 * variance[c] + 0.1 * (squares / 8 - batch * batch) * 8 / 7;
    }
    const auto kept = training.buffers();
    for (std::size_t c = 0; c < 4; ++c) {
      EXPECT_NEAR(kept[0].values[c], mean[c], 1e-5) << "step " << step;
      EXPECT_NEAR(kept[1].values[c], variance[c], 1e-5) << "step " << step;
    }
  }
}

TEST_P(OptionsTest, EvaluationUsesBuffersAndChangesNone) {
  auto training = start(GetParam());
  for (std::size_t step = 0; step < 3; ++step) {
    training.step({{"x", ramp(24, step)}, {"y", ramp(8, step)}});
  }
  auto forward =
      training.attach([](const Normed& m, const Inputs& in) { return m.norm(m.in(in["x"])); },
                      {.inputs = {{"x", {1, 3}}}});
  const auto params = training.params();
  const auto kept = training.buffers();
  const std::vector<float> y = forward.run({{"x", std::vector<float>{1, 0, 0}}}).value();
  for (std::size_t c = 0; c < 4; ++c) {
    const float h = params[0].values[c] + params[1].values[c];
    EXPECT_NEAR(
        y[c],
        (h - kept[0].values[c]) / std::sqrt(kept[1].values[c] + 1e-5F) * params[2].values[c] +
            params[3].values[c],
        1e-5);
  }
  EXPECT_EQ(training.buffers()[0].values, kept[0].values);
}

TEST_P(OptionsTest, BuffersAreSavedSetAndReset) {
  const test::TempFolder folder;
  auto training = start(GetParam());
  for (std::size_t step = 0; step < 3; ++step) {
    training.step({{"x", ramp(24, step)}, {"y", ramp(8, step)}});
  }
  training.save(folder / "a.safetensors");
  auto other = start(GetParam());
  other.load(folder / "a.safetensors");
  EXPECT_EQ(other.buffers()[0].values, training.buffers()[0].values);
  EXPECT_EQ(other.buffers()[1].values, training.buffers()[1].values);
  const std::vector<ParamValue> mean{{"norm.mean", {4}, {1, 2, 3, 4}}};
  other.set_params(mean);
  EXPECT_THAT(other.buffers()[0].values, ElementsAre(1, 2, 3, 4));
  other.reset();
  EXPECT_EQ(other.buffers()[0].values, std::vector<float>(4, 0));
}

TEST(Options, ABufferIsAssignedOnceAStep) {
  try {
    compile(Normed{},
            [](const Normed& m, const Inputs& in) {
              return mean(m.norm(m.in(in["x"])) + m.norm(m.in(in["x"] * 2)));
            },
            {.inputs = {{"x", {8, 3}}}, .device = "reference"});
    FAIL() << "nothing was thrown";
  } catch (const GraphError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("assign: buffer `norm.mean` is assigned twice in one step"));
    EXPECT_THAT(error.what(), HasSubstr(__FILE__));
  }
}

TEST_P(OptionsTest, ALossThatIsNoNumberIsReported) {
  const auto loss = [](const Three& m, const Inputs& in) {
    const Tensor h = capture("h", m.a * in["x"]);
    return sum(capture("root", sqrt(h))) + sum(m.b) + sum(m.c);
  };
  const std::vector<InputSpec> inputs{{"x", {2}}};
  auto training = compile(Three{}, loss, {.inputs = inputs, .device = GetParam()});
  EXPECT_GT(training.step({{"x", std::vector<float>{1, 4}}}).loss(), 0);
  const auto bad = training.step({{"x", std::vector<float>{1, -4}}});
  try {
    bad.loss();
    FAIL() << "nothing was thrown";
  } catch (const NotFiniteError& error) {
    EXPECT_THAT(error.what(), HasSubstr("step 2: the loss is NaN. The first captured tensor that "
                                        "is not finite is `root`."));
    EXPECT_THAT(error.what(), HasSubstr(__FILE__));
  }
  EXPECT_TRUE(std::isnan(bad.value()[0])) << "the value itself can still be read";
  auto unchecked =
      compile(Three{}, loss, {.inputs = inputs, .device = GetParam(), .check_nan = false});
  EXPECT_TRUE(std::isnan(unchecked.step({{"x", std::vector<float>{1, -4}}}).loss()));
}

}  // namespace
}  // namespace tensorgrad
