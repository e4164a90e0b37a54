#include "codegen/wgsl/render.h"

namespace tensorgrad::wgsl {

RenderedKernel render(const kernel::Kernel& kernel, const Target& target,
                      const std::vector<bool>& writable) {
  if (kernel.sort) return render_sort(kernel, target, writable);
  if (kernel.contraction && std::holds_alternative<kernel::Attention>(*kernel.contraction)) {
    return render_attention(kernel, target, writable);
  }
  return kernel.contraction ? render_contraction(kernel, target, writable)
                            : render_nest(kernel, target, writable);
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
  return found;
}

}  // namespace tensorgrad::wgsl
