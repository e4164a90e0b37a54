#include "codegen/wgsl/render.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace tensorgrad::wgsl {
namespace {

// An f16 in memory: with shader-f16 that, else an f32 that one could be.
constexpr std::string_view half_type = "alias half = f16;\n";
constexpr std::string_view wide_half_type = "alias half = f32;\n";
// Rounds to nearest and even: normal numbers in their bits, smaller ones by counting units of
// 2^-24. With shader-f16 as well: WGSL leaves the direction open, and lavapipe takes f32(f16(x))
// for x.
constexpr std::string_view half_function = R"(
fn tg_half(x: f32) -> f32 {
  let bits = bitcast<u32>(x);
  let size = bits & 0x7fffffffu;
  let sign = bits & 0x80000000u;
  let even = (size + 0xfffu + ((size >> 13u) & 1u)) & 0xffffe000u;
  let rounded = select(even, 0x7f800000u, even >= 0x47800000u);
  let small = bitcast<u32>(round(bitcast<f32>(size) * 16777216f) * 5.9604644775390625e-8f);
  let result = select(select(rounded, small, size < 0x38800000u), size, size > 0x7f800000u);
  return bitcast<f32>(sign | result);
}
)";

/// Completes a pass whose text has the type `half` or the function `tg_half`. Declarations of a
/// module may stand in any order.
void define_halves(RenderedPass& pass, const Target& target) {
  const bool rounds = pass.text.find("tg_half(") != std::string::npos;
  const auto uses = [&](std::string_view form) {
    return pass.text.find(form) != std::string::npos;
  };
  const bool stores = uses("half(") || uses("<half");
  if (!rounds && !stores) return;
  pass.text += '\n';
  pass.text += target.f16 ? half_type : wide_half_type;
  if (rounds) pass.text += half_function;
  if (target.f16) pass.text.insert(0, "enable f16;\n");
}

bool has_halves(const kernel::Kernel& kernel) {
  return std::any_of(kernel.args.begin(), kernel.args.end(),
                     [](const auto& arg) { return arg.dtype == DType::f16; });
}

RenderedKernel with_halves(RenderedKernel rendered, const Target& target) {
  for (RenderedPass& pass : rendered.passes) define_halves(pass, target);
  return rendered;
}

RenderedKernel by_kind(const kernel::Kernel& kernel, const Target& target,
                       const std::vector<bool>& writable) {
  if (kernel.sort) return render_sort(kernel, target, writable);
  if (kernel.contraction && std::holds_alternative<kernel::Attention>(*kernel.contraction)) {
    return render_attention(kernel, target, writable);
  }
  return kernel.contraction ? render_contraction(kernel, target, writable)
                            : render_nest(kernel, target, writable);
}

}  // namespace

std::int64_t memory_bytes(DType dtype, const Target& target) {
  return dtype == DType::f16 && target.f16 ? 2 : element_bytes;
}

RenderedKernel render(const kernel::Kernel& kernel, const Target& target,
                      const std::vector<bool>& writable) {
  return with_halves(by_kind(kernel, target, writable), target);
}

std::vector<Variant> variants(const kernel::Kernel& kernel, const Target& target) {
  std::vector<Variant> found;
  if (kernel.contraction) {
    found = std::holds_alternative<kernel::Attention>(*kernel.contraction)
                ? attention_variants(kernel, target)
                : contraction_variants(kernel, target);
  } else if (!kernel.sort) {
    found = nest_variants(kernel, target);
  }
  if (found.empty()) {
    found.push_back({"", [&kernel, &target](const std::vector<bool>& writable) {
                       return render(kernel, target, writable);
                     }});
  }
  // Attention and sorts have none.
  if (has_halves(kernel)) {
    for (Variant& v : found) {
      v.render = [plain = std::move(v.render), &target](const std::vector<bool>& writable) {
        return with_halves(plain(writable), target);
      };
    }
  }
  return found;
}

}  // namespace tensorgrad::wgsl
