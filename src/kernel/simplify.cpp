// Simplification rules of scalar expressions. A rule holds for every input, NaN, infinities and
// signed zeros included.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "kernel/expr.h"
#include "tensorgrad/error.h"

namespace tensorgrad::kernel {
namespace {

/// Conjunctions longer than this are left as they are built.
constexpr std::size_t conjunct_limit = 16;

/// The comparison with its operands swapped, or `fn` where the order does not matter.
std::optional<Fn> swapped(Fn fn) {
  if (is_commutative(fn)) return fn;
  switch (fn) {
    case Fn::lt:
      return Fn::gt;
    case Fn::le:
      return Fn::ge;
    case Fn::gt:
      return Fn::lt;
    case Fn::ge:
      return Fn::le;
    default:
      return std::nullopt;
  }
}

/// The comparison that is true where `fn` is false. With floats only eq and ne have one: NaN makes
/// both lt and ge false.
std::optional<Fn> negated(Fn fn, DType operand) {
  if (fn == Fn::eq) return Fn::ne;
  if (fn == Fn::ne) return Fn::eq;
  if (is_floating(operand)) return std::nullopt;
  switch (fn) {
    case Fn::lt:
      return Fn::ge;
    case Fn::le:
      return Fn::gt;
    case Fn::gt:
      return Fn::le;
    case Fn::ge:
      return Fn::lt;
    default:
      return std::nullopt;
  }
}

bool fits(DType dtype, std::int64_t lo, std::int64_t hi) {
  if (dtype == DType::i32) {
    return lo >= std::numeric_limits<std::int32_t>::min() &&
           hi <= std::numeric_limits<std::int32_t>::max();
  }
  return dtype == DType::u32 && lo >= 0 && hi <= std::numeric_limits<std::uint32_t>::max();
}

bool is_integral_valued(Fn fn) { return fn == Fn::floor || fn == Fn::ceil || fn == Fn::round; }

/// Whether x / c is x * (1 / c) exactly: 1 / c is a normal power of two.
bool has_exact_reciprocal(double c) {
  int exponent = 0;
  return std::fabs(std::frexp(c, &exponent)) == 0.5 && std::abs(exponent) < 126;
}

}  // namespace

bool Pool::is_constant(Expr e, double value) const {
  const ExprNode& n = node(e);
  return n.fn == Fn::constant &&
         std::bit_cast<std::uint64_t>(n.value) == std::bit_cast<std::uint64_t>(value);
}

/// The exact integer that `e` is, or an undefined Index: a constant, or an index that its dtype
/// holds.
Index Pool::as_index(Expr e) {
  const ExprNode& n = node(e);
  if (!is_integer(n.dtype)) return Index{};
  if (n.fn == Fn::constant) return number(static_cast<std::int64_t>(n.value));
  if (n.fn == Fn::index && fits(n.dtype, node(n.index).lo, node(n.index).hi)) return n.index;
  return Index{};
}

/// `i` as a `dtype`, if it cannot wrap there.
Expr Pool::fitting(Index i, DType dtype) {
  return fits(dtype, node(i).lo, node(i).hi) ? from_index(i, dtype) : Expr{};
}

Expr Pool::simplify(Fn fn, std::span<const Expr> args) {
  switch (args.size()) {
    case 1:
      return simplify_unary(fn, args[0]);
    case 2:
      return simplify_binary(fn, args[0], args[1]);
    default:
      return simplify_select(args[0], args[1], args[2]);
  }
}

Expr Pool::simplify_unary(Fn fn, Expr a) {
  if (fn == Fn::bit_not) return simplify_not(a);
  const ExprNode& n = node(a);
  switch (fn) {
    case Fn::neg:
      if (n.fn == Fn::neg) return Expr{n.args[0]};
      if (const Index i = as_index(a); i.id >= 0) return fitting(mul(i, -1), n.dtype);
      break;
    case Fn::abs:
      if (n.fn == Fn::neg) return apply(Fn::abs, {Expr{n.args[0]}});
      if (n.fn == Fn::abs || n.fn == Fn::relu) return a;
      if (const Index i = as_index(a); i.id >= 0 && node(i).lo >= 0) return a;
      break;
    case Fn::relu:
      if (n.fn == Fn::relu) return a;
      break;
    case Fn::floor:
    case Fn::ceil:
    case Fn::round:
      if (is_integral_valued(n.fn) || n.fn == Fn::index) return a;
      if (n.fn == Fn::cast && !is_floating(node(Expr{n.args[0]}).dtype)) return a;
      break;
    default:
      break;
  }
  return Expr{};
}

Expr Pool::simplify_binary(Fn fn, Expr a, Expr b) {
  if (const auto other = swapped(fn); other && is_constant(a)) return apply(*other, {b, a});
  if (a == b && (fn == Fn::min || fn == Fn::max)) return a;
  const DType dtype = node(a).dtype;
  if (is_floating(dtype)) return simplify_float(fn, a, b);
  if (a == b) {
    if (fn == Fn::bit_and || fn == Fn::bit_or) return a;
    if (fn == Fn::eq || fn == Fn::le || fn == Fn::ge) return constant(1, DType::bool_);
    if (fn == Fn::ne || fn == Fn::lt || fn == Fn::gt) return constant(0, DType::bool_);
    if (fn == Fn::bit_xor || fn == Fn::sub) return constant(0, dtype);
  }
  if (dtype == DType::bool_) return simplify_bool(fn, a, b);
  const Expr simpler = simplify_indices(fn, a, b);
  return simpler.defined() ? simpler : simplify_integer(fn, a, b);
}

Expr Pool::simplify_float(Fn fn, Expr a, Expr b) {
  const ExprNode& left = node(a);
  const ExprNode& right = node(b);
  switch (fn) {
    case Fn::add:
      if (is_constant(b, -0.0)) return a;
      if (right.fn == Fn::neg) return apply(Fn::sub, {a, Expr{right.args[0]}});
      if (left.fn == Fn::neg) return apply(Fn::sub, {b, Expr{left.args[0]}});
      break;
    case Fn::sub:
      if (is_constant(b, 0.0)) return a;
      if (is_constant(a, -0.0)) return apply(Fn::neg, {b});
      if (right.fn == Fn::neg) return apply(Fn::add, {a, Expr{right.args[0]}});
      break;
    case Fn::mul:
      if (is_constant(b, 1)) return a;
      if (is_constant(b, -1)) return apply(Fn::neg, {a});
      if (left.fn == Fn::neg && is_constant(b)) {
        return apply(Fn::mul, {Expr{left.args[0]}, constant(-right.value, DType::f32)});
      }
      break;
    case Fn::div:
      if (is_constant(b, 1)) return a;
      if (is_constant(b) && has_exact_reciprocal(right.value)) {
        return apply(Fn::mul, {a, constant(1 / right.value, DType::f32)});
      }
      if (is_constant(a, 1)) return apply(Fn::reciprocal, {b});
      break;
    case Fn::pow:
      if (!is_constant(b)) break;
      if (right.value == 0) return constant(1, DType::f32);
      if (right.value == 1) return a;
      if (right.value == 2) return apply(Fn::mul, {a, a});
      if (right.value == -1) return apply(Fn::reciprocal, {a});
      break;
    default:
      break;
  }
  return Expr{};
}

Expr Pool::simplify_integer(Fn fn, Expr a, Expr b) {
  const ExprNode& left = node(a);
  const ExprNode& right = node(b);
  if (!is_constant(b)) return Expr{};
  const double c = right.value;
  const double ones = left.dtype == DType::i32
                          ? -1.0
                          : static_cast<double>(std::numeric_limits<std::uint32_t>::max());
  switch (fn) {
    case Fn::add:
      if (c == 0) return a;
      if (left.fn == Fn::add && is_constant(Expr{left.args[1]})) {
        return apply(Fn::add, {Expr{left.args[0]}, apply(Fn::add, {Expr{left.args[1]}, b})});
      }
      break;
    case Fn::sub:
      if (c == 0) return a;
      break;
    case Fn::mul:
      if (c == 0) return b;
      if (c == 1) return a;
      break;
    case Fn::div:
      if (c == 0) return b;
      if (c == 1) return a;
      break;
    case Fn::rem:
      if (c == 0 || c == 1) return constant(0, left.dtype);
      break;
    case Fn::pow:
      if (c == 0) return constant(1, left.dtype);
      if (c == 1) return a;
      if (c == 2) return apply(Fn::mul, {a, a});
      break;
    case Fn::bit_and:
      if (c == 0) return b;
      if (c == ones) return a;
      break;
    case Fn::bit_or:
      if (c == 0) return a;
      if (c == ones) return b;
      break;
    case Fn::bit_xor:
      if (c == 0) return a;
      if (c == ones) return apply(Fn::bit_not, {a});
      break;
    case Fn::shl:
      if (c == 0) return a;
      if (c < 0 || c >= 32) return constant(0, left.dtype);
      break;
    case Fn::shr:
      if (c == 0) return a;
      if (left.dtype == DType::u32 && c >= 32) return constant(0, left.dtype);
      break;
    default:
      break;
  }
  return Expr{};
}

/// Arithmetic and comparisons of exact integers are index algebra.
Expr Pool::simplify_indices(Fn fn, Expr a, Expr b) {
  const Index i = as_index(a);
  const Index j = as_index(b);
  if (i.id < 0 || j.id < 0) return Expr{};
  const DType dtype = node(a).dtype;
  const std::int64_t j_lo = node(j).lo;
  const bool j_fixed = j_lo == node(j).hi;
  const auto difference_in = [&](std::int64_t lo, std::int64_t hi) {
    return in_range(sub(i, j), lo, hi);
  };
  constexpr std::int64_t far = std::int64_t{1} << 40;  // beyond any difference of 32-bit numbers
  switch (fn) {
    case Fn::add:
      return fitting(add(i, j), dtype);
    case Fn::sub:
      return fitting(sub(i, j), dtype);
    case Fn::mul:
      return j_fixed ? fitting(mul(i, j_lo), dtype) : Expr{};
    case Fn::div:
      return j_fixed && j_lo > 0 && node(i).lo >= 0 ? fitting(div(i, j_lo), dtype) : Expr{};
    case Fn::rem:
      return j_fixed && j_lo > 0 && node(i).lo >= 0 ? fitting(mod(i, j_lo), dtype) : Expr{};
    case Fn::min:
    case Fn::max: {
      const Index difference = sub(i, j);
      if (node(difference).hi <= 0) return fn == Fn::min ? a : b;
      if (node(difference).lo >= 0) return fn == Fn::min ? b : a;
      return Expr{};
    }
    case Fn::eq:
      return difference_in(0, 1);
    case Fn::ne:
      return apply(Fn::bit_not, {difference_in(0, 1)});
    case Fn::lt:
      return difference_in(-far, 0);
    case Fn::le:
      return difference_in(-far, 1);
    case Fn::gt:
      return difference_in(1, far);
    case Fn::ge:
      return difference_in(0, far);
    default:
      return Expr{};
  }
}

Expr Pool::simplify_bool(Fn fn, Expr a, Expr b) {
  switch (fn) {
    case Fn::min:
      return apply(Fn::bit_and, {a, b});
    case Fn::max:
      return apply(Fn::bit_or, {a, b});
    case Fn::bit_and:
      if (is_constant(b)) return node(b).value != 0 ? a : b;
      return simplify_and(a, b);
    case Fn::bit_or:
      if (is_constant(b)) return node(b).value != 0 ? b : a;
      return simplify_or(a, b);
    case Fn::eq:
      if (is_constant(b)) return node(b).value != 0 ? a : apply(Fn::bit_not, {a});
      break;
    case Fn::ne:
    case Fn::bit_xor:
      if (is_constant(b)) return node(b).value != 0 ? apply(Fn::bit_not, {a}) : a;
      break;
    default:
      break;
  }
  return Expr{};
}

/// Keeps conjunctions left-deep, without a repeated condition and with one range test an index.
Expr Pool::simplify_and(Expr a, Expr b) {
  // Conjuncts of b, in order, unless there are too many.
  std::vector<Expr> open{b};
  std::vector<Expr> added;
  while (!open.empty()) {
    const Expr e = open.back();
    open.pop_back();
    if (node(e).fn == Fn::bit_and) {
      open.push_back(Expr{node(e).args[1]});
      open.push_back(Expr{node(e).args[0]});
    } else {
      added.push_back(e);
    }
    if (open.size() + added.size() > conjunct_limit) return Expr{};
  }
  if (added.size() > 1) {
    Expr all = a;
    for (const Expr e : added) all = apply(Fn::bit_and, {all, e});
    return all;
  }
  std::vector<Expr> spine;  // conjuncts of a, last first
  for (Expr e = a;; e = Expr{node(e).args[0]}) {
    const bool is_last = node(e).fn != Fn::bit_and;
    spine.push_back(is_last ? e : Expr{node(e).args[1]});
    if (is_last) break;
    if (spine.size() > conjunct_limit) return Expr{};
  }
  const ExprNode& test = node(b);
  for (Expr& conjunct : spine) {
    if (conjunct == b) return a;
    const ExprNode& other = node(conjunct);
    if (test.fn != Fn::in_range || other.fn != Fn::in_range || test.index != other.index) continue;
    conjunct = in_range(test.index, std::max(test.lo, other.lo), std::min(test.hi, other.hi));
    Expr all = spine.back();
    for (auto it = spine.rbegin() + 1; it != spine.rend(); ++it) {
      all = apply(Fn::bit_and, {all, *it});
    }
    return all;
  }
  return Expr{};
}

Expr Pool::simplify_or(Expr a, Expr b) {
  const ExprNode& left = node(a);
  const ExprNode& right = node(b);
  if (left.fn == Fn::in_range && right.fn == Fn::in_range && left.index == right.index &&
      std::max(left.lo, right.lo) <= std::min(left.hi, right.hi)) {
    return in_range(left.index, std::min(left.lo, right.lo), std::max(left.hi, right.hi));
  }
  return Expr{};
}

Expr Pool::simplify_not(Expr e) {
  const ExprNode& n = node(e);
  if (n.fn == Fn::bit_not) return Expr{n.args[0]};
  if (n.dtype != DType::bool_) return Expr{};
  if (n.fn == Fn::in_range) {
    const std::int64_t lo = node(n.index).lo;
    const std::int64_t end = node(n.index).hi + 1;
    if (n.lo == lo) return in_range(n.index, n.hi, end);
    if (n.hi == end) return in_range(n.index, lo, n.lo);
    return Expr{};
  }
  if (arity(n.fn) == 2) {
    if (const auto opposite = negated(n.fn, node(Expr{n.args[0]}).dtype)) {
      return apply(*opposite, {Expr{n.args[0]}, Expr{n.args[1]}});
    }
  }
  return Expr{};
}

Expr Pool::simplify_select(Expr condition, Expr a, Expr b) {
  if (a == b) return a;
  const ExprNode& test = node(condition);
  if (test.fn == Fn::constant) return test.value != 0 ? a : b;
  if (test.fn == Fn::bit_not) return apply(Fn::select, {Expr{test.args[0]}, b, a});
  const ExprNode& left = node(a);
  const ExprNode& right = node(b);
  if (left.fn == Fn::select && left.args[0] == condition.id) {
    return apply(Fn::select, {condition, Expr{left.args[1]}, b});
  }
  if (right.fn == Fn::select && right.args[0] == condition.id) {
    return apply(Fn::select, {condition, a, Expr{right.args[2]}});
  }
  if (left.dtype == DType::bool_) {
    if (is_constant(a)) {
      return left.value != 0 ? apply(Fn::bit_or, {condition, b})
                             : apply(Fn::bit_and, {apply(Fn::bit_not, {condition}), b});
    }
    if (is_constant(b)) {
      return right.value != 0 ? apply(Fn::bit_or, {apply(Fn::bit_not, {condition}), a})
                              : apply(Fn::bit_and, {condition, a});
    }
  }
  return Expr{};
}

Expr Pool::simplify_cast(Expr e, DType dtype) {
  const ExprNode& n = node(e);
  if (n.fn == Fn::cast) {
    // 0 and 1 survive every conversion. Integers keep their bits in one another, which decide
    // everything but the number that a float is given.
    const Expr source{n.args[0]};
    const DType from = node(source).dtype;
    if (from == DType::bool_ || (is_integer(from) && is_integer(n.dtype) && !is_floating(dtype))) {
      return cast(source, dtype);
    }
  }
  const Index i = as_index(e);
  if (i.id < 0) return Expr{};
  if (dtype == DType::bool_) return apply(Fn::bit_not, {in_range(i, 0, 1)});
  return is_floating(dtype) ? from_index(i, dtype) : fitting(i, dtype);
}

}  // namespace tensorgrad::kernel
