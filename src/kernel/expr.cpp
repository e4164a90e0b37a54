// Scalar expressions of Pool: hash-consing and the typed builders.
#include "kernel/expr.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "kernel/hash.h"
#include "tensorgrad/error.h"

namespace tensorgrad::kernel {
namespace {

std::size_t hash_of(const ExprNode& n) {
  std::size_t seed = static_cast<std::size_t>(n.fn);
  mix(seed, static_cast<std::uint64_t>(n.dtype));
  for (const std::int32_t arg : n.args) mix(seed, static_cast<std::uint64_t>(arg));
  mix(seed, std::bit_cast<std::uint64_t>(n.value));
  mix(seed, static_cast<std::uint64_t>(n.index.id));
  mix(seed, static_cast<std::uint64_t>(n.buffer));
  mix(seed, static_cast<std::uint64_t>(n.stage));
  mix(seed, static_cast<std::uint64_t>(n.slot));
  mix(seed, static_cast<std::uint64_t>(n.lo));
  mix(seed, static_cast<std::uint64_t>(n.hi));
  return seed;
}

void require_bool(const Pool& pool, Expr e, const char* what) {
  if (pool.node(e).dtype != DType::bool_) {
    throw GraphError(std::string(what) + " is a bool, not " +
                     std::string(name(pool.node(e).dtype)));
  }
}

}  // namespace

bool is_commutative(Fn fn) {
  switch (fn) {
    case Fn::add:
    case Fn::mul:
    case Fn::min:
    case Fn::max:
    case Fn::bit_and:
    case Fn::bit_or:
    case Fn::bit_xor:
    case Fn::eq:
    case Fn::ne:
      return true;
    default:
      return false;
  }
}

bool ExprNode::operator==(const ExprNode& other) const {
  return fn == other.fn && dtype == other.dtype && args[0] == other.args[0] &&
         args[1] == other.args[1] && args[2] == other.args[2] &&
         std::bit_cast<std::uint64_t>(value) == std::bit_cast<std::uint64_t>(other.value) &&
         index == other.index && buffer == other.buffer && stage == other.stage &&
         slot == other.slot && lo == other.lo && hi == other.hi;
}

Expr Pool::find(const ExprNode& n) const {
  const auto [first, last] = expr_ids_.equal_range(hash_of(n));
  for (auto it = first; it != last; ++it) {
    if (exprs_[static_cast<std::size_t>(it->second)] == n) return Expr{it->second};
  }
  return Expr{};
}

Expr Pool::intern(const ExprNode& n) {
  if (const Expr known = find(n); known.defined()) return known;
  if (is_commutative(n.fn)) {
    ExprNode swapped = n;
    std::swap(swapped.args[0], swapped.args[1]);
    if (const Expr known = find(swapped); known.defined()) return known;
  }
  const auto id = static_cast<std::int32_t>(exprs_.size());
  exprs_.push_back(n);
  expr_ids_.emplace(hash_of(n), id);
  return Expr{id};
}

Expr Pool::constant(double value, DType dtype) {
  ExprNode n;
  n.fn = Fn::constant;
  n.dtype = dtype;
  n.value = round_to(dtype, value);
  if (std::isnan(n.value)) n.value = std::numeric_limits<double>::quiet_NaN();
  return intern(n);
}

Expr Pool::from_index(Index i, DType dtype) {
  if (dtype == DType::bool_) throw GraphError("an index is a number, not a bool");
  const IndexNode& known = node(i);
  if (known.lo == known.hi) {
    // An integer wraps, as it does at run time; a float rounds.
    if (!is_integer(dtype)) return constant(static_cast<double>(known.lo), dtype);
    const auto low = static_cast<std::uint32_t>(known.lo);
    return constant(dtype == DType::u32 ? static_cast<double>(low)
                                        : static_cast<double>(static_cast<std::int32_t>(low)),
                    dtype);
  }
  if (known.kind == IndexNode::Kind::value && node(known.expr).dtype == dtype) return known.expr;
  ExprNode n;
  n.fn = Fn::index;
  n.dtype = dtype;
  n.index = i;
  return intern(n);
}

Expr Pool::load(int buffer, Index index, Expr cond, DType dtype) {
  if (buffer < 0) throw GraphError("buffer " + std::to_string(buffer) + " does not exist");
  if (cond.defined()) {
    require_bool(*this, cond, "the condition of a load");
    if (node(cond).fn == Fn::constant) {
      if (node(cond).value == 0) return constant(0, dtype);
      cond = Expr{};
    }
  }
  ExprNode n;
  n.fn = Fn::load;
  n.dtype = dtype;
  n.buffer = buffer;
  n.index = index;
  n.args[0] = cond.id;
  return intern(n);
}

Expr Pool::acc(int stage, int slot, DType dtype) {
  if (stage < -1 || slot < 0) {
    throw GraphError("accumulator " + std::to_string(slot) + " of stage " + std::to_string(stage) +
                     " does not exist");
  }
  ExprNode n;
  n.fn = Fn::acc;
  n.dtype = dtype;
  n.stage = stage;
  n.slot = slot;
  return intern(n);
}

Expr Pool::both(Expr a, Expr b) {
  if (!a.defined()) return b;
  if (!b.defined()) return a;
  return apply(Fn::bit_and, {a, b});
}

Expr Pool::apply(Fn fn, std::span<const Expr> args) {
  const int count = arity(fn);
  if (count == 0 || fn == Fn::cast || fn == Fn::bitcast) {
    throw GraphError(std::string("scalar operation ") + name(fn) +
                     " is built by its own function, not by apply");
  }
  if (static_cast<int>(args.size()) != count) {
    throw GraphError(std::string("scalar operation ") + name(fn) + " takes " +
                     std::to_string(count) + " operands, not " + std::to_string(args.size()));
  }
  for (const Expr arg : args) {
    if (!arg.defined()) {
      throw GraphError(std::string("an operand of scalar operation ") + name(fn) +
                       " is not defined");
    }
  }
  const bool is_select = fn == Fn::select;
  if (is_select) require_bool(*this, args[0], "the condition of a select");
  const std::span<const Expr> operands = is_select ? args.subspan(1) : args;
  const DType operand = node(operands[0]).dtype;
  for (const Expr arg : operands) {
    if (node(arg).dtype != operand) {
      throw GraphError(std::string("scalar operation ") + name(fn) +
                       " takes operands of one dtype, not " + std::string(name(operand)) + " and " +
                       std::string(name(node(arg).dtype)));
    }
  }
  const DType result = result_dtype(fn, operand);

  std::array<double, 3> values{};
  bool all_constant = true;
  for (std::size_t i = 0; i < args.size(); ++i) {
    values[i] = node(args[i]).value;
    all_constant = all_constant && node(args[i]).fn == Fn::constant;
  }
  if (all_constant) {
    return constant(evaluate(fn, operand, result, std::span(values).first(args.size())), result);
  }
  if (const Expr simpler = simplify(fn, args); simpler.defined()) return simpler;
  ExprNode n;
  n.fn = fn;
  n.dtype = result;
  for (std::size_t i = 0; i < args.size(); ++i) n.args[i] = args[i].id;
  return intern(n);
}

Expr Pool::cast(Expr e, DType dtype) {
  if (!e.defined()) throw GraphError("the operand of a cast is not defined");
  const ExprNode& from = node(e);
  if (from.dtype == dtype) return e;
  if (from.fn == Fn::constant) {
    return constant(evaluate(Fn::cast, from.dtype, dtype, std::span(&from.value, 1)), dtype);
  }
  if (const Expr simpler = simplify_cast(e, dtype); simpler.defined()) return simpler;
  ExprNode n;
  n.fn = Fn::cast;
  n.dtype = dtype;
  n.args[0] = e.id;
  return intern(n);
}

Expr Pool::bitcast(Expr e, DType dtype) {
  if (!e.defined()) throw GraphError("the operand of a bitcast is not defined");
  const ExprNode& from = node(e);
  if (from.dtype == dtype) return e;
  if (!accepts(Fn::bitcast, from.dtype) || !accepts(Fn::bitcast, dtype)) {
    throw GraphError("the bits of " + std::string(name(from.dtype)) + " are not those of " +
                     std::string(name(dtype)));
  }
  // A NaN loses its payload on the way through double, so that its bits are decided at run time.
  if (from.fn == Fn::constant && !std::isnan(from.value)) {
    const double folded = evaluate(Fn::bitcast, from.dtype, dtype, std::span(&from.value, 1));
    if (folded == folded) return constant(folded, dtype);
  }
  if (from.fn == Fn::bitcast) return bitcast(Expr{from.args[0]}, dtype);
  ExprNode n;
  n.fn = Fn::bitcast;
  n.dtype = dtype;
  n.args[0] = e.id;
  return intern(n);
}

}  // namespace tensorgrad::kernel
