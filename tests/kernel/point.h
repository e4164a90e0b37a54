// Evaluation of kernel expressions at one point of the loops: what the expressions mean, with no
// simplification.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "kernel/expr.h"

namespace tensorgrad::kernel {

/// Values of the leaves at a point.
struct Point {
  std::vector<std::int64_t> loops;  ///< by loop variable
  std::function<double(int buffer, std::int64_t index)> load;
  std::function<double(int stage, int slot)> acc;
};

inline double evaluate_at(const Pool& pool, Expr e, const Point& point);

inline std::int64_t evaluate_at(const Pool& pool, Index i, const Point& point) {
  const IndexNode& n = pool.node(i);
  const auto floored = [](std::int64_t a, std::int64_t b) {
    return static_cast<std::int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
  };
  switch (n.kind) {
    case IndexNode::Kind::sum: {
      std::int64_t sum = n.constant;
      for (const auto& [atom, factor] : n.terms) {
        sum += factor * evaluate_at(pool, Index{atom}, point);
      }
      return sum;
    }
    case IndexNode::Kind::loop:
      return point.loops.at(static_cast<std::size_t>(n.var));
    case IndexNode::Kind::div:
      return floored(evaluate_at(pool, Index{n.arg}, point), n.divisor);
    case IndexNode::Kind::mod: {
      const std::int64_t arg = evaluate_at(pool, Index{n.arg}, point);
      return arg - n.divisor * floored(arg, n.divisor);
    }
    case IndexNode::Kind::value:
      break;
  }
  return static_cast<std::int64_t>(evaluate_at(pool, n.expr, point));
}

/// Floats are rounded to f32 after each operation, as kernels do.
inline double evaluate_at(const Pool& pool, Expr e, const Point& point) {
  const ExprNode& n = pool.node(e);
  switch (n.fn) {
    case Fn::constant:
      return n.value;
    case Fn::index: {
      const std::int64_t i = evaluate_at(pool, n.index, point);
      if (n.dtype == DType::f32) return static_cast<double>(static_cast<float>(i));
      return n.dtype == DType::i32 ? static_cast<double>(static_cast<std::int32_t>(i))
                                   : static_cast<double>(static_cast<std::uint32_t>(i));
    }
    case Fn::load:
      if (n.args[0] >= 0 && evaluate_at(pool, Expr{n.args[0]}, point) == 0) return 0;
      return point.load(n.buffer, evaluate_at(pool, n.index, point));
    case Fn::acc:
      return point.acc(n.stage, n.slot);
    case Fn::in_range: {
      const std::int64_t i = evaluate_at(pool, n.index, point);
      return n.lo <= i && i < n.hi;
    }
    default:
      break;
  }
  std::vector<double> args;
  for (int i = 0; i < arity(n.fn); ++i) {
    args.push_back(evaluate_at(pool, Expr{n.args[i]}, point));
  }
  const DType operand = pool.node(Expr{n.args[n.fn == Fn::select ? 1 : 0]}).dtype;
  const double result = evaluate(n.fn, operand, n.dtype, args);
  // Integers come out exact; rounding would saturate nothing.
  return n.dtype == DType::f32 ? round_to(DType::f32, result) : result;
}

}  // namespace tensorgrad::kernel
