// A few of the graphs that tensorgrad_fuzz makes.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "fuzz/session.h"

namespace tensorgrad::fuzz {
namespace {

void expect_agreement(const std::string& device) {
  SessionOptions options;
  options.device = device;
  Session session(options);
  constexpr std::uint64_t graphs = 300;
  for (std::uint64_t seed = 1; seed <= graphs; ++seed) {
    const auto finding = session.check(seed);
    ASSERT_FALSE(finding) << "seed " << finding->seed << ": " << finding->what << "\n"
                          << finding->text;
  }
}

#ifdef TENSORGRAD_TEST_CPU
TEST(RandomGraphs, TheCpuAgreesWithTheReference) { expect_agreement("cpu"); }
#endif

TEST(WebGpuRandomGraphs, AgreeWithTheReference) {
  for (const Backend& backend : backends()) {
    if (backend.name != "webgpu") continue;
    if (const std::string reason = backend.unavailable(); !reason.empty()) GTEST_SKIP() << reason;
    expect_agreement("webgpu");
    return;
  }
  GTEST_SKIP() << "This build is without WebGPU.";
}

TEST(RandomGraphs, EveryOpWithSamplesOccurs) {
  std::set<std::string_view> missing;
  for (const Op* op : registry()) {
    if (is_drawn(*op)) missing.insert(*op->name);
  }
  for (std::uint64_t seed = 1; seed <= 3000 && !missing.empty(); ++seed) {
    const Program program = random_program(seed, {});  // owns the nodes
    for (const Node* n : program.graph.order()) missing.erase(*n->op->name);
  }
  EXPECT_TRUE(missing.empty()) << *missing.begin() << " and " << missing.size() - 1 << " others";
}

}  // namespace
}  // namespace tensorgrad::fuzz
