// The lowering of every row that gives scalar or index expressions, against its reference: the
// expressions are built over loop variables and evaluated at every point.
#include <gtest/gtest.h>

#include <optional>
#include <unordered_map>

#include "kernel/point.h"
#include "ops/sampling.h"

namespace tensorgrad::testing {
namespace {

using kernel::Expr;
using kernel::Index;
using kernel::Point;
using kernel::Pool;

/// Evaluates an expression with shared parts visited once: the rounds of a block cipher share
/// theirs, and a walk of the tree would not end.
class Evaluator {
 public:
  Evaluator(const Pool& pool, const Point& point) : pool_(pool), point_(point) {}
  double operator()(Expr e) {
    const kernel::ExprNode& n = pool_.node(e);
    if (kernel::arity(n.fn) == 0) return evaluate_at(pool_, e, point_);
    if (const auto it = known_.find(e.id); it != known_.end()) return it->second;
    std::vector<double> args;
    for (int i = 0; i < kernel::arity(n.fn); ++i) args.push_back((*this)(Expr{n.args[i]}));
    const DType operand = pool_.node(Expr{n.args[n.fn == kernel::Fn::select ? 1 : 0]}).dtype;
    double v = kernel::evaluate(n.fn, operand, n.dtype, args);
    if (is_floating(n.dtype)) v = kernel::round_to(n.dtype, v);
    return known_[e.id] = v;
  }

 private:
  const Pool& pool_;
  const Point& point_;
  std::unordered_map<std::int32_t, double> known_;
};

std::vector<Index> loops_over(Pool& pool, const Shape& shape) {
  std::vector<Index> out;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    out.push_back(pool.loop(static_cast<int>(d), shape[d]));
  }
  return out;
}

Shape unravelled(std::int64_t flat, const Shape& shape) {
  Shape index(shape.size(), 0);
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = flat % shape[d];
    flat /= shape[d];
  }
  return index;
}

Index flat_index(Pool& pool, std::span<const Index> index, const Shape& shape) {
  Index flat = pool.number(0);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    flat = pool.add(pool.mul(flat, shape[d]), index[d]);
  }
  return flat;
}

/// Row-major position, or nothing if an index is out of range.
std::optional<std::size_t> position(const Pool& pool, const Source& s, const Shape& shape,
                                    const Point& point) {
  if (s.index.size() != shape.size()) return std::nullopt;
  std::int64_t flat = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t i = evaluate_at(pool, s.index[d], point);
    if (i < 0 || i >= shape[d]) return std::nullopt;
    flat = flat * shape[d] + i;
  }
  return static_cast<std::size_t>(flat);
}

class LoweringTest : public ::testing::TestWithParam<std::string> {};

/// One sample's node, its operands and what its lowering builds.
struct Case {
  Tensor y;
  std::vector<RefArray> operands;
  Pool pool;
  Point point;

  Case(const Op& op, const Sample& sample, std::size_t number) {
    Rng rng = rng_for(op, number, 5);
    operands = draw_operands(sample, rng);
    if (sample.special_values && number % 2 == 1) sprinkle_special(op, operands, rng);
    y = apply(op, sample, Bindings().add(operands));
    point.load = [this](int buffer, std::int64_t i) {
      return operands.at(static_cast<std::size_t>(buffer)).data.at(static_cast<std::size_t>(i));
    };
  }
  ReadOperand reader() {
    return [this](int operand, std::span<const Index> index) {
      const Type& t = operands.at(static_cast<std::size_t>(operand)).type;
      return pool.load(operand, flat_index(pool, index, t.shape), {}, t.dtype);
    };
  }
  bool is_valid(const Source& s) {
    return !s.valid.defined() || Evaluator(pool, point)(s.valid) != 0;
  }
};

std::vector<double> run(Case& c, const LowerMap& l) {
  std::vector<Expr> loads;
  const std::vector<Index> index = loops_over(c.pool, c.y.shape());
  for (std::size_t i = 0; i < c.operands.size(); ++i) {
    loads.push_back(c.reader()(static_cast<int>(i), index));
  }
  const Expr value = l.fn(c.pool, c.y.node(), loads);
  EXPECT_EQ(c.pool.node(value).dtype, c.y.dtype());
  std::vector<double> out;
  for (std::int64_t i = 0; i < c.y.size(); ++i) {
    c.point.loops = unravelled(i, c.y.shape());
    out.push_back(Evaluator(c.pool, c.point)(value));
  }
  return out;
}

std::vector<double> read_sources(Case& c, const Source& s) {
  std::vector<double> out;
  const RefArray& operand = c.operands.at(static_cast<std::size_t>(s.operand));
  for (std::int64_t i = 0; i < c.y.size(); ++i) {
    c.point.loops = unravelled(i, c.y.shape());
    if (!c.is_valid(s)) {
      out.push_back(s.fill);
      continue;
    }
    const auto at = position(c.pool, s, operand.type.shape, c.point);
    EXPECT_TRUE(at.has_value()) << "element " << i << " reads outside its operand";
    out.push_back(at ? operand.data[*at] : 0);
  }
  return out;
}

std::vector<double> run(Case& c, const LowerView& l) {
  return read_sources(c, l.fn(c.pool, c.y.node(), loops_over(c.pool, c.y.shape())));
}
std::vector<double> run(Case& c, const LowerIndirect& l) {
  return read_sources(c, l.fn(c.pool, c.y.node(), loops_over(c.pool, c.y.shape()), c.reader()));
}

std::vector<double> run(Case& c, const LowerScatter& l) {
  std::vector<double> out(static_cast<std::size_t>(c.y.size()), 0);
  const RefArray& updates = c.operands[1];
  const Source s = l.fn(c.pool, c.y.node(), loops_over(c.pool, updates.type.shape), c.reader());
  for (std::size_t i = 0; i < updates.data.size(); ++i) {
    c.point.loops = unravelled(static_cast<std::int64_t>(i), updates.type.shape);
    if (!c.is_valid(s)) continue;
    const auto at = position(c.pool, s, c.y.shape(), c.point);
    EXPECT_TRUE(at.has_value()) << "update " << i << " leaves the result";
    if (!at) continue;
    const double pair[] = {out[*at], updates.data[i]};
    out[*at] = kernel::evaluate(kernel::Fn::add, c.y.dtype(), c.y.dtype(), pair);
  }
  return out;
}

/// Whether a lowering is of one of the kinds that `run` takes.
template <class L>
constexpr bool is_run = requires(Case& c, const L& l) { run(c, l); };

std::vector<std::string> lowered_rows() {
  std::vector<std::string> out;
  for (const Op* op : registry()) {
    const bool runs = std::visit([]<class L>(const L&) { return is_run<L>; }, *op->lowering);
    if (runs && !(*op->samples)().empty()) out.emplace_back(*op->name);
  }
  return out;
}

TEST_P(LoweringTest, AgreesWithTheReference) {
  const Op& op = find_op(GetParam());
  const std::vector<Sample> samples = (*op.samples)();
  for (std::size_t s = 0; s < samples.size(); ++s) {
    SCOPED_TRACE(describe(op, samples[s]));
    Case c(op, samples[s], s);
    const std::vector<double> actual = std::visit(
        [&]<class L>(const L& l) -> std::vector<double> {
          if constexpr (is_run<L>) return run(c, l);
          return {};
        },
        *op.lowering);
    std::vector<const RefArray*> pointers;
    for (const RefArray& a : c.operands) pointers.push_back(&a);
    const RefArray expected = (*op.reference)(c.y.node(), pointers);
    ASSERT_EQ(actual.size(), expected.data.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const double e = kernel::round_to(c.y.dtype(), expected.data[i]);
      const double a = kernel::round_to(c.y.dtype(), actual[i]);
      if (std::isnan(e) && std::isnan(a)) continue;
      ASSERT_EQ(a, e) << "element " << i;
      ASSERT_EQ(std::signbit(a), std::signbit(e)) << "element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, LoweringTest, ::testing::ValuesIn(lowered_rows()),
                         [](const auto& name) { return name.param; });

TEST(Lowering, GeneratorsAgreeWithTheirReference) {
  for (const Tensor& y : {prim::iota({2, 3, 4}, 1, DType::i32), prim::iota({5}, 0, DType::u32),
                          prim::iota({2, 3}, 0, DType::f32), prim::constant(-2.5, DType::f32),
                          prim::constant(7, DType::i32), prim::constant(1, DType::bool_)}) {
    Pool pool;
    Point point;
    const auto* l = lowering_as<LowerGenerate>(y.node());
    ASSERT_NE(l, nullptr);
    const Expr value = l->fn(pool, y.node(), loops_over(pool, y.shape()));
    EXPECT_EQ(pool.node(value).dtype, y.dtype());
    const RefArray expected = interpret(y);
    for (std::size_t i = 0; i < expected.data.size(); ++i) {
      point.loops = unravelled(static_cast<std::int64_t>(i), y.shape());
      EXPECT_EQ(evaluate_at(pool, value, point), expected.data[i]);
    }
  }
}

}  // namespace
}  // namespace tensorgrad::testing
