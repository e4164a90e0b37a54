// Building blocks that several math helpers share.
#pragma once

#include "codegen/llvm/function_builder.h"

namespace tensorgrad::llvm_ir {

// On f32 values.
Value exp_f32(const Value& x);
Value expm1_f32(const Value& x);
Value log_f32(const Value& x);
Value log1p_f32(const Value& x);
Value sin_f32(const Value& x);
Value cos_f32(const Value& x);
Value tanh_f32(const Value& x);
Value logistic_f32(const Value& x);
Value erf_f32(const Value& x);
// On f32 values, evaluated in double.
Value erfc_f32(const Value& x);
Value tan_f32(const Value& x);
Value asin_f32(const Value& x);
Value acos_f32(const Value& x);
Value atan_f32(const Value& x);
Value atan2_f32(const Value& y, const Value& x);
Value pow_f32(const Value& x, const Value& y);
/// Integer power modulo 2^32; a negative exponent gives the integer part of the true power (0 for
/// base 0).
Value pow_integer(const Value& x, const Value& y, bool is_signed);

/// An angle less a multiple of pi/2: `rest` in [-pi/4, pi/4], f64, and the multiple modulo 4, i32.
struct ReducedAngle {
  Value rest, quadrant;
};
ReducedAngle reduce_angle(const Value& x);

}  // namespace tensorgrad::llvm_ir
