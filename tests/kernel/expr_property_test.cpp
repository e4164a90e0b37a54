// Random scalar expressions: what the pool builds has the value of what was asked for.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "kernel/expr.h"
#include "kernel/point.h"

namespace tensorgrad::kernel {
namespace {

constexpr std::array dtypes{DType::bool_, DType::i32, DType::u32, DType::f32};
constexpr std::array<std::int64_t, 2> extents{3, 5};

/// A number that a rule could trip over.
double special(std::mt19937& random, DType dtype) {
  const auto choose = [&](const std::vector<double>& values) {
    return values[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random)];
  };
  constexpr double inf = std::numeric_limits<double>::infinity();
  switch (dtype) {
    case DType::bool_:
      return choose({0, 1});
    case DType::i32:
      return choose({0, 1, -1, 2, 3, 5, -7, 31, 32, 40, 2147483647.0, -2147483648.0});
    case DType::u32:
      return choose({0, 1, 2, 3, 7, 31, 32, 2147483648.0, 4294967295.0});
    case DType::f16:
      return choose({0.0, -0.0, 1, -1, 0.5, 2, -3, 8, 1e-5, 65504, inf, -inf, std::nan("")});
    case DType::f32:
      break;
  }
  return choose({0.0, -0.0, 1, -1, 0.5, 2, -3, 8, 1e-40, 3e38, inf, -inf, std::nan("")});
}

/// The value at a point, of which a test knows the loops and the seed of the memory.
using Naive = std::function<double(const Point&)>;

struct Tracked {
  Expr expr;
  Naive naive;
};

class RandomExpr {
 public:
  explicit RandomExpr(unsigned seed) : random_(seed) {}

  Tracked tree(DType dtype, int depth) {
    if (depth == 0 || pick(6) == 0) return leaf(dtype);
    // One of the operations that give this dtype.
    for (;;) {
      const auto fn = static_cast<Fn>(pick(static_cast<int>(Fn::bitcast) + 1));
      if (arity(fn) == 0) continue;
      const DType operand = dtypes[static_cast<std::size_t>(pick(4))];
      if (!accepts(fn, operand)) continue;
      if (fn == Fn::cast) return conversion(fn, tree(operand, depth - 1), operand, dtype);
      if (fn == Fn::bitcast) {
        // The bits of a NaN are not defined.
        if (!accepts(fn, dtype) || operand == DType::f32) continue;
        return conversion(fn, tree(operand, depth - 1), operand, dtype);
      }
      if (result_dtype(fn, operand) != dtype) continue;
      std::vector<Tracked> args;
      if (fn == Fn::select) args.push_back(tree(DType::bool_, depth - 1));
      while (static_cast<int>(args.size()) < arity(fn)) {
        // Equal operands and operands that are shared are cases of their own.
        const bool repeats = !args.empty() && fn != Fn::select && pick(5) == 0;
        args.push_back(repeats ? args.back() : tree(operand, depth - 1));
      }
      return operation(fn, args, operand, dtype);
    }
  }

  Pool& pool() { return pool_; }

 private:
  int pick(int count) { return std::uniform_int_distribution<int>(0, count - 1)(random_); }

  Tracked leaf(DType dtype) {
    const int kind = pick(3);
    if (kind == 0) {
      const double value = round_to(dtype, special(random_, dtype));
      return {pool_.constant(value, dtype), [value](const Point&) { return value; }};
    }
    const int var = pick(2);
    const auto at = static_cast<std::size_t>(var);
    const Index loop = pool_.loop(var, extents[at]);
    const std::int64_t shift = pick(5) - 2;
    const Index shifted = pool_.add(loop, pool_.number(shift));
    const auto index = [at, shift](const Point& point) { return point.loops[at] + shift; };
    if (kind == 1 && dtype == DType::bool_) {
      const std::int64_t lo = pick(6) - 2;
      const std::int64_t hi = lo + pick(4);
      return {pool_.in_range(shifted, lo, hi),
              [=](const Point& point) { return lo <= index(point) && index(point) < hi; }};
    }
    if (kind == 1) {
      return {pool_.from_index(shifted, dtype), [=](const Point& point) {
                const auto value = static_cast<double>(index(point));
                return dtype == DType::u32 && value < 0 ? value + 4294967296.0 : value;
              }};
    }
    const int buffer = static_cast<int>(dtype) * 2 + pick(2);
    return {pool_.load(buffer, loop, Expr{}, dtype),
            [=](const Point& point) { return point.load(buffer, point.loops[at]); }};
  }

  static double rounded(DType dtype, double value) {
    return dtype == DType::f32 ? round_to(dtype, value) : value;
  }

  Tracked conversion(Fn fn, const Tracked& arg, DType from, DType to) {
    const Expr built = fn == Fn::cast ? pool_.cast(arg.expr, to) : pool_.bitcast(arg.expr, to);
    return {built, [fn, from, to, naive = arg.naive](const Point& point) {
              const std::array args{naive(point)};
              return rounded(to, evaluate(fn, from, to, args));
            }};
  }

  Tracked operation(Fn fn, const std::vector<Tracked>& args, DType operand, DType result) {
    std::vector<Expr> exprs;
    std::vector<Naive> naive;
    for (const Tracked& arg : args) {
      exprs.push_back(arg.expr);
      naive.push_back(arg.naive);
    }
    return {pool_.apply(fn, exprs), [fn, operand, result, naive](const Point& point) {
              std::vector<double> values;
              for (const Naive& arg : naive) values.push_back(arg(point));
              return rounded(result, evaluate(fn, operand, result, values));
            }};
  }

  std::mt19937 random_;
  Pool pool_;
};

Point random_point(std::mt19937& random) {
  Point point;
  for (const std::int64_t extent : extents) {
    point.loops.push_back(std::uniform_int_distribution<std::int64_t>(0, extent - 1)(random));
  }
  const auto seed = static_cast<unsigned>(random());
  point.load = [seed](int buffer, std::int64_t index) {
    std::mt19937 cell(seed + static_cast<unsigned>(buffer) * 101U + static_cast<unsigned>(index));
    const DType dtype = dtypes[static_cast<std::size_t>(buffer / 2)];
    return round_to(dtype, special(cell, dtype));
  };
  return point;
}

/// Equal, signs of zero included; NaN equals NaN. Reading the bits of a NaN is not defined, so a
/// NaN anywhere may have any bits.
bool same(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return a == b && std::signbit(a) == std::signbit(b);
}

TEST(ExprProperty, SimplifiedExpressionsKeepTheirValues) {
  std::mt19937 points(7);
  for (unsigned seed = 0; seed < 4000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomExpr random(seed);
    const Tracked tracked = random.tree(dtypes[seed % 4], 1 + static_cast<int>(seed % 5));
    EXPECT_EQ(random.pool().node(tracked.expr).dtype, dtypes[seed % 4]);
    for (int trial = 0; trial < 12; ++trial) {
      const Point point = random_point(points);
      const double expected = tracked.naive(point);
      const double actual = evaluate_at(random.pool(), tracked.expr, point);
      EXPECT_TRUE(same(actual, expected))
          << to_string(random.pool(), tracked.expr) << "\nis " << actual << ", not " << expected
          << "\nat (" << point.loops[0] << ", " << point.loops[1] << ")";
    }
  }
}

TEST(ExprProperty, RewritingSubstitutes) {
  std::mt19937 points(8);
  for (unsigned seed = 0; seed < 1500 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomExpr random(seed);
    Pool& pool = random.pool();
    const Tracked tracked = random.tree(dtypes[seed % 4], 1 + static_cast<int>(seed % 5));
    Pool::Mapping mapping;
    mapping.loop = [&](int var, std::int64_t extent) {
      return pool.sub(pool.number(extent - 1), pool.loop(var, extent));
    };
    mapping.load = [&](const ExprNode& load, Index index, Expr cond) {
      return pool.load(load.buffer ^ 1, index, cond, load.dtype);
    };
    const Expr rewritten = pool.rewrite(tracked.expr, mapping);
    Pool other;
    const Expr imported = other.import(pool, rewritten, {});
    for (int trial = 0; trial < 12; ++trial) {
      const Point point = random_point(points);
      Point mapped = point;
      for (std::size_t i = 0; i < extents.size(); ++i) {
        mapped.loops[i] = extents[i] - 1 - point.loops[i];
      }
      mapped.load = [&](int buffer, std::int64_t index) { return point.load(buffer ^ 1, index); };
      EXPECT_TRUE(same(evaluate_at(pool, rewritten, point), tracked.naive(mapped)))
          << to_string(pool, tracked.expr) << "\nbecomes\n"
          << to_string(pool, rewritten);
      EXPECT_TRUE(same(evaluate_at(other, imported, point), tracked.naive(mapped)));
    }
  }
}

}  // namespace
}  // namespace tensorgrad::kernel
