#include "codegen/llvm/math.h"

#include <fmt/format.h>

#include "codegen/llvm/math_parts.h"
#include "tensorgrad/error.h"

namespace tensorgrad::llvm_ir {

using kernel::Fn;

bool has_helper(Fn fn, DType dtype) {
  if (is_integer(dtype)) return fn == Fn::pow;
  if (dtype != DType::f32) return false;
  switch (fn) {
    case Fn::exp:
    case Fn::expm1:
    case Fn::log:
    case Fn::log1p:
    case Fn::sin:
    case Fn::cos:
    case Fn::tan:
    case Fn::asin:
    case Fn::acos:
    case Fn::atan:
    case Fn::tanh:
    case Fn::logistic:
    case Fn::erf:
    case Fn::erfc:
    case Fn::pow:
    case Fn::atan2:
      return true;
    default:
      return false;
  }
}

std::string helper_name(Fn fn, DType dtype) {
  return dtype == DType::f32 ? fmt::format("tg.{}", kernel::name(fn))
                             : fmt::format("tg.{}.{}", kernel::name(fn), name(dtype));
}

std::string helper_definition(Fn fn, DType dtype) {
  FunctionBuilder f;
  const Type type = dtype == DType::f32 ? Type::f32 : Type::i32;
  const Value x = f.argument(type);
  const auto finish = [&](const Value& result) {
    return f.finish("@" + helper_name(fn, dtype), result);
  };
  switch (fn) {
    case Fn::exp:
      return finish(exp_f32(x));
    case Fn::expm1:
      return finish(expm1_f32(x));
    case Fn::log:
      return finish(log_f32(x));
    case Fn::log1p:
      return finish(log1p_f32(x));
    case Fn::sin:
      return finish(sin_f32(x));
    case Fn::cos:
      return finish(cos_f32(x));
    case Fn::tan:
      return finish(tan_f32(x));
    case Fn::asin:
      return finish(asin_f32(x));
    case Fn::acos:
      return finish(acos_f32(x));
    case Fn::atan:
      return finish(atan_f32(x));
    case Fn::tanh:
      return finish(tanh_f32(x));
    case Fn::logistic:
      return finish(logistic_f32(x));
    case Fn::erf:
      return finish(erf_f32(x));
    case Fn::erfc:
      return finish(erfc_f32(x));
    case Fn::atan2:
      return finish(atan2_f32(x, f.argument(type)));
    case Fn::pow: {
      const Value y = f.argument(type);
      return finish(type == Type::f32 ? pow_f32(x, y) : pow_integer(x, y, dtype == DType::i32));
    }
    default:
      throw GraphError(fmt::format("scalar operation {} has no helper function", kernel::name(fn)));
  }
}

}  // namespace tensorgrad::llvm_ir
