// All tests run programs whose memory holds NaN until a kernel writes it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "codegen/llvm/run_kernel.h"
#include "runtime/cpu/device.h"

namespace tensorgrad {
namespace {

class Poison final : public testing::Environment {
 public:
  void SetUp() override { setenv("TENSORGRAD_POISON", "1", 0); }
};
const testing::Environment* const poison =
    testing::AddGlobalTestEnvironment(std::make_unique<Poison>().release());

/// out[i] = x[i] for the first `written` elements.
kernel::Kernel partial_copy(std::int64_t elements, std::int64_t written) {
  KernelBuilder b("copy");
  const int x = b.input(elements);
  const int out = b.output(elements);
  const int i = b.outer(written);
  b.store({}, out, b.at(i), b.load(x, b.at(i)));
  return std::move(b.kernel);
}

TEST(Poison, WhatNoKernelWritesIsNotANumber) {
  const std::int64_t elements = 40;
  Plan plan;
  plan.kernels = {partial_copy(elements, 30), partial_copy(elements, elements)};
  for (const BufferKind kind : {BufferKind::state, BufferKind::temp, BufferKind::output}) {
    PlanBuffer buffer;
    buffer.kind = kind;
    buffer.elements = elements;
    plan.buffers.push_back(buffer);
  }
  plan.arena_bytes = elements * static_cast<std::int64_t>(sizeof(float));
  plan.dispatches = {{0, {0, 1}, "some"}, {1, {1, 2}, "all"}};
  const auto device = cpu::open(2);
  const auto state = device->allocate(DType::f32, elements);
  DeviceBuffer* const states[] = {state.get()};
  const auto program = device->load(plan);
  for (int run = 0; run < 2; ++run) {
    const auto completion = program->run({}, states);
    const auto bytes = completion->output(0);
    std::vector<float> out(static_cast<std::size_t>(elements));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i >= 30) << i;
  }
}

}  // namespace
}  // namespace tensorgrad
