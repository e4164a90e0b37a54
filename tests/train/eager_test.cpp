// Tensors that are read without being compiled first: what is kept, how deep graphs may be, and
// that loops do not grow.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>

#include <exception>
#include <functional>
#include <thread>

#include "ops/primitives.h"
#include "runtime/device.h"
#include "tensorgrad/compile.h"
#include "tensorgrad/jit.h"
#include "tensorgrad/nn.h"
#include "train/evaluate.h"
#include "train/values.h"
#include "transform/passes.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// GCC's library has it, but no header that declares it.
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();
#endif

namespace tensorgrad {
namespace {

using ::testing::ElementsAre;

class EagerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (backends().empty()) GTEST_SKIP() << "this build has no device";
  }
};

TEST_F(EagerTest, WhatWasReadIsNotComputedAgain) {
  const Tensor x = array({1, 2, 3});
  const Tensor y = x * 2;
  EXPECT_EQ(known_values().find(y.node()), nullptr);
  const HostValue first = evaluate(std::span(&y, 1))[0];
  EXPECT_EQ(known_values().find(y.node()), first);
  EXPECT_EQ(evaluate(std::span(&y, 1))[0], first) << "the same memory";
  EXPECT_THAT((y + 1).to_vector<float>(), ElementsAre(3, 5, 7));
  // A literal array is its own value.
  EXPECT_EQ(evaluate(std::span(&x, 1))[0], x.node().attr<DataAttr>().data);
  // The node is what it was: derivatives go through it.
  EXPECT_THAT(grad([](const Tensor& t) {
                const Tensor square = t * t;
                EXPECT_EQ(square.to_vector<float>()[1], 4);
                return sum(square * t);
              })(x)
                  .to_vector<float>(),
              ElementsAre(3, 12, 27));
}

TEST_F(EagerTest, ValuesGoWithTheirTensors) {
  const std::size_t before = known_values().size();
  for (int i = 0; i < 2000; ++i) {
    const Tensor t = array({static_cast<float>(i), 0}) + 1;
    ASSERT_EQ(t.to_vector<float>()[0], static_cast<float>(i + 1));
    ASSERT_LE(known_values().size(), 2 * before + 130) << i;
  }
}

TEST_F(EagerTest, MaterialiseForgetsHowValuesWereMade) {
  const Tensor x = array({1, 2, 3});
  const auto [a, b] = materialise(std::tuple(x * 2, sum(x)));
  EXPECT_TRUE(std::holds_alternative<DataAttr>(a.node().attrs));
  EXPECT_THAT(a.to_vector<float>(), ElementsAre(2, 4, 6));
  EXPECT_EQ(b.item<float>(), 6);
  EXPECT_THROW(materialise(prim::input(InputRole::input, "x", {{}, DType::f32})), GraphError);
}

TEST_F(EagerTest, GraphsOfManyNodesRunInParts) {
  // Every part reads results of several parts before it.
  Tensor x = array({1, 0.5F, -1});
  std::vector<float> expected{1, 0.5F, -1};
  Tensor old = x;
  std::vector<float> old_expected = expected;
  for (int i = 0; i < 3000; ++i) {
    const Tensor next = x * 0.5 + old * 0.25 + 1;
    old = x;
    x = next;
    for (std::size_t k = 0; k < 3; ++k) {
      const float value = expected[k] * 0.5F + old_expected[k] * 0.25F + 1;
      old_expected[k] = expected[k];
      expected[k] = value;
    }
  }
  const auto values = materialise(std::tuple(x, old, x + old));
  EXPECT_THAT(std::get<0>(values).to_vector<float>(),
              ::testing::Pointwise(::testing::FloatNear(1e-5F), expected));
  EXPECT_THAT(std::get<1>(values).to_vector<float>(),
              ::testing::Pointwise(::testing::FloatNear(1e-5F), old_expected));
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

// Sanitizers put what they watch between the variables of a frame.
constexpr std::size_t small_stack = (sanitized ? 8U : 1U) << 20U;

// Runs f on a thread with a small stack.
void on_small_stack(const std::function<void()>& f) {
  struct Job {
    const std::function<void()>& f;
    std::exception_ptr error;
  } job{f, nullptr};
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, small_stack), 0);
  pthread_t thread{};
  const auto body = [](void* p) -> void* {
    auto& j = *static_cast<Job*>(p);
    try {
      j.f();
    } catch (...) {
      j.error = std::current_exception();
    }
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, body, &job), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  if (job.error) std::rethrow_exception(job.error);
}

constexpr int deep = 100'000;
Tensor chain(Tensor x) {
  for (int i = 0; i < deep; ++i) x = x + 1;
  return x;
}

TEST_F(EagerTest, ADeepChainIsEvaluatedAndDestroyed) {
  on_small_stack([] {
    const Tensor y = chain(array({1, 2}));
    EXPECT_THAT(y.to_vector<float>(), ElementsAre(deep + 1, deep + 2));
  });
}

TEST_F(EagerTest, ADeepChainIsTransformed) {
  on_small_stack([] {
    const Tensor x = array({1, 2});
    const auto f = [](const Tensor& v) { return sum(chain(v)); };
    EXPECT_THAT(grad(f)(x).to_vector<float>(), ElementsAre(1, 1));
    EXPECT_THAT(vmap(chain)(x).shape(), ElementsAre(2));
    EXPECT_THAT(jvp(chain, x, x).second.to_vector<float>(), ElementsAre(1, 2));
    Graph graph;
    graph.outputs = {{"y", chain(x)}};
    EXPECT_EQ(structural_hash(simplify(graph)), structural_hash(simplify(graph)));
  });
}

// ---- memory --------------------------------------------------------------------------------------

std::size_t in_use() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return __sanitizer_get_current_allocated_bytes();
#else
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
#endif
}

// The bytes by which the heap has grown between the end of the first and of the last iteration in
// `warm` and `count`.
template <class F>
std::ptrdiff_t growth(int warm, int count, const F& f) {
  for (int i = 0; i < warm; ++i) f(i);
  const std::size_t before = in_use();
  for (int i = 0; i < count; ++i) f(i);
  return static_cast<std::ptrdiff_t>(in_use() - before);
}

TEST_F(EagerTest, ALoopOfEagerStepsDoesNotGrow) {
  Tensor w = zeros({8});
  const Tensor target = array({1, 2, 3, 4, 5, 6, 7, 8});
  const auto loss = [&](const Tensor& v) { return sum(square(v - target)); };
  float last = 0;
  const std::ptrdiff_t grown = growth(500, 2000, [&](int) {
    const auto [value, slope] = value_and_grad(loss)(w);
    last = value.item<float>();
    w = materialise(w - 0.01 * slope);
  });
  EXPECT_LT(last, 1e-6);
  EXPECT_LT(grown, 200'000);
}

struct Mlp {
  nn::Linear l1{1, 16}, l2{16, 16}, l3{16, 1};
  TENSORGRAD_FIELDS(l1, l2, l3)
  Tensor operator()(const Tensor& x) const { return l3(relu(l2(relu(l1(x))))); }
};

Training<Mlp> start(const std::string& device) {
  return compile(Mlp{},
                 [](const Mlp& m, const Inputs& in) { return mse_loss(m(in["x"]), in["x"]); },
                 {.inputs = {{"x", {8, 1}}}, .device = device});
}

TEST_F(EagerTest, TenThousandStepsDoNotGrow) {
  auto training = start("auto");
  const std::vector<float> x(8, 0.5F);
  const std::ptrdiff_t grown =
      growth(1000, 9000, [&](int) { ASSERT_GE(training.step({{"x", x}}).loss(), 0); });
  EXPECT_LT(grown, 100'000);
}

TEST_F(EagerTest, CompilingAndDestroyingDoesNotGrow) {
  const std::vector<float> x(8, 0.5F);
  const auto cycle = [&](const std::string& device) {
    return [&x, device](int) { ASSERT_GE(start(device).step({{"x", x}}).loss(), 0); };
  };
  EXPECT_LT(growth(20, 200, cycle("reference")), 100'000);
  // A compilation takes a sanitizer most of a second.
  EXPECT_LT(growth(50, sanitized ? 100 : 1000, cycle("auto")), 200'000);
}

}  // namespace
}  // namespace tensorgrad
