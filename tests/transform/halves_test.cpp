// Programs of f16: what is rounded, what is stored, how it is used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "codegen/wgsl/program.h"
#include "kernel/visit.h"
#include "ops/primitives.h"
#include "runtime/device.h"
#include "schedule/schedule.h"
#include "tensorgrad/tensorgrad.h"
#include "transform/passes.h"

namespace tensorgrad {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Tensor input(const std::string& name, const Shape& shape, DType dtype = DType::f16) {
  return prim::input(InputRole::input, name, {shape, dtype});
}

Plan plan_of(const std::vector<Tensor>& inputs, const Tensor& result, const Target& target = {}) {
  Graph graph;
  graph.inputs = inputs;
  graph.outputs = {{"result", result}};
  Plan plan = make_plan(graph, target);
  for (const kernel::Kernel& k : plan.kernels) kernel::verify(k);
  return plan;
}

int casts_to(const Plan& plan, DType dtype) {
  int count = 0;
  for (const kernel::Kernel& k : plan.kernels) {
    for (const kernel::Stage& stage : k.nest.stages) {
      kernel::for_each_part(
          k.pool, kernel::roots(stage), [](const kernel::IndexNode&) {},
          [&](const kernel::ExprNode& n) {
            count += n.fn == kernel::Fn::cast && n.dtype == dtype ? 1 : 0;
          });
    }
  }
  return count;
}

TEST(Halves, AChainIsOneKernelThatRoundsOnce) {
  const Tensor x = input("x", {8, 16}), b = input("b", {16});
  const Plan plan = plan_of({x, b}, tanh(exp(x) + b) * 2);
  ASSERT_EQ(plan.kernels.size(), 1U);
  for (const kernel::BufferArg& arg : plan.kernels[0].args) EXPECT_EQ(arg.dtype, DType::f16);
  EXPECT_EQ(casts_to(plan, DType::f16), 1);
}

TEST(Halves, WhatIsUsedTwiceIsRoundedBeforeItIsUsed) {
  const Tensor x = input("x", {8});
  const Tensor y = exp(x);
  EXPECT_EQ(casts_to(plan_of({x}, y * y + y), DType::f16), 2);
}

TEST(Halves, MovingNumbersConvertsNothing) {
  const Tensor x = input("x", {4, 6}), y = input("y", {4, 6}),
               c = input("c", {12, 4}, DType::bool_);
  const Plan plan = plan_of({x, y, c}, where(c, flip(transpose(concat({x, y}, 1)), {0}), 0));
  EXPECT_EQ(casts_to(plan, DType::f16) + casts_to(plan, DType::f32), 0);
}

TEST(Halves, ProgramsWithoutThemAreLeftAlone) {
  const Tensor x = input("x", {8}, DType::f32);
  Graph graph;
  graph.inputs = {x};
  graph.outputs = {{"y", exp(x)}};
  EXPECT_EQ(widen_halves(graph).outputs[0].value.handle(), graph.outputs[0].value.handle());
}

TEST(Halves, MixWithF32AsNumPyMixesThem) {
  const Tensor x = input("x", {4}), y = input("y", {4}, DType::f32);
  EXPECT_EQ((x + y).dtype(), DType::f32);
  EXPECT_EQ((y * x).dtype(), DType::f32);
  EXPECT_EQ((x + 1).dtype(), DType::f16);
  EXPECT_EQ((x * 0.5).dtype(), DType::f16);
  EXPECT_EQ((x + cast(y, DType::i32)).dtype(), DType::f16);
  EXPECT_THROW(matmul(reshape(x, {2, 2}), reshape(y, {2, 2})), DTypeError);
}

TEST(Halves, ContractionsReadThemWhereTheDeviceCan) {
  const Tensor x = input("x", {4, 8, 32}), w = input("w", {16, 32});
  const Tensor y = matmul(x, transpose(w));
  for (const bool can : {true, false}) {
    Target target;
    target.half_operands = can;
    const Plan plan = plan_of({x, w}, y, target);
    EXPECT_EQ(plan.dispatches.size(), can ? 1U : 3U);
  }
}

TEST(Halves, ModulesSayWhatTheyNeed) {
  const Tensor x = input("x", {100});
  wgsl::Target target;
  for (const bool f16 : {false, true}) {
    target.f16 = f16;
    const Plan plan = plan_of({x}, exp(x) * x, wgsl::schedule_target(target));
    const wgsl::Program program = wgsl::make_program(plan, target);
    ASSERT_EQ(program.modules.size(), 1U);
    const std::string& text = program.modules[0].text;
    EXPECT_THAT(text, HasSubstr("var<storage, read> b0: array<half, 100>;"));
    EXPECT_THAT(text, HasSubstr("half(tg_half("));
    if (f16) {
      EXPECT_EQ(text.rfind("enable f16;\n", 0), 0U) << text;
      EXPECT_THAT(text, HasSubstr("alias half = f16;"));
    } else {
      EXPECT_THAT(text, Not(HasSubstr("f16")));
      EXPECT_THAT(text, HasSubstr("alias half = f32;"));
    }
    std::vector<std::int64_t> bytes;
    for (const wgsl::GpuBuffer& b : program.buffers) bytes.push_back(b.bytes);
    EXPECT_THAT(bytes, ElementsAre(f16 ? 200 : 400, f16 ? 200 : 400));
  }
}

TEST(Halves, TheFormOfTheDeviceIsThatOfTheHostOrF32) {
  const std::vector<Half> host{Half(1.5), Half(-65504), Half(0x1p-24)};
  const auto bytes = std::as_bytes(std::span(host));
  std::vector<std::byte> device(12), back(bytes.size());
  wgsl::to_device(DType::f16, 4, bytes, device);
  float numbers[3];
  std::memcpy(numbers, device.data(), sizeof numbers);
  EXPECT_THAT(numbers, ElementsAre(1.5F, -65504.0F, 0x1p-24F));
  wgsl::to_host(DType::f16, 4, device, back);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), back.begin()));
  std::vector<std::byte> padded(8);
  wgsl::to_device(DType::f16, 2, bytes, padded);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), padded.begin()));
}

class HalfValues : public testing::Test {
 protected:
  void SetUp() override {
    if (backends().empty()) GTEST_SKIP() << "this build has no device";
  }
};

std::vector<float> floats(const Tensor& x) { return cast(x, DType::f32).to_vector<float>(); }

TEST_F(HalfValues, AreFedAndRead) {
  const std::vector<Half> values{Half(0.1), Half(-2), Half(40000)};
  const Tensor x = array(std::span<const Half>(values), {3});
  const std::vector<Half> twice = (x * 2).to_vector<Half>();
  ASSERT_EQ(twice.size(), 3U);
  EXPECT_EQ(static_cast<float>(twice[0]), 2 * static_cast<float>(values[0]));
  EXPECT_EQ(static_cast<float>(twice[1]), -4.0F);
  EXPECT_EQ(static_cast<float>(twice[2]), std::numeric_limits<float>::infinity());
  EXPECT_THROW(x.to_vector<float>(), DTypeError);
}

TEST_F(HalfValues, CastsRoundToNearest) {
  const Tensor x = array({2049, 2051, 65519, 65520, 1e-8F, 3e-8F, -1.00048828125F});
  EXPECT_THAT(
      floats(cast(x, DType::f16)),
      ElementsAre(2048, 2052, 65504, std::numeric_limits<float>::infinity(), 0, 0x1p-24F, -1));
}

TEST_F(HalfValues, MeansOfManyNumbersDoNotOverflow) {
  const Tensor x = cast(full({100000}, 3), DType::f16);
  EXPECT_EQ(floats(mean(x))[0], 3);
  EXPECT_EQ(floats(var(x))[0], 0);
  EXPECT_EQ(floats(sum(x))[0], std::numeric_limits<float>::infinity());
}

// y = x w^T by f16 operands, summed in f32.
TEST_F(HalfValues, ProductsSumInF32) {
  const Tensor ones = cast(full({4, 4096}, 1), DType::f16);
  const Tensor w = cast(full({4096, 8}, 0.5), DType::f16);
  for (const float v : floats(matmul(ones, w))) EXPECT_EQ(v, 2048);
  // 4097 terms of 1: half precision alone stops at 2048.
  EXPECT_EQ(floats(sum(cast(full({4096}, 1), DType::f16)))[0], 4096);
}

TEST_F(HalfValues, ALossOfThemIsReadAsF32) {
  auto training = compile(nn::Linear(2, 1),
                          [](const nn::Linear& l, const Inputs& in) {
                            return cast(mean(square(l(in["x"]) - 3)), DType::f16);
                          },
                          {.inputs = {{"x", {4, 2}}}, .optimizer = Adam{.lr = 0.1}});
  const std::vector<float> x{1, 0, 0, 1, 1, 1, 0, 0};
  const float first = training.step({{"x", x}}).loss();
  EXPECT_EQ(first, static_cast<float>(Half(first)));
  float last = first;
  for (int i = 0; i < 100; ++i) last = training.step({{"x", x}}).loss();
  EXPECT_LT(last, 0.1F * first);
}

}  // namespace
}  // namespace tensorgrad
