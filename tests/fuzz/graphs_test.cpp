// A few of the graphs that tensorgrad_fuzz makes.
#include <gtest/gtest.h>

#include <set>

#include "fuzz/session.h"

namespace tensorgrad::fuzz {
namespace {

#ifdef TENSORGRAD_TEST_CPU
TEST(RandomGraphs, TheCpuAgreesWithTheReference) {
  Session session({});
  constexpr std::uint64_t graphs = 300;
  for (std::uint64_t seed = 1; seed <= graphs; ++seed) {
    const auto finding = session.check(seed);
    ASSERT_FALSE(finding) << "seed " << finding->seed << ": " << finding->what << "\n"
                          << finding->text;
  }
}
#endif

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
