// Renders the scalar operations of kernel::Fn: an operator, a builtin or a helper each.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "codegen/wgsl/expressions.h"
#include "tensorgrad/error.h"

namespace tensorgrad::wgsl {

using kernel::Combiner;
using kernel::Expr;
using kernel::ExprNode;
using kernel::Fn;

namespace {

Rendered merged(std::initializer_list<const Rendered*> operands) {
  Rendered result;
  for (const Rendered* operand : operands) {
    result.depth = std::max(result.depth, operand->depth);
    result.fragile = result.fragile || operand->fragile;
  }
  return result;
}

}  // namespace

Rendered ExpressionRenderer::call(std::string_view function,
                                  std::initializer_list<const Rendered*> args) {
  Rendered result = merged(args);
  for (const Rendered* arg : args) {
    result.text +=
        fmt::format("{}{}", result.text.empty() ? "" : ", ", lift(*arg, result.depth).text);
  }
  result.text = fmt::format("{}({})", function, result.text);
  return result;
}

Rendered ExpressionRenderer::binary(std::string_view op, const Rendered& a, const Rendered& b) {
  Rendered result = merged({&a, &b});
  // A right operand of equal strength keeps its parentheses: floats do not reassociate.
  Strength left = Strength::unary;
  Strength right = Strength::unary;
  result.strength = Strength::other;
  if (op == "+" || op == "-") {
    result.strength = Strength::sum;
    left = Strength::sum;
    right = Strength::product;
  } else if (op == "*" || op == "/") {
    result.strength = Strength::product;
    left = Strength::product;
    right = Strength::unary;
  }
  result.text = fmt::format("{} {} {}", lift(a, result.depth).operand(left), op,
                            lift(b, result.depth).operand(right));
  return result;
}

Rendered ExpressionRenderer::divide(bool remainder, DType dtype, const ExprNode& node,
                                    const Rendered& a, const Rendered& b) {
  const ExprNode& divisor = kernel_.pool.node(Expr{node.args[1]});
  if (divisor.fn == Fn::constant && divisor.value > 0) return binary(remainder ? "%" : "/", a, b);
  return call(
      helpers_.use(fmt::format("tg_{}_{}", remainder ? "rem" : "div", tensorgrad::name(dtype))),
      {&a, &b});
}

Rendered ExpressionRenderer::shift(bool left, DType dtype, const ExprNode& node, const Rendered& a,
                                   const Rendered& b) {
  const ExprNode& amount = kernel_.pool.node(Expr{node.args[1]});
  if (amount.fn == Fn::constant && amount.value >= 0 && amount.value < 32) {
    return binary(left ? "<<" : ">>", a, named(fmt::format("{}u", amount.value)));
  }
  return call(helpers_.use(fmt::format("tg_{}_{}", left ? "shl" : "shr", tensorgrad::name(dtype))),
              {&a, &b});
}

Rendered ExpressionRenderer::convert(DType from, DType to, const Rendered& value) {
  if (from == to) return value;
  if (to == DType::f16) {
    const Rendered single = convert(from, DType::f32, value);
    return call("tg_half", {&single});
  }
  if (from == DType::f16) return convert(DType::f32, to, value);
  if (to == DType::bool_ && from == DType::f32) {
    return call(helpers_.use("tg_not_zero"), {&value});
  }
  if (to == DType::bool_) return binary("!=", value, named(finite_literal(from, 0)));
  if (from == DType::f32) {
    return call(helpers_.use(to == DType::i32 ? "tg_to_i32" : "tg_to_u32"), {&value});
  }
  if (to == DType::f32 && from != DType::bool_) {
    return call(helpers_.use(from == DType::i32 ? "tg_from_i32" : "tg_from_u32"), {&value});
  }
  return call(value_type(to), {&value});
}

Rendered ExpressionRenderer::combine(Combiner combiner, DType dtype, const Rendered& running,
                                     const Rendered& value) {
  const bool is_bool = dtype == DType::bool_;
  switch (combiner) {
    case Combiner::sum:
      return binary(is_bool ? "|" : "+", running, value);
    case Combiner::prod:
      return binary(is_bool ? "&" : "*", running, value);
    case Combiner::max:
    case Combiner::min: {
      const bool is_max = combiner == Combiner::max;
      if (is_bool) return binary(is_max ? "|" : "&", running, value);
      if (dtype == DType::f32) {
        return call(helpers_.use(is_max ? "tg_max" : "tg_min"), {&running, &value});
      }
      return call(is_max ? "max" : "min", {&running, &value});
    }
    case Combiner::argmax:
    case Combiner::argmin:
      break;
  }
  throw GraphError(fmt::format("combiner {} has no two values to combine", kernel::name(combiner)));
}

Rendered ExpressionRenderer::compare(const ExprNode& node, DType dtype, const Rendered& a,
                                     const Rendered& b) {
  const bool same = node.args[0] == node.args[1];
  if (dtype == DType::f32 && same) {
    // Whether a value is NaN, which a compiler that assumes there is none would take for known.
    Rendered nan = call(helpers_.use("tg_is_nan"), {&a});
    const bool ordered = node.fn == Fn::eq || node.fn == Fn::le || node.fn == Fn::ge;
    if (node.fn == Fn::ne) return nan;
    if (!ordered) return named("false");
    nan.text = fmt::format("!{}", nan.text);
    nan.strength = Strength::unary;
    return nan;
  }
  const auto inverted = [](Rendered x) {
    x.text = fmt::format("!{}", x.operand(Strength::unary));
    x.strength = Strength::unary;
    x.trivial = false;
    return x;
  };
  const bool is_bool = dtype == DType::bool_;
  switch (node.fn) {
    case Fn::eq:
      return binary("==", a, b);
    case Fn::ne:
      if (dtype == DType::f32) return call(helpers_.use("tg_ne"), {&a, &b});
      return binary("!=", a, b);
    case Fn::lt:
      return is_bool ? binary("&", inverted(a), b) : binary("<", a, b);
    case Fn::le:
      return is_bool ? binary("|", inverted(a), b) : binary("<=", a, b);
    case Fn::gt:
      return is_bool ? binary("&", a, inverted(b)) : binary(">", a, b);
    default:
      return is_bool ? binary("|", a, inverted(b)) : binary(">=", a, b);
  }
}

bool ExpressionRenderer::is_moderate(std::int32_t divisor) const {
  const ExprNode& node = kernel_.pool.node(Expr{divisor});
  if (node.fn == Fn::add) return is_moderate(node.args[0]) && is_moderate(node.args[1]);
  return node.fn == Fn::sqrt || (node.fn == Fn::constant && std::fabs(node.value) < 4e37);
}

Rendered ExpressionRenderer::operation(const ExprNode& node) {
  const DType dtype =
      kernel_.pool.node(Expr{node.fn == Fn::select ? node.args[1] : node.args[0]}).dtype;
  const bool real = dtype == DType::f32;
  Rendered args[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (node.args[i] >= 0) args[i] = *cached(exprs_, node.args[i]);
  }
  const Rendered& a = args[0];
  const Rendered& b = args[1];
  if (Helpers::has(node.fn, dtype)) {
    const std::string function = helpers_.use(Helpers::name_of(node.fn, dtype));
    return kernel::arity(node.fn) == 2 ? call(function, {&a, &b}) : call(function, {&a});
  }
  const bool is_product = node.fn == Fn::mul;
  const int factors = is_product ? 2 : node.fn == Fn::div ? 1 : 0;
  for (int i = 0; real && i < factors; ++i) {
    const ExprNode& factor = kernel_.pool.node(Expr{node.args[i]});
    if (factor.fn != Fn::constant || factor.value != 0) continue;
    return call(helpers_.use(is_product ? "tg_zero_times" : "tg_zero_over"),
                {&args[i], &args[1 - i]});
  }
  const auto prefix = [&](std::string_view op) {
    Rendered result = a;
    result.text = fmt::format("{}{}", op, a.operand(Strength::primary));
    result.strength = Strength::unary;
    result.trivial = false;
    return result;
  };
  switch (node.fn) {
    case Fn::neg:
      return prefix("-");
    case Fn::abs:
      return call("abs", {&a});
    case Fn::sign:
      return call("sign", {&a});
    case Fn::rsqrt:
      return call("inverseSqrt", {&a});
    case Fn::reciprocal:
      return binary("/", named("1f"), a);
    case Fn::floor:
      return call("floor", {&a});
    case Fn::ceil:
      return call("ceil", {&a});
    case Fn::round:
      return call("round", {&a});
    case Fn::bit_not:
      return prefix(dtype == DType::bool_ ? "!" : "~");
    case Fn::add:
      return binary("+", a, b);
    case Fn::sub:
      return binary("-", a, b);
    case Fn::mul:
      return binary("*", a, b);
    case Fn::div:
      if (!real) return divide(false, dtype, node, a, b);
      return is_moderate(node.args[1]) ? binary("/", a, b) : call(helpers_.use("tg_div"), {&a, &b});
    case Fn::rem:
      return divide(true, dtype, node, a, b);
    case Fn::min:
      return combine(Combiner::min, dtype, a, b);
    case Fn::max:
      return combine(Combiner::max, dtype, a, b);
    case Fn::bit_and:
      return binary("&", a, b);
    case Fn::bit_or:
      return binary("|", a, b);
    case Fn::bit_xor:
      return dtype == DType::bool_ ? binary("!=", a, b) : binary("^", a, b);
    case Fn::shl:
      return shift(true, dtype, node, a, b);
    case Fn::shr:
      return shift(false, dtype, node, a, b);
    case Fn::eq:
    case Fn::ne:
    case Fn::lt:
    case Fn::le:
    case Fn::gt:
    case Fn::ge:
      return compare(node, dtype, a, b);
    case Fn::select:
      return call("select", {&args[2], &args[1], &args[0]});
    case Fn::cast:
      return convert(dtype, node.dtype, a);
    case Fn::bitcast:
      return dtype == node.dtype ? a
                                 : call(fmt::format("bitcast<{}>", value_type(node.dtype)), {&a});
    default:
      throw GraphError(
          fmt::format("scalar operation {} has no WGSL rendering", kernel::name(node.fn)));
  }
}

}  // namespace tensorgrad::wgsl
