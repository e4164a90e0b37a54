// The passes that loop nests become. What they compute is tested on devices, op by op.
#include "codegen/wgsl/nest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "codegen/wgsl/nest_rows.h"
#include "ops/primitives.h"
#include "schedule/schedule.h"
#include "tensorgrad/error.h"
#include "tensorgrad/tensorgrad.h"

namespace tensorgrad {
namespace {

/// The kernels of outputs computed from inputs "x0", "x1", ...
template <class F>
Plan plan_of(const std::vector<Type>& types, F f) {
  Graph graph;
  for (std::size_t i = 0; i < types.size(); ++i) {
    graph.inputs.push_back(prim::input(InputRole::input, "x" + std::to_string(i), types[i]));
  }
  graph.outputs.push_back({"y", f(graph.inputs)});
  return make_plan(graph, Target{.max_buffers = 7, .alignment = 256, .bool_bytes = 4});
}

wgsl::RenderedKernel render(const kernel::Kernel& kernel, const wgsl::Target& target) {
  return wgsl::render_nest(kernel, target, std::vector<bool>(kernel.args.size()));
}

std::size_t occurrences(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

Type f32(const Shape& shape) { return {shape, DType::f32}; }
Type i32(const Shape& shape) { return {shape, DType::i32}; }

TEST(WgslNest, AMapIsOnePassWithAnInvocationAPoint) {
  const Plan plan = plan_of({f32({3, 100}), f32({100})},
                            [](const auto& x) { return maximum(x[0] + x[1], 0.5F); });
  ASSERT_EQ(plan.kernels.size(), 1U);
  const auto rendered = render(plan.kernels[0], {});
  ASSERT_EQ(rendered.passes.size(), 1U);
  EXPECT_TRUE(rendered.scratch_bytes.empty());
  const auto& pass = rendered.passes[0];
  EXPECT_EQ(pass.groups, (std::array<std::uint32_t, 3>{2, 1, 1}));
  ASSERT_EQ(pass.bindings.size(), 3U);
  EXPECT_FALSE(pass.bindings[0].writable);
  EXPECT_TRUE(pass.bindings[2].writable);
  EXPECT_EQ(pass.text,
            "@group(0) @binding(0) var<storage, read> b0: array<f32, 300>;\n"
            "@group(0) @binding(1) var<storage, read> b1: array<f32, 100>;\n"
            "@group(0) @binding(2) var<storage, read_write> b2: array<f32, 300>;\n"
            "\n"
            "fn tg_is_nan(x: f32) -> bool {\n"
            "  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;\n"
            "}\n"
            "\n"
            "fn tg_max(a: f32, b: f32) -> f32 {\n"
            "  return select(select(b, a, (a > b) | tg_is_nan(a)), b, tg_is_nan(b));\n"
            "}\n"
            "\n"
            "@compute @workgroup_size(256)\n"
            "fn main(@builtin(workgroup_id) groups: vec3<u32>,\n"
            "        @builtin(local_invocation_index) local: u32) {\n"
            "  let group = groups.x;\n"
            "  let i = group * 256u + local;\n"
            "  if (i >= 300u) { return; }\n"
            "  b2[i] = tg_max(b0[i] + b1[i % 100u], 0.5f);\n"
            "}\n");
}

TEST(WgslNest, AMapOverManyPointsLoadsAndStoresVectors) {
  const auto plan_for = [](std::int64_t rows, std::int64_t columns) {
    return plan_of({f32({rows, columns}), f32({columns}), f32({rows, 1})},
                   [](const auto& x) { return (x[0] + x[1]) * x[2]; });
  };
  const auto rendered = render(plan_for(128, 64).kernels.at(0), {});
  const auto& pass = rendered.passes.at(0);
  EXPECT_EQ(pass.groups, (std::array<std::uint32_t, 3>{8, 1, 1}));
  EXPECT_EQ(pass.text,
            "@group(0) @binding(0) var<storage, read> b0: array<vec4<f32>, 2048>;\n"
            "@group(0) @binding(1) var<storage, read> b1: array<vec4<f32>, 16>;\n"
            "@group(0) @binding(2) var<storage, read> b2: array<f32, 128>;\n"
            "@group(0) @binding(3) var<storage, read_write> b3: array<vec4<f32>, 2048>;\n"
            "\n"
            "@compute @workgroup_size(256)\n"
            "fn main(@builtin(workgroup_id) groups: vec3<u32>,\n"
            "        @builtin(local_invocation_index) local: u32) {\n"
            "  let group = groups.x;\n"
            "  let quad = group * 256u + local;\n"
            "  let i = quad * 4u;\n"
            "  let t0 = b2[i / 64u];\n"
            "  let t1 = b1[i % 64u / 4u];\n"
            "  let t2 = b0[quad];\n"
            "  var r0: vec4<f32>;\n"
            "  {\n"
            "    r0.x = (t2.x + t1.x) * t0;\n"
            "  }\n"
            "  {\n"
            "    r0.y = (t2.y + t1.y) * t0;\n"
            "  }\n"
            "  {\n"
            "    r0.z = (t2.z + t1.z) * t0;\n"
            "  }\n"
            "  {\n"
            "    r0.w = (t2.w + t1.w) * t0;\n"
            "  }\n"
            "  b3[quad] = r0;\n"
            "}\n");
  // A row that ends within a vector, points that no vectors divide, and few of them.
  for (const Plan& plan : {plan_for(128, 66), plan_for(127, 65), plan_for(127, 64)}) {
    const auto scalar = render(plan.kernels.at(0), {});
    EXPECT_EQ(scalar.passes.at(0).text.find("b1: array<vec4<f32>"), std::string::npos);
  }
}

TEST(WgslNest, GridsBeyondOneDimensionAreTwo) {
  const Plan plan = plan_of({f32({1000, 1000})}, [](const auto& x) { return x[0] * 2.0F; });
  wgsl::Target target;
  target.groups = 100;
  target.units = 128;  // too many for vectors of points
  const auto rendered = render(plan.kernels.at(0), target);
  const auto& groups = rendered.passes.at(0).groups;
  EXPECT_LE(groups[0], 100U);
  EXPECT_LE(groups[1], 100U);
  EXPECT_GE(groups[0] * groups[1] * 256, 1'000'000U);
  EXPECT_NE(rendered.passes[0].text.find("groups.y"), std::string::npos);
  target.groups = 10;
  EXPECT_THROW(render(plan.kernels[0], target), GraphError);
}

TEST(WgslNest, HelpersUsedTwiceAreDefinedOnce) {
  const Plan plan = plan_of({f32({64}), f32({64})}, [](const auto& x) {
    return erf(x[0]) * erf(x[1]) + pow(x[0], x[1]) * pow(x[1], x[0]);
  });
  const std::string text = render(plan.kernels.at(0), {}).passes.at(0).text;
  for (const char* helper : {"fn tg_erf(", "fn tg_pow(", "fn tg_exp(", "fn tg_bits("}) {
    EXPECT_EQ(occurrences(text, helper), 1U) << helper;
  }
}

TEST(WgslNest, ASoftmaxRowIsReadOnce) {
  const Plan plan = plan_of({f32({4096, 1024})}, [](const auto& x) { return softmax(x[0]); });
  ASSERT_EQ(plan.kernels.size(), 1U);
  const auto rendered = render(plan.kernels[0], {});
  ASSERT_EQ(rendered.passes.size(), 1U);
  const std::string& text = rendered.passes[0].text;
  EXPECT_EQ(rendered.passes[0].groups[0], 4096U);
  EXPECT_EQ(occurrences(text, " b0["), 1U) << text;
  EXPECT_NE(text.find("@workgroup_size(64)"), std::string::npos);
  EXPECT_NE(text.find("var<workgroup>"), std::string::npos);
  wgsl::Target cpu;
  cpu.cpu = true;
  EXPECT_EQ(render(plan.kernels[0], cpu).passes.at(0).text.find("var<workgroup>"),
            std::string::npos);
  wgsl::Target subgroups;
  subgroups.subgroup_min = subgroups.subgroup_max = 32;
  EXPECT_NE(render(plan.kernels[0], subgroups).passes.at(0).text.find("subgroupShuffleXor"),
            std::string::npos);
}

TEST(WgslNest, ALongSumTakesTwoPasses) {
  const Plan plan = plan_of({f32({1 << 22})}, [](const auto& x) { return sum(x[0]); });
  ASSERT_EQ(plan.kernels.size(), 1U);
  wgsl::Target target;
  target.units = 128;
  const auto rendered = render(plan.kernels[0], target);
  ASSERT_EQ(rendered.passes.size(), 2U);
  EXPECT_EQ(rendered.passes[0].groups[0], 512U);
  EXPECT_EQ(rendered.passes[1].groups[0], 1U);
  EXPECT_EQ(rendered.scratch_bytes, (std::vector<std::int64_t>{2048}));
}

TEST(WgslNest, ASumOfAsManyBuffersAsAreBoundIsSplitToo) {
  const Shape shape{16384, 128};
  const Plan plan = plan_of(std::vector<Type>(5, f32(shape)), [](const auto& x) {
    Tensor total = x[0];
    for (std::size_t i = 1; i < x.size(); ++i) total = total * x[i];
    return sum(total, 0);
  });
  ASSERT_EQ(plan.kernels.size(), 1U);
  ASSERT_EQ(plan.kernels[0].args.size(), 6U);
  wgsl::Target target;
  target.storage_buffers = 6;
  const auto rendered = render(plan.kernels[0], target);
  ASSERT_EQ(rendered.passes.size(), 2U);
  EXPECT_EQ(rendered.passes[0].bindings.size(), 6U);
  EXPECT_EQ(rendered.passes[1].bindings.size(), 2U);
  // With one less there is no room for partial results.
  target.storage_buffers = 5;
  EXPECT_THROW(render(plan.kernels[0], target), GraphError);
}

TEST(WgslNest, ColumnSumsRunAlongTheRows) {
  const Plan plan = plan_of({f32({4096, 768})}, [](const auto& x) { return sum(x[0], {0}); });
  const kernel::Kernel& kernel = plan.kernels.at(0);
  const wgsl::RowLayout layout = wgsl::row_layouts(kernel, wgsl::flatten_rows(kernel), {}).front();
  EXPECT_TRUE(layout.columns);
  EXPECT_EQ(layout.rows * layout.lanes, 256);
}

TEST(WgslNest, ScattersAddInOrderWithoutAtomics) {
  const Plan plan = plan_of({i32({1024}), f32({1024, 128})},
                            [](const auto& x) { return scatter_add(x[0], x[1], 65); });
  std::string text;
  for (const kernel::Kernel& kernel : plan.kernels) {
    for (const auto& pass : render(kernel, {}).passes) text += pass.text;
  }
  EXPECT_EQ(text.find("atomic"), std::string::npos);
  // Indices are looked at by blocks, what they hit is added in order.
  EXPECT_NE(text.find("j < 32u"), std::string::npos);
  EXPECT_NE(text.find("firstTrailingBit(hits)"), std::string::npos);
}

TEST(WgslNest, NothingIsRunForNoRows) {
  const Plan plan = plan_of({f32({0, 5})}, [](const auto& x) { return sum(x[0], 1); });
  for (const kernel::Kernel& kernel : plan.kernels) EXPECT_TRUE(render(kernel, {}).passes.empty());
}

TEST(WgslNest, TheSameKernelGivesTheSameText) {
  const auto text = [] {
    const Plan plan = plan_of({f32({64, 300})}, [](const auto& x) { return log_softmax(x[0]); });
    return render(plan.kernels.at(0), {}).passes.at(0).text;
  };
  EXPECT_EQ(text(), text());
}

TEST(WgslNest, MoreBuffersThanTheAdapterBindsAreAnError) {
  const Plan plan =
      plan_of({f32({8}), f32({8}), f32({8})}, [](const auto& x) { return x[0] * x[1] + x[2]; });
  wgsl::Target target;
  target.storage_buffers = 3;
  EXPECT_THROW(render(plan.kernels.at(0), target), GraphError);
}

}  // namespace
}  // namespace tensorgrad
