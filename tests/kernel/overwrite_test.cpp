// When a kernel may write over what it reads.
#include "kernel/overwrite.h"

#include <gtest/gtest.h>

namespace tensorgrad::kernel {
namespace {

constexpr std::int64_t rows = 8, columns = 8;

/// b1[row, column] = f(b0): a sum over the row, and the stores.
struct Rows {
  Rows() {
    k.args = {{DType::f32, rows * columns, true, false}, {DType::f32, rows * columns, false, true}};
    k.loops = {{rows}, {columns}, {columns}};
    k.nest.outer = {0};
    k.nest.stages = {{{1}, {}, {}}, {{2}, {}, {}}};
    row = k.pool.loop(0, rows);
    reduced = k.pool.loop(1, columns);
    stored = k.pool.loop(2, columns);
  }
  Index at(Index r, Index c) { return k.pool.add(k.pool.mul(r, columns), c); }
  Expr load(Index index) { return k.pool.load(0, index, {}, DType::f32); }
  void reduce(Index index) {
    k.nest.stages[0].accumulators.push_back({Combiner::sum, load(index), DType::f32, {}});
  }
  void store(Index index, Expr value) { k.nest.stages[1].stores.push_back({1, index, value, {}}); }
  bool may_overwrite() const { return reads_before_writing(share_loops(k), 0, 1); }

  Kernel k;
  Index row, reduced, stored;
};

TEST(Overwrite, ARowIsReadBeforeItIsWritten) {
  Rows k;
  k.reduce(k.at(k.row, k.reduced));
  k.store(k.at(k.row, k.stored), k.load(k.at(k.row, k.stored)));
  EXPECT_TRUE(k.may_overwrite());
  EXPECT_TRUE(stores_once(share_loops(k.k), 1));
}

TEST(Overwrite, AnotherRowIsNot) {
  Rows k;
  k.reduce(k.at(k.reduced, k.row));
  k.store(k.at(k.row, k.stored), k.k.pool.acc(0, 0, DType::f32));
  EXPECT_FALSE(k.may_overwrite());
}

TEST(Overwrite, AnotherElementOfTheRowIsNotWhereThePointsStore) {
  Rows transposed;
  transposed.store(transposed.at(transposed.row, transposed.stored),
                   transposed.load(transposed.at(transposed.stored, transposed.row)));
  EXPECT_FALSE(transposed.may_overwrite());
  Rows first;
  first.store(first.at(first.row, first.stored),
              first.load(first.at(first.row, first.k.pool.number(0))));
  EXPECT_FALSE(first.may_overwrite());
}

TEST(Overwrite, WhatLaterStagesReadIsNot) {
  Rows k;
  k.store(k.at(k.row, k.stored), k.load(k.at(k.row, k.stored)));
  Stage later{{1}, {{Combiner::sum, k.load(k.at(k.row, k.reduced)), DType::f32, {}}}, {}};
  EXPECT_TRUE(k.may_overwrite());
  k.k.nest.stages.push_back(later);
  EXPECT_FALSE(k.may_overwrite());
}

TEST(Overwrite, PartsThatDoNotMeetMayBeReadAtAnyTime) {
  Rows k;
  for (BufferArg& arg : k.k.args) arg.elements *= 2;
  const Index beyond = k.k.pool.number(rows * columns);
  const Index read = k.k.pool.add(k.at(k.stored, k.row), beyond);
  k.store(k.at(k.row, k.stored), k.load(read));
  EXPECT_TRUE(k.may_overwrite());
  k.k.nest.stages[1].stores[0].buffer = 0;
  EXPECT_TRUE(reads_elsewhere(k.k, 0));
  k.store(read, k.load(k.at(k.row, k.stored)));
  k.k.nest.stages[1].stores[1].buffer = 0;
  EXPECT_FALSE(reads_elsewhere(k.k, 0));
}

TEST(Overwrite, PlacesMustBeKnownToDiffer) {
  const auto once = [](const auto& index) {
    Rows k;
    k.store(index(k), k.k.pool.constant(0, DType::f32));
    return stores_once(k.k, 1);
  };
  EXPECT_TRUE(once([](Rows& k) { return k.at(k.stored, k.row); }));
  EXPECT_FALSE(once([](Rows& k) { return k.stored; })) << "every row stores there";
  EXPECT_FALSE(once([](Rows& k) { return k.k.pool.add(k.row, k.stored); }));
  Rows scatter;
  scatter.store(scatter.at(scatter.row, scatter.stored), scatter.k.pool.constant(0, DType::f32));
  scatter.k.nest.stages[1].stores[0].accumulate = true;
  EXPECT_FALSE(stores_once(scatter.k, 1));
}

}  // namespace
}  // namespace tensorgrad::kernel
