// Random operations of a compiled program draw the same numbers on every device, in every run.
#include <gtest/gtest.h>

#include "runtime/device.h"
#include "tensorgrad/compile.h"
#include "tensorgrad/nn.h"

namespace tensorgrad {
namespace {

struct Weights {
  Param w{{50}, Init::ones()};
  TENSORGRAD_FIELDS(w)
};

std::vector<std::vector<float>> masks(const std::string& device, std::uint64_t seed) {
  auto training = compile(Weights{},
                          [](const Weights& m, const Inputs&) {
                            const Tensor first = capture("first", dropout(m.w.tensor(), 0.4));
                            return sum(capture("second", dropout(first, 0.4)));
                          },
                          {.optimizer = SGD{.lr = 0.0}, .device = device, .seed = seed});
  std::vector<std::vector<float>> out;
  for (int step = 0; step < 3; ++step) {
    const StepResult result = training.step({});
    out.push_back(result.captured("first"));
    out.push_back(result.captured("second"));
  }
  return out;
}

TEST(Dropout, DrawsTheSameOnEveryDevice) {
  const auto expected = masks("reference", 7);
  EXPECT_NE(expected[0], expected[1]);
  EXPECT_NE(expected[0], expected[2]);
  EXPECT_NE(expected, masks("reference", 8));
  for (const Backend& backend : backends()) {
    if (!backend.unavailable().empty()) continue;
    EXPECT_EQ(masks(backend.name, 7), expected) << backend.name;
    EXPECT_EQ(masks(backend.name, 7), expected) << backend.name << ", once more";
  }
}

}  // namespace
}  // namespace tensorgrad
