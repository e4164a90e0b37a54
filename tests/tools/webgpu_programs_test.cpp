// The programs of the fixed workloads as WebGPU runs them, through Dawn's validation: for what
// every adapter has, and for GPUs with more; every way to render each kernel.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "codegen/wgsl/program.h"
#include "runtime/webgpu/context.h"
#include "schedule/schedule.h"
#include "tensorgrad/error.h"
#include "train/core.h"
#include "workloads.h"

namespace tensorgrad::webgpu {
namespace {

/// The null backend checks what it is given, and runs nothing: no driver is needed. Null where Dawn
/// is missing.
std::shared_ptr<Context> null_context() {
  try {
    const auto instance = std::make_shared<const Instance>(Library::open());
    return Context::open(std::make_shared<const Adapter>(instance, dawn::BackendType::null),
                         {true, {}});
  } catch (const DeviceError&) {
    return nullptr;
  }
}

class WebGpuPrograms : public ::testing::TestWithParam<const char*> {};

TEST_P(WebGpuPrograms, OfTheWorkloadsAreSound) {
  const std::shared_ptr<Context> context = null_context();
  if (!context) GTEST_SKIP() << "the WebGPU library is missing";
  const tools::WorkloadRun run = tools::compile_workload(GetParam(), "web");
  const Graph& graph = run.training->core().compiled()->graph;
  wgsl::Target more;
  more.storage_buffers = 10;
  more.units = 128;
  wgsl::Target eight = more;
  eight.storage_buffers = 8;
  std::set<std::string> seen;
  std::size_t ways = 0;
  for (const wgsl::Target& target : {wgsl::Target{}, eight, more}) {
    SCOPED_TRACE(target.key());
    const Plan plan = make_plan(graph, wgsl::schedule_target(target));
    std::vector<Shader> shaders;
    const auto add = [&](const wgsl::Renderer& renderer) {
      for (const wgsl::Module& m : wgsl::make_program(plan, target, renderer).modules) {
        EXPECT_LE(m.writable.size(), static_cast<std::size_t>(target.storage_buffers)) << m.name;
        // The null backend binds no more than eight.
        if (m.writable.size() > 8) continue;
        if (seen.insert(m.text).second) shaders.push_back({m.name, m.text, m.writable});
      }
    };
    add(wgsl::render);
    std::size_t most = 0;
    for (const kernel::Kernel& k : plan.kernels) {
      most = std::max(most, wgsl::variants(k, target).size());
    }
    for (std::size_t i = 1; i < most; ++i) {
      add([&](const kernel::Kernel& k, const wgsl::Target& t, const std::vector<bool>& writable) {
        const std::vector<wgsl::Variant> variants = wgsl::variants(k, t);
        return variants[std::min(i, variants.size() - 1)].render(writable);
      });
    }
    ways += shaders.size();
    EXPECT_NO_THROW(context->compile(shaders));
  }
  EXPECT_GT(ways, 2 * run.training->core().compiled()->program->plan()->kernels.size());
}

INSTANTIATE_TEST_SUITE_P(Workloads, WebGpuPrograms,
                         ::testing::Values("W1", "W2", "W2g", "W3", "W3c"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace tensorgrad::webgpu
