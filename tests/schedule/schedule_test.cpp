// The schedule: what it makes of known programs, and that every pass can be switched off.
#include "schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "kernel/kernel.h"
#include "ops/primitives.h"
#include "runtime/device.h"
#include "tensorgrad/nn.h"
#include "tensorgrad/ops.h"
#include "tensorgrad/transforms.h"
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

TEST(Schedule, WhatAKernelComputesOnceIsNotStoredForHowOftenItUsesIt) {
  const Tensor x = input("x", {64, 16}), w = input("w", {16, 48}), b = input("b", {48});
  const Tensor v = input("v", {48, 16});
  const auto loss = [&](const Tensor& up, const Tensor& down) {
    return sum(square(matmul(gelu(matmul(x, up) + b, {.approximate = true}), down)));
  };
  Graph graph;
  graph.inputs = {x, w, b, v};
  const auto [by_up, by_down] = grad<0, 1>(loss)(w, v);
  graph.outputs = {{"up", by_up}, {"down", by_down}};
  const Plan plan = make_plan(graph, {}, PassOptions());
  std::set<int> hidden;  // what the kernels touch
  for (const Dispatch& d : plan.dispatches) {
    for (const int id : d.buffers) {
      if (plan.buffers[static_cast<std::size_t>(id)].elements == 64 * 48) hidden.insert(id);
    }
  }
  EXPECT_EQ(hidden.size(), 3U)
      << "the product, its gelu, and the gradient; neither tanh nor 1 + tanh";
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

TEST(Schedule, HeadsAreSplitAndMergedByStrides) {
  const Tensor x = input("x", {4, 32, 64});
  const Tensor w = input("w", {64, 64});
  const Tensor q = split_heads(matmul(x, w), 2);
  const Tensor scores = matmul(q, transpose(q));
  const Plan plan = plan_of({x, w}, matmul(merge_heads(matmul(scores, q)), w));
  EXPECT_THAT(names(plan), testing::ElementsAre("contract 128x64x64", "contract 8x32x32x32",
                                                "contract 8x32x32x32", "contract 128x64x64"));
}

TEST(Schedule, AttentionIsOneKernel) {
  const Tensor q = input("q", {4, 2, 32, 16});
  const Tensor k = input("k", {4, 2, 32, 16});
  const Tensor v = input("v", {4, 2, 32, 16});
  for (const bool causal : {false, true}) {
    const Plan plan = plan_of({q, k, v}, attention(q, k, v, {.causal = causal}));
    EXPECT_THAT(names(plan), testing::ElementsAre("attention 8x32x32x16"));
    EXPECT_EQ(plan.arena_bytes, 0);
    EXPECT_EQ(std::get<kernel::Attention>(*plan.kernels[0].contraction).causal, causal);
  }
}

TEST(Schedule, TheGradientsOfAttentionAreOneKernel) {
  const Tensor q = input("q", {2, 32, 16});
  const Tensor k = input("k", {2, 32, 16});
  const Tensor v = input("v", {2, 32, 16});
  const Tensor y = attention(q, k, v, {.causal = true});
  const std::vector<Tensor> gradients =
      vjp(std::vector{y}, std::vector{q, k, v}, std::vector{square(y)});
  Graph graph;
  graph.inputs = {q, k, v};
  graph.outputs = {{"dq", gradients[0]}, {"dk", gradients[1]}, {"dv", gradients[2]}};
  const Plan plan = make_plan(graph, {}, PassOptions());
  EXPECT_THAT(names(plan), testing::ElementsAre("attention 2x32x32x16", testing::_,
                                                "attention gradients 2x32x32x16"));
}

TEST(Schedule, ScoresThatAreNeededElsewhereKeepTheirMatrix) {
  const Tensor q = input("q", {2, 32, 16});
  const Tensor weights = softmax(matmul(q, transpose(q)), -1);
  Graph graph;
  graph.inputs = {q};
  graph.outputs = {{"out", matmul(weights, q)}, {"weights", weights}};
  EXPECT_EQ(make_plan(graph, {}, PassOptions()).dispatches.size(), 3U);
}

TEST(Schedule, SiblingContractionsAreOneWithABatch) {
  const Tensor x = input("x", {64, 32});
  const Tensor w = input("w", {3 * 32 * 32});
  std::vector<Tensor> y;
  for (std::int64_t i : {0, 1, 2}) {
    y.push_back(matmul(x, reshape(narrow(w, 0, i * 1024, 1024), {32, 32})));
  }
  const Plan plan = plan_of({x, w}, matmul(matmul(y[0], transpose(y[1])), y[2]));
  EXPECT_THAT(names(plan), testing::ElementsAre("contract 3x64x32x32", "contract 64x64x32",
                                                "contract 64x32x64"));
}

TEST(Schedule, ASumOfContractionsIsOneWithALongerSum) {
  const Tensor x = input("x", {3, 64, 32});
  const Tensor w = input("w", {3, 32, 32});
  Tensor total;
  for (std::int64_t i : {0, 1, 2}) {
    const Tensor term = matmul(take(x, 0, i), take(w, 0, i));
    total = i == 0 ? term : total + term;
  }
  const Plan plan = plan_of({x, w}, tanh(total));
  EXPECT_THAT(names(plan), testing::ElementsAre("contract 64x32x96 + tanh"));
}

TEST(Schedule, KernelsKeepWithinTheBuffersOfTheDevice) {
  for (const int most : {4, 8, 10}) {
    Graph graph;
    Tensor total;
    for (int i = 0; i < 12; ++i) {
      const Tensor x = input("x" + std::to_string(i), {64, 8});
      graph.inputs.push_back(x);
      total = i == 0 ? x : total * x + x;
    }
    graph.outputs = {{"result", total}, {"rows", sum(total, 1)}};
    Target target;
    target.max_buffers = most;
    for (const char* passes : {"", "-fuse_maps", "-fuse_siblings,-fuse_rows"}) {
      const Plan plan = make_plan(graph, target, PassOptions(passes));
      EXPECT_GE(plan.dispatches.size(), 2U);
      for (const kernel::Kernel& k : plan.kernels) {
        kernel::verify(k);
        EXPECT_LE(k.args.size(), static_cast<std::size_t>(most)) << kernel::to_string(k);
      }
    }
  }
}

TEST(Schedule, LayersThatDifferInTheirPlaceAloneShareAKernel) {
  const Tensor w = input("w", {4, 16, 16});
  Tensor h = input("x", {16, 16});
  Graph graph;
  graph.inputs = {h, w};
  for (int i = 0; i < 4; ++i) {
    const Tensor layer = prim::slice(w, {i, 0, 0}, {i + 1, 16, 16}, {1, 1, 1});
    h = relu(matmul(h, reshape(layer, {16, 16})));
  }
  graph.outputs = {{"result", h}};
  for (const auto& [alignment, kernels] : {std::pair(64, 1U), {1024, 1U}, {4096, 4U}}) {
    Target target;
    target.alignment = alignment;
    const Plan plan = make_plan(graph, target, PassOptions());
    ASSERT_EQ(plan.dispatches.size(), 4U);
    EXPECT_EQ(plan.kernels.size(), kernels) << alignment;
    for (const kernel::Kernel& k : plan.kernels) kernel::verify(k);
    if (kernels > 1) continue;
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(
          *std::max_element(plan.dispatches[i].offsets.begin(), plan.dispatches[i].offsets.end()),
          static_cast<std::int64_t>(256 * i));
    }
  }
  EXPECT_EQ(make_plan(graph, {}, PassOptions("-rebase_arguments")).kernels.size(), 4U);
}

TEST(Schedule, UnknownPassesAreRefused) {
  try {
    const PassOptions options("-fuse_everything");
    FAIL();
  } catch (const ValueError& e) {
    EXPECT_THAT(e.what(), HasSubstr("there is no pass `fuse_everything`; there are simplify"));
  }
}

TEST(Schedule, TheSineMlpIsElevenKernels) {
  if (backends().empty()) GTEST_SKIP() << "built without backends";
  const tools::WorkloadRun run = tools::open_workload("W1", "auto");
  const Plan& plan = *run.training->core().compiled()->program->plan();
  for (const kernel::Kernel& k : plan.kernels) kernel::verify(k);
  EXPECT_LE(plan.dispatches.size(), 11U);
  EXPECT_LE(plan.total_bytes(), 340'000);
  // The optimizer is one update of everything, in place.
  const auto last = plan.dispatches.back();
  int states = 0;
  for (int b : last.buffers) {
    states += plan.buffers[static_cast<std::size_t>(b)].kind == BufferKind::state ? 1 : 0;
  }
  EXPECT_EQ(states, 3);
}

TEST(Schedule, TheTransformerIsAHundredKernelsWithoutAMatrixOfScores) {
  if (backends().empty()) GTEST_SKIP() << "built without backends";
  const tools::WorkloadRun run = tools::open_workload("W2", "auto");
  const Plan& plan = *run.training->core().compiled()->program->plan();
  for (const kernel::Kernel& k : plan.kernels) kernel::verify(k);
  EXPECT_LE(plan.dispatches.size(), 100U);
  EXPECT_LE(plan.kernels.size(), 45U) << "layers share kernels";
  EXPECT_LE(plan.total_bytes(), 45'000'000);
  const std::vector<std::string> list = names(plan);
  // Once a layer: the projections, attention, its gradients, those of its input, of its weights.
  for (const char* name :
       {"contract 3x1024x128x128", "attention 64x64x64x32", "attention gradients 64x64x64x32",
        "contract 1024x128x384", "contract 3x128x128x1024"}) {
    EXPECT_EQ(std::count(list.begin(), list.end(), name), 4) << name;
  }
  for (const char* name : {"reshape", "permute", "identity", "concat"}) {
    EXPECT_EQ(std::count(list.begin(), list.end(), name), 0) << name << " copies";
  }
  for (const PlanBuffer& b : plan.buffers) EXPECT_NE(b.elements, 16 * 4 * 64 * 64) << "scores";
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
