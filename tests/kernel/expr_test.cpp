// The rules of scalar expressions, by node identity and printed results.
#include "kernel/expr.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tensorgrad/error.h"

namespace tensorgrad::kernel {
namespace {

class ExprTest : public testing::Test {
 protected:
  std::string text(Expr e) const { return to_string(pool, e); }
  Expr load(int buffer, DType dtype) { return pool.load(buffer, i, Expr{}, dtype); }
  Expr f(double value) { return pool.constant(value, DType::f32); }
  Expr n(double value) { return pool.constant(value, DType::i32); }
  Expr b(bool value) { return pool.constant(value ? 1 : 0, DType::bool_); }

  Pool pool;
  Index i = pool.loop(0, 64);
  Index j = pool.loop(1, 32);
  Expr x = load(0, DType::f32);
  Expr y = load(1, DType::f32);
  Expr k = load(2, DType::i32);
  Expr u = load(3, DType::u32);
  Expr p = load(4, DType::bool_);
  Expr q = load(5, DType::bool_);
};

TEST_F(ExprTest, ConstantsAreComparedByBits) {
  EXPECT_NE(f(0.0), f(-0.0));
  EXPECT_EQ(f(std::nan("")), f(std::nan("")));
  EXPECT_NE(f(1), n(1));
  EXPECT_EQ(f(0.1), f(static_cast<double>(0.1F)));
}

TEST_F(ExprTest, EqualExpressionsAreOneNode) {
  EXPECT_EQ(pool.apply(Fn::mul, {x, y}), pool.apply(Fn::mul, {y, x}));
  EXPECT_NE(pool.apply(Fn::sub, {x, y}), pool.apply(Fn::sub, {y, x}));
  EXPECT_EQ(load(0, DType::f32), x);
}

TEST_F(ExprTest, MisuseThrows) {
  EXPECT_THROW(pool.apply(Fn::add, {x, k}), GraphError);
  EXPECT_THROW(pool.apply(Fn::add, {x}), GraphError);
  EXPECT_THROW(pool.apply(Fn::exp, {k}), GraphError);
  EXPECT_THROW(pool.apply(Fn::add, {p, q}), GraphError);
  EXPECT_THROW(pool.apply(Fn::select, {x, x, y}), GraphError);
  EXPECT_THROW(pool.apply(Fn::cast, {x}), GraphError);
  EXPECT_THROW(pool.apply(Fn::exp, {Expr{}}), GraphError);
  EXPECT_THROW(pool.bitcast(p, DType::i32), GraphError);
  EXPECT_THROW(pool.load(0, i, x, DType::f32), GraphError);
  EXPECT_THROW(pool.from_index(i, DType::bool_), GraphError);
}

TEST_F(ExprTest, ConstantsFold) {
  EXPECT_EQ(pool.apply(Fn::add, {f(1), f(2)}), f(3));
  EXPECT_EQ(pool.apply(Fn::lt, {f(1), f(2)}), b(true));
  EXPECT_EQ(pool.apply(Fn::select, {b(true), f(1), f(2)}), f(1));
  EXPECT_EQ(pool.apply(Fn::add, {n(2147483647), n(1)}), n(-2147483648.0));
  EXPECT_EQ(pool.cast(f(2.7), DType::i32), n(2));
  EXPECT_EQ(pool.bitcast(n(1065353216), DType::f32), f(1));
  EXPECT_EQ(pool.apply(Fn::mul, {f(0), f(std::numeric_limits<double>::infinity())}),
            f(std::nan("")));
}

TEST_F(ExprTest, FloatIdentitiesAreExact) {
  EXPECT_EQ(pool.apply(Fn::mul, {x, f(1)}), x);
  EXPECT_EQ(pool.apply(Fn::mul, {f(1), x}), x);
  EXPECT_EQ(pool.apply(Fn::div, {x, f(1)}), x);
  EXPECT_EQ(pool.apply(Fn::add, {x, f(-0.0)}), x);
  EXPECT_EQ(pool.apply(Fn::sub, {x, f(0)}), x);
  EXPECT_EQ(text(pool.apply(Fn::mul, {x, f(-1)})), "-b0[i0]");
  EXPECT_EQ(text(pool.apply(Fn::sub, {f(-0.0), x})), "-b0[i0]");
  EXPECT_EQ(pool.apply(Fn::neg, {pool.apply(Fn::neg, {x})}), x);
  EXPECT_EQ(text(pool.apply(Fn::div, {x, f(8)})), "b0[i0] * 0.125");
  EXPECT_EQ(text(pool.apply(Fn::div, {x, f(3)})), "b0[i0] / 3.0");
  EXPECT_EQ(text(pool.apply(Fn::div, {f(1), x})), "reciprocal(b0[i0])");
  EXPECT_EQ(text(pool.apply(Fn::add, {x, pool.apply(Fn::neg, {y})})), "b0[i0] - b1[i0]");
  EXPECT_EQ(text(pool.apply(Fn::sub, {x, pool.apply(Fn::neg, {y})})), "b0[i0] + b1[i0]");
  EXPECT_EQ(text(pool.apply(Fn::mul, {pool.apply(Fn::neg, {x}), f(2)})), "b0[i0] * -2.0");
  EXPECT_EQ(pool.apply(Fn::max, {x, x}), x);
}

TEST_F(ExprTest, InexactFloatIdentitiesAreNotApplied) {
  EXPECT_NE(pool.apply(Fn::add, {x, f(0)}), x);     // -0 + 0 is 0
  EXPECT_NE(pool.apply(Fn::sub, {x, f(-0.0)}), x);  // -0 - -0 is 0
  EXPECT_NE(pool.apply(Fn::mul, {x, f(0)}), f(0));  // NaN, infinity, -0
  EXPECT_NE(pool.apply(Fn::sub, {x, x}), f(0));     // NaN, infinity
  EXPECT_NE(pool.apply(Fn::eq, {x, x}), b(true));   // NaN
  EXPECT_NE(pool.apply(Fn::div, {x, x}), f(1));     // NaN, 0
  const Expr less = pool.apply(Fn::lt, {x, y});
  EXPECT_EQ(text(pool.apply(Fn::bit_not, {less})), "not (b0[i0] < b1[i0])");
}

TEST_F(ExprTest, Powers) {
  EXPECT_EQ(pool.apply(Fn::pow, {x, f(0)}), f(1));
  EXPECT_EQ(pool.apply(Fn::pow, {x, f(1)}), x);
  EXPECT_EQ(pool.apply(Fn::pow, {x, f(2)}), pool.apply(Fn::mul, {x, x}));
  EXPECT_EQ(text(pool.apply(Fn::pow, {x, f(-1)})), "reciprocal(b0[i0])");
  EXPECT_EQ(text(pool.apply(Fn::pow, {x, f(0.5)})), "pow(b0[i0], 0.5)");
}

TEST_F(ExprTest, RepeatedUnaries) {
  const Expr r = pool.apply(Fn::relu, {x});
  EXPECT_EQ(pool.apply(Fn::relu, {r}), r);
  EXPECT_EQ(pool.apply(Fn::abs, {r}), r);
  EXPECT_EQ(pool.apply(Fn::abs, {pool.apply(Fn::neg, {x})}), pool.apply(Fn::abs, {x}));
  const Expr fl = pool.apply(Fn::floor, {x});
  EXPECT_EQ(pool.apply(Fn::ceil, {fl}), fl);
  EXPECT_EQ(pool.apply(Fn::round, {pool.cast(k, DType::f32)}), pool.cast(k, DType::f32));
}

TEST_F(ExprTest, IntegerIdentities) {
  EXPECT_EQ(pool.apply(Fn::add, {k, n(0)}), k);
  EXPECT_EQ(pool.apply(Fn::sub, {k, n(0)}), k);
  EXPECT_EQ(pool.apply(Fn::sub, {k, k}), n(0));
  EXPECT_EQ(pool.apply(Fn::mul, {k, n(1)}), k);
  EXPECT_EQ(pool.apply(Fn::mul, {n(0), k}), n(0));
  EXPECT_EQ(pool.apply(Fn::div, {k, n(1)}), k);
  EXPECT_EQ(pool.apply(Fn::div, {k, n(0)}), n(0));
  EXPECT_EQ(pool.apply(Fn::rem, {k, n(1)}), n(0));
  EXPECT_EQ(pool.apply(Fn::bit_and, {k, n(-1)}), k);
  EXPECT_EQ(pool.apply(Fn::bit_and, {k, n(0)}), n(0));
  EXPECT_EQ(pool.apply(Fn::bit_or, {k, k}), k);
  EXPECT_EQ(pool.apply(Fn::bit_xor, {k, k}), n(0));
  EXPECT_EQ(pool.apply(Fn::shl, {k, n(0)}), k);
  EXPECT_EQ(pool.apply(Fn::shl, {k, n(32)}), n(0));
  EXPECT_EQ(text(pool.apply(Fn::shr, {k, n(32)})), "b2[i0] >> 32");
  EXPECT_EQ(text(pool.apply(Fn::add, {pool.apply(Fn::add, {k, n(3)}), n(4)})), "b2[i0] + 7");
  EXPECT_EQ(pool.apply(Fn::le, {k, k}), b(true));
  EXPECT_EQ(pool.apply(Fn::ne, {k, k}), b(false));
  const Expr less = pool.apply(Fn::lt, {k, n(5)});
  EXPECT_EQ(text(pool.apply(Fn::bit_not, {less})), "b2[i0] >= 5");
  EXPECT_EQ(text(pool.apply(Fn::lt, {n(5), k})), "b2[i0] > 5");
}

TEST_F(ExprTest, Bools) {
  EXPECT_EQ(pool.apply(Fn::bit_and, {p, b(true)}), p);
  EXPECT_EQ(pool.apply(Fn::bit_and, {b(false), p}), b(false));
  EXPECT_EQ(pool.apply(Fn::bit_or, {p, b(true)}), b(true));
  EXPECT_EQ(pool.apply(Fn::bit_or, {p, b(false)}), p);
  EXPECT_EQ(pool.apply(Fn::bit_and, {p, p}), p);
  EXPECT_EQ(pool.apply(Fn::bit_not, {pool.apply(Fn::bit_not, {p})}), p);
  EXPECT_EQ(pool.apply(Fn::eq, {p, b(true)}), p);
  EXPECT_EQ(pool.apply(Fn::ne, {p, b(true)}), pool.apply(Fn::bit_not, {p}));
  EXPECT_EQ(pool.apply(Fn::max, {p, q}), pool.apply(Fn::bit_or, {p, q}));
  const Expr both = pool.both(p, q);
  EXPECT_EQ(pool.both(both, p), both);
  EXPECT_EQ(pool.both(q, both), pool.both(pool.both(q, p), q));
  EXPECT_EQ(pool.both(Expr{}, p), p);
  EXPECT_EQ(pool.both(p, Expr{}), p);
  EXPECT_FALSE(pool.both(Expr{}, Expr{}).defined());
  const Expr equal = pool.apply(Fn::eq, {x, y});
  EXPECT_EQ(pool.apply(Fn::bit_not, {equal}), pool.apply(Fn::ne, {x, y}));
}

TEST_F(ExprTest, Selects) {
  const auto select = [&](Expr c, Expr a, Expr e) { return pool.apply(Fn::select, {c, a, e}); };
  EXPECT_EQ(select(b(false), x, y), y);
  EXPECT_EQ(select(p, x, x), x);
  EXPECT_EQ(select(pool.apply(Fn::bit_not, {p}), x, y), select(p, y, x));
  EXPECT_EQ(select(p, select(p, x, y), y), select(p, x, y));
  EXPECT_EQ(select(p, x, select(p, x, y)), select(p, x, y));
  EXPECT_EQ(select(p, b(true), b(false)), p);
  EXPECT_EQ(select(p, b(false), b(true)), pool.apply(Fn::bit_not, {p}));
  EXPECT_EQ(select(p, q, b(false)), pool.both(p, q));
}

TEST_F(ExprTest, Casts) {
  EXPECT_EQ(pool.cast(x, DType::f32), x);
  EXPECT_EQ(pool.cast(pool.cast(p, DType::f32), DType::bool_), p);
  EXPECT_EQ(pool.cast(pool.cast(p, DType::f32), DType::i32), pool.cast(p, DType::i32));
  EXPECT_EQ(pool.cast(pool.cast(k, DType::u32), DType::i32), k);
  EXPECT_NE(pool.cast(pool.cast(k, DType::f32), DType::i32), k);
  EXPECT_EQ(text(pool.cast(pool.cast(u, DType::i32), DType::f32)), "f32(i32(b3[i0]))");
  EXPECT_EQ(pool.bitcast(pool.bitcast(x, DType::u32), DType::f32), x);
}

TEST_F(ExprTest, IndicesAsNumbers) {
  const Expr row = pool.from_index(i, DType::i32);
  EXPECT_EQ(pool.from_index(pool.number(-3), DType::i32), n(-3));
  EXPECT_EQ(pool.from_index(pool.number(-1), DType::u32), pool.constant(4294967295.0, DType::u32));
  EXPECT_EQ(pool.from_index(pool.number(3), DType::f32), f(3));
  EXPECT_EQ(text(pool.apply(Fn::add, {row, n(2)})), "i32(i0 + 2)");
  EXPECT_EQ(text(pool.apply(Fn::mul, {n(3), row})), "i32(3*i0)");
  EXPECT_EQ(text(pool.apply(Fn::div, {row, n(4)})), "i32(i0/4)");
  EXPECT_EQ(text(pool.apply(Fn::rem, {row, n(4)})), "i32(i0%4)");
  EXPECT_EQ(text(pool.apply(Fn::neg, {row})), "i32(-i0)");
  // Below 0 index division would round the other way.
  EXPECT_EQ(text(pool.apply(Fn::div, {pool.apply(Fn::neg, {row}), n(4)})), "i32(-i0) / 4");
  EXPECT_EQ(pool.cast(row, DType::f32), pool.from_index(i, DType::f32));
  EXPECT_EQ(pool.cast(row, DType::u32), pool.from_index(i, DType::u32));
  EXPECT_EQ(text(pool.cast(row, DType::bool_)), "1 <= i0");
  EXPECT_EQ(pool.apply(Fn::max, {row, n(0)}), row);
  EXPECT_EQ(pool.apply(Fn::min, {row, n(63)}), row);
  EXPECT_EQ(pool.apply(Fn::min, {row, n(0)}), n(0));
  EXPECT_EQ(pool.apply(Fn::abs, {row}), row);
  // What could wrap stays arithmetic of the dtype.
  const Expr wide = pool.from_index(pool.loop(2, 4000000000), DType::i32);
  EXPECT_EQ(text(pool.apply(Fn::add, {wide, n(1)})), "i32(i2) + 1");
  EXPECT_EQ(text(pool.apply(Fn::mul, {row, n(100000000)})), "i32(i0) * 100000000");
}

TEST_F(ExprTest, ComparisonsOfIndicesAreRanges) {
  const Expr row = pool.from_index(i, DType::i32);
  const Expr column = pool.from_index(j, DType::i32);
  EXPECT_EQ(text(pool.apply(Fn::lt, {row, n(5)})), "i0 < 5");
  EXPECT_EQ(text(pool.apply(Fn::ge, {row, n(5)})), "5 <= i0");
  EXPECT_EQ(text(pool.apply(Fn::eq, {row, n(5)})), "5 <= i0 < 6");
  EXPECT_EQ(text(pool.apply(Fn::ne, {row, n(0)})), "1 <= i0");
  EXPECT_EQ(pool.apply(Fn::lt, {row, n(64)}), b(true));
  EXPECT_EQ(pool.apply(Fn::eq, {row, n(-1)}), b(false));
  EXPECT_EQ(text(pool.apply(Fn::ge, {row, column})), "0 <= i0 - i1");
  EXPECT_EQ(pool.apply(Fn::ge, {row, column}), pool.apply(Fn::le, {column, row}));
  EXPECT_EQ(pool.apply(Fn::bit_not, {pool.apply(Fn::lt, {row, column})}),
            pool.apply(Fn::ge, {row, column}));
}

TEST_F(ExprTest, RangeConditionsAreReduced) {
  EXPECT_EQ(pool.in_range(i, 0, 64), b(true));
  EXPECT_EQ(pool.in_range(i, 64, 80), b(false));
  EXPECT_EQ(pool.in_range(i, 5, 5), b(false));
  const Index padded = pool.sub(i, pool.number(2));
  EXPECT_EQ(text(pool.in_range(padded, 0, 60)), "2 <= i0 < 62");
  EXPECT_EQ(text(pool.in_range(pool.sub(pool.number(63), i), 0, 10)), "54 <= i0");
  EXPECT_EQ(text(pool.in_range(pool.mul(i, 3), 4, 10)), "2 <= i0 < 4");
  const Index flat = pool.add(pool.mul(i, 32), j);
  EXPECT_EQ(text(pool.in_range(flat, 64, 128)), "2 <= i0 < 4");
  EXPECT_EQ(text(pool.in_range(flat, 65, 128)), "65 <= 32*i0 + i1 < 128");
  EXPECT_EQ(text(pool.in_range(pool.div(i, 3), 1, 4)), "3 <= i0 < 12");
}

TEST_F(ExprTest, RangeConditionsCombine) {
  const Expr low = pool.in_range(i, 4, 100);
  const Expr high = pool.in_range(i, 0, 20);
  EXPECT_EQ(text(pool.both(low, high)), "4 <= i0 < 20");
  EXPECT_EQ(pool.both(pool.in_range(i, 0, 4), low), b(false));
  EXPECT_EQ(text(pool.both(pool.both(low, p), high)), "4 <= i0 < 20 and b4[i0]");
  EXPECT_EQ(pool.apply(Fn::bit_or, {low, high}), b(true));
  EXPECT_EQ(text(pool.apply(Fn::bit_not, {high})), "20 <= i0");
}

TEST_F(ExprTest, ConditionsOfLoads) {
  EXPECT_EQ(pool.load(0, i, b(false), DType::f32), f(0));
  EXPECT_EQ(pool.load(0, i, b(true), DType::f32), x);
  EXPECT_EQ(text(pool.load(0, i, pool.in_range(i, 2, 64), DType::f32)), "b0[i0] if 2 <= i0 else 0");
}

TEST_F(ExprTest, TextIsReadable) {
  const Index flat = pool.add(pool.mul(i, 32), j);
  const Expr a = pool.load(0, flat, Expr{}, DType::f32);
  const Expr bias = pool.load(1, j, Expr{}, DType::f32);
  EXPECT_EQ(text(pool.apply(Fn::relu, {pool.apply(Fn::add, {a, bias})})),
            "relu(b0[32*i0 + i1] + b1[i1])");
  const Expr d = pool.apply(Fn::sub, {x, pool.apply(Fn::sub, {y, f(2)})});
  EXPECT_EQ(text(pool.apply(Fn::mul, {d, f(0.5)})), "(b0[i0] - (b1[i0] - 2.0)) * 0.5");
  const Expr e = pool.apply(Fn::exp, {x});
  EXPECT_EQ(text(pool.apply(Fn::mul, {e, e})), "t0 = exp(b0[i0]); t0 * t0");
  EXPECT_EQ(text(pool.acc(1, 2, DType::f32)), "s1.2");
  EXPECT_EQ(text(pool.constant(7, DType::u32)), "7u");
  EXPECT_EQ(text(pool.cast(p, DType::f32)), "f32(b4[i0])");
  EXPECT_EQ(text(Expr{}), "undefined");
}

TEST_F(ExprTest, TextDoesNotDependOnOrderOfBuilding) {
  Pool other;
  const Index oj = other.loop(1, 32);
  const Index oi = other.loop(0, 64);
  EXPECT_EQ(to_string(pool, pool.add(i, j)), to_string(other, other.add(oj, oi)));
}

TEST_F(ExprTest, RewriteMapsLeaves) {
  const Expr e =
      pool.apply(Fn::add, {pool.load(0, pool.add(i, j), pool.in_range(i, 3, 64), DType::f32),
                           pool.acc(0, 0, DType::f32)});
  Pool::Mapping mapping;
  mapping.loop = [&](int var, std::int64_t extent) {
    return var == 0 ? pool.number(5) : pool.loop(7, extent);
  };
  mapping.acc = [&](const ExprNode&) { return y; };
  EXPECT_EQ(text(pool.rewrite(e, mapping)), "b0[i7 + 5] + b1[i0]");
  EXPECT_EQ(pool.rewrite(e, {}), e);
  mapping.load = [&](const ExprNode& load, Index index, Expr cond) {
    return pool.load(load.buffer + 10, index, cond, load.dtype);
  };
  EXPECT_EQ(text(pool.rewrite(e, mapping)), "b10[i7 + 5] + b1[i0]");
}

TEST_F(ExprTest, RewriteGoesThroughGathers) {
  const Index row = pool.value(k, 0, 9);
  const Expr e = pool.load(0, pool.add(pool.mul(row, 32), j), Expr{}, DType::f32);
  Pool::Mapping mapping;
  mapping.load = [&](const ExprNode& load, Index index, Expr cond) {
    return load.buffer == 2 ? n(4) : pool.load(load.buffer, index, cond, load.dtype);
  };
  EXPECT_EQ(text(pool.rewrite(e, mapping)), "b0[i1 + 128]");
}

TEST_F(ExprTest, ImportBuildsInAnotherPool) {
  const Expr e = pool.apply(Fn::exp, {pool.load(0, pool.add(i, j), Expr{}, DType::f32)});
  Pool other;
  EXPECT_EQ(to_string(other, other.import(pool, e, {})), "exp(b0[i0 + i1])");
  EXPECT_EQ(other.size(), 2U);
}

TEST_F(ExprTest, DeepExpressionsNeedNoStack) {
  Expr e = x;
  for (int depth = 0; depth < 20000; ++depth) e = pool.apply(Fn::sin, {e});
  Pool::Mapping mapping;
  mapping.load = [&](const ExprNode&, Index, Expr) { return y; };
  const Expr rewritten = pool.rewrite(e, mapping);
  EXPECT_NE(rewritten, e);
  EXPECT_FALSE(text(rewritten).empty());
}

TEST_F(ExprTest, SharedPartsArePrintedOnce) {
  Expr e = x;
  for (int depth = 0; depth < 100; ++depth) e = pool.apply(Fn::add, {e, e});
  EXPECT_LT(text(e).size(), 3000U);
}

}  // namespace
}  // namespace tensorgrad::kernel
