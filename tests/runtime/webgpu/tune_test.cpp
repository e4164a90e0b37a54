// Tuning: variants of kernels are timed, the winners kept and used.
#include "runtime/webgpu/tune.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "io/temp_folder.h"
#include "ops/primitives.h"
#include "runtime/webgpu/device.h"
#include "schedule/schedule.h"
#include "tensorgrad/tensorgrad.h"

namespace tensorgrad::webgpu {
namespace {

/// A device of its own whose cache is a folder of the test's.
class WebGpuTuning : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = unavailable(); !reason.empty()) GTEST_SKIP() << reason;
    instance_ = std::dynamic_pointer_cast<WebGpuDevice>(open_device("webgpu"))
                    ->context()
                    .adapter()
                    .instance();
    Graph graph;
    const Tensor a = prim::input(InputRole::input, "a", {{40, 24}, DType::f32});
    const Tensor b = prim::input(InputRole::input, "b", {{24, 20}, DType::f32});
    graph.inputs = {a, b};
    graph.outputs = {{"product", matmul(a, b)}};
    device_ = open();
    target_ = device_->context().adapter().target();
    plan_ = make_plan(graph, device_->target());
  }

  std::shared_ptr<WebGpuDevice> open() const {
    return std::make_shared<WebGpuDevice>(
        Context::open(std::make_shared<const Adapter>(instance_, dawn::BackendType::vulkan),
                      {true, folder_.path()}));
  }

  /// The product by a device, with what it has chosen.
  static std::vector<std::byte> run(Device& device, const Plan& plan) {
    const auto program = device.load(plan);
    std::vector<std::vector<std::byte>> inputs;
    for (const PlanBuffer& buffer : plan.buffers) {
      if (buffer.kind != BufferKind::input) continue;
      std::vector<float> values(static_cast<std::size_t>(buffer.elements));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7) - 3;
      const auto bytes = std::as_bytes(std::span(values));
      inputs.emplace_back(bytes.begin(), bytes.end());
    }
    const std::vector<std::span<const std::byte>> feeds(inputs.begin(), inputs.end());
    const auto done = program->run(feeds, {});
    const auto out = done->output(0);
    return {out.begin(), out.end()};
  }

  test::TempFolder folder_;
  std::shared_ptr<const Instance> instance_;
  std::shared_ptr<WebGpuDevice> device_;
  wgsl::Target target_;
  Plan plan_;
};

TEST_F(WebGpuTuning, TimesEveryVariantAndKeepsAWinner) {
  std::size_t reported = 0;
  const auto tuned = device_->tune(plan_, false, [&](const TunedKernel&) { ++reported; });
  ASSERT_EQ(tuned.size(), 1U);
  EXPECT_EQ(reported, 1U);
  EXPECT_EQ(tuned[0].dispatches, 1);
  EXPECT_FALSE(tuned[0].known);
  EXPECT_EQ(tuned[0].candidates.size(), wgsl::variants(plan_.kernels[0], target_).size());
  for (const TunedKernel::Candidate& c : tuned[0].candidates) {
    EXPECT_EQ(c.error, "") << c.name;
    EXPECT_GT(c.seconds, 0) << c.name;
  }
  const auto winner = Winners(device_->context().shared_from_this()).find(plan_.kernels[0]);
  EXPECT_EQ(winner, tuned[0].candidates[tuned[0].winner].name);
  // Another device of this adapter reads it, and times nothing.
  const auto again = open()->tune(plan_, false, {});
  ASSERT_EQ(again.size(), 1U);
  EXPECT_TRUE(again[0].known);
  EXPECT_EQ(again[0].winner, tuned[0].winner);
  EXPECT_FALSE(open()->tune(plan_, true, {})[0].known);
}

TEST_F(WebGpuTuning, ProgramsRunTheWinnerWithTheSameResults) {
  const std::vector<std::byte> before = run(*device_, plan_);
  const auto variants = wgsl::variants(plan_.kernels[0], target_);
  std::set<std::string> sources;
  for (const wgsl::Variant& variant : variants) {
    Winners(device_->context().shared_from_this()).keep(plan_.kernels[0], variant.name);
    const auto device = open();
    EXPECT_EQ(run(*device, plan_), before) << variant.name;  // small whole numbers add exactly
    sources.insert(device->load(plan_)->source(0));
  }
  EXPECT_EQ(sources.size(), variants.size());
}

TEST_F(WebGpuTuning, DamagedAndUnknownWinnersAreNotThere) {
  const std::vector<std::byte> before = run(*device_, plan_);
  const std::string source = device_->load(plan_)->source(0);
  Winners(device_->context().shared_from_this()).keep(plan_.kernels[0], "no such variant");
  EXPECT_EQ(open()->load(plan_)->source(0), source);
  EXPECT_FALSE(open()->tune(plan_, false, {})[0].known);
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    if (entry.is_regular_file()) std::ofstream(entry.path(), std::ios::trunc) << "damaged";
  }
  const auto device = open();
  EXPECT_EQ(Winners(device->context().shared_from_this()).find(plan_.kernels[0]), std::nullopt);
  EXPECT_EQ(run(*device, plan_), before);
}

TEST_F(WebGpuTuning, VariantsThatFailOrDifferAreDropped) {
  const kernel::Kernel& kernel = plan_.kernels[0];
  const auto sound = wgsl::variants(kernel, target_);
  const auto change = [&](const char* from, const char* to) {
    return [&, from, to](const std::vector<bool>& writable) {
      wgsl::RenderedKernel rendered = sound[0].render(writable);
      std::string& text = rendered.passes[0].text;
      std::size_t changes = 0;
      for (std::size_t at = text.find(from); at != std::string::npos;
           at = text.find(from, at + std::string(to).size())) {
        text.replace(at, std::string(from).size(), to);
        ++changes;
      }
      EXPECT_GT(changes, 0U) << text;
      return rendered;
    };
  };
  const auto refuse = [](const std::vector<bool>&) -> wgsl::RenderedKernel {
    throw GraphError("there is no room");
  };
  const TunedKernel tuned =
      time_variants(device_->context().shared_from_this(), target_, *device_, kernel,
                    {sound[0],
                     {"no text", change("@compute", "compute")},
                     {"another sum", change("] = value", "] = 2f * value")},
                     {"refused", refuse},
                     {"sound", sound[1].render}});
  const auto& all = tuned.candidates;
  ASSERT_EQ(all.size(), 5U);
  EXPECT_EQ(all[0].error, "");
  for (const std::size_t i : {1U, 2U, 3U}) EXPECT_NE(all[i].error, "") << all[i].name;
  EXPECT_EQ(all[3].error, "there is no room");
  EXPECT_EQ(all[4].error, "");
  EXPECT_TRUE(tuned.winner == 0 || tuned.winner == 4);
}

TEST_F(WebGpuTuning, KeysNameTheKernelAndNotItsName) {
  Winners winners(device_->context().shared_from_this());
  winners.keep(plan_.kernels[0], "a");
  kernel::Kernel renamed = plan_.kernels[0];
  renamed.name = "another name";
  EXPECT_EQ(winners.find(renamed), "a");
  std::get<kernel::Matmul>(*renamed.contraction).m += 1;
  EXPECT_EQ(winners.find(renamed), std::nullopt);
  // What another adapter found lies under another key.
  const auto null = Context::open(
      std::make_shared<const Adapter>(instance_, dawn::BackendType::null), {true, folder_.path()});
  EXPECT_EQ(Winners(null).find(plan_.kernels[0]), std::nullopt);
}

}  // namespace
}  // namespace tensorgrad::webgpu
