// A small builder of straight-line LLVM IR, so that the math helpers read like formulas.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace tensorgrad::llvm_ir {

enum class Type : std::uint8_t { f32, f64, i32, i64, i1 };
/// The IR name of a type: "float", "double", "i32", "i64", "i1".
std::string_view ir_name(Type type);

/// A floating constant as IR text: exact, in hexadecimal. f32 rounds first.
std::string float_literal(Type type, double value);

class FunctionBuilder;

/// An SSA value or constant of a function under construction.
struct Value {
  FunctionBuilder* function = nullptr;
  Type type = Type::f32;
  std::string text;
};

/// Writes the body of one function without branches. Arithmetic carries `contract` only: values
/// keep their NaN, infinity and zero sign.
class FunctionBuilder {
 public:
  Value argument(Type type);
  Value constant(Type type, double value);
  Value integer(Type type, std::int64_t value);
  Value unary(std::string_view instruction, const Value& a);
  Value binary(std::string_view instruction, const Value& a, const Value& b);
  Value compare(std::string_view predicate, const Value& a, const Value& b);
  Value convert(std::string_view instruction, const Value& a, Type to);
  /// Calls the intrinsic `name`, overloaded on the type of the first operand.
  Value intrinsic(std::string_view name, std::initializer_list<Value> args);
  Value select(const Value& condition, const Value& a, const Value& b);
  /// The whole function, inlined wherever it is called.
  std::string finish(std::string_view name, const Value& result) const;

 private:
  Value append(Type type, std::string_view instruction);
  std::string body_;
  std::string parameters_;
  int next_ = 0;
};

// Arithmetic. A number takes the type of the value beside it.
Value operator+(const Value& a, const Value& b);
Value operator-(const Value& a, const Value& b);
Value operator*(const Value& a, const Value& b);
Value operator/(const Value& a, const Value& b);
Value operator-(const Value& a);
Value operator+(const Value& a, double b);
Value operator-(const Value& a, double b);
Value operator*(const Value& a, double b);
Value operator+(double a, const Value& b);
Value operator-(double a, const Value& b);
Value operator/(double a, const Value& b);
Value operator&(const Value& a, const Value& b);
Value operator|(const Value& a, const Value& b);
// Ordered comparisons: false with NaN.
Value operator<(const Value& a, double b);
Value operator>(const Value& a, double b);
Value operator<(const Value& a, const Value& b);
Value operator>(const Value& a, const Value& b);
Value operator==(const Value& a, double b);
Value operator==(const Value& a, const Value& b);

Value select(const Value& condition, const Value& a, const Value& b);
Value select(const Value& condition, double a, const Value& b);
Value select(const Value& condition, const Value& a, double b);
Value abs(const Value& x);
Value sqrt(const Value& x);
Value trunc(const Value& x);
Value copysign(const Value& magnitude, const Value& sign);
/// a * b + c, fused where the target can.
Value muladd(const Value& a, const Value& b, const Value& c);
Value is_nan(const Value& x);
/// Bits as an integer of equal size, and back.
Value bits(const Value& x);
Value from_bits(const Value& x);
Value to_double(const Value& x);
Value to_float(const Value& x);
/// Polynomial by Horner's rule, highest power first.
Value polynomial(const Value& x, std::initializer_list<double> coefficients);

}  // namespace tensorgrad::llvm_ir
