// Programs give the same bits on any number of threads, and several threads may run programs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "codegen/llvm/run_kernel.h"
#include "runtime/cpu/cut.h"
#include "runtime/cpu/device.h"
#include "runtime/cpu/two_stages.h"
#include "tensorgrad/compile.h"
#include "tensorgrad/nn.h"

namespace tensorgrad {
namespace {

using kernel::Combiner;
using kernel::Conv;
using kernel::Expr;
using kernel::Fn;
using kernel::Kernel;

/// Random values in [-1, 1) for each argument of a kernel.
std::vector<std::vector<float>> arguments(const Kernel& kernel) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<std::vector<float>> result;
  for (const auto& arg : kernel.args) {
    auto& values = result.emplace_back(static_cast<std::size_t>(arg.elements));
    for (float& value : values) value = uniform(random);
  }
  return result;
}

/// All arguments after the kernel has run on a device with `threads` threads.
std::vector<std::vector<float>> run_on(int threads, const Kernel& kernel) {
  const auto device = cpu::open(threads);
  const auto values = arguments(kernel);
  Plan plan;
  plan.kernels.push_back(kernel);
  plan.dispatches.push_back({0, {}, "kernel"});
  std::vector<std::unique_ptr<DeviceBuffer>> memory;
  std::vector<DeviceBuffer*> states;
  for (std::size_t i = 0; i < kernel.args.size(); ++i) {
    PlanBuffer buffer;
    buffer.kind = BufferKind::state;
    buffer.elements = kernel.args[i].elements;
    plan.buffers.push_back(buffer);
    plan.dispatches[0].buffers.push_back(static_cast<int>(i));
    memory.push_back(device->allocate(DType::f32, buffer.elements));
    memory.back()->write(0, std::as_bytes(std::span(values[i])));
    states.push_back(memory.back().get());
  }
  const auto program = device->load(plan);
  static_cast<void>(program->run({}, states));
  std::vector<std::vector<float>> result = values;
  for (std::size_t i = 0; i < result.size(); ++i) {
    memory[i]->read(0, std::as_writable_bytes(std::span(result[i])));
  }
  return result;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// What one thread gives, once two and three were seen to give the same.
std::vector<std::vector<float>> run_on_all(const Kernel& kernel) {
  kernel::verify(kernel);
  const auto expected = run_on(1, kernel);
  for (const int threads : {2, 3}) {
    const auto found = run_on(threads, kernel);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(same_bits(found[i], expected[i])) << "argument " << i << ", threads " << threads;
    }
  }
  return expected;
}

/// out = exp(x) * y, element by element.
Kernel large_map(std::int64_t count) {
  KernelBuilder b("map");
  const int i = b.outer(count);
  const int x = b.input(count);
  const int y = b.input(count);
  const int out = b.output(count);
  auto& pool = b.kernel.pool;
  b.store({}, out, b.at(i),
          pool.apply(Fn::mul, {pool.apply(Fn::exp, {b.load(x, b.at(i))}), b.load(y, b.at(i))}));
  return std::move(b.kernel);
}

/// out[row] = combine of x[row, :], or of x[:, row] `across`.
Kernel reduction(Combiner combiner, std::int64_t rows, std::int64_t columns, bool across) {
  KernelBuilder b("reduction");
  const int x = b.input(rows * columns);
  const int out = b.output(rows);
  const int row = b.outer(rows);
  const int column = b.loop(columns);
  const Expr result = b.reduce(
      {column}, combiner, b.load(x, across ? b.at(column, rows, row) : b.at(row, columns, column)));
  b.store({}, out, b.at(row), result);
  return std::move(b.kernel);
}

/// The sum of all elements, and its square.
Kernel total(std::int64_t count) {
  KernelBuilder b("total");
  const int x = b.input(count);
  const int out = b.output(2);
  const int i = b.loop(count);
  const Expr sum = b.reduce({i}, Combiner::sum, b.load(x, b.at(i)));
  b.store({}, out, b.kernel.pool.number(0), sum);
  b.store({}, out, b.kernel.pool.number(1), b.kernel.pool.apply(Fn::mul, {sum, sum}));
  return std::move(b.kernel);
}

TEST(Threads, MapsAndRowsGiveTheSameBits) {
  const std::int64_t odd = 1'000'003;
  ASSERT_GT(cpu::cut_nest(large_map(odd)).chunks, 4);
  const auto map = run_on_all(large_map(odd));
  for (std::size_t i = 0; i < map[0].size(); i += 1001) {
    ASSERT_NEAR(map[2][i], std::exp(map[0][i]) * map[1][i], 1e-6);
  }
  const Kernel rows = reduction(Combiner::sum, 1000, 1003, false);
  ASSERT_GT(cpu::cut_nest(rows).chunks, 1);
  run_on_all(rows);
}

TEST(Threads, ReductionsToFewValuesAreCutIntoParts) {
  for (const std::int64_t count : {std::int64_t{1} << 20, std::int64_t{1'000'003}}) {
    const Kernel kernel = total(count);
    const auto parts = cpu::reduction_parts(kernel, cpu::cut_nest(kernel));
    ASSERT_GT(parts, 1);
    const auto stages = cpu::in_two_stages(kernel, parts);
    ASSERT_TRUE(stages);
    kernel::verify(stages->parts);
    kernel::verify(stages->rest);
    const auto result = run_on_all(kernel);
    double sum = 0;
    for (const float value : result[0]) sum += value;
    EXPECT_NEAR(result[1][0], sum, 1e-3);
    EXPECT_EQ(result[1][1], result[1][0] * result[1][0]);
  }
  for (const Combiner combiner : {Combiner::sum, Combiner::max, Combiner::min}) {
    const Kernel kernel = reduction(combiner, 40, 50'021, true);
    ASSERT_GT(cpu::reduction_parts(kernel, cpu::cut_nest(kernel)), 1);
    const auto result = run_on_all(kernel);
    for (std::size_t column = 0; column < 40; ++column) {
      double expected = kernel::neutral(combiner, DType::f32);
      for (std::size_t row = 0; row < 50'021; ++row) {
        const double value = result[0][row * 40 + column];
        expected = combiner == Combiner::sum   ? expected + value
                   : combiner == Combiner::max ? std::max(expected, value)
                                               : std::min(expected, value);
      }
      EXPECT_NEAR(result[1][column], expected, 1e-3) << kernel::name(combiner);
    }
  }
}

TEST(Threads, BothStagesOfAReductionCoverAllOfItsResults) {
  // The loop that the first stage is cut along is that over results here, not that over parts.
  const std::int64_t rows = 600;
  const std::int64_t columns = 65;
  const Kernel kernel = reduction(Combiner::max, rows, columns, false);
  const auto stages = cpu::in_two_stages(kernel, 13);
  ASSERT_TRUE(stages);
  ASSERT_EQ(stages->count, 13);
  const auto cut = cpu::cut_evenly(stages->parts, stages->count);
  EXPECT_EQ(cut.extent, rows);
  EXPECT_GE(cut.chunk * cut.chunks, rows);
  EXPECT_LT(cut.chunk * (cut.chunks - 1), rows);
  // Pieces of their time are enough: a second stage would only cost.
  for (const std::int64_t length : {400, 520, 600, 700}) {
    const Kernel large = reduction(Combiner::max, 1024, length, false);
    const auto pieces = cpu::cut_nest(large);
    ASSERT_GT(pieces.chunks, 1);
    EXPECT_EQ(cpu::reduction_parts(large, pieces), 0) << length;
  }
}

TEST(Threads, ReductionsThatMustNotBeCutAreNot) {
  EXPECT_EQ(cpu::reduction_parts(total(1000), cpu::cut_nest(total(1000))), 0);
  EXPECT_FALSE(cpu::in_two_stages(large_map(100), 4));
  KernelBuilder b("scatter");
  const std::int64_t count = 1'000'000;
  const int x = b.input(count);
  const int out = b.output(1);
  const int i = b.outer(count);
  b.store({}, out, b.kernel.pool.number(0), b.load(x, b.at(i)), {}, true);
  EXPECT_EQ(cpu::cut_nest(b.kernel).chunks, 1);
}

/// relu(x w + bias) + x w row by row, in another buffer.
Kernel dense(std::int64_t batch, std::int64_t m, std::int64_t k, std::int64_t n, bool transposed) {
  KernelBuilder b("dense");
  const int x = b.input(batch * m * k);
  const int w = b.input(k * n);
  const int bias = b.input(n);
  const int product = b.arg(DType::f32, batch * m * n, true, true);
  const int out = b.output(batch * m * n);
  kernel::Matmul matmul{{batch}, m, n, {k}, {}, {}, {}};
  matmul.lhs = {x, 0, {m * k, k, 1}};
  matmul.rhs = transposed ? kernel::Access{w, 0, {0, 1, k}} : kernel::Access{w, 0, {0, n, 1}};
  matmul.out = {product, 0, {m * n, n, 1}};
  b.kernel.contraction = matmul;
  const int i = b.outer(batch * m);
  const int j = b.outer(n);
  const Expr value = b.load(product, b.at(i, n, j));
  auto& pool = b.kernel.pool;
  const Expr sum = pool.apply(Fn::add, {value, b.load(bias, b.at(j))});
  b.store({}, out, b.at(i, n, j), pool.apply(Fn::add, {pool.apply(Fn::relu, {sum}), value}));
  return std::move(b.kernel);
}

TEST(Threads, ContractionsGiveTheSameBits) {
  struct Case {
    std::int64_t batch, m, k, n;
    bool transposed;
  };
  for (const Case& c : {Case{1, 601, 257, 301, false}, Case{1, 300, 500, 333, true},
                        Case{5, 130, 200, 190, false}, Case{1, 40, 1000, 1500, false}}) {
    const Kernel kernel = dense(c.batch, c.m, c.k, c.n, c.transposed);
    const auto runner = cpu::make_contraction(kernel, 1);
    ASSERT_GT(runner->blocks().size(), 1U);
    const auto result = run_on_all(kernel);
    for (std::size_t row = 0; row < static_cast<std::size_t>(c.batch * c.m); row += 97) {
      for (std::size_t column = 0; column < static_cast<std::size_t>(c.n); column += 31) {
        double sum = 0;
        const auto k = static_cast<std::size_t>(c.k);
        for (std::size_t i = 0; i < k; ++i) {
          const std::size_t at =
              c.transposed ? column * k + i : i * static_cast<std::size_t>(c.n) + column;
          sum += static_cast<double>(result[0][row * k + i]) * result[1][at];
        }
        const double expected = std::max(sum + result[2][column], 0.0) + sum;
        ASSERT_NEAR(result[4][row * static_cast<std::size_t>(c.n) + column], expected, 1e-3)
            << row << ", " << column;
      }
    }
  }
}

TEST(Threads, EpiloguesFollowTheBlocksTheyRead) {
  const Kernel rows = dense(1, 1024, 256, 256, false);
  const auto runner = cpu::make_contraction(rows, 1);
  const auto parts = cpu::follow_blocks(rows, runner->blocks());
  ASSERT_EQ(parts.size(), runner->blocks().size());
  ASSERT_GT(parts.size(), 1U);
  std::int64_t next = 0;
  for (const cpu::Part& part : parts) {
    EXPECT_EQ(part.begin, next);
    next = part.end;
  }
  EXPECT_EQ(next, 1024);

  // An epilogue that reads across the rows waits for all of them.
  KernelBuilder b("transposed");
  const std::int64_t n = 512;
  const int x = b.input(n * n);
  const int w = b.input(n * n);
  const int product = b.arg(DType::f32, n * n, true, true);
  const int out = b.output(n * n);
  b.kernel.contraction =
      kernel::Matmul{{}, n, n, {n}, {x, 0, {n, 1}}, {w, 0, {n, 1}}, {product, 0, {n, 1}}};
  const int i = b.outer(n);
  const int j = b.outer(n);
  b.store({}, out, b.at(i, n, j), b.load(product, b.at(j, n, i)));
  const auto whole = cpu::make_contraction(b.kernel, 1);
  ASSERT_GT(whole->blocks().size(), 1U);
  EXPECT_TRUE(cpu::follow_blocks(b.kernel, whole->blocks()).empty());
  run_on_all(b.kernel);
}

TEST(Threads, ConvolutionsGiveTheSameBits) {
  for (const Conv::Mode mode :
       {Conv::Mode::forward, Conv::Mode::input_grad, Conv::Mode::weight_grad}) {
    Conv conv;
    conv.mode = mode;
    conv.batch = 40;
    conv.in_channels = 9;
    conv.out_channels = 16;
    conv.input = conv.output = {40, 41};
    conv.kernel = {3, 3};
    conv.stride = conv.dilation = conv.pad_low = conv.pad_high = {1, 1};
    conv.x.buffer = 0;
    conv.w.buffer = 1;
    conv.y.buffer = 2;
    Kernel kernel;
    kernel.name = "convolution";
    kernel.args = {{DType::f32, 40 * 9 * 40 * 41, true, false},
                   {DType::f32, 16 * 9 * 3 * 3, true, false},
                   {DType::f32, 40 * 16 * 40 * 41, true, false}};
    const auto written = mode == Conv::Mode::forward      ? 2U
                         : mode == Conv::Mode::input_grad ? 0U
                                                          : 1U;
    kernel.args[written].written = true;
    kernel.contraction = conv;
    ASSERT_GT(cpu::make_contraction(kernel, 1)->blocks().size(), 1U);
    const auto result = run_on_all(kernel);
    if (mode != Conv::Mode::weight_grad) continue;
    // One weight: channel 3 of the input meets channel 5 of the output at the window's corner.
    double expected = 0;
    for (std::size_t image = 0; image < 40; ++image) {
      for (std::size_t y = 1; y < 40; ++y) {
        for (std::size_t x = 1; x < 41; ++x) {
          expected += static_cast<double>(result[2][((image * 16 + 5) * 40 + y) * 41 + x]) *
                      result[0][((image * 9 + 3) * 40 + y - 1) * 41 + x - 1];
        }
      }
    }
    EXPECT_NEAR(result[1][(5 * 9 + 3) * 9], expected, 5e-2);
  }
}

struct Model {
  nn::Linear first{64, 256}, second{256, 8};
  TENSORGRAD_FIELDS(first, second)
  Tensor operator()(const Tensor& x) const { return second(relu(first(x))); }
};

/// The losses of some steps; the batch is large enough for several threads.
std::vector<float> train(std::uint64_t seed) {
  auto training = compile(Model{},
                          [](const Model& m, const Inputs& in) {
                            const Tensor y = m(in["x"]);
                            return mean(y * y);
                          },
                          {.inputs = {{"x", {1500, 64}}}, .device = "cpu", .seed = seed});
  std::mt19937 random(static_cast<unsigned>(seed));
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> x(1500 * 64);
  for (float& value : x) value = uniform(random);
  std::vector<float> losses;
  for (int step = 0; step < 6; ++step) losses.push_back(training.step({{"x", x}}).loss());
  return losses;
}

TEST(Threads, TrainingsOfSeveralThreadsDoNotDisturbEachOther) {
  std::vector<std::vector<float>> expected;
  for (std::uint64_t seed = 0; seed < 3; ++seed) expected.push_back(train(seed));
  EXPECT_NE(expected[0], expected[1]);
  std::vector<std::vector<float>> found(3);
  {
    std::vector<std::jthread> users;
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      users.emplace_back([&found, seed] { found[static_cast<std::size_t>(seed)] = train(seed); });
    }
  }
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace tensorgrad
