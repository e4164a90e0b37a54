// The code of docs/tutorial.md, run. What stands between [snippet] and [end] is shown there; a test
// below compares the two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "docs/page.h"
#include "io/temp_folder.h"
#include "runtime/device.h"
// [snippet]
#include <tensorgrad/compile.h>
#include <tensorgrad/io.h>
#include <tensorgrad/nn.h>
#include <tensorgrad/ops.h>
#include <tensorgrad/transforms.h>

namespace tg = tensorgrad;
using tg::Tensor;
// [end]

namespace {

// [snippet]
struct Classifier {
  tg::nn::Linear hidden{2, 32}, out{32, 2};
  TENSORGRAD_FIELDS(hidden, out)

  Tensor operator()(const Tensor& points) const {
    const Tensor h = tanh(hidden(points));
    return out(h);
  }
};
// [end]

// [snippet]
Tensor loss_of(const Classifier& model, const tg::Inputs& in) {
  const Tensor logits = capture("logits", model(in["points"]));
  return cross_entropy(logits, in["labels"]);
}
// [end]

constexpr std::int64_t batch = 64;

// Points of the plane; class 1 inside of a circle.
struct Points {
  std::vector<float> points;
  std::vector<std::int32_t> labels;
};
Points draw(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  Points out;
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = static_cast<float>(random() % 2001) / 1000 - 1;
    const float y = static_cast<float>(random() % 2001) / 1000 - 1;
    out.points.push_back(x);
    out.points.push_back(y);
    out.labels.push_back(x * x + y * y < 0.5F ? 1 : 0);
  }
  return out;
}

class TutorialTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (tg::backends().empty()) GTEST_SKIP() << "this build has no device";
  }
};

TEST_F(TutorialTest, Tensors) {
  // [snippet]
  const Tensor x = tg::array({1, 2, 3});
  const Tensor y = sum(x * x + 1);      // nothing is computed yet
  const float value = y.item<float>();  // now it is: 17
  // [end]
  EXPECT_EQ(value, 17);
}

TEST_F(TutorialTest, Training) {
  const tensorgrad::test::TempFolder folder;
  const std::string path = folder / "circle.safetensors";
  // [snippet]
  auto training =
      tg::compile(Classifier{}, loss_of,
                  {.inputs = {{"points", {batch, 2}}, {"labels", {batch}, tg::DType::i32}},
                   .optimizer = tg::AdamW{.lr = 0.02},
                   .seed = 7});
  // [end]
  // [snippet]
  for (int step = 0; step < 300; ++step) {
    const auto [points, labels] = draw(batch, static_cast<unsigned>(step));
    const auto result = training.step({{"points", points}, {"labels", labels}});
    if (step % 100 == 0) std::printf("step %d  loss %.3f\n", step, result.loss());
  }
  // [end]
  const auto [points, labels] = draw(batch, 1000);
  // [snippet]
  const auto result = training.step({{"points", points}, {"labels", labels}});
  const std::vector<float> logits = result.captured("logits");  // batch rows of 2
  // [end]
  EXPECT_EQ(logits.size(), 2U * batch);
  EXPECT_LT(result.loss(), 0.35F);

  // [snippet]
  auto classify = training.attach(
      [](const Classifier& model, const tg::Inputs& in) { return argmax(model(in["points"]), -1); },
      {.inputs = {{"points", {tg::dyn, 2}}}});
  const std::vector<float> two_points{0.0F, 0.1F, 0.9F, -0.9F};
  const auto classes = classify.run({{"points", two_points}}).value<std::int32_t>();  // {1, 0}
  // [end]
  EXPECT_THAT(classes, ::testing::ElementsAre(1, 0));

  // [snippet]
  training.save(path, {{"note", "first try"}});
  training.set_lr(tg::Schedule::cosine(0.02, 0.0, 500));
  training.load(path);  // parameters, moments and step as they were
  // [end]
  EXPECT_EQ(training.steps(), 301);
  // [snippet]
  for (const tg::ParamValue& p : training.params()) {
    std::printf("%-10s %s\n", p.name.c_str(), tg::to_string(p.shape).c_str());
  }
  // [end]
  EXPECT_EQ(training.params()[0].name, "hidden.W");
}

TEST_F(TutorialTest, Transforms) {
  // [snippet]
  const auto f = [](const Tensor& x) { return sum(sin(x) * x); };
  const Tensor x = tg::array({0.5F, 1.0F, 2.0F});
  const Tensor slope = tg::grad(f)(x);  // sin x + x cos x
  const auto [value, same_slope] = tg::value_and_grad(f)(x);
  const auto g = [](const Tensor& row) { return sum(square(row)); };
  const Tensor rows = tg::array({1, 2, 3, 4, 5, 6});
  const Tensor sums = tg::vmap(g)(reshape(rows, {3, 2}));  // 5, 25, 61
  // [end]
  EXPECT_NEAR(slope.to_vector<float>()[1], 1.3817733, 1e-6);
  EXPECT_EQ(slope.to_vector<float>(), same_slope.to_vector<float>());
  EXPECT_GT(value.item<float>(), 0);
  EXPECT_THAT(sums.to_vector<float>(), ::testing::ElementsAre(5, 25, 61));
}

TEST_F(TutorialTest, Errors) {
  // [snippet]
  try {
    const Tensor wrong = matmul(tg::zeros({2, 3}), tg::zeros({4, 5}));
  } catch (const tg::ShapeError& error) {
    std::puts(error.what());
  }
  // [end]
  EXPECT_THROW(matmul(tg::zeros({2, 3}), tg::zeros({4, 5})), tg::ShapeError);
}

// ---- the page holds the code above ---------------------------------------------------------------

TEST(TutorialPage, ShowsTheCodeThatIsRun) {
  tg::testing::expect_page_shows("/docs/tutorial.md", "/tests/docs/tutorial_test.cpp");
}

}  // namespace
