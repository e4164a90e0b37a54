// Saving and loading a training continues it bit for bit.
#include <gtest/gtest.h>

#include "io/temp_folder.h"
#include "runtime/device.h"
#include "tensorgrad/compile.h"
#include "tensorgrad/error.h"
#include "tensorgrad/io.h"
#include "tensorgrad/nn.h"

namespace tensorgrad {
namespace {

struct Net {
  nn::Linear l1{8, 32}, l2{32, 4};
  TENSORGRAD_FIELDS(l1, l2)
  Tensor operator()(const Tensor& x) const { return l2(dropout(relu(l1(x)), 0.3)); }
};

Training<Net> start(const Optimizer& optimizer, std::uint64_t seed, const std::string& device) {
  return compile(Net{},
                 [](const Net& m, const Inputs& in) { return mse_loss(m(in["x"]), in["y"]); },
                 {.inputs = {{"x", {16, 8}}, {"y", {16, 4}}},
                  .optimizer = optimizer,
                  .clip_norm = 1.0,
                  .device = device,
                  .seed = seed});
}

std::vector<float> ramp(std::size_t n, int step) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(step) * 11) % 23) / 23 - 0.5F;
  }
  return values;
}

void run(AnyTraining& training, int from, int to) {
  for (int step = from; step < to; ++step) {
    training.step({{"x", ramp(128, step)}, {"y", ramp(64, step + 5)}});
  }
}

void expect_equal(const AnyTraining& a, const AnyTraining& b, double tolerance = 0) {
  const auto left = a.params(), right = b.params();
  ASSERT_EQ(left.size(), right.size());
  for (std::size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i].name, right[i].name);
    ASSERT_EQ(left[i].values.size(), right[i].values.size());
    for (std::size_t k = 0; k < left[i].values.size(); ++k) {
      ASSERT_NEAR(left[i].values[k], right[i].values[k], tolerance) << left[i].name << " " << k;
    }
  }
  EXPECT_EQ(a.steps(), b.steps());
}

class CheckpointTest : public testing::TestWithParam<std::string> {
 protected:
  test::TempFolder folder_;
};

TEST_P(CheckpointTest, ContinuesBitForBit) {
  const Schedule lr = Schedule::warmup(3, Schedule::cosine(0.05, 0.001, 20));
  for (const Optimizer& optimizer :
       {Optimizer(AdamW{.lr = lr}), Optimizer(SGD{.lr = lr, .momentum = 0.9})}) {
    auto whole = start(optimizer, 3, GetParam());
    run(whole, 0, 12);

    auto first = start(optimizer, 3, GetParam());
    run(first, 0, 5);
    first.save(folder_ / "a.safetensors", {{"note", "half way"}});
    EXPECT_EQ(read_safetensors(folder_ / "a.safetensors").metadata.at("note"), "half way");
    // Another seed, and steps of its own, are replaced by what the file says.
    auto second = start(optimizer, 99, GetParam());
    run(second, 0, 2);
    second.load(folder_ / "a.safetensors");
    expect_equal(first, second);
    run(second, 5, 12);
    // The reference keeps double precision between steps, and files hold f32.
    expect_equal(whole, second, GetParam() == "reference" ? 1e-5 : 0.0);
  }
}

TEST_P(CheckpointTest, AFileOfAnotherModelChangesNothing) {
  auto training = start(AdamW{}, 0, GetParam());
  run(training, 0, 3);
  auto same = start(AdamW{}, 0, GetParam());
  run(same, 0, 3);

  SafeTensors other;
  other.tensors.push_back(make_safetensor("l1.W", {8, 32}, std::vector<float>(256, 1.0F)));
  other.tensors.push_back(make_safetensor("l3.W", {1}, std::vector<float>(1, 1.0F)));
  write_safetensors(folder_ / "other.safetensors", other);
  EXPECT_THROW(training.load(folder_ / "other.safetensors"), FormatError);
  EXPECT_THROW(training.load(folder_ / "nowhere.safetensors"), FormatError);
  expect_equal(training, same);
}

std::vector<std::string> devices() {
  std::vector<std::string> names{"reference"};
  for (const Backend& backend : backends()) {
    if (backend.unavailable().empty()) names.push_back(backend.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Devices, CheckpointTest, testing::ValuesIn(devices()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tensorgrad
