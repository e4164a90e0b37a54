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

}  // namespace tensorgrad::wgsl
