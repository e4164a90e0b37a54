// Renders the scalar operations of kernel::Fn: one instruction or a few each.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "codegen/llvm/expressions.h"
#include "codegen/llvm/math.h"
#include "tensorgrad/error.h"

namespace tensorgrad::llvm_ir {

using kernel::Combiner;
using kernel::ExprNode;
using kernel::Fn;

std::string ExpressionRenderer::call(
    int depth, std::string_view result, std::string_view function,
    std::initializer_list<std::pair<std::string_view, std::string>> args) {
  std::string operands;
  std::string types;
  for (const auto& [type, value] : args) {
    const std::string_view separator = operands.empty() ? "" : ", ";
    operands += fmt::format("{}{} {}", separator, type, value);
    types += fmt::format("{}{}", separator, type);
  }
  if (function.starts_with("llvm.")) {
    declarations_.insert(fmt::format("declare {} @{}({})\n", result, function, types));
  }
  return writer_.assign(depth, fmt::format("call {} @{}({})", result, function, operands));
}

std::string ExpressionRenderer::divide(int depth, bool remainder, DType dtype, const std::string& a,
                                       const std::string& b) {
  const auto assign = [&](std::string_view text) { return writer_.assign(depth, text); };
  const bool is_signed = dtype == DType::i32;
  const std::string zero = assign(fmt::format("icmp eq i32 {}, 0", b));
  std::string unsafe = zero;
  if (is_signed) {
    const std::string lowest = assign(fmt::format("icmp eq i32 {}, -2147483648", a));
    const std::string minus_one = assign(fmt::format("icmp eq i32 {}, -1", b));
    const std::string overflow = assign(fmt::format("and i1 {}, {}", lowest, minus_one));
    unsafe = assign(fmt::format("or i1 {}, {}", zero, overflow));
  }
  const std::string divisor = assign(fmt::format("select i1 {}, i32 1, i32 {}", unsafe, b));
  const std::string_view instruction =
      remainder ? (is_signed ? "srem" : "urem") : (is_signed ? "sdiv" : "udiv");
  const std::string result = assign(fmt::format("{} i32 {}, {}", instruction, a, divisor));
  if (remainder) return result;  // by 1 gives 0
  return assign(fmt::format("select i1 {}, i32 0, i32 {}", zero, result));
}

std::string ExpressionRenderer::shift(int depth, bool left, DType dtype, const std::string& a,
                                      const std::string& b) {
  const auto assign = [&](std::string_view text) { return writer_.assign(depth, text); };
  const std::string inside = assign(fmt::format("icmp ult i32 {}, 32", b));
  if (!left && dtype == DType::i32) {
    const std::string amount = assign(fmt::format("select i1 {}, i32 {}, i32 31", inside, b));
    return assign(fmt::format("ashr i32 {}, {}", a, amount));
  }
  const std::string amount = assign(fmt::format("and i32 {}, 31", b));
  const std::string result = assign(fmt::format("{} i32 {}, {}", left ? "shl" : "lshr", a, amount));
  return assign(fmt::format("select i1 {}, i32 {}, i32 0", inside, result));
}

std::string ExpressionRenderer::convert(int depth, DType from, DType to, const std::string& value) {
  if (from == to || (is_integer(from) && is_integer(to))) return value;
  const auto assign = [&](std::string_view text) { return writer_.assign(depth, text); };
  if (to == DType::f16) {
    const std::string single = convert(depth, from, DType::f32, value);
    const std::string half = assign(fmt::format("fptrunc float {} to half", single));
    return assign(fmt::format("fpext half {} to float", half));
  }
  if (from == DType::f16) return convert(depth, DType::f32, to, value);
  if (to == DType::bool_) {
    return from == DType::f32 ? assign(fmt::format("fcmp une float {}, 0.0", value))
                              : assign(fmt::format("icmp ne i32 {}, 0", value));
  }
  if (from == DType::bool_) {
    return to == DType::f32 ? assign(fmt::format("uitofp i1 {} to float", value))
                            : assign(fmt::format("zext i1 {} to i32", value));
  }
  if (to == DType::f32) {
    const std::string_view instruction = from == DType::i32 ? "sitofp" : "uitofp";
    return assign(fmt::format("{} i32 {} to float", instruction, value));
  }
  return call(depth, "i32",
              to == DType::i32 ? "llvm.fptosi.sat.i32.f32" : "llvm.fptoui.sat.i32.f32",
              {{"float", value}});
}

std::string ExpressionRenderer::combine(int depth, Combiner combiner, DType dtype,
                                        const std::string& running, const std::string& value) {
  const auto assign = [&](std::string_view instruction) {
    return writer_.assign(
        depth, fmt::format("{} {} {}, {}", instruction, ssa_type(dtype), running, value));
  };
  const std::string_view type = ssa_type(dtype);
  const bool is_max = combiner == Combiner::max;
  switch (combiner) {
    case Combiner::sum:
      if (dtype == DType::f32) return assign("fadd reassoc contract");
      return assign(dtype == DType::bool_ ? "or" : "add");
    case Combiner::prod:
      if (dtype == DType::f32) return assign("fmul reassoc contract");
      return assign(dtype == DType::bool_ ? "and" : "mul");
    case Combiner::max:
    case Combiner::min:
      if (dtype == DType::bool_) return assign(is_max ? "or" : "and");
      if (dtype == DType::f32) {
        // Which zero of two is larger does not matter, and costs as much as the rest.
        const std::string_view function = is_max ? "llvm.maximum.f32" : "llvm.minimum.f32";
        declarations_.insert(fmt::format("declare float @{}(float, float)\n", function));
        return writer_.assign(
            depth, fmt::format("call nsz float @{}(float {}, float {})", function, running, value));
      }
      return call(
          depth, type,
          fmt::format("llvm.{}{}.i32", dtype == DType::i32 ? "s" : "u", kernel::name(combiner)),
          {{type, running}, {type, value}});
    case Combiner::argmax:
    case Combiner::argmin:
      break;
  }
  throw GraphError(fmt::format("combiner {} has no two values to combine", kernel::name(combiner)));
}

bool ExpressionRenderer::subtracts(const ExprNode& sum) const {
  return std::any_of(std::begin(sum.args), std::end(sum.args), [&](std::int32_t arg) {
    return arg >= 0 && kernel_.pool.node(kernel::Expr{arg}).fn == Fn::neg;
  });
}

std::string ExpressionRenderer::operation(int depth, const ExprNode& node,
                                          const std::vector<std::string>& args) {
  const DType dtype = kernel_.pool.node(kernel::Expr{node.args[0]}).dtype;
  const std::string_view type = ssa_type(dtype);
  const bool real = dtype == DType::f32;
  if (has_helper(node.fn, dtype)) {
    helpers_.emplace(node.fn, dtype);
    const std::string name = helper_name(node.fn, dtype);
    return args.size() == 2 ? call(depth, type, name, {{type, args[0]}, {type, args[1]}})
                            : call(depth, type, name, {{type, args[0]}});
  }
  const auto assign = [&](std::string_view text) { return writer_.assign(depth, text); };
  const auto binary = [&](std::string_view integer, std::string_view floating) {
    return assign(fmt::format("{} {} {}, {}", real ? floating : integer, type, args[0], args[1]));
  };
  const auto compare = [&](std::string_view predicate, std::string_view ordered) {
    if (real) return assign(fmt::format("fcmp {} float {}, {}", ordered, args[0], args[1]));
    const bool equality = predicate == "eq" || predicate == "ne";
    const std::string_view sign = equality ? "" : dtype == DType::i32 ? "s" : "u";
    return assign(fmt::format("icmp {}{} {} {}, {}", sign, predicate, type, args[0], args[1]));
  };
  const auto unary = [&](std::string_view intrinsic) {
    return call(depth, type, fmt::format("llvm.{}.f32", intrinsic), {{type, args[0]}});
  };
  switch (node.fn) {
    case Fn::neg:
      return real ? assign(fmt::format("fneg float {}", args[0]))
                  : assign(fmt::format("sub i32 0, {}", args[0]));
    case Fn::abs:
      return real ? unary("fabs")
                  : call(depth, "i32", "llvm.abs.i32", {{"i32", args[0]}, {"i1", "false"}});
    case Fn::sign: {
      if (!real) {
        const std::string low =
            call(depth, "i32", "llvm.smax.i32", {{"i32", args[0]}, {"i32", "-1"}});
        return call(depth, "i32", "llvm.smin.i32", {{"i32", low}, {"i32", "1"}});
      }
      const std::string one = call(depth, "float", "llvm.copysign.f32",
                                   {{"float", literal(dtype, 1)}, {"float", args[0]}});
      // Zeros and NaN are their own sign.
      const std::string kept = assign(fmt::format("fcmp ueq float {}, 0.0", args[0]));
      return assign(fmt::format("select i1 {}, float {}, float {}", kept, args[0], one));
    }
    case Fn::sqrt:
      return unary("sqrt");
    case Fn::rsqrt:
      return assign(fmt::format("fdiv float 1.0, {}", unary("sqrt")));
    case Fn::reciprocal:
      return assign(fmt::format("fdiv float 1.0, {}", args[0]));
    case Fn::floor:
      return unary("floor");
    case Fn::ceil:
      return unary("ceil");
    case Fn::round:
      return unary("roundeven");
    case Fn::relu: {
      const std::string low = assign(fmt::format("fcmp ole float {}, 0.0", args[0]));
      return assign(fmt::format("select i1 {}, float 0.0, float {}", low, args[0]));
    }
    case Fn::bit_not:
      return assign(
          fmt::format("xor {} {}, {}", type, args[0], dtype == DType::bool_ ? "true" : "-1"));
    case Fn::add:
      return binary("add", subtracts(node) ? "fadd" : "fadd contract");
    case Fn::sub:
      // Not contracted: x*y minus the largest x*y must be 0 there, however the product was rounded
      // when the largest was found. Contracted it is the product's rounding error, and exp(1000)
      // for products of 1e10.
      return binary("sub", "fsub");
    case Fn::mul:
      return binary("mul", "fmul contract");
    case Fn::div:
      return real ? binary("", "fdiv") : divide(depth, false, dtype, args[0], args[1]);
    case Fn::rem:
      return real ? binary("", "frem") : divide(depth, true, dtype, args[0], args[1]);
    case Fn::min:
      return combine(depth, Combiner::min, dtype, args[0], args[1]);
    case Fn::max:
      return combine(depth, Combiner::max, dtype, args[0], args[1]);
    case Fn::bit_and:
      return binary("and", "");
    case Fn::bit_or:
      return binary("or", "");
    case Fn::bit_xor:
      return binary("xor", "");
    case Fn::shl:
      return shift(depth, true, dtype, args[0], args[1]);
    case Fn::shr:
      return shift(depth, false, dtype, args[0], args[1]);
    case Fn::eq:
      return compare("eq", "oeq");
    case Fn::ne:
      return compare("ne", "une");
    case Fn::lt:
      return compare("lt", "olt");
    case Fn::le:
      return compare("le", "ole");
    case Fn::gt:
      return compare("gt", "ogt");
    case Fn::ge:
      return compare("ge", "oge");
    case Fn::select: {
      const std::string_view result = ssa_type(node.dtype);
      return assign(
          fmt::format("select i1 {}, {} {}, {} {}", args[0], result, args[1], result, args[2]));
    }
    case Fn::cast:
      return convert(depth, dtype, node.dtype, args[0]);
    case Fn::bitcast:
      if (ssa_type(node.dtype) == type) return args[0];
      return assign(fmt::format("bitcast {} {} to {}", type, args[0], ssa_type(node.dtype)));
    default:
      throw GraphError(
          fmt::format("scalar operation {} has no LLVM rendering", kernel::name(node.fn)));
  }
}

}  // namespace tensorgrad::llvm_ir
