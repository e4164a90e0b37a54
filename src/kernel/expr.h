// Scalar expressions and index algebra of kernels: hash-consed, typed, simplified as they are
// built.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensorgrad/dtype.h"

namespace tensorgrad::kernel {

/// An integer index expression of a Pool: an exact integer, known to lie in a range.
struct Index {
  std::int32_t id = -1;
  bool operator==(const Index&) const = default;
};
/// A typed scalar expression of a Pool.
struct Expr {
  std::int32_t id = -1;
  bool operator==(const Expr&) const = default;
  bool defined() const { return id >= 0; }
};

/// Scalar operations, with IEEE semantics for NaN and infinity unless said otherwise. Every
/// operation is defined for every input.
enum class Fn : std::uint8_t {
  // leaves
  constant,  ///< a number of the node's dtype
  index,     ///< an Index as a number of the node's dtype
  load,      ///< buffer[index], or 0 where the condition is false (then memory is not touched)
  acc,       ///< result of accumulator `slot` of stage `stage`, or its running value in the stores
             ///< of that stage (a scan); stage -1: the contraction
  in_range,  ///< lo <= index < hi, a bool
  // unary, float (neg, abs, sign also signed integers)
  neg,
  abs,
  sign,
  exp,
  expm1,
  log,
  log1p,
  sqrt,
  rsqrt,
  reciprocal,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  tanh,
  logistic,
  erf,
  erfc,
  floor,
  ceil,
  round,
  relu,
  // unary, bool or integer: bitwise (bool: logical) complement
  bit_not,
  // binary: arithmetic on any number (min and max also bool; atan2 float only); div of integers
  // truncates, by 0 gives 0; rem has the sign of the dividend (C's), by 0 gives 0; INT_MIN / -1
  // wraps; min and max propagate NaN; pow of integers wraps, with a negative exponent it is the
  // truncated power (0 unless the base is 1 or -1)
  add,
  sub,
  mul,
  div,
  rem,
  pow,
  min,
  max,
  atan2,
  // binary, bool and integers
  bit_and,
  bit_or,
  bit_xor,
  // binary, integers: shifts by 32 or more (or negative) give 0, or the sign for shr of i32
  shl,
  shr,
  // comparisons of two equal dtypes, giving bool; false with NaN, but ne
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  // ternary
  select,  ///< select(bool, a, b)
  // conversions: float to integer truncates and saturates, NaN to 0; integers wrap; to bool is != 0
  cast,
  bitcast,
};

/// The printed name of a scalar operation.
const char* name(Fn fn);
/// Number of operands of a scalar operation; 0 for leaves.
int arity(Fn fn);
/// Whether a binary operation gives the same whichever operand comes first.
bool is_commutative(Fn fn);
/// Whether `fn` takes operands of `operand` (for select: the dtype of its second and third).
bool accepts(Fn fn, DType operand);

/// A node of a scalar expression.
struct ExprNode {
  Fn fn = Fn::constant;
  DType dtype = DType::f32;
  std::int32_t args[3] = {-1, -1, -1};  ///< operand Expr ids; load: args[0] is the condition or -1
  double value = 0;                     ///< constant
  Index index;                          ///< load, index, in_range
  std::int32_t buffer = -1;             ///< load
  std::int32_t stage = 0, slot = 0;     ///< acc
  std::int64_t lo = 0, hi = 0;          ///< in_range
  bool operator==(const ExprNode&) const;
};

/// A node of an index expression. Sums are canonical: terms sorted by atom, no zero factors, atoms
/// are never sums. Division is floor division and the remainder is never negative; a div or mod
/// node always has an argument with a range that starts at 0 or more and below the divisor
/// (multiples of the divisor are moved out), so that generated code may divide unsigned.
struct IndexNode {
  enum class Kind : std::uint8_t {
    sum,   ///< constant + sum of factor * atom
    loop,  ///< loop variable `var`, in [0, extent)
    div,   ///< floor(arg / divisor), divisor > 1, arg >= 0
    mod,   ///< arg mod divisor, divisor > 1, arg >= 0
    value  ///< an i32 or u32 scalar expression used as an index (gather), with its known range
  } kind = Kind::sum;
  std::vector<std::pair<std::int32_t, std::int64_t>> terms;  ///< sum: (atom, factor)
  std::int64_t constant = 0;                                 ///< sum
  std::int32_t var = -1;                                     ///< loop
  std::int32_t arg = -1;                                     ///< div, mod: the Index divided
  std::int64_t divisor = 1;                                  ///< div, mod
  Expr expr;                                                 ///< value
  std::int64_t lo = 0, hi = 0;                               ///< inclusive range, known
  bool operator==(const IndexNode&) const;
};

/// Owns the expressions of one kernel. Building returns an existing node where an equal one exists,
/// and applies the simplification rules, which are exact: IEEE ones for floats. Node references
/// stay valid while the pool lives. Misuse (dtypes that do not fit, a divisor below 1, an index
/// beyond 64 bits) throws GraphError.
class Pool {
 public:
  // index algebra
  Index number(std::int64_t value);
  /// Loop variable `var`; 0 where the extent is 1 (or 0: then it is never evaluated).
  Index loop(int var, std::int64_t extent);
  Index add(Index a, Index b);
  Index sub(Index a, Index b);
  Index mul(Index a, std::int64_t factor);
  Index div(Index a, std::int64_t divisor);  ///< floor(a / divisor), also for a < 0
  Index mod(Index a, std::int64_t divisor);  ///< a - divisor * div(a, divisor), never negative
  Index value(Expr e, std::int64_t lo, std::int64_t hi);  ///< e clamped by the caller to [lo, hi]
  const IndexNode& node(Index i) const { return indices_[static_cast<std::size_t>(i.id)]; }

  // scalar expressions
  /// `value` rounded to `dtype`; every NaN is one constant.
  Expr constant(double value, DType dtype);
  Expr from_index(Index i, DType dtype);
  /// `cond` may be undefined (always valid).
  Expr load(int buffer, Index index, Expr cond, DType dtype);
  Expr acc(int stage, int slot, DType dtype);
  /// lo <= i < hi. The node kept may test a simpler index than `i`; its bounds lie within the range
  /// of that index, and a bound at an end of the range is no test.
  Expr in_range(Index i, std::int64_t lo, std::int64_t hi);
  /// `a and b`, either of which may be undefined (true).
  Expr both(Expr a, Expr b);
  /// Any unary, binary or ternary operation. Operand dtypes must agree; the result dtype follows.
  Expr apply(Fn fn, std::span<const Expr> args);
  Expr apply(Fn fn, std::initializer_list<Expr> args) {
    return apply(fn, std::span<const Expr>(args.begin(), args.size()));
  }
  Expr cast(Expr e, DType dtype);
  Expr bitcast(Expr e, DType dtype);
  const ExprNode& node(Expr e) const { return exprs_[static_cast<std::size_t>(e.id)]; }
  std::size_t size() const { return exprs_.size(); }

  /// Rebuilds an expression with every loop variable, load and accumulator mapped. Null functions
  /// keep what they would map. Shared parts are visited once.
  struct Mapping {
    std::function<Index(int var, std::int64_t extent)> loop;
    std::function<Expr(const ExprNode& load, Index index, Expr cond)> load;
    std::function<Expr(const ExprNode& acc)> acc;
  };
  Expr rewrite(Expr e, const Mapping& mapping);
  Index rewrite(Index i, const Mapping& mapping);
  /// The same, reading an expression of another pool and building it in this one.
  Expr import(const Pool& source, Expr e, const Mapping& mapping);
  Index import(const Pool& source, Index i, const Mapping& mapping);

 private:
  // index.cpp
  struct Linear;
  Linear linear(Index i) const;
  void add_scaled(Linear& sum, const Linear& other, std::int64_t factor) const;
  void set_range(Linear& sum) const;
  bool split(const Linear& sum, std::int64_t unit, Linear& quotient, Linear& rest) const;
  bool recombine(Linear& sum);
  Index from_linear(Linear sum);
  Index div_rest(const Linear& rest, std::int64_t divisor);
  Index mod_rest(const Linear& rest, std::int64_t divisor);
  Index intern(IndexNode node);

  // expr.cpp
  Expr intern(const ExprNode& node);
  Expr find(const ExprNode& node) const;

  // simplify.cpp: each returns an undefined Expr where no rule applies
  Expr simplify(Fn fn, std::span<const Expr> args);
  Expr simplify_unary(Fn fn, Expr a);
  Expr simplify_binary(Fn fn, Expr a, Expr b);
  Expr simplify_float(Fn fn, Expr a, Expr b);
  Expr simplify_integer(Fn fn, Expr a, Expr b);
  Expr simplify_indices(Fn fn, Expr a, Expr b);
  Expr simplify_bool(Fn fn, Expr a, Expr b);
  Expr simplify_and(Expr a, Expr b);
  Expr simplify_or(Expr a, Expr b);
  Expr simplify_select(Expr condition, Expr a, Expr b);
  Expr simplify_cast(Expr e, DType dtype);
  Expr simplify_not(Expr e);
  Index as_index(Expr e);
  Expr fitting(Index i, DType dtype);
  bool is_constant(Expr e) const { return node(e).fn == Fn::constant; }
  bool is_constant(Expr e, double value) const;

  std::deque<IndexNode> indices_;
  std::deque<ExprNode> exprs_;
  std::unordered_multimap<std::size_t, std::int32_t> index_ids_, expr_ids_;
};

/// Evaluates a scalar operation on values held in double: the one definition of its meaning, used
/// by folding and by the reference interpreter. Floats are computed in double and not rounded to
/// f32 (`round_to` does that; a bitcast reads its operand rounded); integers wrap as the dtypes do
/// and bools are 0 and 1. `operand` is the dtype of the arguments (of the last two for select),
/// `result` that of the result. Throws GraphError for a leaf or a dtype that `fn` does not take.
double evaluate(Fn fn, DType operand, DType result, std::span<const double> args);
/// The number of `dtype` that a conversion of the float `value` gives: rounded to nearest for f32,
/// truncated and saturated for integers (NaN gives 0), `value != 0` for bool.
double round_to(DType dtype, double value);
/// Result dtype of `fn` on operands of `operand` (comparisons give bool). Throws GraphError for a
/// conversion or a leaf, whose dtype the operands do not tell.
DType result_dtype(Fn fn, DType operand);

/// Readable text: "relu(b0[64*i0 + i1] + b1[i1])".
std::string to_string(const Pool& pool, Expr e);
std::string to_string(const Pool& pool, Index i);

}  // namespace tensorgrad::kernel
