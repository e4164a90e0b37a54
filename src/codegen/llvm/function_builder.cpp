#include "codegen/llvm/function_builder.h"

#include <fmt/format.h>

#include <bit>

namespace tensorgrad::llvm_ir {

std::string_view ir_name(Type type) {
  switch (type) {
    case Type::f32:
      return "float";
    case Type::f64:
      return "double";
    case Type::i32:
      return "i32";
    case Type::i64:
      return "i64";
    case Type::i1:
      break;
  }
  return "i1";
}

std::string float_literal(Type type, double value) {
  const double exact = type == Type::f32 ? static_cast<double>(static_cast<float>(value)) : value;
  return fmt::format("0x{:016X}", std::bit_cast<std::uint64_t>(exact));
}

Value FunctionBuilder::append(Type type, std::string_view instruction) {
  std::string name = fmt::format("%v{}", next_++);
  body_ += fmt::format("  {} = {}\n", name, instruction);
  return {this, type, std::move(name)};
}

Value FunctionBuilder::argument(Type type) {
  std::string name = fmt::format("%{}", static_cast<char>('x' + (parameters_.empty() ? 0 : 1)));
  parameters_ += fmt::format("{}{} {}", parameters_.empty() ? "" : ", ", ir_name(type), name);
  return {this, type, std::move(name)};
}

Value FunctionBuilder::constant(Type type, double value) {
  return {this, type, float_literal(type, value)};
}

Value FunctionBuilder::integer(Type type, std::int64_t value) {
  return {this, type, fmt::format("{}", value)};
}

Value FunctionBuilder::unary(std::string_view instruction, const Value& a) {
  return append(a.type, fmt::format("{} {} {}", instruction, ir_name(a.type), a.text));
}

Value FunctionBuilder::binary(std::string_view instruction, const Value& a, const Value& b) {
  return append(a.type, fmt::format("{} {} {}, {}", instruction, ir_name(a.type), a.text, b.text));
}

Value FunctionBuilder::compare(std::string_view predicate, const Value& a, const Value& b) {
  return append(Type::i1, fmt::format("{} {} {}, {}", predicate, ir_name(a.type), a.text, b.text));
}

Value FunctionBuilder::convert(std::string_view instruction, const Value& a, Type to) {
  return append(to,
                fmt::format("{} {} {} to {}", instruction, ir_name(a.type), a.text, ir_name(to)));
}

Value FunctionBuilder::intrinsic(std::string_view name, std::initializer_list<Value> args) {
  const Type type = args.begin()->type;
  const std::string_view suffix = type == Type::f32 ? "f32" : "f64";
  std::string operands;
  for (const Value& arg : args) {
    operands += fmt::format("{}{} {}", operands.empty() ? "" : ", ", ir_name(arg.type), arg.text);
  }
  return append(type,
                fmt::format("call {} @llvm.{}.{}({})", ir_name(type), name, suffix, operands));
}

Value FunctionBuilder::select(const Value& condition, const Value& a, const Value& b) {
  return append(a.type, fmt::format("select i1 {}, {} {}, {} {}", condition.text, ir_name(a.type),
                                    a.text, ir_name(b.type), b.text));
}

std::string FunctionBuilder::finish(std::string_view name, const Value& result) const {
  const std::string_view type = ir_name(result.type);
  return fmt::format("define internal {} {}({}) alwaysinline nounwind {{\n{}  ret {} {}\n}}\n",
                     type, name, parameters_, body_, type, result.text);
}

namespace {
bool floating(const Value& a) { return a.type == Type::f32 || a.type == Type::f64; }
Value like(const Value& a, double b) { return a.function->constant(a.type, b); }
Value arithmetic(std::string_view integer, std::string_view real, const Value& a, const Value& b) {
  return a.function->binary(floating(a) ? real : integer, a, b);
}
}  // namespace

Value operator+(const Value& a, const Value& b) { return arithmetic("add", "fadd contract", a, b); }
Value operator-(const Value& a, const Value& b) { return arithmetic("sub", "fsub contract", a, b); }
Value operator*(const Value& a, const Value& b) { return arithmetic("mul", "fmul contract", a, b); }
Value operator/(const Value& a, const Value& b) { return a.function->binary("fdiv", a, b); }
Value operator-(const Value& a) { return a.function->unary("fneg", a); }
Value operator+(const Value& a, double b) { return a + like(a, b); }
Value operator-(const Value& a, double b) { return a - like(a, b); }
Value operator*(const Value& a, double b) { return a * like(a, b); }
Value operator+(double a, const Value& b) { return like(b, a) + b; }
Value operator-(double a, const Value& b) { return like(b, a) - b; }
Value operator/(double a, const Value& b) { return like(b, a) / b; }
Value operator&(const Value& a, const Value& b) { return a.function->binary("and", a, b); }
Value operator|(const Value& a, const Value& b) { return a.function->binary("or", a, b); }
Value operator<(const Value& a, const Value& b) { return a.function->compare("fcmp olt", a, b); }
Value operator>(const Value& a, const Value& b) { return a.function->compare("fcmp ogt", a, b); }
Value operator==(const Value& a, const Value& b) { return a.function->compare("fcmp oeq", a, b); }
Value operator<(const Value& a, double b) { return a < like(a, b); }
Value operator>(const Value& a, double b) { return a > like(a, b); }
Value operator==(const Value& a, double b) { return a == like(a, b); }

Value select(const Value& condition, const Value& a, const Value& b) {
  return a.function->select(condition, a, b);
}
Value select(const Value& condition, double a, const Value& b) {
  return select(condition, like(b, a), b);
}
Value select(const Value& condition, const Value& a, double b) {
  return select(condition, a, like(a, b));
}
Value abs(const Value& x) { return x.function->intrinsic("fabs", {x}); }
Value sqrt(const Value& x) { return x.function->intrinsic("sqrt", {x}); }
Value trunc(const Value& x) { return x.function->intrinsic("trunc", {x}); }
Value copysign(const Value& magnitude, const Value& sign) {
  return magnitude.function->intrinsic("copysign", {magnitude, sign});
}
Value muladd(const Value& a, const Value& b, const Value& c) {
  return a.function->intrinsic("fmuladd", {a, b, c});
}
Value is_nan(const Value& x) { return x.function->compare("fcmp uno", x, x); }
Value bits(const Value& x) {
  return x.function->convert("bitcast", x, x.type == Type::f32 ? Type::i32 : Type::i64);
}
Value from_bits(const Value& x) {
  return x.function->convert("bitcast", x, x.type == Type::i32 ? Type::f32 : Type::f64);
}
Value to_double(const Value& x) { return x.function->convert("fpext", x, Type::f64); }
Value to_float(const Value& x) { return x.function->convert("fptrunc", x, Type::f32); }

Value polynomial(const Value& x, std::initializer_list<double> coefficients) {
  const double* c = coefficients.begin();
  Value result = like(x, *c);
  for (++c; c != coefficients.end(); ++c) result = muladd(result, x, like(x, *c));
  return result;
}

}  // namespace tensorgrad::llvm_ir
