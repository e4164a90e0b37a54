// The rules of index algebra, by their printed results.
#include <gtest/gtest.h>

#include <vector>

#include "kernel/expr.h"
#include "tensorgrad/error.h"
#include "tensorgrad/tensor.h"

namespace tensorgrad::kernel {
namespace {

class IndexTest : public testing::Test {
 protected:
  std::string text(Index i) const { return to_string(pool, i); }
  Index loop(int var, std::int64_t extent) { return pool.loop(var, extent); }
  Index join(Index high, std::int64_t size, Index low) {
    return pool.add(pool.mul(high, size), low);
  }

  Pool pool;
};

TEST_F(IndexTest, EqualExpressionsAreOneNode) {
  const Index i = loop(0, 8);
  const Index j = loop(1, 4);
  EXPECT_EQ(pool.add(i, j), pool.add(j, i));
  EXPECT_EQ(pool.add(pool.add(i, j), pool.number(3)), pool.add(i, pool.add(pool.number(3), j)));
  EXPECT_EQ(pool.sub(pool.add(i, j), j), i);
  EXPECT_EQ(pool.mul(i, 1), i);
  EXPECT_EQ(pool.mul(i, 0), pool.number(0));
  EXPECT_EQ(pool.add(i, i), pool.mul(i, 2));
  EXPECT_EQ(pool.sub(i, i), pool.number(0));
  EXPECT_NE(loop(0, 8), loop(0, 9));
}

TEST_F(IndexTest, LoopOfExtentOneIsZero) {
  EXPECT_EQ(loop(3, 1), pool.number(0));
  EXPECT_EQ(loop(3, 0), pool.number(0));
  EXPECT_THROW(loop(3, -1), GraphError);
}

TEST_F(IndexTest, RangesAreKnown) {
  const Index x = pool.sub(join(loop(0, 4), 10, loop(1, 10)), pool.number(5));
  EXPECT_EQ(pool.node(x).lo, -5);
  EXPECT_EQ(pool.node(x).hi, 34);
  const Index y = pool.sub(pool.number(7), loop(2, 8));
  EXPECT_EQ(pool.node(y).lo, 0);
  EXPECT_EQ(pool.node(y).hi, 7);
  EXPECT_EQ(pool.node(pool.div(loop(0, 23), 4)).hi, 5);
  EXPECT_EQ(pool.node(pool.mod(loop(0, 23), 4)).hi, 3);
}

TEST_F(IndexTest, DivAndModSplitMultiples) {
  const Index x = join(loop(0, 5), 8, loop(1, 8));
  EXPECT_EQ(pool.div(x, 8), loop(0, 5));
  EXPECT_EQ(pool.mod(x, 8), loop(1, 8));
  EXPECT_EQ(text(pool.div(join(loop(0, 5), 8, loop(2, 20)), 8)), "i0 + i2/8");
  EXPECT_EQ(text(pool.mod(join(loop(0, 5), 8, loop(2, 20)), 8)), "i2%8");
}

TEST_F(IndexTest, DivAndModByOne) {
  EXPECT_EQ(pool.div(loop(0, 5), 1), loop(0, 5));
  EXPECT_EQ(pool.mod(loop(0, 5), 1), pool.number(0));
}

TEST_F(IndexTest, RangesDecideDivAndMod) {
  EXPECT_EQ(pool.div(loop(0, 8), 8), pool.number(0));
  EXPECT_EQ(pool.mod(loop(0, 8), 8), loop(0, 8));
  EXPECT_EQ(pool.div(pool.add(loop(0, 8), pool.number(16)), 8), pool.number(2));
  EXPECT_EQ(pool.mod(pool.add(loop(0, 8), pool.number(16)), 8), loop(0, 8));
  EXPECT_EQ(pool.div(pool.sub(loop(0, 8), pool.number(8)), 8), pool.number(-1));
  // A flip stays within its row.
  const Index flipped = pool.sub(pool.number(7), loop(0, 8));
  EXPECT_EQ(pool.mod(join(loop(1, 3), 8, flipped), 8), flipped);
}

TEST_F(IndexTest, ConstantsFold) {
  EXPECT_EQ(pool.div(pool.number(-1), 4), pool.number(-1));
  EXPECT_EQ(pool.mod(pool.number(-1), 4), pool.number(3));
  EXPECT_EQ(pool.div(pool.number(11), 4), pool.number(2));
}

TEST_F(IndexTest, NegativeArgumentsAreShiftedToZero) {
  const Index padded = pool.sub(loop(0, 10), pool.number(1));
  EXPECT_EQ(text(pool.div(padded, 4)), "(i0 + 3)/4 - 1");
  EXPECT_EQ(text(pool.mod(padded, 4)), "(i0 + 3)%4");
}

TEST_F(IndexTest, NestedDivIsOne) {
  EXPECT_EQ(text(pool.div(pool.div(loop(0, 100), 3), 5)), "i0/15");
  EXPECT_EQ(text(pool.div(pool.add(pool.div(loop(0, 100), 3), pool.number(2)), 5)), "(i0 + 6)/15");
}

TEST_F(IndexTest, DivOfASumWithADivIsOne) {
  const Index sum = pool.add(pool.mul(loop(0, 3), 2), pool.div(loop(1, 6), 3));
  EXPECT_EQ(text(pool.div(sum, 3)), "(6*i0 + i1)/9");
}

TEST_F(IndexTest, DivOfModIsModOfDiv) {
  EXPECT_EQ(pool.div(pool.mod(loop(0, 100), 12), 4), pool.mod(pool.div(loop(0, 100), 4), 3));
  EXPECT_EQ(text(pool.div(pool.mod(loop(0, 100), 12), 4)), "(i0/4)%3");
}

TEST_F(IndexTest, ModOfModIsOne) {
  EXPECT_EQ(text(pool.mod(pool.mod(loop(0, 100), 12), 4)), "i0%4");
  EXPECT_EQ(text(pool.mod(pool.mod(loop(0, 100), 12), 5)), "(i0%12)%5");
}

TEST_F(IndexTest, CommonFactorsLeaveDivAndMod) {
  const Index x = pool.add(pool.mul(loop(0, 10), 6), pool.number(5));
  EXPECT_EQ(text(pool.div(x, 8)), "(3*i0 + 2)/4");
  EXPECT_EQ(text(pool.mod(x, 8)), "2*((3*i0 + 2)%4) + 1");
}

TEST_F(IndexTest, LowDigitsLeaveDivAndMod) {
  const Index x = join(loop(0, 10), 12, loop(1, 12));
  EXPECT_EQ(text(pool.div(x, 24)), "i0/2");
  EXPECT_EQ(text(pool.mod(x, 24)), "12*(i0%2) + i1");
}

TEST_F(IndexTest, DigitsRecombine) {
  const Index x = loop(0, 100);
  EXPECT_EQ(join(pool.div(x, 7), 7, pool.mod(x, 7)), x);
  EXPECT_EQ(pool.mul(join(pool.div(x, 7), 7, pool.mod(x, 7)), -3), pool.mul(x, -3));
  // Three digits and, of those, the low two.
  const Index middle = pool.mod(pool.div(x, 4), 5);
  EXPECT_EQ(join(join(pool.div(x, 20), 5, middle), 4, pool.mod(x, 4)), x);
  EXPECT_EQ(join(middle, 4, pool.mod(x, 4)), pool.mod(x, 20));
}

TEST_F(IndexTest, ReshapesOfReshapesVanish) {
  // [6, 20] as [8, 15] and back.
  const Index flat = join(loop(0, 6), 20, loop(1, 20));
  const Index again = join(pool.div(flat, 15), 15, pool.mod(flat, 15));
  EXPECT_EQ(again, flat);
  EXPECT_EQ(pool.div(again, 20), loop(0, 6));
  EXPECT_EQ(pool.mod(again, 20), loop(1, 20));
  // [4, 6] as [4, 2, 3]: only the divided dimension is divided.
  const Index rows = join(loop(0, 4), 6, loop(1, 6));
  EXPECT_EQ(text(pool.mod(pool.div(rows, 3), 2)), "i1/3");
  EXPECT_EQ(text(pool.mod(rows, 3)), "i1%3");
}

/// All shapes of `rank` extents above 1 and `count` elements.
void add_shapes(std::int64_t count, int rank, Shape& begun, std::vector<Shape>& shapes) {
  if (rank == 1) {
    shapes.push_back(begun);
    shapes.back().push_back(count);
    return;
  }
  for (std::int64_t extent = 2; extent < count; ++extent) {
    if (count % extent != 0) continue;
    begun.push_back(extent);
    add_shapes(count / extent, rank - 1, begun, shapes);
    begun.pop_back();
  }
}

// The scheduler writes a state over itself where only reshapes are between, whatever their shapes.
TEST_F(IndexTest, ReshapesToAnyShapeAndBackVanish) {
  for (const std::int64_t count : {12, 18, 30, 36, 48, 54, 60}) {
    std::vector<Shape> shapes;
    for (int rank = 1; rank <= 4; ++rank) {
      Shape begun;
      add_shapes(count, rank, begun, shapes);
    }
    for (const Shape& from : shapes) {
      Index flat = pool.number(0);
      for (std::size_t d = 0; d < from.size(); ++d) {
        flat = join(flat, from[d], loop(static_cast<int>(d), from[d]));
      }
      for (const Shape& to : shapes) {
        Index again = pool.number(0);
        std::int64_t stride = count;
        for (const std::int64_t extent : to) {
          stride /= extent;
          again = pool.add(again, pool.mul(pool.mod(pool.div(flat, stride), extent), stride));
        }
        ASSERT_EQ(again, flat) << tensorgrad::to_string(from) << " as " << tensorgrad::to_string(to)
                               << ": " << text(again);
      }
    }
  }
}

TEST_F(IndexTest, ValuesKeepTheirRange) {
  const Expr e = pool.load(0, loop(0, 8), Expr{}, DType::i32);
  const Index v = pool.value(e, 0, 9);
  EXPECT_EQ(text(v), "at(b0[i0], 0..9)");
  EXPECT_EQ(pool.div(v, 10), pool.number(0));
  EXPECT_EQ(pool.from_index(v, DType::i32), e);
  EXPECT_EQ(pool.value(e, 4, 4), pool.number(4));
  EXPECT_EQ(pool.value(pool.constant(3, DType::i32), 0, 9), pool.number(3));
  EXPECT_EQ(pool.value(pool.from_index(loop(0, 8), DType::u32), 0, 9), loop(0, 8));
  EXPECT_THROW(pool.value(e, 1, 0), GraphError);
  EXPECT_THROW(pool.value(pool.constant(1, DType::f32), 0, 9), GraphError);
}

TEST_F(IndexTest, MisuseThrows) {
  EXPECT_THROW(pool.div(loop(0, 8), 0), GraphError);
  EXPECT_THROW(pool.mod(loop(0, 8), -2), GraphError);
  EXPECT_THROW(pool.mul(loop(0, 8), INT64_MAX), GraphError);
}

TEST_F(IndexTest, CopiesOfAPoolStandAlone) {
  const Index i = pool.add(loop(0, 8), loop(1, 8));
  Pool copy = pool;
  EXPECT_EQ(copy.add(copy.loop(0, 8), copy.loop(1, 8)), i);
  EXPECT_EQ(to_string(copy, copy.mul(i, 2)), "2*i0 + 2*i1");
}

}  // namespace
}  // namespace tensorgrad::kernel
