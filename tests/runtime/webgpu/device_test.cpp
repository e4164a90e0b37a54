// The device by itself: programs with kernels written by hand, memory, errors.
#include "runtime/webgpu/device.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "io/temp_folder.h"
#include "tensorgrad/error.h"

namespace tensorgrad::webgpu {
namespace {

using test::message_of;

using Floats = std::vector<float>;

std::span<const std::byte> bytes_of(const Floats& values) {
  return std::as_bytes(std::span(values));
}

Floats floats(std::span<const std::byte> bytes) {
  Floats out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

Floats read(const DeviceBuffer& buffer) {
  Floats out(buffer.bytes() / sizeof(float));
  buffer.read(0, std::as_writable_bytes(std::span(out)));
  return out;
}

/// Kernels by name: "add" adds its first operand to its second in place; "plus one" stores its
/// operand and one; "not" inverts.
wgsl::RenderedKernel by_name(const kernel::Kernel& kernel, const wgsl::Target&,
                             const std::vector<bool>& writable) {
  const std::string name = kernel.name;
  const std::string type = name == "not" ? "u32" : "f32";
  wgsl::RenderedPass pass;
  for (std::size_t i = 0; i < writable.size(); ++i) {
    pass.bindings.push_back({static_cast<int>(i), -1, writable[i]});
    pass.text += fmt::format("@group(0) @binding({}) var<storage, {}> x{}: array<{}>;\n", i,
                             writable[i] ? "read_write" : "read", i, type);
  }
  const std::string body = name == "add"        ? "x1[i] = x1[i] + x0[i];"
                           : name == "plus one" ? "x1[i] = x0[i] + 1.0;"
                           : name == "not"      ? "x1[i] = 1u - x0[i];"
                                                : "x1[i] = x0[i] + no_such_name;";
  pass.text += fmt::format(
      "@compute @workgroup_size(64)\nfn main(@builtin(global_invocation_id) id: vec3u) {{\n"
      "  let i = id.x;\n  if (i < arrayLength(&x1)) {{\n    {}\n  }}\n}}\n",
      body);
  pass.groups[0] = static_cast<std::uint32_t>((kernel.args[0].elements + 63) / 64);
  return {{pass}, {}};
}

int add_buffer(Plan& plan, BufferKind kind, const std::string& name, std::int64_t elements,
               DType dtype = DType::f32) {
  plan.buffers.push_back({kind, name, dtype, {elements}, elements, plan.arena_bytes, {}});
  if (kind == BufferKind::temp) plan.arena_bytes += (4 * elements + 255) / 256 * 256;
  return static_cast<int>(plan.buffers.size()) - 1;
}

void add_dispatch(Plan& plan, const std::string& name, int from, int to) {
  const PlanBuffer& a = plan.buffers[static_cast<std::size_t>(from)];
  kernel::Kernel k;
  k.name = name;
  k.args = {{a.dtype, a.elements, true, false}, {a.dtype, a.elements, name == "add", true}};
  plan.kernels.push_back(k);
  plan.dispatches.push_back({static_cast<int>(plan.kernels.size()) - 1, {from, to}, name});
}

/// total += x; y = x + 2.
Plan counter(std::int64_t elements) {
  Plan plan;
  const int x = add_buffer(plan, BufferKind::input, "x", elements);
  const int total = add_buffer(plan, BufferKind::state, "total", elements);
  const int t = add_buffer(plan, BufferKind::temp, "", elements);
  const int y = add_buffer(plan, BufferKind::output, "y", elements);
  const int out = add_buffer(plan, BufferKind::output, "total now", elements);
  add_dispatch(plan, "add", x, total);
  add_dispatch(plan, "plus one", x, t);
  add_dispatch(plan, "plus one", t, y);
  add_dispatch(plan, "plus one", total, out);
  return plan;
}

class WebGpuDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = unavailable(); !reason.empty()) GTEST_SKIP() << reason;
    device_ = std::dynamic_pointer_cast<WebGpuDevice>(open());
  }
  std::unique_ptr<Executable> load(const Plan& plan) {
    return webgpu::load(device_->context().shared_from_this(),
                        device_->context().adapter().target(), plan, by_name);
  }
  std::unique_ptr<Completion> run(Executable& program, const Floats& x, DeviceBuffer& state) {
    const std::span<const std::byte> inputs[] = {bytes_of(x)};
    DeviceBuffer* const states[] = {&state};
    return program.run(inputs, states);
  }
  std::shared_ptr<WebGpuDevice> device_;
};

TEST_F(WebGpuDeviceTest, SaysWhatItIs) {
  const DeviceInfo info = device_->info();
  EXPECT_EQ(info.name, "webgpu");
  EXPECT_FALSE(info.description.empty());
  EXPECT_EQ(device_->context().adapter().software(),
            info.description.find("software adapter") != std::string::npos);
  EXPECT_EQ(automatic(), !device_->context().adapter().software());
  EXPECT_GE(device_->target().max_buffers, 8);
  EXPECT_EQ(device_->target().bool_bytes, 4);
}

TEST_F(WebGpuDeviceTest, RunsAndUpdatesStateInPlace) {
  const auto program = load(counter(100));
  const auto total = device_->allocate(DType::f32, 100);
  EXPECT_EQ(read(*total), Floats(100, 0.0F));
  EXPECT_EQ(floats(run(*program, Floats(100, 1.5F), *total)->output(0)), Floats(100, 3.5F));
  run(*program, Floats(100, 2.0F), *total);
  EXPECT_EQ(read(*total), Floats(100, 3.5F));
  EXPECT_NE(program->source(0).find("x1[i] = x1[i] + x0[i];"), std::string::npos);
  EXPECT_GE(program->allocated_bytes(), 100U * 4 * 4);
}

TEST_F(WebGpuDeviceTest, ResultsOfAStepOutliveTheNext) {
  const auto program = load(counter(70));
  const auto total = device_->allocate(DType::f32, 70);
  std::vector<std::unique_ptr<Completion>> steps;
  for (int i = 0; i < 20; ++i) {
    steps.push_back(run(*program, Floats(70, static_cast<float>(i)), *total));
  }
  float sum = 0;
  for (int i = 0; i < 20; ++i) {
    sum += static_cast<float>(i);
    const auto at = static_cast<std::size_t>(i);
    EXPECT_EQ(floats(steps[at]->output(1)), Floats(70, sum + 1));
    EXPECT_EQ(floats(steps[at]->output(0)), Floats(70, static_cast<float>(i) + 2));
  }
  EXPECT_THROW(steps[0]->output(2), ValueError);
}

TEST_F(WebGpuDeviceTest, ProgramsAndResultsThatAreDestroyedGiveTheirMemoryBack) {
  const Floats x(64, 1.0F);
  {
    read(*device_->allocate(DType::f32, 64));
  }
  ASSERT_EQ(device_->usage().buffers, 0U);
  for (int i = 0; i < 1000; ++i) {
    const auto total = device_->allocate(DType::f32, 64);
    const auto program = load(counter(64));
    const auto result = run(*program, x, *total);
    if (i % 2 == 0) result->output(0);
    EXPECT_EQ(device_->usage().buffers, 6U);
  }
  EXPECT_EQ(device_->usage().buffers, 0U);
  EXPECT_EQ(device_->usage().bytes, 0U);
}

TEST_F(WebGpuDeviceTest, ALoopThatReadsNothingStaysWithinItsMemory) {
  const auto program = load(counter(64));
  const auto total = device_->allocate(DType::f32, 64);
  run(*program, Floats(64, 1.0F), *total);
  const Usage before = device_->usage();
  for (int i = 0; i < 1999; ++i) run(*program, Floats(64, 1.0F), *total);
  EXPECT_EQ(device_->usage().buffers, before.buffers);
  EXPECT_EQ(read(*total), Floats(64, 2000.0F));
}

TEST_F(WebGpuDeviceTest, BoolsAreWordsOnTheDeviceAndBytesHere) {
  Plan plan;
  const int x = add_buffer(plan, BufferKind::input, "x", 5, DType::bool_);
  const int y = add_buffer(plan, BufferKind::output, "y", 5, DType::bool_);
  add_dispatch(plan, "not", x, y);
  const auto program = load(plan);
  const std::uint8_t in[] = {1, 0, 0, 1, 1};
  const std::span<const std::byte> inputs[] = {std::as_bytes(std::span(in))};
  const auto completion = program->run(inputs, {});
  const auto out = completion->output(0);
  ASSERT_EQ(out.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(static_cast<int>(out[i]), 1 - in[i]);

  const auto buffer = device_->allocate(DType::bool_, 7);
  buffer->write(1, std::as_bytes(std::span(in)));
  std::uint8_t back[3];
  buffer->read(3, std::as_writable_bytes(std::span(back)));
  EXPECT_EQ(back[0], 0);
  EXPECT_EQ(back[1], 1);
  EXPECT_EQ(back[2], 1);
}

TEST_F(WebGpuDeviceTest, BuffersTakeAnyRange) {
  const auto buffer = device_->allocate(DType::u32, 4);
  std::vector<std::byte> bytes(16);
  for (std::size_t i = 0; i < 16; ++i) bytes[i] = static_cast<std::byte>(i + 1);
  buffer->write(0, bytes);
  const std::byte three[] = {std::byte{101}, std::byte{102}, std::byte{103}};
  buffer->write(6, three);
  std::memcpy(&bytes[6], three, 3);
  std::vector<std::byte> back(11);
  buffer->read(5, back);
  EXPECT_TRUE(std::equal(back.begin(), back.end(), bytes.begin() + 5));
  EXPECT_THROW(buffer->write(14, three), ValueError);
  EXPECT_THROW(buffer->read(17, {}), ValueError);

  // Larger than what is read in one piece.
  std::vector<std::uint32_t> many((std::size_t{70} << 20U) / 4 + 3);
  std::iota(many.begin(), many.end(), 5U);
  const auto large = device_->allocate(DType::u32, static_cast<std::int64_t>(many.size()));
  large->write(0, std::as_bytes(std::span(many)));
  std::vector<std::uint32_t> read_back(many.size());
  large->read(0, std::as_writable_bytes(std::span(read_back)));
  EXPECT_TRUE(read_back == many);
}

TEST_F(WebGpuDeviceTest, AProfileHasATimeForEachDispatch) {
  const auto program = load(counter(1000));
  const auto total = device_->allocate(DType::f32, 1000);
  const Floats x(1000, 1.0F);
  const std::span<const std::byte> inputs[] = {bytes_of(x)};
  DeviceBuffer* const states[] = {total.get()};
  const std::vector<double> seconds = program->profile(inputs, states);
  ASSERT_EQ(seconds.size(), 4U);
  double sum = 0;
  for (const double s : seconds) {
    EXPECT_GE(s, 0);
    sum += s;
  }
  EXPECT_GT(sum, 0);
  EXPECT_EQ(read(*total), x);
}

// ---- what goes wrong -----------------------------------------------------------------------------

TEST_F(WebGpuDeviceTest, AKernelThatDoesNotCompileIsShown) {
  Plan plan;
  const int x = add_buffer(plan, BufferKind::input, "x", 8);
  const int y = add_buffer(plan, BufferKind::output, "y", 8);
  add_dispatch(plan, "broken", x, y);
  const std::string message = message_of<DeviceError>([&] { load(plan); });
  EXPECT_NE(message.find("The kernel `broken` does not compile"), std::string::npos) << message;
  EXPECT_NE(message.find("line 7, column"), std::string::npos) << message;
  EXPECT_NE(message.find("unresolved value 'no_such_name'"), std::string::npos) << message;
  EXPECT_NE(message.find("7 |     x1[i] = x0[i] + no_such_name;"), std::string::npos) << message;
  EXPECT_EQ(device_->usage().buffers, 0U);
  const auto total = device_->allocate(DType::f32, 8);
  run(*load(counter(8)), Floats(8, 1.0F), *total);  // the device still works
  EXPECT_EQ(read(*total), Floats(8, 1.0F));
}

TEST_F(WebGpuDeviceTest, TooMuchMemoryIsRefused) {
  const std::string message =
      message_of<OutOfMemory>([&] { device_->allocate(DType::f32, std::int64_t{1} << 42U); });
  EXPECT_NE(message.find("17592186044416 bytes"), std::string::npos) << message;
  EXPECT_EQ(device_->usage().buffers, 0U);
  EXPECT_EQ(read(*device_->allocate(DType::f32, 2)), Floats(2, 0.0F));
}

TEST_F(WebGpuDeviceTest, ATensorOverTheLimitIsNamedAtLoad) {
  Plan plan;
  const int x = add_buffer(plan, BufferKind::input, "x", std::int64_t{1} << 40U);
  const int y = add_buffer(plan, BufferKind::output, "y", std::int64_t{1} << 40U);
  add_dispatch(plan, "plus one", x, y);
  const std::string message = message_of<DeviceError>([&] { load(plan); });
  EXPECT_NE(message.find("tensor `x`"), std::string::npos) << message;
  EXPECT_NE(message.find("4398046511104 bytes"), std::string::npos) << message;
}

TEST_F(WebGpuDeviceTest, AnErrorThatNoCallReportsSurfacesAtTheNext) {
  if (!device_->context().validates()) GTEST_SKIP() << "validation is off";
  const auto buffer = device_->allocate(DType::f32, 4);
  const auto& typed = dynamic_cast<const Buffer&>(*buffer);
  const Floats five(5);
  device_->context().write(typed.handle(), 0, bytes_of(five));
  EXPECT_THROW(read(*buffer), DeviceError);
  EXPECT_EQ(read(*buffer), Floats(4, 0.0F));  // told once
}

TEST_F(WebGpuDeviceTest, StateOfAnotherDeviceIsRefused) {
  const auto program = load(counter(8));
  const std::shared_ptr<Device> other = open();
  const auto total = other->allocate(DType::f32, 8);
  EXPECT_THROW(run(*program, Floats(8), *total), DeviceError);
  EXPECT_THROW(program->run({}, {}), ValueError);
}

TEST_F(WebGpuDeviceTest, ALostDeviceSaysSoAndAnotherTakesItsPlace) {
  const auto program = load(counter(8));
  const auto total = device_->allocate(DType::f32, 8);
  const auto result = run(*program, Floats(8, 1.0F), *total);
  EXPECT_FALSE(device_->lost());
  device_->context().api().device_force_loss(device_->context().device(), dawn::LostReason::unknown,
                                             {"a test asked for it"});
  EXPECT_TRUE(device_->lost());
  const std::string message = message_of<DeviceLost>([&] { read(*total); });
  EXPECT_NE(message.find("a test asked for it"), std::string::npos) << message;
  EXPECT_THROW(run(*program, Floats(8), *total), DeviceLost);
  EXPECT_THROW(result->output(0), DeviceLost);
  EXPECT_THROW(device_->allocate(DType::f32, 8), DeviceLost);
  EXPECT_THROW(load(counter(9)), DeviceLost);
}

TEST_F(WebGpuDeviceTest, ALostDeviceIsOpenedAnewByItsName) {
  const auto first = std::dynamic_pointer_cast<WebGpuDevice>(open_device("webgpu"));
  first->context().api().device_force_loss(first->context().device(), dawn::LostReason::unknown,
                                           {"a test asked for it"});
  const std::shared_ptr<Device> second = open_device("webgpu");
  EXPECT_NE(second, first);
  EXPECT_FALSE(second->lost());
  EXPECT_EQ(read(*second->allocate(DType::f32, 2)), Floats(2, 0.0F));
}

TEST_F(WebGpuDeviceTest, TheNullBackendValidatesKernels) {
  const auto instance = std::make_shared<const Instance>(Library::open());
  const auto context =
      Context::open(std::make_shared<const Adapter>(instance, dawn::BackendType::null), {true, {}});
  const Plan plan = counter(8);
  std::vector<bool> writable{false, true};
  const std::string text = by_name(plan.kernels[0], {}, writable).passes[0].text;
  const Shader good[] = {{"good", text, writable}};
  EXPECT_EQ(context->compile(good).size(), 1U);
  const Shader bad[] = {{"bad", text + "fn f() -> u32 { return 1.0; }", writable}};
  EXPECT_THROW(context->compile(bad), DeviceError);
}

}  // namespace
}  // namespace tensorgrad::webgpu
