#include "codegen/wgsl/math.h"

#include <fmt/format.h>

#include <vector>

#include "codegen/wgsl/math_text.h"
#include "tensorgrad/error.h"

namespace tensorgrad::wgsl {

using kernel::Fn;

namespace {

const Helper* helper_at(std::size_t index) {
  const auto basic = basic_helpers();
  if (index < basic.size()) return &basic[index];
  const auto math = math_helpers();
  return index - basic.size() < math.size() ? &math[index - basic.size()] : nullptr;
}

}  // namespace

std::string Helpers::use(std::string_view name) {
  for (std::size_t i = 0; const Helper* helper = helper_at(i); ++i) {
    if (helper->name != name) continue;
    if (used_.insert(i).second) {
      for (const std::string_view callee : helper->calls) {
        if (!callee.empty()) use(callee);
      }
    }
    return std::string(name);
  }
  throw GraphError(fmt::format("there is no helper function {}", name));
}

std::string Helpers::definitions() const {
  std::string result;
  for (const std::size_t i : used_) result += fmt::format("{}\n", helper_at(i)->text);
  return result;
}

bool Helpers::has(Fn fn, DType dtype) {
  if (is_integer(dtype)) return fn == Fn::pow;
  if (dtype != DType::f32) return false;
  switch (fn) {
    case Fn::sign:
    case Fn::exp:
    case Fn::expm1:
    case Fn::log:
    case Fn::log1p:
    case Fn::sqrt:
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
    case Fn::relu:
    case Fn::rem:
    case Fn::pow:
    case Fn::min:
    case Fn::max:
    case Fn::atan2:
      return true;
    default:
      return false;
  }
}

std::string Helpers::name_of(Fn fn, DType dtype) {
  return dtype == DType::f32 ? fmt::format("tg_{}", kernel::name(fn))
                             : fmt::format("tg_{}_{}", kernel::name(fn), name(dtype));
}

}  // namespace tensorgrad::wgsl
