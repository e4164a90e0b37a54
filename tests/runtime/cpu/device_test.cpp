// Plans run on the device "cpu".
#include "runtime/cpu/device.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <numeric>

#include "codegen/llvm/run_kernel.h"
#include "tensorgrad/error.h"

namespace tensorgrad {
namespace {

using kernel::Expr;
using kernel::Fn;

std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<float> floats(std::span<const std::byte> bytes) {
  std::vector<float> result(bytes.size() / sizeof(float));
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

PlanBuffer buffer(BufferKind kind, std::int64_t elements, std::int64_t offset = 0) {
  PlanBuffer result;
  result.kind = kind;
  result.elements = elements;
  result.offset = offset;
  return result;
}

/// out = fn(a, b), element by element; `in_place` writes to b.
kernel::Kernel binary_map(Fn fn, std::int64_t count, bool in_place) {
  KernelBuilder b(kernel::name(fn));
  const int i = b.outer(count);
  const int x = b.input(count);
  const int y = in_place ? b.arg(DType::f32, count, true, true) : b.input(count);
  const int out = in_place ? y : b.output(count);
  b.store({}, out, b.at(i), b.kernel.pool.apply(fn, {b.load(x, b.at(i)), b.load(y, b.at(i))}));
  return std::move(b.kernel);
}

/// [m, k] x [k, n] + bias, with relu: a contraction and its epilogue in place.
kernel::Kernel dense_layer(std::int64_t m, std::int64_t k, std::int64_t n) {
  KernelBuilder b("dense");
  const int x = b.input(m * k);
  const int w = b.input(k * n);
  const int bias = b.input(n);
  const int out = b.arg(DType::f32, m * n, true, true);
  b.kernel.contraction =
      kernel::Matmul{{}, m, n, {k}, {x, 0, {k, 1}}, {w, 0, {n, 1}}, {out, 0, {n, 1}}};
  const int i = b.outer(m);
  const int j = b.outer(n);
  const Expr sum =
      b.kernel.pool.apply(Fn::add, {b.load(out, b.at(i, n, j)), b.load(bias, b.at(j))});
  b.store({}, out, b.at(i, n, j), b.kernel.pool.apply(Fn::relu, {sum}));
  return std::move(b.kernel);
}

/// out = relu(x w + b); state += x: buffers of every kind.
Plan sample_plan() {
  Plan plan;
  plan.kernels.push_back(dense_layer(2, 3, 4));
  plan.kernels.push_back(binary_map(Fn::add, 6, true));
  plan.kernels.push_back(binary_map(Fn::mul, 8, false));
  plan.buffers = {buffer(BufferKind::input, 6),    buffer(BufferKind::input, 12),
                  buffer(BufferKind::constant, 4), buffer(BufferKind::temp, 8, 64),
                  buffer(BufferKind::state, 6),    buffer(BufferKind::output, 8),
                  buffer(BufferKind::constant, 8)};
  const std::vector<float> bias{0.5F, -0.5F, 1, -100};
  const std::vector<float> twos(8, 2.0F);
  plan.buffers[2].data.assign(bytes_of(bias).begin(), bytes_of(bias).end());
  plan.buffers[6].data.assign(bytes_of(twos).begin(), bytes_of(twos).end());
  plan.dispatches = {{0, {0, 1, 2, 3}, "dense"}, {1, {0, 4}, "update"}, {2, {3, 6, 5}, "double"}};
  plan.arena_bytes = 128;
  return plan;
}

TEST(CpuDevice, RunsAPlanWithBuffersOfEveryKind) {
  const auto device = open_device("cpu");
  const Plan plan = sample_plan();
  const auto program = device->load(plan);
  const auto state = device->allocate(DType::f32, 6);
  const std::vector<float> ones(6, 1.0F);
  state->write(0, bytes_of(ones));
  const std::vector<float> x{1, 2, 3, 4, 5, 6};
  std::vector<float> w(12);
  std::iota(w.begin(), w.end(), 0.0F);
  const std::span<const std::byte> inputs[] = {bytes_of(x), bytes_of(w)};
  DeviceBuffer* const states[] = {state.get()};
  const auto first = program->run(inputs, states);
  std::vector<float> expected;
  for (int m = 0; m < 2; ++m) {
    for (int n = 0; n < 4; ++n) {
      float sum = std::vector<float>{0.5F, -0.5F, 1, -100}[static_cast<std::size_t>(n)];
      for (int k = 0; k < 3; ++k) {
        sum += x[static_cast<std::size_t>(m * 3 + k)] * w[static_cast<std::size_t>(k * 4 + n)];
      }
      expected.push_back(2 * std::max(sum, 0.0F));
    }
  }
  EXPECT_EQ(floats(first->output(0)), expected);
  EXPECT_THROW(first->output(1), ValueError);

  // A later run leaves an earlier result alone.
  const std::vector<float> zeros(6, 0.0F);
  const std::span<const std::byte> other[] = {bytes_of(zeros), bytes_of(w)};
  const auto second = program->run(other, states);
  EXPECT_EQ(floats(first->output(0)), expected);
  EXPECT_EQ(floats(second->output(0)), (std::vector<float>{1, 0, 2, 0, 1, 0, 2, 0}));

  std::vector<float> after(6);
  state->read(0, std::as_writable_bytes(std::span(after)));
  EXPECT_EQ(after, (std::vector<float>{2, 3, 4, 5, 6, 7}));
}

TEST(CpuDevice, AcceptsInputsAtAnyAddress) {
  const auto device = open_device("cpu");
  Plan plan;
  plan.kernels.push_back(binary_map(Fn::add, 5, false));
  plan.buffers = {buffer(BufferKind::input, 5), buffer(BufferKind::input, 5),
                  buffer(BufferKind::output, 5)};
  plan.dispatches = {{0, {0, 1, 2}, "add"}};
  const auto program = device->load(plan);
  const std::vector<float> x{1, 2, 3, 4, 5};
  std::vector<std::byte> shifted(21);
  std::memcpy(shifted.data() + 1, x.data(), 20);
  const std::span<const std::byte> inputs[] = {std::span(shifted).subspan(1), bytes_of(x)};
  EXPECT_EQ(floats(program->run(inputs, {})->output(0)), (std::vector<float>{2, 4, 6, 8, 10}));
}

TEST(CpuDevice, NeverWritesTheCallersInputs) {
  const auto device = open_device("cpu");
  Plan plan;
  plan.kernels.push_back(binary_map(Fn::add, 5, true));
  plan.kernels.push_back(binary_map(Fn::mul, 5, false));
  plan.buffers = {buffer(BufferKind::input, 5), buffer(BufferKind::output, 5)};
  plan.buffers.push_back(buffer(BufferKind::input, 5));
  plan.dispatches = {{0, {2, 0}, "in place"}, {1, {0, 2, 1}, "product"}};
  const auto program = device->load(plan);
  const std::vector<float> x{1, 2, 3, 4, 5};
  const std::vector<float> y(5, 10.0F);
  const std::span<const std::byte> inputs[] = {bytes_of(x), bytes_of(y)};
  for (int run = 0; run < 2; ++run) {
    EXPECT_EQ(floats(program->run(inputs, {})->output(0)),
              (std::vector<float>{110, 120, 130, 140, 150}));
    EXPECT_EQ(x, (std::vector<float>{1, 2, 3, 4, 5}));
  }
}

TEST(CpuDevice, ProfilesEachDispatchAndShowsSources) {
  const auto device = open_device("cpu");
  const Plan plan = sample_plan();
  const auto program = device->load(plan);
  const auto state = device->allocate(DType::f32, 6);
  DeviceBuffer* const states[] = {state.get()};
  const std::vector<float> x(6, 1.0F);
  const std::vector<float> w(12, 1.0F);
  const std::span<const std::byte> inputs[] = {bytes_of(x), bytes_of(w)};
  const auto seconds = program->profile(inputs, states);
  ASSERT_EQ(seconds.size(), 3U);
  for (const double time : seconds) EXPECT_GE(time, 0);
  EXPECT_TRUE(program->source(0).starts_with("; oneDNN ")) << program->source(0);
  EXPECT_NE(program->source(1).find("define void @kernel("), std::string::npos);
  // The arena, two constants, the output; the contraction may add scratch memory.
  EXPECT_GE(program->allocated_bytes(), 128U + 64 + 64 + 64);
}

TEST(CpuDevice, RefusesFeedsThatDoNotFit) {
  const auto device = open_device("cpu");
  const auto program = device->load(sample_plan());
  const std::vector<float> x(6, 1.0F);
  const std::span<const std::byte> inputs[] = {bytes_of(x)};
  EXPECT_THROW(program->run(inputs, {}), ValueError);
}

TEST(CpuDevice, BuffersStartAtZeroAndCheckTheirRange) {
  const auto device = open_device("cpu");
  const auto memory = device->allocate(DType::f32, 4);
  EXPECT_EQ(memory->bytes(), 16U);
  std::vector<float> values(4, 3.0F);
  memory->read(0, std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values, (std::vector<float>(4, 0.0F)));
  const std::vector<float> two{1, 2};
  memory->write(8, bytes_of(two));
  EXPECT_THROW(memory->write(12, bytes_of(two)), ValueError);
  EXPECT_THROW(memory->write(17, {}), ValueError);
  memory->read(0, std::as_writable_bytes(std::span(values)));
  EXPECT_EQ(values, (std::vector<float>{0, 0, 1, 2}));
}

TEST(CpuDevice, ReportsMemoryThatIsNotThere) {
  const auto device = open_device("cpu");
  EXPECT_THROW(device->allocate(DType::bool_, std::int64_t{1} << 60U), OutOfMemory);
  EXPECT_THROW(device->allocate(DType::bool_, std::numeric_limits<std::int64_t>::max()),
               OutOfMemory);
  Plan plan;
  plan.arena_bytes = std::int64_t{1} << 60;
  EXPECT_THROW(device->load(plan), OutOfMemory);
}

TEST(CpuDevice, DescribesItself) {
  const DeviceInfo info = open_device("cpu")->info();
  EXPECT_EQ(info.name, "cpu");
  EXPECT_NE(info.description.find("thread"), std::string::npos);
  EXPECT_FALSE(info.details.empty());
}

}  // namespace
}  // namespace tensorgrad
