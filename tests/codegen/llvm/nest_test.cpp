// Loop nests compiled to machine code against plain loops.
#include "codegen/llvm/nest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "codegen/llvm/run_kernel.h"

namespace tensorgrad {
namespace {

using kernel::Combiner;
using kernel::Expr;
using kernel::Fn;
using llvm_ir::choose_order;
using llvm_ir::Order;

TEST(LlvmNest, MapIsVectorisedAndExact) {
  KernelBuilder b("map");
  const int i = b.outer(1000);
  const int x = b.input(1000);
  const int y = b.input(1000);
  const Expr sum = b.kernel.pool.apply(Fn::add, {b.load(x, b.at(i)), b.load(y, b.at(i))});
  b.store({}, b.output(1000), b.at(i), b.kernel.pool.apply(Fn::relu, {sum}));
  auto a = random_values(1000, 1);
  auto c = random_values(1000, 2);
  std::vector<float> out(1000);
  run_kernel(b.kernel, {a.data(), c.data(), out.data()});
  for (std::size_t k = 0; k < 1000; ++k) EXPECT_EQ(out[k], std::max(a[k] + c[k], 0.0F));
  expect_vectors(b.kernel);
}

TEST(LlvmNest, TranscendentalMapIsVectorised) {
  for (const Fn fn : {Fn::exp, Fn::log, Fn::tanh, Fn::logistic, Fn::erf, Fn::sin, Fn::expm1,
                      Fn::log1p, Fn::rsqrt}) {
    KernelBuilder b(kernel::name(fn));
    const int i = b.outer(4096);
    const int x = b.input(4096);
    b.store({}, b.output(4096), b.at(i), b.kernel.pool.apply(fn, {b.load(x, b.at(i))}));
    expect_vectors(b.kernel);
    const std::string assembly = test_jit().assembly(source_of(b.kernel));
    EXPECT_EQ(assembly.find("@PLT"), std::string::npos)
        << kernel::name(fn) << " calls a function of a library:\n"
        << assembly;
  }
}

TEST(LlvmNest, RendersTheSameTextTwice) {
  const auto build = [] {
    KernelBuilder b("twice");
    const int i = b.outer(64);
    const int x = b.input(64);
    b.store({}, b.output(64), b.at(i), b.kernel.pool.apply(Fn::exp, {b.load(x, b.at(i))}));
    return llvm_ir::render(b.kernel, "kernel");
  };
  EXPECT_EQ(build(), build());
}

TEST(LlvmNest, RunsAnyRangeOfTheOutermostLoop) {
  KernelBuilder b("ranges");
  const int i = b.outer(37);
  const int j = b.outer(5);
  const int x = b.input(185);
  b.store({}, b.output(185), b.at(i, 5, j),
          b.kernel.pool.apply(Fn::neg, {b.load(x, b.at(i, 5, j))}));
  auto a = random_values(185, 1);
  std::vector<float> out(185, 9.0F);
  run_kernel(b.kernel, {a.data(), out.data()}, 0, 0);
  run_kernel(b.kernel, {a.data(), out.data()}, 3, 20);
  run_kernel(b.kernel, {a.data(), out.data()}, 20, 36);
  for (std::size_t k = 0; k < 185; ++k) {
    EXPECT_EQ(out[k], k >= 15 && k < 180 ? -a[k] : 9.0F) << k;
  }
}
TEST(LlvmNest, ConditionalLoadsReadOnlyWhereTheConditionHolds) {
  // A padded window: out[i, j] = x[i - 2, j - 3] or 0.
  constexpr std::int64_t rows = 20;
  constexpr std::int64_t columns = 70;
  KernelBuilder b("pad");
  auto& pool = b.kernel.pool;
  const int i = b.outer(rows + 5);
  const int j = b.outer(columns + 6);
  const int x = b.input(rows * columns);
  const kernel::Index row = pool.sub(b.at(i), pool.number(2));
  const kernel::Index column = pool.sub(b.at(j), pool.number(3));
  const Expr inside = pool.both(pool.in_range(row, 0, rows), pool.in_range(column, 0, columns));
  const Expr value = b.load(x, pool.add(pool.mul(row, columns), column), inside);
  const std::int64_t size = (rows + 5) * (columns + 6);
  b.store({}, b.output(size), b.at(i, columns + 6, j), value);
  auto a = random_values(rows * columns, 6);
  std::vector<float> out(static_cast<std::size_t>(size), 9.0F);
  run_kernel(b.kernel, {a.data(), out.data()});
  for (std::int64_t r = 0; r < rows + 5; ++r) {
    for (std::int64_t c = 0; c < columns + 6; ++c) {
      const bool in = r >= 2 && r < rows + 2 && c >= 3 && c < columns + 3;
      const float want = in ? a[static_cast<std::size_t>((r - 2) * columns + c - 3)] : 0.0F;
      ASSERT_EQ(out[static_cast<std::size_t>(r * (columns + 6) + c)], want) << r << ", " << c;
    }
  }
  expect_vectors(b.kernel);
}

TEST(LlvmNest, InvariantConditionIsTestedOutsideOfTheInnerLoop) {
  KernelBuilder b("hoist");
  auto& pool = b.kernel.pool;
  const int i = b.outer(8);
  const int j = b.outer(64);
  const int x = b.input(256);
  const Expr value = b.load(x, b.at(i, 64, j), pool.in_range(b.at(i), 0, 4));
  b.store({}, b.output(512), b.at(i, 64, j), value);
  const std::string text = llvm_ir::render(b.kernel, "kernel");
  EXPECT_LT(text.find("icmp slt i64 %i0, 4"), text.find("phi i64 [ 0, %head")) << text;
}

TEST(LlvmNest, ConditionalStoresLeaveTheRest) {
  KernelBuilder b("conditional store");
  auto& pool = b.kernel.pool;
  const int i = b.outer(100);
  const int x = b.input(100);
  const Expr value = b.load(x, b.at(i));
  const Expr positive = pool.apply(Fn::gt, {value, pool.constant(0, DType::f32)});
  b.store({}, b.output(100), b.at(i), value, positive);
  auto a = random_values(100, 8);
  std::vector<float> out(100, 5.0F);
  run_kernel(b.kernel, {a.data(), out.data()});
  for (std::size_t k = 0; k < 100; ++k) EXPECT_EQ(out[k], a[k] > 0 ? a[k] : 5.0F);
}

std::vector<std::int32_t> positions(Combiner combiner, const std::vector<float>& data,
                                    std::int64_t rows, std::int64_t length, bool by_column) {
  KernelBuilder b("extremum");
  const int i = b.outer(rows);
  const int j = b.loop(length);
  const int x = b.input(rows * length);
  const kernel::Index at = by_column ? b.at(j, rows, i) : b.at(i, length, j);
  const Expr position = b.reduce({j}, combiner, b.load(x, at), b.at(j));
  b.store({}, b.output(rows, DType::i32), b.at(i), position);
  EXPECT_EQ(choose_order(b.kernel), by_column ? Order::column : Order::row);
  auto copy = data;
  std::vector<std::int32_t> out(static_cast<std::size_t>(rows), -1);
  run_kernel(b.kernel, {copy.data(), out.data()});
  return out;
}

TEST(LlvmNest, ArgmaxGivesTheFirstExtremumAndNanWins) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> rows{1,    5,    2,    5,     //
                                nan,  7,    nan,  1,     //
                                3,    -inf, 9,    nan,   //
                                -inf, -inf, -inf, -inf,  //
                                inf,  inf,  inf,  inf,   //
                                0,    -0.F, 0,    -1};
  EXPECT_EQ(positions(Combiner::argmax, rows, 6, 4, false),
            (std::vector<std::int32_t>{1, 0, 3, 0, 0, 0}));
  EXPECT_EQ(positions(Combiner::argmin, rows, 6, 4, false),
            (std::vector<std::int32_t>{0, 0, 3, 0, 0, 3}));
  // The same rows, repeated as columns.
  std::vector<float> columns(4 * 12);
  for (std::size_t r = 0; r < 12; ++r) {
    for (std::size_t k = 0; k < 4; ++k) columns[k * 12 + r] = rows[r % 6 * 4 + k];
  }
  EXPECT_EQ(positions(Combiner::argmax, columns, 12, 4, true),
            (std::vector<std::int32_t>{1, 0, 3, 0, 0, 0, 1, 0, 3, 0, 0, 0}));
  EXPECT_EQ(positions(Combiner::argmin, columns, 12, 4, true),
            (std::vector<std::int32_t>{0, 0, 3, 0, 0, 3, 0, 0, 3, 0, 0, 3}));
}

TEST(LlvmNest, EveryCombinerOverIntegersAndBools) {
  const std::vector<std::int32_t> values{3, -7, 2, 5, -1, 4, 6, -2, 8, 1};
  const std::pair<Combiner, std::int32_t> cases[] = {
      {Combiner::sum, 19},   {Combiner::prod, -161280 * -1 * -1},
      {Combiner::max, 8},    {Combiner::min, -7},
      {Combiner::argmax, 8}, {Combiner::argmin, 1}};
  for (const auto& [combiner, want] : cases) {
    KernelBuilder b(kernel::name(combiner));
    const int j = b.loop(10);
    const int x = b.input(10, DType::i32);
    const bool indexed = combiner == Combiner::argmax || combiner == Combiner::argmin;
    const Expr result =
        b.reduce({j}, combiner, b.load(x, b.at(j)), indexed ? b.at(j) : kernel::Index{});
    b.store({}, b.output(1, DType::i32), b.kernel.pool.number(0), result);
    auto data = values;
    std::int32_t out = 0;
    run_kernel(b.kernel, {data.data(), &out});
    std::int32_t expected = want;
    if (combiner == Combiner::prod) {
      expected = std::accumulate(values.begin(), values.end(), 1, std::multiplies<>());
    }
    EXPECT_EQ(out, expected) << kernel::name(combiner);
  }
  for (const auto& [combiner, want] : {std::pair{Combiner::max, true}, {Combiner::min, false}}) {
    KernelBuilder b("bools");
    const int j = b.loop(40);
    const int x = b.input(40, DType::bool_);
    const Expr result = b.reduce({j}, combiner, b.load(x, b.at(j)));
    b.store({}, b.output(1, DType::bool_), b.kernel.pool.number(0), result);
    std::vector<std::uint8_t> data(40, combiner == Combiner::max ? 0 : 1);
    std::uint8_t out = 7;
    run_kernel(b.kernel, {data.data(), &out});
    EXPECT_EQ(out != 0, !want);
    data[17] ^= 1U;
    run_kernel(b.kernel, {data.data(), &out});
    EXPECT_EQ(out != 0, want);
  }
}

TEST(LlvmNest, ExtremaPropagateNan) {
  for (const Combiner combiner : {Combiner::max, Combiner::min}) {
    KernelBuilder b("extremum with nan");
    const int j = b.loop(100);
    const int x = b.input(100);
    b.store({}, b.output(1), b.kernel.pool.number(0), b.reduce({j}, combiner, b.load(x, b.at(j))));
    auto a = random_values(100, 9);
    float out = 0;
    run_kernel(b.kernel, {a.data(), &out});
    EXPECT_EQ(out, combiner == Combiner::max ? *std::max_element(a.begin(), a.end())
                                             : *std::min_element(a.begin(), a.end()));
    a[57] = std::numeric_limits<float>::quiet_NaN();
    run_kernel(b.kernel, {a.data(), &out});
    EXPECT_TRUE(std::isnan(out));
  }
}

TEST(LlvmNest, ScatterAddsInOrderAndGatherReadsByValue) {
  // table[index[i], j] += x[i, j], then out[i, j] = table[index[i], j].
  constexpr std::int64_t count = 50;
  constexpr std::int64_t width = 24;
  constexpr std::int64_t rows = 7;
  std::vector<std::int32_t> index(count);
  std::mt19937 random(10);
  for (auto& value : index) value = static_cast<std::int32_t>(random() % rows);
  auto x = random_values(count * width, 11);
  std::vector<float> table(rows * width, 0.5F);
  std::vector<float> want = table;
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < width; ++j) {
      want[static_cast<std::size_t>(index[i]) * width + j] += x[i * width + j];
    }
  }
  KernelBuilder scatter("scatter");
  {
    auto& pool = scatter.kernel.pool;
    const int i = scatter.loop(count);
    const int j = scatter.loop(width);
    const int ids = scatter.input(count, DType::i32);
    const int in = scatter.input(count * width);
    const int out = scatter.arg(DType::f32, rows * width, true, true);
    const kernel::Index row = pool.value(scatter.load(ids, scatter.at(i)), 0, rows - 1);
    scatter.store({i, j}, out, pool.add(pool.mul(row, width), scatter.at(j)),
                  scatter.load(in, scatter.at(i, width, j)), {}, true);
  }
  run_kernel(scatter.kernel, {index.data(), x.data(), table.data()});
  EXPECT_EQ(table, want);

  KernelBuilder gather("gather");
  auto& pool = gather.kernel.pool;
  const int i = gather.outer(count);
  const int j = gather.outer(width);
  const int ids = gather.input(count, DType::i32);
  const int in = gather.input(rows * width);
  const kernel::Index row = pool.value(gather.load(ids, gather.at(i)), 0, rows - 1);
  gather.store({}, gather.output(count * width), gather.at(i, width, j),
               gather.load(in, pool.add(pool.mul(row, width), gather.at(j))));
  std::vector<float> out(count * width);
  run_kernel(gather.kernel, {index.data(), table.data(), out.data()});
  for (std::size_t k = 0; k < out.size(); ++k) {
    ASSERT_EQ(out[k], want[static_cast<std::size_t>(index[k / width]) * width + k % width]);
  }
}

TEST(LlvmNest, StoresOfAStageReadWhatWasThereBefore) {
  // m' = (m + g) / 2; p' = p - m', both in place: the step of an optimizer.
  KernelBuilder b("update");
  auto& pool = b.kernel.pool;
  const int i = b.outer(500);
  const int p = b.arg(DType::f32, 500, true, true);
  const int m = b.arg(DType::f32, 500, true, true);
  const int g = b.input(500);
  const Expr moment =
      pool.apply(Fn::mul, {pool.apply(Fn::add, {b.load(m, b.at(i)), b.load(g, b.at(i))}),
                           pool.constant(0.5, DType::f32)});
  const Expr parameter = pool.apply(Fn::sub, {b.load(p, b.at(i)), moment});
  b.store({}, m, b.at(i), moment);
  b.kernel.nest.stages.back().stores.push_back({p, b.at(i), parameter, {}, false});
  auto x = random_values(500, 12);
  auto y = random_values(500, 13);
  auto z = random_values(500, 14);
  const auto old_x = x;
  const auto old_y = y;
  run_kernel(b.kernel, {x.data(), y.data(), z.data()});
  for (std::size_t k = 0; k < 500; ++k) {
    const float want = (old_y[k] + z[k]) * 0.5F;
    ASSERT_EQ(y[k], want);
    ASSERT_NEAR(x[k], old_x[k] - want, 1e-7);
  }
  expect_vectors(b.kernel);
}

TEST(LlvmNest, DivisionAndRemainderOfIndices) {
  // out[i] = x[(i / 7) % 5] + i
  KernelBuilder b("divisions");
  auto& pool = b.kernel.pool;
  const int i = b.outer(200);
  const int x = b.input(5);
  const Expr value = b.load(x, pool.mod(pool.div(b.at(i), 7), 5));
  b.store({}, b.output(200), b.at(i),
          pool.apply(Fn::add, {value, pool.from_index(b.at(i), DType::f32)}));
  auto a = random_values(5, 15);
  std::vector<float> out(200);
  run_kernel(b.kernel, {a.data(), out.data()});
  for (std::size_t k = 0; k < 200; ++k) {
    EXPECT_EQ(out[k], a[k / 7 % 5] + static_cast<float>(k));
  }
}

TEST(LlvmNest, TransposesRunInBlocks) {
  // out[b, i, j] = x[b, j, i], in parts.
  constexpr std::int64_t batch = 3;
  constexpr std::int64_t rows = 70;
  constexpr std::int64_t columns = 45;
  for (const bool batched : {false, true}) {
    KernelBuilder b("transpose");
    auto& pool = b.kernel.pool;
    const int n = batched ? b.outer(batch) : b.loop(1);
    const int i = b.outer(rows);
    const int j = b.outer(columns);
    const std::int64_t size = rows * columns * (batched ? batch : 1);
    const int x = b.input(size);
    const kernel::Index matrix = pool.mul(b.at(n), rows * columns);
    b.store({}, b.output(size), pool.add(matrix, b.at(i, columns, j)),
            b.load(x, pool.add(matrix, b.at(j, rows, i))));
    EXPECT_EQ(choose_order(b.kernel), Order::block);
    auto a = random_values(static_cast<std::size_t>(size), 16);
    std::vector<float> out(a.size(), 9.0F);
    const std::int64_t end = llvm_ir::split_extent(b.kernel);
    run_kernel(b.kernel, {a.data(), out.data()}, 0, 1);
    run_kernel(b.kernel, {a.data(), out.data()}, 1, end);
    for (std::size_t k = 0; k < out.size(); ++k) {
      const std::size_t place = k % (rows * columns);
      const std::size_t source = place % columns * rows + place / columns;
      ASSERT_EQ(out[k], a[k - place + source]);
    }
  }
}

TEST(LlvmNest, EmptyLoops) {
  KernelBuilder none("no rows");
  const int i = none.outer(0);
  const int x = none.input(1);
  none.store({}, none.output(1), none.at(i), none.load(x, none.at(i)));
  float in = 1;
  float out = 4;
  run_kernel(none.kernel, {&in, &out});
  EXPECT_EQ(out, 4);
  for (const std::int64_t columns : {1, 20}) {
    KernelBuilder b("sum of nothing");
    const int r = b.outer(columns);
    const int j = b.loop(0);
    const int y = b.input(1);
    const Expr sum = b.reduce({j}, Combiner::sum, b.load(y, b.at(j)));
    b.store({}, b.output(columns), b.at(r), sum);
    std::vector<float> results(static_cast<std::size_t>(columns), 4.0F);
    run_kernel(b.kernel, {&in, results.data()});
    for (const float value : results) EXPECT_EQ(value, 0);
  }
}

TEST(LlvmNest, LongChainsOfOperationsNeedNoRecursion) {
  KernelBuilder b("chain");
  auto& pool = b.kernel.pool;
  const int i = b.outer(4);
  const int x = b.input(4);
  Expr value = b.load(x, b.at(i));
  for (int k = 0; k < 1500; ++k) {
    value = pool.apply(Fn::add, {value, pool.from_index(b.at(i), DType::f32)});
  }
  b.store({}, b.output(4), b.at(i), value);
  std::vector<float> a{0, 0, 0, 0};
  std::vector<float> out(4);
  run_kernel(b.kernel, {a.data(), out.data()});
  for (std::size_t k = 0; k < 4; ++k) EXPECT_EQ(out[k], 1500.0F * static_cast<float>(k));
}

}  // namespace
}  // namespace tensorgrad
