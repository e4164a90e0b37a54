// Kernel IR -> WGSL.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "codegen/wgsl/target.h"
#include "kernel/kernel.h"

namespace tensorgrad::wgsl {

/// A storage binding of a pass: an argument of the kernel, or a scratch buffer.
struct PassBinding {
  int arg = -1;          ///< into Kernel::args, or -1
  int scratch = -1;      ///< into RenderedKernel::scratch_bytes, or -1
  bool writable = true;  ///< var<storage, read_write>; else var<storage, read>
};

/// One dispatch: a WGSL module with one entry point "main". Binding i of group 0 is bindings[i].
struct RenderedPass {
  std::string text;  ///< depends on the kernel (its name apart) and the target alone
  std::array<std::uint32_t, 3> groups{1, 1, 1};
  std::vector<PassBinding> bindings;
};

/// A kernel as passes that run in order. Scratch holds nothing between runs.
struct RenderedKernel {
  std::vector<RenderedPass> passes;
  std::vector<std::int64_t> scratch_bytes;
};

/// Bytes of a word: the least that a binding may claim, and what every element takes but an f16.
constexpr std::int64_t element_bytes = 4;
/// Bytes of an element on the device: bool is held as u32 (0 or 1), f16 in two bytes where the
/// target has shader-f16, else as the f32 that it is.
std::int64_t memory_bytes(DType dtype, const Target& target);

/// Renders `kernel`. An argument that `writable[i]` marks is bound read_write also where the kernel
/// only reads it, because it shares a buffer with one that is written. Throws GraphError naming the
/// kernel where the target's limits do not allow it.
RenderedKernel render(const kernel::Kernel& kernel, const Target& target,
                      const std::vector<bool>& writable);

/// One of the ways to render a kernel. All give the same results but for rounding.
struct Variant {
  std::string name;  ///< "tiled 128x64x16, 8x8 a thread"; no other variant of the kernel has it
  /// As the function `render`. Throws GraphError where the target's limits do not allow it.
  std::function<RenderedKernel(const std::vector<bool>& writable)> render;
};
/// The ways to render a kernel, first the one that `render` takes: the one expected to be fastest.
/// The kernel and the target must outlive them.
std::vector<Variant> variants(const kernel::Kernel& kernel, const Target& target);

// ---- templates: each renders the kernels it is made for ------------------------------------------

/// A kernel without contraction.
RenderedKernel render_nest(const kernel::Kernel& kernel, const Target& target,
                           const std::vector<bool>& writable);
/// A kernel with a contraction; its epilogue runs on the tile in registers where the nest is a map
/// over the result, else as a pass of its own.
RenderedKernel render_contraction(const kernel::Kernel& kernel, const Target& target,
                                  const std::vector<bool>& writable);
/// Attention, forward or backward.
RenderedKernel render_attention(const kernel::Kernel& kernel, const Target& target,
                                const std::vector<bool>& writable);
/// The ways to render contractions, attention, and nests that reduce; none where there is but one.
std::vector<Variant> contraction_variants(const kernel::Kernel& kernel, const Target& target);
std::vector<Variant> attention_variants(const kernel::Kernel& kernel, const Target& target);
std::vector<Variant> nest_variants(const kernel::Kernel& kernel, const Target& target);
/// A sort.
RenderedKernel render_sort(const kernel::Kernel& kernel, const Target& target,
                           const std::vector<bool>& writable);

}  // namespace tensorgrad::wgsl
