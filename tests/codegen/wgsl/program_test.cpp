#include "codegen/wgsl/program.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tensorgrad/error.h"

namespace tensorgrad::wgsl {
namespace {

using kernel::BufferArg;
using kernel::Kernel;

constexpr BufferArg reads{DType::f32, 64, true, false};
constexpr BufferArg writes{DType::f32, 64, false, true};

int add_buffer(Plan& plan, BufferKind kind, const std::string& name, std::int64_t offset = 0,
               std::int64_t elements = 64) {
  plan.buffers.push_back({kind, name, DType::f32, {elements}, elements, offset, {}});
  if (kind == BufferKind::temp) {
    plan.arena_bytes = std::max(plan.arena_bytes, offset + 4 * elements);
  }
  return static_cast<int>(plan.buffers.size()) - 1;
}

int add_kernel(Plan& plan, const std::string& name, std::vector<BufferArg> args) {
  Kernel k;
  k.name = name;
  k.args = std::move(args);
  plan.kernels.push_back(std::move(k));
  return static_cast<int>(plan.kernels.size()) - 1;
}

/// A pass that binds every argument; its text tells which are writable.
RenderedKernel plain(const Kernel& kernel, const Target&, const std::vector<bool>& writable) {
  RenderedPass pass{"kernel", {1, 2, 3}, {}};
  for (std::size_t i = 0; i < kernel.args.size(); ++i) {
    pass.bindings.push_back({static_cast<int>(i), -1, writable[i]});
    pass.text += writable[i] ? " read_write" : " read";
  }
  return {{pass}, {}};
}

template <class E>
std::string message_of(const Plan& plan, const Target& target, const Renderer& renderer = plain) {
  try {
    make_program(plan, target, renderer);
  } catch (const E& error) {
    return error.what();
  }
  return "no exception";
}

TEST(WgslProgram, WhatSharesABufferWithAWrittenOneIsWritable) {
  Plan plan;
  const int x = add_buffer(plan, BufferKind::input, "x");
  const int a = add_buffer(plan, BufferKind::temp, "", 0);
  const int b = add_buffer(plan, BufferKind::temp, "", 256);
  const int y = add_buffer(plan, BufferKind::output, "y");
  const int two = add_kernel(plan, "two", {reads, writes});
  plan.dispatches = {{two, {x, a}, "first"}, {two, {a, b}, "second"}, {two, {b, y}, "third"}};
  const Program p = make_program(plan, {}, plain);

  ASSERT_EQ(p.modules.size(), 2U);  // the first and the third have one text
  EXPECT_EQ(p.modules[0].text, "kernel read read_write");
  EXPECT_EQ(p.modules[0].writable, (std::vector<bool>{false, true}));
  EXPECT_EQ(p.modules[1].text, "kernel read_write read_write");
  ASSERT_EQ(p.passes.size(), 3U);
  EXPECT_EQ(p.passes[2].module, 0);
  EXPECT_EQ(p.passes[1].dispatch, 1);
  EXPECT_EQ(p.passes[1].groups, (std::array<std::uint32_t, 3>{1, 2, 3}));

  ASSERT_EQ(p.buffers.size(), 3U);
  EXPECT_EQ(p.buffers[0].role, Role::arena);
  EXPECT_EQ(p.buffers[0].bytes, 512);
  EXPECT_EQ(p.buffers[1].role, Role::input);
  EXPECT_EQ(p.buffers[1].plan_buffer, x);
  EXPECT_EQ(p.buffers[2].role, Role::output);
  const auto& second = p.passes[1].bindings;
  EXPECT_EQ(second[0].buffer, second[1].buffer);
  EXPECT_EQ(second[1].offset, 256);
  EXPECT_EQ(second[1].bytes, 256);
}

TEST(WgslProgram, EmptyTensorsAndEmptyPassesAreSound) {
  Plan plan;
  const int x = add_buffer(plan, BufferKind::input, "x", 0, 0);
  const int t = add_buffer(plan, BufferKind::temp, "", 0, 0);
  const int k = add_kernel(plan, "k", {{DType::f32, 0, true, false}, {DType::f32, 0, false, true}});
  plan.dispatches = {{k, {x, t}, "nothing"}};
  Program p = make_program(plan, {}, plain);
  for (const GpuBuffer& b : p.buffers) EXPECT_EQ(b.bytes, 4);
  EXPECT_EQ(p.passes[0].bindings[0].bytes, 4);
  p = make_program(plan, {}, [](const Kernel& kernel, const Target& target, const auto& writable) {
    RenderedKernel out = plain(kernel, target, writable);
    out.passes[0].groups[1] = 0;
    return out;
  });
  EXPECT_TRUE(p.passes.empty());
}

TEST(WgslProgram, BoolsTakeAWordEach) {
  Plan plan;
  const int c = add_buffer(plan, BufferKind::constant, "", 0, 3);
  plan.buffers[static_cast<std::size_t>(c)].dtype = DType::bool_;
  plan.buffers[static_cast<std::size_t>(c)].data = {std::byte{1}, std::byte{0}, std::byte{7}};
  const Program p = make_program(plan, {}, plain);
  std::uint32_t words[3];
  ASSERT_EQ(p.buffers[0].data.size(), sizeof words);
  std::memcpy(words, p.buffers[0].data.data(), sizeof words);
  EXPECT_EQ(words[0], 1U);
  EXPECT_EQ(words[1], 0U);
  EXPECT_EQ(words[2], 1U);
  std::byte host[3];
  to_host(DType::bool_, 4, p.buffers[0].data, host);
  EXPECT_EQ(host[0], std::byte{1});
  EXPECT_EQ(host[1], std::byte{0});
  EXPECT_EQ(host[2], std::byte{1});
}

TEST(WgslProgram, TempsSpreadOverArenasWhereOneWouldBeTooLarge) {
  Plan plan;
  std::vector<int> temps;
  for (int i = 0; i < 5; ++i) temps.push_back(add_buffer(plan, BufferKind::temp, "", 256 * i));
  const int k = add_kernel(plan, "join", {reads, reads, writes});
  plan.dispatches = {{k, {temps[0], temps[1], temps[2]}, "a"},
                     {k, {temps[2], temps[0], temps[3]}, "b"},
                     {k, {temps[3], temps[2], temps[4]}, "c"}};
  Target target;
  target.buffer_bytes = 512;
  const Program p = make_program(plan, target, plain);
  for (const GpuBuffer& b : p.buffers) EXPECT_LE(b.bytes, 512);
  // The temps of a dispatch are apart.
  for (const Pass& pass : p.passes) {
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        EXPECT_TRUE(pass.bindings[i].buffer != pass.bindings[j].buffer ||
                    pass.bindings[i].offset != pass.bindings[j].offset);
      }
    }
  }
}

TEST(WgslProgram, ScratchLiesInArenasThatKernelsShare) {
  Plan plan;
  const int x = add_buffer(plan, BufferKind::input, "x");
  const int y = add_buffer(plan, BufferKind::output, "y");
  const int k = add_kernel(plan, "k", {reads, writes});
  const int l = add_kernel(plan, "l", {reads, writes});
  plan.dispatches = {{k, {x, y}, "k"}, {l, {x, y}, "l"}};
  const auto split = [](const Kernel& kernel, const Target&, const std::vector<bool>&) {
    const RenderedPass first{"first", {1, 1, 1}, {{0, -1, false}, {-1, 0, true}}};
    const RenderedPass second{"second", {1, 1, 1}, {{-1, 0, false}, {1, -1, true}}};
    return RenderedKernel{{first, second}, {kernel.name == "k" ? 1000 : 500}};
  };
  const Program p = make_program(plan, {}, split);
  ASSERT_EQ(p.buffers.size(), 3U);
  EXPECT_EQ(p.buffers[2].role, Role::arena);
  EXPECT_EQ(p.buffers[2].bytes, 1000);
  ASSERT_EQ(p.passes.size(), 4U);
  EXPECT_EQ(p.passes[0].bindings[1].buffer, 2);
  EXPECT_EQ(p.passes[3].bindings[0].buffer, 2);
  EXPECT_EQ(p.passes[3].bindings[0].bytes, 500);
}

TEST(WgslProgram, WhatTheDeviceCannotHoldIsNamed) {
  Plan plan;
  const int x = add_buffer(plan, BufferKind::input, "pixels");
  const int t = add_buffer(plan, BufferKind::temp, "");
  const int k = add_kernel(plan, "k", {reads, writes});
  plan.dispatches = {{k, {x, t}, "hidden: relu"}};
  Target target;
  target.buffer_bytes = 100;
  std::string message = message_of<DeviceError>(plan, target);
  EXPECT_NE(message.find("result of `hidden: relu` with 64 elements takes 256 bytes"),
            std::string::npos)
      << message;
  target.buffer_bytes = 1000;
  target.binding_bytes = 100;
  message = message_of<DeviceError>(plan, target);
  EXPECT_NE(message.find("tensor `pixels` of shape [64] takes 256 bytes"), std::string::npos)
      << message;
  EXPECT_NE(message.find("maxStorageBufferBindingSize"), std::string::npos) << message;
  target = {};
  target.storage_buffers = 1;
  message = message_of<DeviceError>(plan, target);
  EXPECT_NE(message.find("`hidden: relu` binds 2 buffers"), std::string::npos) << message;
}

TEST(WgslProgram, ARendererThatBindsABufferBothWaysIsCaught) {
  Plan plan;
  const int a = add_buffer(plan, BufferKind::temp, "", 0);
  const int b = add_buffer(plan, BufferKind::temp, "", 256);
  const int k = add_kernel(plan, "k", {reads, writes});
  plan.dispatches = {{k, {a, b}, "k"}};
  const auto stubborn = [](const Kernel& kernel, const Target& target, const auto&) {
    return plain(kernel, target, {false, true});
  };
  EXPECT_NE(message_of<GraphError>(plan, {}, stubborn).find("of one buffer"), std::string::npos);
}

}  // namespace
}  // namespace tensorgrad::wgsl
