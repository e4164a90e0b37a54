// Loop nests that reduce and scan, by row and by column, against plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "codegen/llvm/nest.h"
#include "codegen/llvm/run_kernel.h"

namespace tensorgrad {
namespace {

using kernel::Combiner;
using kernel::Expr;
using kernel::Fn;
using llvm_ir::choose_order;
using llvm_ir::Order;

TEST(LlvmNestRows, RowSumIsVectorised) {
  constexpr std::size_t rows = 7;
  constexpr std::size_t columns = 1003;
  KernelBuilder b("row sum");
  const int i = b.outer(rows);
  const int j = b.loop(columns);
  const int x = b.input(rows * columns);
  const Expr sum = b.reduce({j}, Combiner::sum, b.load(x, b.at(i, columns, j)));
  b.store({}, b.output(rows), b.at(i), sum);
  EXPECT_EQ(choose_order(b.kernel), Order::row);
  auto a = random_values(rows * columns, 3);
  std::vector<float> out(rows);
  run_kernel(b.kernel, {a.data(), out.data()});
  for (std::size_t r = 0; r < rows; ++r) {
    const double want =
        std::accumulate(a.begin() + static_cast<std::ptrdiff_t>(r * columns),
                        a.begin() + static_cast<std::ptrdiff_t>((r + 1) * columns), 0.0);
    EXPECT_NEAR(out[r], want, 1e-4);
  }
  expect_vectors(b.kernel);
}

TEST(LlvmNestRows, LongSumsKeepTheirPrecision) {
  // A running f32 sum of this many ones would stop at 2^24.
  constexpr std::int64_t count = 20'000'003;
  for (const bool two_loops : {false, true}) {
    KernelBuilder b("long sum");
    std::vector<int> loops{b.loop(two_loops ? 1'000 : count)};
    kernel::Index at = b.at(loops[0]);
    std::int64_t total = count;
    if (two_loops) {
      loops.push_back(b.loop(20'001));
      at = b.at(loops[0], 20'001, loops[1]);
      total = 20'001'000;
    }
    const int x = b.input(total);
    const Expr sum = b.reduce(loops, Combiner::sum, b.load(x, at));
    b.store({}, b.output(1), b.kernel.pool.number(0), sum);
    std::vector<float> ones(static_cast<std::size_t>(total), 1.0F);
    float out = 0;
    run_kernel(b.kernel, {ones.data(), &out});
    EXPECT_EQ(out, static_cast<float>(total));
  }
}

TEST(LlvmNestRows, ColumnSumsRunOverTiles) {
  for (const std::int64_t rows : {5, 3000}) {
    for (const std::int64_t columns : {16, 256, 777}) {
      KernelBuilder b("column sum");
      const int j = b.outer(columns);
      const int i = b.loop(rows);
      const int x = b.input(rows * columns);
      const Expr sum = b.reduce({i}, Combiner::sum, b.load(x, b.at(i, columns, j)));
      const Expr largest = b.reduce({i}, Combiner::max, b.load(x, b.at(i, columns, j)));
      b.store({}, b.output(columns), b.at(j), sum);
      b.store({}, b.output(columns), b.at(j), largest);
      EXPECT_EQ(choose_order(b.kernel), Order::column);
      auto a = random_values(static_cast<std::size_t>(rows * columns), 4);
      std::vector<float> out(static_cast<std::size_t>(columns), -9.0F);
      std::vector<float> top(out);
      run_kernel(b.kernel, {a.data(), out.data(), top.data()}, 0, columns / 2);
      run_kernel(b.kernel, {a.data(), out.data(), top.data()}, columns / 2, columns);
      for (std::int64_t c = 0; c < columns; ++c) {
        double want = 0;
        float most = -9;
        for (std::int64_t r = 0; r < rows; ++r) {
          const float value = a[static_cast<std::size_t>(r * columns + c)];
          want += value;
          most = std::max(most, value);
        }
        ASSERT_NEAR(out[static_cast<std::size_t>(c)], want, 1e-4);
        ASSERT_EQ(top[static_cast<std::size_t>(c)], most);
      }
      expect_vectors(b.kernel);
    }
  }
}

/// Softmax over the middle axis of [outer, length, inner], in place or not.
kernel::Kernel softmax_kernel(std::int64_t outer, std::int64_t length, std::int64_t inner,
                              bool in_place) {
  KernelBuilder b("softmax");
  const std::int64_t size = outer * length * inner;
  const int i = b.outer(outer);
  const int k = b.outer(inner);
  const int j = b.loop(length);
  const int x = in_place ? b.arg(DType::f32, size, true, true) : b.input(size);
  const int y = in_place ? x : b.output(size);
  auto& pool = b.kernel.pool;
  const kernel::Index at =
      pool.add(pool.mul(b.at(i), length * inner), pool.add(pool.mul(b.at(j), inner), b.at(k)));
  const Expr value = b.load(x, at);
  const Expr most = b.reduce({j}, Combiner::max, value);
  const Expr power = pool.apply(Fn::exp, {pool.apply(Fn::sub, {value, most})});
  const Expr sum = b.reduce({j}, Combiner::sum, power);
  b.store({j}, y, at, pool.apply(Fn::div, {power, sum}));
  return std::move(b.kernel);
}

void check_softmax(std::int64_t outer, std::int64_t length, std::int64_t inner, bool in_place) {
  const auto kernel = softmax_kernel(outer, length, inner, in_place);
  const auto a = random_values(static_cast<std::size_t>(outer * length * inner), 5);
  auto x = a;
  std::vector<float> y(in_place ? 0 : a.size());
  std::vector<void*> args{x.data()};
  if (!in_place) args.push_back(y.data());
  run_kernel(kernel, args);
  const std::vector<float>& got = in_place ? x : y;
  for (std::int64_t i = 0; i < outer; ++i) {
    for (std::int64_t k = 0; k < inner; ++k) {
      const auto at = [&](std::int64_t j) {
        return static_cast<std::size_t>((i * length + j) * inner + k);
      };
      double sum = 0;
      for (std::int64_t j = 0; j < length; ++j) sum += std::exp(static_cast<double>(a[at(j)]));
      for (std::int64_t j = 0; j < length; ++j) {
        ASSERT_NEAR(got[at(j)], std::exp(static_cast<double>(a[at(j)])) / sum, 1e-6);
      }
    }
  }
}

TEST(LlvmNestRows, SoftmaxRunsItsStagesByRow) {
  EXPECT_EQ(choose_order(softmax_kernel(9, 65, 1, false)), Order::row);
  check_softmax(9, 65, 1, false);
  check_softmax(9, 65, 1, true);
  check_softmax(5, 1, 1, false);
  check_softmax(3, 10, 3, false);
  expect_vectors(softmax_kernel(9, 65, 1, false));
}

TEST(LlvmNestRows, SoftmaxRunsItsStagesByColumn) {
  EXPECT_EQ(choose_order(softmax_kernel(3, 11, 300, false)), Order::column);
  check_softmax(3, 11, 300, false);
  check_softmax(3, 11, 300, true);
  check_softmax(1, 1300, 20, false);
  expect_vectors(softmax_kernel(3, 11, 300, false));
}

/// Running sums, maxima and positions of maxima along the middle axis of [outer, length, inner], in
/// place or not, and the total of each row.
void check_scan(std::int64_t outer, std::int64_t length, std::int64_t inner, bool in_place,
                Order order) {
  KernelBuilder b("scan");
  const std::int64_t size = outer * length * inner;
  const int i = b.outer(outer);
  const int k = b.outer(inner);
  const int j = b.loop(length);
  const int x = in_place ? b.arg(DType::f32, size, true, true) : b.input(size);
  const int sums = in_place ? x : b.output(size);
  auto& pool = b.kernel.pool;
  const kernel::Index at =
      pool.add(pool.mul(b.at(i), length * inner), pool.add(pool.mul(b.at(j), inner), b.at(k)));
  const Expr value = b.load(x, at);
  b.reduce({j}, Combiner::sum, value);
  kernel::Stage& scan = b.kernel.nest.stages.back();
  scan.accumulators.push_back({Combiner::max, value, DType::f32, {}});
  scan.accumulators.push_back({Combiner::argmax, value, DType::f32, b.at(j)});
  const int tops = b.output(size);
  const int places = b.output(size, DType::i32);
  scan.stores = {{sums, at, pool.acc(0, 0, DType::f32), {}, false},
                 {tops, at, pool.acc(0, 1, DType::f32), {}, false},
                 {places, at, pool.acc(0, 2, DType::i32), {}, false}};
  b.store({}, b.output(outer * inner), b.at(i, inner, k), pool.acc(0, 0, DType::f32));
  EXPECT_EQ(choose_order(b.kernel), order);

  const auto count = static_cast<std::size_t>(size);
  const auto a = random_values(count, 5);
  auto in = a;
  std::vector<float> sum_values(count);
  std::vector<float> top_values(count);
  std::vector<std::int32_t> place_values(count);
  std::vector<float> totals(static_cast<std::size_t>(outer * inner));
  std::vector<void*> args{in.data()};
  if (!in_place) args.push_back(sum_values.data());
  args.insert(args.end(), {top_values.data(), place_values.data(), totals.data()});
  const std::int64_t end = llvm_ir::split_extent(b.kernel);
  run_kernel(b.kernel, args, 0, end / 2);
  run_kernel(b.kernel, args, end / 2, end);
  const std::vector<float>& got = in_place ? in : sum_values;
  for (std::int64_t o = 0; o < outer; ++o) {
    for (std::int64_t n = 0; n < inner; ++n) {
      double sum = 0;
      float top = -std::numeric_limits<float>::infinity();
      std::int32_t place = 0;
      for (std::int64_t l = 0; l < length; ++l) {
        const auto p = static_cast<std::size_t>((o * length + l) * inner + n);
        sum += static_cast<double>(a[p]);
        if (a[p] > top) place = static_cast<std::int32_t>(l);
        top = std::max(top, a[p]);
        ASSERT_EQ(got[p], static_cast<float>(sum)) << o << ", " << l << ", " << n;
        ASSERT_EQ(top_values[p], top);
        ASSERT_EQ(place_values[p], place);
      }
      ASSERT_EQ(totals[static_cast<std::size_t>(o * inner + n)], static_cast<float>(sum));
    }
  }
}

TEST(LlvmNestRows, ScansKeepRunningValuesByRow) {
  check_scan(9, 65, 1, false, Order::row);
  check_scan(9, 65, 1, true, Order::row);
  check_scan(5, 1, 1, false, Order::row);
  check_scan(3, 10, 3, false, Order::row);
  check_scan(2, 9001, 1, false, Order::row);
}

TEST(LlvmNestRows, ScansKeepRunningValuesByColumn) {
  check_scan(3, 11, 300, false, Order::column);
  check_scan(3, 11, 300, true, Order::column);
  check_scan(2, 1300, 20, false, Order::column);
}

}  // namespace
}  // namespace tensorgrad
