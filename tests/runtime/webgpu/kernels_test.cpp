// What the renderer writes for adapters of every kind: the kernels of a GPU, on whatever adapter is
// there, against the reference; and every text through Dawn's validation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>

#include "codegen/wgsl/program.h"
#include "ops/primitives.h"
#include "ops/rules.h"
#include "ops/sampling.h"
#include "runtime/webgpu/device.h"
#include "schedule/schedule.h"
#include "tensorgrad/error.h"
#include "tensorgrad/tensorgrad.h"

namespace tensorgrad::webgpu {
namespace {

/// Values of a graph's outputs for its inputs, by a device that takes its adapter for `target`.
std::vector<RefArray> run(WebGpuDevice& device, const wgsl::Target& target, const Graph& graph,
                          const std::vector<RefArray>& operands) {
  const Plan plan = make_plan(graph, wgsl::schedule_target(target));
  const auto program =
      load(device.context().shared_from_this(), target, plan, wgsl::Renderer(wgsl::render));
  std::unordered_map<std::string, std::vector<std::byte>> bytes;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    bytes[graph.inputs[i].node().attr<InputAttr>().name] = testing::bytes_of(operands[i]);
  }
  std::vector<std::span<const std::byte>> inputs;
  for (const PlanBuffer& b : plan.buffers) {
    if (b.kind == BufferKind::input) inputs.emplace_back(bytes.at(b.name));
  }
  const auto completion = program->run(inputs, {});
  std::unordered_map<std::string, RefArray> by_name;
  std::size_t next = 0;
  for (const PlanBuffer& b : plan.buffers) {
    if (b.kind != BufferKind::output) continue;
    const auto out = completion->output(next++);
    by_name[b.name] = interpret(prim::data({b.shape, b.dtype}, {out.begin(), out.end()}));
  }
  std::vector<RefArray> results;
  for (const Named& output : graph.outputs) results.push_back(by_name.at(output.name));
  return results;
}

/// The adapter here, taken for a GPU.
class WebGpuKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = unavailable(); !reason.empty()) GTEST_SKIP() << reason;
    device_ = std::dynamic_pointer_cast<WebGpuDevice>(open_device("webgpu"));
    target_ = device_->context().adapter().target();
    target_.cpu = false;
    // Barriers cost a software adapter much for each invocation.
    target_.invocations = 64;
    target_.workgroup_bytes = 2048;
  }

  /// Compares the outputs of a graph with the reference; elements differ by at most `tolerance`.
  void expect_agreement(const Graph& graph, const std::vector<RefArray>& operands,
                        double tolerance) {
    const std::vector<RefArray> actual = run(*device_, target_, graph, operands);
    std::unordered_map<const Node*, const RefArray*> values;
    for (std::size_t i = 0; i < operands.size(); ++i) {
      values[&graph.inputs[i].node()] = &operands[i];
    }
    std::vector<Tensor> outputs;
    for (const Named& output : graph.outputs) outputs.push_back(output.value);
    const std::vector<RefArray> expected =
        interpret(outputs, [&](const Node& leaf) { return *values.at(&leaf); });
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      SCOPED_TRACE(graph.outputs[o].name);
      ASSERT_EQ(actual[o].data.size(), expected[o].data.size());
      for (std::size_t i = 0; i < actual[o].data.size(); ++i) {
        const double a = actual[o].data[i];
        const double e = expected[o].data[i];
        if (a == e || (std::isnan(a) && std::isnan(e))) continue;
        // What an f16 rounds by comes on top.
        const double rounded = expected[o].type.dtype == DType::f16 ? 0x1p-10 * std::fabs(e) : 0;
        ASSERT_LE(std::fabs(a - e), tolerance + rounded)
            << "element " << i << " is " << a << ", not " << e;
      }
    }
  }

  std::shared_ptr<WebGpuDevice> device_;
  wgsl::Target target_;
};

/// Inputs of a graph with random values in [-2, 2].
Tensor add_input(Graph& graph, std::vector<RefArray>& values, const Type& type) {
  testing::Rng rng(graph.inputs.size() + 1);
  graph.inputs.push_back(
      prim::input(InputRole::input, fmt::format("x{}", graph.inputs.size()), type));
  values.push_back(testing::draw(type, -2, 2, rng));
  return graph.inputs.back();
}

TEST_F(WebGpuKernels, ContractionsReadHalves) {
  const auto check = [&](const char* name, const std::vector<Type>& types, auto f) {
    SCOPED_TRACE(name);
    Graph graph;
    std::vector<RefArray> values;
    std::vector<Tensor> x;
    for (const Type& type : types) x.push_back(add_input(graph, values, type));
    graph.outputs = {{"y", f(x)}};
    const Plan plan = make_plan(graph, wgsl::schedule_target(target_));
    ASSERT_EQ(plan.dispatches.size(), 1U) << plan.dispatches[0].name;
    expect_agreement(graph, values, 1e-3);
  };
  using Tensors = std::vector<Tensor>;
  const auto product = [](const Tensors& x) { return matmul(x[0], x[1]); };
  const auto half = [](const Shape& shape) { return Type{shape, DType::f16}; };
  for (const bool cpu : {false, true}) {
    target_.cpu = cpu;
    SCOPED_TRACE(cpu ? "as a CPU" : "as a GPU");
    check("by fours", {half({64, 32}), half({32, 64})}, product);
    check("of odd sizes", {half({5, 7}), half({7, 3})}, product);
    check("batched", {half({2, 8, 16}), half({2, 16, 4})}, product);
    check("few results", {half({1, 512}), half({512, 3})}, product);
    check("a long sum", {half({4, 4096}), half({4096, 4})}, product);
    check("a transposed", {half({32, 64}), half({32, 16})},
          [](const Tensors& x) { return matmul(transpose(x[0]), x[1]); });
    check("b transposed", {half({32, 64}), half({16, 64})},
          [](const Tensors& x) { return matmul(x[0], transpose(x[1])); });
    check("widened before a view", {half({32, 64}), half({16, 64})}, [](const Tensors& x) {
      return matmul(cast(x[0], DType::f32), transpose(cast(x[1], DType::f32)));
    });
    check("beside f32", {half({32, 64}), {{64, 16}, DType::f32}},
          [](const Tensors& x) { return matmul(cast(x[0], DType::f32), x[1]); });
    check("with itself", {half({32, 32})}, [](const Tensors& x) { return matmul(x[0], x[0]); });
    check("and their epilogue", {half({32, 32}), half({32, 32})},
          [](const Tensors& x) { return relu(matmul(x[0], x[1]) + x[0]); });
    check("in windows", {half({2, 4, 9, 9}), half({8, 4, 3, 3})},
          [](const Tensors& x) { return conv(x[0], x[1], {.padding = {1, 1}}); });
    check("in the gradient of windows", {half({2, 4, 5, 5}), half({4, 8, 3, 3})},
          [](const Tensors& x) { return conv_transpose(x[0], x[1], {.stride = {2, 2}}); });
  }
}

TEST_F(WebGpuKernels, MapsOfFourPointsAThread) {
  target_.units = 1;
  target_.storage_buffers = 8;
  constexpr std::int64_t rows = 128;
  constexpr std::int64_t columns = 68;
  const Shape shape{rows, columns};
  const auto check = [&](const std::vector<Type>& types, std::size_t vectors, auto f) {
    Graph graph;
    std::vector<RefArray> values;
    std::vector<Tensor> x;
    for (const Type& type : types) x.push_back(add_input(graph, values, type));
    f(graph, x);
    expect_agreement(graph, values, 1e-5);
    const Plan plan = make_plan(graph, wgsl::schedule_target(target_));
    std::size_t found = 0;
    for (const kernel::Kernel& k : plan.kernels) {
      for (const auto& pass : wgsl::render(k, target_, std::vector<bool>(k.args.size())).passes) {
        for (std::size_t at = pass.text.find("array<vec4<"); at != std::string::npos;
             at = pass.text.find("array<vec4<", at + 1)) {
          ++found;
        }
      }
    }
    EXPECT_EQ(found, vectors);
  };
  const auto one = [](auto f) {
    return
        [f](Graph& graph, const std::vector<Tensor>& x) { graph.outputs.push_back({"y", f(x)}); };
  };
  const Type whole{shape, DType::f32};
  check({whole, {{columns}, DType::f32}, {{}, DType::f32}, {{rows, 1}, DType::f32}}, 3,
        one([](const auto& x) { return (x[0] + x[1]) * x[2] - x[3]; }));
  check({whole, {shape, DType::bool_}, {shape, DType::i32}}, 4,
        one([](const auto& x) { return where(x[1], x[0], cast(x[2], DType::f32)); }));
  check({whole, whole}, 3, one([](const auto& x) { return x[0] < x[1]; }));
  // Columns, a row from behind and positions are read one by one.
  check({whole, {{columns, rows}, DType::f32}, {{columns}, DType::f32}}, 2, one([](const auto& x) {
          return x[0] * transpose(x[1]) + flip(x[2], {0}) +
                 cast(prim::iota({rows, columns}, 1, DType::i32), DType::f32);
        }));
  // Of what is padded no vector is whole.
  check({whole, {{rows, columns - 2}, DType::f32}}, 2,
        one([](const auto& x) { return x[0] + prim::pad(x[1], {0, 1}, {0, 1}, {0, 0}); }));
  // Two results, of one and of another length.
  check({whole, {{columns}, DType::f32}}, 4, [](Graph& graph, const std::vector<Tensor>& x) {
    graph.outputs.push_back({"sum", x[0] + x[1]});
    graph.outputs.push_back({"quotient", x[0] / x[1]});
  });
}

TEST_F(WebGpuKernels, ScansByAWorkgroupARowAndByPartsOfARow) {
  using kernel::Combiner;
  Graph graph;
  std::vector<RefArray> values;
  const auto add = [&](Combiner combiner, const Type& type, int axis, bool reverse) {
    const Tensor x = add_input(graph, values, type);
    // Values that occur often, and NaN now and then.
    for (double& v : values.back().data) v = std::round(4 * v) / 4;
    if (type.dtype == DType::f32 && combiner != Combiner::sum && values.back().data.size() > 900) {
      values.back().data[700] = std::nan("");
    }
    graph.outputs.push_back({fmt::format("{} of {}", kernel::name(combiner), to_string(type)),
                             prim::scan(combiner, x, axis, reverse)});
  };
  for (const Combiner c :
       {Combiner::sum, Combiner::max, Combiner::min, Combiner::argmax, Combiner::argmin}) {
    add(c, {{3, 1000}, DType::f32}, 1, false);
    add(c, {{70, 5}, DType::f32}, 0, true);
    add(c, {{2, 9000}, DType::f32}, 1, c == Combiner::max);
    add(c, {{2, 300}, DType::i32}, 1, true);
    add(c, {{31, 3}, DType::u32}, 0, false);
  }
  add(Combiner::prod, {{2, 40}, DType::i32}, 1, false);
  expect_agreement(graph, values, 1e-3);
  const Plan plan = make_plan(graph, wgsl::schedule_target(target_));
  std::size_t passes = 0;
  for (const kernel::Kernel& k : plan.kernels) {
    passes += wgsl::render(k, target_, std::vector<bool>(k.args.size())).passes.size();
  }
  EXPECT_GT(passes, plan.kernels.size());  // some rows are in parts
}

TEST_F(WebGpuKernels, SortsInWorkgroupMemoryAndByMerging) {
  Graph graph;
  std::vector<RefArray> values;
  for (const DType dtype : {DType::f32, DType::i32, DType::u32}) {
    for (const auto& [shape, axis] : {std::pair<Shape, int>{{5, 7}, 1},
                                      {{1, 1}, 1},
                                      {{130, 3}, 0},
                                      {{2, 256}, 1},
                                      {{2, 257}, 1},
                                      {{1500, 2}, 0}}) {
      for (const bool descending : {false, true}) {
        const Tensor x = add_input(graph, values, {shape, dtype});
        if (dtype == DType::f32) {
          for (std::size_t i = 0; i < values.back().data.size(); ++i) {
            double& v = values.back().data[i];
            v = i % 11 == 3 ? std::nan("") : i % 13 == 5 ? -0.0 : std::round(32 * v) / 32;
          }
        }
        const std::string name = fmt::format("{} {}", to_string(x.shape()), graph.outputs.size());
        graph.outputs.push_back({name, prim::sort(x, axis, descending)});
        graph.outputs.push_back({name + "i", prim::argsort(x, axis, descending)});
      }
    }
  }
  expect_agreement(graph, values, 0);
}

/// Attention, with its gradients, of 2 x 2 matrices.
struct AttentionExtents {
  std::int64_t queries, keys, depth, value_depth;
  bool causal, masked;
};
std::pair<Graph, std::vector<RefArray>> attention_graph(const AttentionExtents& e) {
  using Result = LowerAttention::Result;
  std::pair<Graph, std::vector<RefArray>> made;
  auto& [graph, values] = made;
  const auto input = [&](std::int64_t rows, std::int64_t columns) {
    return add_input(graph, values, {{2, 2, rows, columns}, DType::f32});
  };
  const Tensor q = input(e.queries, e.depth);
  const Tensor k = input(e.keys, e.depth);
  const Tensor v = input(e.keys, e.value_depth);
  const Tensor dout = input(e.queries, e.value_depth);
  Tensor mask;
  if (e.masked) {
    mask = input(e.queries, e.keys);
    const auto keys = static_cast<std::size_t>(e.keys);
    for (std::size_t i = 0; i < values.back().data.size(); i += 7) {
      // Every row counts its first key.
      if (i % keys != 0) values.back().data[i] = -std::numeric_limits<double>::infinity();
    }
  }
  const AttentionAttr attr{0.3, e.causal};
  const Tensor out = prim::attention(Result::out, q, k, v, mask, attr);
  const Tensor lse = prim::attention(Result::lse, q, k, v, mask, attr);
  graph.outputs.push_back({"out", out});
  graph.outputs.push_back({"lse", lse});
  for (const auto& [result, name] :
       {std::pair{Result::dq, "dq"}, {Result::dk, "dk"}, {Result::dv, "dv"}}) {
    graph.outputs.push_back(
        {name, prim::attention_grad(result, q, k, v, out, lse, dout, mask, attr)});
  }
  return made;
}

TEST_F(WebGpuKernels, AttentionByRowsThroughWorkgroupMemory) {
  for (const bool causal : {false, true}) {
    for (const int buffers : {8, 10}) {
      SCOPED_TRACE(fmt::format("causal {}, {} buffers", causal, buffers));
      target_.storage_buffers = buffers;
      const auto [graph, values] = attention_graph({70, 75, 10, 6, causal, true});
      expect_agreement(graph, values, 1e-4);
    }
  }
}

TEST_F(WebGpuKernels, AttentionByTilesOfScores) {
  target_.workgroup_bytes = 16384;
  const auto check = [&](const AttentionExtents& extents, int buffers) {
    SCOPED_TRACE(fmt::format("{} queries, {} keys, causal {}, {} buffers", extents.queries,
                             extents.keys, extents.causal, buffers));
    target_.storage_buffers = buffers;
    const auto [graph, values] = attention_graph(extents);
    expect_agreement(graph, values, 1e-4);
  };
  for (const int buffers : {8, 10}) check({37, 35, 10, 6, true, true}, buffers);
  check({33, 36, 8, 8, false, false}, 10);
  check({36, 36, 32, 32, true, false}, 10);
  check({5, 3, 8, 40, true, false}, 10);
  check({1, 50, 4, 4, false, true}, 8);
}

TEST_F(WebGpuKernels, RowsWriteOverWhatTheyRead) {
  // By one invocation a row, by several, and in parts.
  for (const Shape& shape : {Shape{3000, 6}, {60, 300}, {3, 5000}}) {
    SCOPED_TRACE(to_string(shape));
    Graph graph;
    std::vector<RefArray> values;
    const Tensor x = add_input(graph, values, {{shape[0], 4}, DType::f32});
    const Tensor y = add_input(graph, values, {{4, shape[1]}, DType::f32});
    const Tensor w = add_input(graph, values, {{shape[1], 3}, DType::f32});
    const Tensor product = matmul(x, y);
    const Tensor centred = product - mean(product, Reduce(-1, true));
    const Tensor rows = centred * rsqrt(mean(square(centred), Reduce(-1, true)) + 1e-5);
    graph.outputs = {{"result", matmul(rows, w) * (1. / static_cast<double>(shape[1]))}};
    const Plan plan = make_plan(graph, wgsl::schedule_target(target_));
    EXPECT_TRUE(std::any_of(plan.kernels.begin(), plan.kernels.end(), [](const auto& k) {
      return !k.contraction && std::any_of(k.args.begin(), k.args.end(),
                                           [](const auto& arg) { return arg.read && arg.written; });
    }));
    expect_agreement(graph, values, 1e-5);
  }
}

TEST_F(WebGpuKernels, InfinitiesBehindTheDiagonalAreNotCounted) {
  target_.workgroup_bytes = 16384;
  auto [graph, values] = attention_graph({34, 34, 8, 8, true, false});
  const std::vector<RefArray> before = run(*device_, target_, graph, values);
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::size_t input : {std::size_t{1}, std::size_t{2}}) {  // keys and values
    std::vector<RefArray> changed = values;
    for (std::size_t c = 0; c < 8; ++c) changed[input].data[33 * 8 + c] = infinity;
    const std::vector<RefArray> after = run(*device_, target_, graph, changed);
    for (std::size_t i = 0; i < 33 * 8; ++i) {
      ASSERT_EQ(after[0].data[i], before[0].data[i]) << "out " << i;
      ASSERT_EQ(after[2].data[i], before[2].data[i]) << "dq " << i;
    }
  }
}

TEST_F(WebGpuKernels, AttentionOfNoFeatures) {
  for (const auto& [depth, value_depth] : {std::pair(0, 4), std::pair(4, 0), std::pair(0, 0)}) {
    const auto [graph, values] = attention_graph({5, 5, depth, value_depth, true, false});
    expect_agreement(graph, values, 1e-6);
  }
}

TEST_F(WebGpuKernels, RowsThatAreScatteredFarAreFoundByTheFirstOfThem) {
  Graph graph;
  std::vector<RefArray> values;
  const Tensor indices = add_input(graph, values, {{7, 10}, DType::i32});
  const Tensor rows = add_input(graph, values, {{7, 10, 5}, DType::f32});
  // Some are hit by many, one by none but itself, and some are out of range.
  for (std::size_t i = 0; i < 70; ++i) values[0].data[i] = static_cast<double>(i * i % 23) * 130;
  values[0].data[13] = -1;
  values[0].data[14] = 4000;
  graph.outputs = {{"sums", scatter_add(indices, rows, 3000)}};
  expect_agreement(graph, values, 1e-6);
}

TEST_F(WebGpuKernels, ProductsAndReductionsOfTheRegistry) {
  for (const char* name : {"dot_general", "conv", "conv_input_grad", "conv_weight_grad", "sum",
                           "max", "argmin", "scatter_add"}) {
    const Op& op = find_op(name);
    Graph graph;
    std::vector<RefArray> values;
    for (const auto& sample : (*op.samples)()) {
      testing::Rng rng = testing::rng_for(op, graph.outputs.size());
      const std::vector<RefArray> drawn = testing::draw_operands(sample, rng);
      std::vector<Tensor> operands;
      for (std::size_t i = 0; i < drawn.size(); ++i) {
        operands.push_back(add_input(graph, values, sample.operands[i]));
        values.back() = drawn[i];
      }
      const std::string output = fmt::format("{} {}", name, graph.outputs.size());
      graph.outputs.push_back({output, testing::apply(op, sample, operands)});
    }
    expect_agreement(graph, values, 2e-3);
  }
}

TEST(WebGpuValidation, TakesTheKernelsOfEveryOp) {
  // The null backend checks what it is given, and runs nothing: no driver is needed.
  std::shared_ptr<Context> context;
  try {
    const auto instance = std::make_shared<const Instance>(Library::open());
    context = Context::open(std::make_shared<const Adapter>(instance, dawn::BackendType::null),
                            {true, {}});
  } catch (const DeviceError& error) {
    GTEST_SKIP() << error.what();
  }
  const wgsl::Target least;  // what every adapter has
  wgsl::Target software;
  software.cpu = true;
  std::set<std::string> seen;
  for (const Op* op : registry()) {
    SCOPED_TRACE(std::string(*op->name));
    Graph graph;
    for (const auto& sample : (*op->samples)()) {
      std::vector<Tensor> operands;
      for (const Type& type : sample.operands) {
        const std::string name = fmt::format("x{}", graph.inputs.size());
        operands.push_back(prim::input(InputRole::input, name, type));
        graph.inputs.push_back(operands.back());
      }
      const std::string name = fmt::format("y{}", graph.outputs.size());
      graph.outputs.push_back({name, testing::apply(*op, sample, operands)});
    }
    if (graph.outputs.empty()) continue;
    for (const wgsl::Target& target : {least, software}) {
      const Plan plan = make_plan(graph, wgsl::schedule_target(target));
      std::vector<Shader> shaders;
      const wgsl::Program program = wgsl::make_program(plan, target);
      for (const wgsl::Module& m : program.modules) {
        if (seen.insert(m.text).second) shaders.push_back({m.name, m.text, m.writable});
      }
      EXPECT_NO_THROW(context->compile(shaders));
    }
  }
  EXPECT_GT(seen.size(), registry().size());
}

}  // namespace
}  // namespace tensorgrad::webgpu
