// The schedule: what it makes of known programs, and that every pass can be switched off.
#include "schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernel/kernel.h"
#include "ops/primitives.h"
#include "runtime/device.h"
#include "tensorgrad/nn.h"
#include "tensorgrad/ops.h"
#include "train/core.h"
#include "workloads.h"

namespace tensorgrad {
namespace {

using testing::HasSubstr;

Tensor input(const std::string& name, const Shape& shape, DType dtype = DType::f32) {
  return prim::input(InputRole::input, name, {shape, dtype});
}

Plan plan_of(std::vector<Tensor> inputs, const Tensor& result) {
  Graph graph;
  graph.inputs = std::move(inputs);
  graph.outputs = {{"result", result}};
  Plan plan = make_plan(graph, {}, PassOptions());
  for (const kernel::Kernel& k : plan.kernels) kernel::verify(k);
  return plan;
}

std::vector<std::string> names(const Plan& plan) {
  std::vector<std::string> out;
  for (const Dispatch& d : plan.dispatches) {
    out.push_back(plan.kernels[static_cast<std::size_t>(d.kernel)].name);
  }
  return out;
}

TEST(Schedule, AnElementwiseChainIsOneKernel) {
  const Tensor x = input("x", {8, 16});
  const Tensor b = input("b", {16});
  const Plan plan = plan_of({x, b}, tanh(exp(x) + b) * 2);
  ASSERT_EQ(plan.dispatches.size(), 1U);
  EXPECT_EQ(plan.arena_bytes, 0);
}

TEST(Schedule, ViewsCostNothing) {
  const Tensor x = input("x", {8, 16});
  const Plan plan = plan_of({x}, flip(transpose(reshape(x, {16, 8})), {1}) + 1);
  EXPECT_EQ(plan.dispatches.size(), 1U);
}

TEST(Schedule, AContractionTakesItsEpilogueAndReadsThroughTransposes) {
  const Tensor x = input("x", {32, 16});
  const Tensor w = input("w", {8, 16});
  const Tensor b = input("b", {8});
  const Plan plan = plan_of({x, w, b}, tanh(matmul(x, transpose(w)) + b));
  EXPECT_THAT(names(plan), testing::ElementsAre("contract 32x8x16 + tanh"));
  EXPECT_EQ(plan.arena_bytes, 0) << "the product lies where the result goes";
}

TEST(Schedule, SoftmaxIsOneRowKernel) {
  const Tensor x = input("x", {64, 100});
  const Plan plan = plan_of({x}, softmax(x, -1));
  ASSERT_EQ(plan.dispatches.size(), 1U);
  const kernel::Kernel& k = plan.kernels[0];
  EXPECT_EQ(k.nest.stages.size(), 3U) << "maximum, sum, quotient";
  EXPECT_EQ(plan.arena_bytes, 0);
}

TEST(Schedule, LayerNormIsOneRowKernel) {
  const Tensor x = input("x", {64, 100});
  const Tensor centred = x - mean(x, Reduce(-1, true));
  const Plan plan = plan_of({x}, centred * rsqrt(mean(square(centred), Reduce(-1, true)) + 1e-5));
  EXPECT_EQ(plan.dispatches.size(), 1U);
}

TEST(Schedule, AScanTakesTheElementwiseWorkAroundIt) {
  const Tensor x = input("x", {64, 100});
  const Plan plan = plan_of({x}, tanh(cumsum(exp(x) + 1, 1)) * x);
  ASSERT_EQ(plan.dispatches.size(), 1U);
  const kernel::Stage& stage = plan.kernels[0].nest.stages[0];
  EXPECT_EQ(stage.accumulators.size(), 1U);
  EXPECT_EQ(stage.stores.size(), 1U) << "the sums are read where they are made";
  EXPECT_EQ(plan.arena_bytes, 0);
}

TEST(Schedule, ScansOverTheSameElementsAreOnePass) {
  const Tensor x = input("x", {64, 100});
  const Plan plan = plan_of({x}, cumsum(x, 0) * cumprod(x, 0) + cummax(x, 0));
  ASSERT_EQ(plan.dispatches.size(), 1U);
  EXPECT_EQ(plan.kernels[0].nest.stages[0].accumulators.size(), 3U);
}

TEST(Schedule, ScansThatRunDifferentlyAreSeparate) {
  const Tensor x = input("x", {64, 100});
  EXPECT_EQ(plan_of({x}, cumsum(x, 0) + cumsum(x, 1)).dispatches.size(), 2U);
  EXPECT_EQ(plan_of({x}, cumsum(x, 1) + cumsum(x, 1, {.reverse = true})).dispatches.size(), 2U);
  EXPECT_EQ(plan_of({x}, cumsum(cumsum(x, 1), 1)).dispatches.size(), 2U);
  EXPECT_EQ(plan_of({x}, flip(cumsum(x, 1), {1}) + 1).dispatches.size(), 2U)
      << "a running value is read at another place than it is made";
}

TEST(Schedule, ASortSharesItsKernelWithItsPositions) {
  const Tensor x = input("x", {64, 100});
  const Plan plan = plan_of({x}, sort(x) * cast(argsort(x), DType::f32));
  ASSERT_EQ(plan.dispatches.size(), 2U) << "the sort, the product";
  ASSERT_TRUE(plan.kernels[0].sort.has_value());
  EXPECT_GE(plan.kernels[0].sort->values.buffer, 0);
  EXPECT_GE(plan.kernels[0].sort->indices.buffer, 0);
  EXPECT_EQ(plan_of({x}, sort(x, 0) + sort(x, 0, true)).dispatches.size(), 3U);
}

TEST(Schedule, EqualKernelsAreCompiledOnce) {
  const Tensor x = input("x", {32, 32});
  const Tensor w = input("w", {32, 32});
  const Tensor y = matmul(matmul(matmul(x, w), w), w);
  const Plan plan = plan_of({x, w}, y);
  EXPECT_EQ(plan.dispatches.size(), 3U);
  EXPECT_EQ(plan.kernels.size(), 1U);
}

TEST(Schedule, MemoryIsReused) {
  Tensor x = input("x", {64, 64});
  const Tensor first = x;
  for (int i = 0; i < 6; ++i) x = matmul(x, x);
  const Plan plan = plan_of({first}, x);
  EXPECT_EQ(plan.arena_bytes, 2 * 64 * 64 * 4);
}

TEST(Schedule, UnknownPassesAreRefused) {
  try {
    const PassOptions options("-fuse_everything");
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_THAT(e.what(), HasSubstr("there is no pass `fuse_everything`; there are simplify"));
  }
}

TEST(Schedule, TheSineMlpIsTwelveKernels) {
  if (backends().empty()) GTEST_SKIP() << "built without backends";
  const tools::WorkloadRun run = tools::open_workload("W1", "auto");
  const Plan& plan = *run.training->core().compiled()->program->plan();
  for (const kernel::Kernel& k : plan.kernels) kernel::verify(k);
  EXPECT_LE(plan.dispatches.size(), 12U);
  EXPECT_LE(plan.total_bytes(), 340'000);
  // The optimizer is one update of everything, in place.
  const auto last = plan.dispatches.back();
  int states = 0;
  for (int b : last.buffers) {
    states += plan.buffers[static_cast<std::size_t>(b)].kind == BufferKind::state ? 1 : 0;
  }
  EXPECT_EQ(states, 3);
}

class Passes : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (backends().empty()) GTEST_SKIP() << "built without backends";
  }
  void TearDown() override { unsetenv("TENSORGRAD_PASSES"); }  // NOLINT: one thread
};

TEST_P(Passes, CanBeSwitchedOff) {
  for (const std::string workload : {"W1", "W2g", "W3", "W3c"}) {
    tools::WorkloadRun full = tools::open_workload(workload, "auto");
    setenv("TENSORGRAD_PASSES", ("-" + GetParam()).c_str(), 1);  // NOLINT: one thread
    tools::WorkloadRun without = tools::open_workload(workload, "auto");
    unsetenv("TENSORGRAD_PASSES");  // NOLINT
    for (const kernel::Kernel& k : without.training->core().compiled()->program->plan()->kernels) {
      kernel::verify(k);
    }
    for (int t = 0; t < 3; ++t) {
      EXPECT_NEAR(without.step(t).loss(), full.step(t).loss(), 1e-5) << workload << " step " << t;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Passes, testing::ValuesIn(PassOptions::names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tensorgrad
