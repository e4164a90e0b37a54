// Transcendental functions as LLVM IR: polynomials and selects only, so that loops that use them
// vectorise to any width and give the same bits on every CPU.
#pragma once

#include <string>

#include "kernel/expr.h"

namespace tensorgrad::llvm_ir {

/// Whether `fn` on operands of `dtype` is a call of a helper function.
bool has_helper(kernel::Fn fn, DType dtype);
/// The name of that function: "tg.exp", "tg.pow.i32".
std::string helper_name(kernel::Fn fn, DType dtype);
/// Its definition, to stand once in each module that uses it.
std::string helper_definition(kernel::Fn fn, DType dtype);

}  // namespace tensorgrad::llvm_ir
