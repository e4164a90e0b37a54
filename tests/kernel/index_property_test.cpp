// Random index expressions against plain integer arithmetic, at every point of their loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "kernel/checked.h"
#include "kernel/expr.h"
#include "kernel/point.h"

namespace tensorgrad::kernel {
namespace {

using Values = std::vector<std::int64_t>;
/// The naive meaning of an index: a function of the loop variables.
using Naive = std::function<std::int64_t(const Values&)>;

struct Tracked {
  Index index;
  Naive naive;
};

class RandomIndex {
 public:
  explicit RandomIndex(unsigned seed) : random_(seed) {
    const int count = pick(1, 4);
    for (int i = 0; i < count; ++i) extents_.push_back(pick(1, 6));
  }

  int pick(int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(random_); }

  Pool& pool() { return pool_; }
  const Values& extents() const { return extents_; }

  Tracked leaf() {
    if (pick(0, 4) == 0) {
      const std::int64_t value = pick(-9, 9);
      return {pool_.number(value), [value](const Values&) { return value; }};
    }
    return loop(pick(0, static_cast<int>(extents_.size()) - 1));
  }
  Tracked loop(int var) {
    const auto at = static_cast<std::size_t>(var);
    return {pool_.loop(var, extents_[at]), [at](const Values& point) { return point[at]; }};
  }

  Tracked add(const Tracked& a, const Tracked& b) {
    return {pool_.add(a.index, b.index),
            [x = a.naive, y = b.naive](const Values& p) { return x(p) + y(p); }};
  }
  Tracked sub(const Tracked& a, const Tracked& b) {
    return {pool_.sub(a.index, b.index),
            [x = a.naive, y = b.naive](const Values& p) { return x(p) - y(p); }};
  }
  Tracked mul(const Tracked& a, std::int64_t factor) {
    return {pool_.mul(a.index, factor),
            [x = a.naive, factor](const Values& p) { return x(p) * factor; }};
  }
  Tracked div(const Tracked& a, std::int64_t divisor) {
    return {pool_.div(a.index, divisor),
            [x = a.naive, divisor](const Values& p) { return floor_div(x(p), divisor); }};
  }
  Tracked mod(const Tracked& a, std::int64_t divisor) {
    return {pool_.mod(a.index, divisor),
            [x = a.naive, divisor](const Values& p) { return floor_mod(x(p), divisor); }};
  }

  Tracked tree(int depth) {
    if (depth == 0) return leaf();
    switch (pick(0, 5)) {
      case 0:
      case 1:
        return add(tree(depth - 1), tree(depth - 1));
      case 2:
        return sub(tree(depth - 1), tree(depth - 1));
      case 3:
        return mul(tree(depth - 1), pick(-4, 12));
      case 4:
        return div(tree(depth - 1), pick(1, 13));
      default:
        return mod(tree(depth - 1), pick(1, 13));
    }
  }

  /// The loops as one number, then split and joined again by random shapes.
  Tracked reshapes(int steps) {
    Tracked flat = loop(0);
    std::int64_t size = extents_[0];
    for (std::size_t i = 1; i < extents_.size(); ++i) {
      flat = add(mul(flat, extents_[i]), loop(static_cast<int>(i)));
      size *= extents_[i];
    }
    for (int step = 0; step < steps; ++step) {
      // Split into digits of a factorisation of the size, permute or flip some, join again.
      std::vector<std::int64_t> shape;
      std::int64_t left = size;
      for (std::int64_t f = 2; left > 1; ++f) {
        while (left % f == 0) {
          if (!shape.empty() && pick(0, 1) == 0) {
            shape.back() *= f;
          } else {
            shape.push_back(f);
          }
          left /= f;
        }
      }
      std::shuffle(shape.begin(), shape.end(), random_);
      std::vector<Tracked> digits;
      std::int64_t stride = 1;
      for (auto it = shape.rbegin(); it != shape.rend(); ++it) {
        Tracked digit = mod(div(flat, stride), *it);
        if (pick(0, 4) == 0)
          digit = add(mul(digit, -1), {pool_.number(*it - 1), constant(*it - 1)});
        digits.insert(digits.begin(), digit);
        stride *= *it;
      }
      if (digits.empty()) return flat;
      if (pick(0, 2) == 0) {
        const auto i = static_cast<std::size_t>(pick(0, static_cast<int>(shape.size()) - 1));
        std::swap(digits[0], digits[i]);
        std::swap(shape[0], shape[i]);
      }
      flat = digits[0];
      for (std::size_t i = 1; i < digits.size(); ++i) flat = add(mul(flat, shape[i]), digits[i]);
    }
    return flat;
  }

  static Naive constant(std::int64_t value) {
    return [value](const Values&) { return value; };
  }

  /// Calls `visit` at every point.
  void for_each_point(const std::function<void(const Values&)>& visit) const {
    Values point(extents_.size(), 0);
    for (;;) {
      visit(point);
      std::size_t i = 0;
      while (i < point.size() && ++point[i] == extents_[i]) point[i++] = 0;
      if (i == point.size()) return;
    }
  }

 private:
  std::mt19937 random_;
  Pool pool_;
  Values extents_;
};

/// What the representation promises of every node below `i`.
void expect_canonical(const Pool& pool, Index i) {
  const IndexNode& n = pool.node(i);
  EXPECT_LE(n.lo, n.hi);
  for (std::size_t t = 0; t < n.terms.size(); ++t) {
    EXPECT_NE(n.terms[t].second, 0);
    EXPECT_NE(pool.node(Index{n.terms[t].first}).kind, IndexNode::Kind::sum);
    if (t > 0) {
      EXPECT_LT(n.terms[t - 1].first, n.terms[t].first);
    }
    expect_canonical(pool, Index{n.terms[t].first});
  }
  if (n.kind == IndexNode::Kind::div || n.kind == IndexNode::Kind::mod) {
    const IndexNode& arg = pool.node(Index{n.arg});
    EXPECT_GT(n.divisor, 1);
    EXPECT_GE(arg.lo, 0);
    EXPECT_LT(arg.lo, n.divisor);
    EXPECT_GE(arg.hi, n.divisor);
    expect_canonical(pool, Index{n.arg});
  }
}

void expect_equal_everywhere(RandomIndex& random, const Tracked& tracked) {
  expect_canonical(random.pool(), tracked.index);
  const IndexNode& n = random.pool().node(tracked.index);
  random.for_each_point([&](const Values& values) {
    const std::int64_t expected = tracked.naive(values);
    EXPECT_EQ(evaluate_at(random.pool(), tracked.index, Point{values, {}, {}}), expected);
    EXPECT_LE(n.lo, expected);
    EXPECT_GE(n.hi, expected);
  });
}

TEST(IndexProperty, TreesEqualPlainArithmetic) {
  for (unsigned seed = 0; seed < 1500 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomIndex random(seed);
    expect_equal_everywhere(random, random.tree(random.pick(1, 5)));
  }
}

TEST(IndexProperty, ReshapeChainsEqualPlainArithmetic) {
  for (unsigned seed = 0; seed < 600 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomIndex random(seed);
    expect_equal_everywhere(random, random.reshapes(random.pick(1, 4)));
  }
}

TEST(IndexProperty, RangeConditionsEqualComparison) {
  for (unsigned seed = 0; seed < 1500 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomIndex random(seed);
    const Tracked tracked =
        seed % 2 == 0 ? random.tree(random.pick(1, 4)) : random.reshapes(random.pick(1, 2));
    const std::int64_t lo = random.pick(-30, 30);
    const std::int64_t hi = lo + random.pick(0, 40);
    const Expr test = random.pool().in_range(tracked.index, lo, hi);
    random.for_each_point([&](const Values& values) {
      const std::int64_t i = tracked.naive(values);
      EXPECT_EQ(evaluate_at(random.pool(), test, Point{values, {}, {}}), lo <= i && i < hi);
    });
  }
}

TEST(IndexProperty, RewritingSubstitutesLoops) {
  for (unsigned seed = 0; seed < 600 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomIndex random(seed);
    const Tracked tracked =
        seed % 2 == 0 ? random.tree(random.pick(1, 4)) : random.reshapes(random.pick(1, 2));
    // Each loop runs backwards, as one of two digits of a longer loop.
    Pool& pool = random.pool();
    Pool::Mapping mapping;
    mapping.loop = [&](int var, std::int64_t extent) {
      return pool.sub(pool.number(extent - 1), pool.mod(pool.loop(var, 3 * extent), extent));
    };
    const Index rewritten = pool.rewrite(tracked.index, mapping);
    expect_canonical(pool, rewritten);
    random.for_each_point([&](const Values& values) {
      for (std::int64_t high = 0; high < 3; ++high) {
        Values longer = values;
        Values flipped = values;
        for (std::size_t i = 0; i < values.size(); ++i) {
          longer[i] += high * random.extents()[i];
          flipped[i] = random.extents()[i] - 1 - values[i];
        }
        EXPECT_EQ(evaluate_at(pool, rewritten, Point{longer, {}, {}}), tracked.naive(flipped));
      }
    });
  }
}

}  // namespace
}  // namespace tensorgrad::kernel
