// The meaning of every scalar operation, on values held in double.
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "kernel/expr.h"
#include "tensorgrad/error.h"

namespace tensorgrad::kernel {
namespace {

/// Sets of dtypes that an operation takes.
enum Kinds : unsigned { none = 0, boolean = 1, signed_ = 2, unsigned_ = 4, floating = 8 };
constexpr unsigned integers = signed_ | unsigned_;
constexpr unsigned numbers = integers | floating;
constexpr unsigned any = numbers | boolean;

struct FnInfo {
  Fn fn;
  const char* name;
  int arity;
  unsigned operands;
};

constexpr std::array fn_table{
    FnInfo{Fn::constant, "constant", 0, none},
    FnInfo{Fn::index, "index", 0, none},
    FnInfo{Fn::load, "load", 0, none},
    FnInfo{Fn::acc, "acc", 0, none},
    FnInfo{Fn::in_range, "in_range", 0, none},
    FnInfo{Fn::neg, "neg", 1, signed_ | floating},
    FnInfo{Fn::abs, "abs", 1, signed_ | floating},
    FnInfo{Fn::sign, "sign", 1, signed_ | floating},
    FnInfo{Fn::exp, "exp", 1, floating},
    FnInfo{Fn::expm1, "expm1", 1, floating},
    FnInfo{Fn::log, "log", 1, floating},
    FnInfo{Fn::log1p, "log1p", 1, floating},
    FnInfo{Fn::sqrt, "sqrt", 1, floating},
    FnInfo{Fn::rsqrt, "rsqrt", 1, floating},
    FnInfo{Fn::reciprocal, "reciprocal", 1, floating},
    FnInfo{Fn::sin, "sin", 1, floating},
    FnInfo{Fn::cos, "cos", 1, floating},
    FnInfo{Fn::tan, "tan", 1, floating},
    FnInfo{Fn::asin, "asin", 1, floating},
    FnInfo{Fn::acos, "acos", 1, floating},
    FnInfo{Fn::atan, "atan", 1, floating},
    FnInfo{Fn::tanh, "tanh", 1, floating},
    FnInfo{Fn::logistic, "logistic", 1, floating},
    FnInfo{Fn::erf, "erf", 1, floating},
    FnInfo{Fn::erfc, "erfc", 1, floating},
    FnInfo{Fn::floor, "floor", 1, floating},
    FnInfo{Fn::ceil, "ceil", 1, floating},
    FnInfo{Fn::round, "round", 1, floating},
    FnInfo{Fn::relu, "relu", 1, floating},
    FnInfo{Fn::bit_not, "bit_not", 1, boolean | integers},
    FnInfo{Fn::add, "add", 2, numbers},
    FnInfo{Fn::sub, "sub", 2, numbers},
    FnInfo{Fn::mul, "mul", 2, numbers},
    FnInfo{Fn::div, "div", 2, numbers},
    FnInfo{Fn::rem, "rem", 2, numbers},
    FnInfo{Fn::pow, "pow", 2, numbers},
    FnInfo{Fn::min, "min", 2, any},
    FnInfo{Fn::max, "max", 2, any},
    FnInfo{Fn::atan2, "atan2", 2, floating},
    FnInfo{Fn::bit_and, "bit_and", 2, boolean | integers},
    FnInfo{Fn::bit_or, "bit_or", 2, boolean | integers},
    FnInfo{Fn::bit_xor, "bit_xor", 2, boolean | integers},
    FnInfo{Fn::shl, "shl", 2, integers},
    FnInfo{Fn::shr, "shr", 2, integers},
    FnInfo{Fn::eq, "eq", 2, any},
    FnInfo{Fn::ne, "ne", 2, any},
    FnInfo{Fn::lt, "lt", 2, any},
    FnInfo{Fn::le, "le", 2, any},
    FnInfo{Fn::gt, "gt", 2, any},
    FnInfo{Fn::ge, "ge", 2, any},
    FnInfo{Fn::select, "select", 3, any},
    FnInfo{Fn::cast, "cast", 1, any},
    FnInfo{Fn::bitcast, "bitcast", 1, numbers},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < fn_table.size(); ++i) {
    if (static_cast<std::size_t>(fn_table[i].fn) != i) return false;
  }
  return static_cast<std::size_t>(Fn::bitcast) + 1 == fn_table.size();
}
static_assert(in_order(), "fn_table has a row for each Fn, in the order of the enum");

const FnInfo& fn_info(Fn fn) { return fn_table[static_cast<std::size_t>(fn)]; }

unsigned kind_bit(DType dtype) { return 1U << static_cast<unsigned>(info(dtype).kind); }
static_assert(static_cast<unsigned>(DTypeKind::boolean) == 0 &&
              static_cast<unsigned>(DTypeKind::signed_integer) == 1 &&
              static_cast<unsigned>(DTypeKind::unsigned_integer) == 2 &&
              static_cast<unsigned>(DTypeKind::floating) == 3);

[[noreturn]] void reject(Fn fn, DType operand) {
  throw GraphError(std::string("scalar operation ") + name(fn) + " does not take " +
                   std::string(name(operand)));
}

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

double unary_float(Fn fn, double x) {
  switch (fn) {
    case Fn::neg:
      return -x;
    case Fn::abs:
      return std::fabs(x);
    case Fn::sign:
      return std::isnan(x) ? x : x > 0 ? 1.0 : x < 0 ? -1.0 : x;
    case Fn::exp:
      return std::exp(x);
    case Fn::expm1:
      return std::expm1(x);
    case Fn::log:
      return std::log(x);
    case Fn::log1p:
      return std::log1p(x);
    case Fn::sqrt:
      return std::sqrt(x);
    case Fn::rsqrt:
      return 1.0 / std::sqrt(x);
    case Fn::reciprocal:
      return 1.0 / x;
    case Fn::sin:
      return std::sin(x);
    case Fn::cos:
      return std::cos(x);
    case Fn::tan:
      return std::tan(x);
    case Fn::asin:
      return std::asin(x);
    case Fn::acos:
      return std::acos(x);
    case Fn::atan:
      return std::atan(x);
    case Fn::tanh:
      return std::tanh(x);
    case Fn::logistic: {
      // The exponential of a negative number never overflows.
      const double e = std::exp(-std::fabs(x));
      return x < 0 ? e / (1.0 + e) : 1.0 / (1.0 + e);
    }
    case Fn::erf:
      return std::erf(x);
    case Fn::erfc:
      return std::erfc(x);
    case Fn::floor:
      return std::floor(x);
    case Fn::ceil:
      return std::ceil(x);
    case Fn::round:
      return std::nearbyint(x);
    case Fn::relu:
      return x > 0 || std::isnan(x) ? x : 0.0;
    default:
      reject(fn, DType::f32);
  }
}

double binary_float(Fn fn, double a, double b) {
  switch (fn) {
    case Fn::add:
      return a + b;
    case Fn::sub:
      return a - b;
    case Fn::mul:
      return a * b;
    case Fn::div:
      return a / b;
    case Fn::rem:
      return std::fmod(a, b);
    case Fn::pow:
      return std::pow(a, b);
    case Fn::min:
      if (std::isnan(a) || std::isnan(b)) return nan;
      return a < b || (a == b && std::signbit(a)) ? a : b;
    case Fn::max:
      if (std::isnan(a) || std::isnan(b)) return nan;
      return a > b || (a == b && !std::signbit(a)) ? a : b;
    case Fn::atan2:
      return std::atan2(a, b);
    default:
      reject(fn, DType::f32);
  }
}

/// The number of `dtype` with the low 32 bits of `bits`.
double wrap(DType dtype, std::uint64_t bits) {
  const auto low = static_cast<std::uint32_t>(bits);
  return dtype == DType::i32 ? static_cast<double>(static_cast<std::int32_t>(low))
                             : static_cast<double>(low);
}

std::uint64_t integer_pow(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 1) return 1;
    if (base == -1) return exponent % 2 == 0 ? 1 : static_cast<std::uint64_t>(-1);
    return 0;
  }
  std::uint64_t result = 1;
  auto power = static_cast<std::uint64_t>(base);
  for (std::int64_t left = exponent; left > 0; left /= 2) {
    if (left % 2 == 1) result *= power;
    power *= power;
  }
  return result;
}

/// `a` and `b` are the exact values of i32 or u32 operands. Arithmetic modulo 2^64 keeps the low 32
/// bits right.
double binary_integer(Fn fn, DType dtype, std::int64_t a, std::int64_t b) {
  const auto ua = static_cast<std::uint64_t>(a);
  const auto ub = static_cast<std::uint64_t>(b);
  switch (fn) {
    case Fn::add:
      return wrap(dtype, ua + ub);
    case Fn::sub:
      return wrap(dtype, ua - ub);
    case Fn::mul:
      return wrap(dtype, ua * ub);
    case Fn::div:
      return b == 0 ? 0.0 : wrap(dtype, static_cast<std::uint64_t>(a / b));
    case Fn::rem:
      return b == 0 ? 0.0 : wrap(dtype, static_cast<std::uint64_t>(a % b));
    case Fn::pow:
      return wrap(dtype, integer_pow(a, b));
    case Fn::min:
      return static_cast<double>(a < b ? a : b);
    case Fn::max:
      return static_cast<double>(a > b ? a : b);
    case Fn::bit_and:
      return wrap(dtype, ua & ub);
    case Fn::bit_or:
      return wrap(dtype, ua | ub);
    case Fn::bit_xor:
      return wrap(dtype, ua ^ ub);
    case Fn::shl:
      return b < 0 || b >= 32 ? 0.0 : wrap(dtype, ua << b);
    case Fn::shr:
      if (b < 0 || b >= 32) return a < 0 ? -1.0 : 0.0;
      return static_cast<double>(a >> b);
    default:
      reject(fn, dtype);
  }
}

double binary_bool(Fn fn, bool a, bool b) {
  switch (fn) {
    case Fn::bit_and:
    case Fn::min:
      return a && b;
    case Fn::bit_or:
    case Fn::max:
      return a || b;
    case Fn::bit_xor:
      return a != b;
    default:
      reject(fn, DType::bool_);
  }
}

double unary_integer(Fn fn, DType dtype, std::int64_t x) {
  switch (fn) {
    case Fn::neg:
      return wrap(dtype, -static_cast<std::uint64_t>(x));
    case Fn::abs:
      return wrap(dtype, static_cast<std::uint64_t>(x < 0 ? -x : x));
    case Fn::sign:
      return x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0;
    case Fn::bit_not:
      return wrap(dtype, ~static_cast<std::uint64_t>(x));
    default:
      reject(fn, dtype);
  }
}

double convert(DType from, DType to, double x) {
  if (is_integer(from) && is_integer(to)) {
    return wrap(to, static_cast<std::uint64_t>(static_cast<std::int64_t>(x)));
  }
  // An f32 kept in double stays unrounded; every other number is exact in double.
  return to == DType::f32 ? x : round_to(to, x);
}

double reinterpret(DType from, DType to, double x) {
  if (from == to) return x;
  const std::uint32_t bits = from == DType::f32
                                 ? std::bit_cast<std::uint32_t>(static_cast<float>(x))
                                 : static_cast<std::uint32_t>(static_cast<std::int64_t>(x));
  return to == DType::f32 ? static_cast<double>(std::bit_cast<float>(bits)) : wrap(to, bits);
}

}  // namespace

const char* name(Fn fn) { return fn_info(fn).name; }

int arity(Fn fn) { return fn_info(fn).arity; }

bool accepts(Fn fn, DType operand) { return (fn_info(fn).operands & kind_bit(operand)) != 0; }

DType result_dtype(Fn fn, DType operand) {
  if (!accepts(fn, operand)) reject(fn, operand);
  switch (fn) {
    case Fn::eq:
    case Fn::ne:
    case Fn::lt:
    case Fn::le:
    case Fn::gt:
    case Fn::ge:
      return DType::bool_;
    case Fn::cast:
    case Fn::bitcast:
      throw GraphError(std::string("the operands of ") + name(fn) + " do not tell its dtype");
    default:
      return operand;
  }
}

double round_to(DType dtype, double value) {
  switch (dtype) {
    case DType::f32:
      return static_cast<double>(static_cast<float>(value));
    case DType::f16:
      return round_to_half(value);
    case DType::bool_:
      return value != 0 ? 1.0 : 0.0;
    case DType::i32:
    case DType::u32:
      break;
  }
  if (std::isnan(value)) return 0;
  const bool is_signed = dtype == DType::i32;
  const double lowest = is_signed ? std::numeric_limits<std::int32_t>::min() : 0.0;
  const double highest = is_signed ? std::numeric_limits<std::int32_t>::max()
                                   : std::numeric_limits<std::uint32_t>::max();
  if (value <= lowest) return lowest;
  if (value >= highest) return highest;
  return std::trunc(value) + 0.0;  // no -0
}

double evaluate(Fn fn, DType operand, DType result, std::span<const double> args) {
  if (!accepts(fn, operand)) reject(fn, operand);
  if (static_cast<int>(args.size()) != arity(fn)) {
    throw GraphError(std::string("scalar operation ") + name(fn) + " takes " +
                     std::to_string(arity(fn)) + " operands, not " + std::to_string(args.size()));
  }
  switch (fn) {
    case Fn::select:
      return args[0] != 0 ? args[1] : args[2];
    case Fn::cast:
      return convert(operand, result, args[0]);
    case Fn::bitcast:
      return reinterpret(operand, result, args[0]);
    case Fn::eq:
      return args[0] == args[1];
    case Fn::ne:
      return args[0] != args[1];
    case Fn::lt:
      return args[0] < args[1];
    case Fn::le:
      return args[0] <= args[1];
    case Fn::gt:
      return args[0] > args[1];
    case Fn::ge:
      return args[0] >= args[1];
    default:
      break;
  }
  const bool is_binary = args.size() == 2;
  if (is_floating(operand)) {
    return is_binary ? binary_float(fn, args[0], args[1]) : unary_float(fn, args[0]);
  }
  if (operand == DType::bool_) {
    return is_binary ? binary_bool(fn, args[0] != 0, args[1] != 0) : (args[0] != 0 ? 0.0 : 1.0);
  }
  const auto a = static_cast<std::int64_t>(args[0]);
  return is_binary ? binary_integer(fn, operand, a, static_cast<std::int64_t>(args[1]))
                   : unary_integer(fn, operand, a);
}

}  // namespace tensorgrad::kernel
