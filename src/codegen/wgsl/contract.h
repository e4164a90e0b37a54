// Contractions in WGSL: one canonical problem for matrix products and convolutions, and the
// templates that render it.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "codegen/wgsl/render.h"
#include "codegen/wgsl/target.h"
#include "kernel/kernel.h"

namespace tensorgrad::wgsl {

using Extents = std::vector<std::int64_t>;

/// Position of an operand's element in one spatial dimension of a convolution: low + sum of
/// coefficient * digit, over `divisor`. Where that leaves a rest or lies outside [0, extent) the
/// element is 0.
struct Window {
  std::int64_t low = 0;
  Extents outer, depth;  ///< a coefficient for each dimension of the operand's outer and k axis
  std::int64_t divisor = 1, extent = 1;
  std::int64_t stride = 1;  ///< in the buffer
};

/// One operand: element (batch, outer, k) lies at offset + sum of stride * digit, where `outer` is
/// the m axis of the left operand and the n axis of the right one.
struct Operand {
  int arg = -1;
  std::int64_t offset = 0;
  Extents batch, outer, depth;  ///< a stride for each dimension of the axis
  std::vector<Window> windows;
  DType dtype = DType::f32;  ///< in memory: f32 or f16
};

/// Where results go. Elements of a scratch buffer are dense: arg is -1.
struct Result {
  int arg = -1;
  std::int64_t offset = 0;
  Extents batch, m, n;
};

/// out[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n]. Each axis has dimensions, outermost
/// first; none of extent 1 but for an axis that has only that.
struct Problem {
  Extents batch, m, n, k;
  Operand lhs, rhs;
  Result out;

  std::int64_t batches() const;
  std::int64_t rows() const;
  std::int64_t columns() const;
  std::int64_t depth() const;
};

/// The canonical form of a contraction; n is the axis along which results are contiguous, where
/// one is.
Problem problem_of(const kernel::Matmul& matmul);
Problem problem_of(const kernel::Conv& conv);

/// How a contraction is cut into pieces.
struct Tile {
  enum class Kind : std::uint8_t {
    tiled,   ///< a workgroup shares tiles of both operands in workgroup memory
    direct,  ///< an invocation reads what it needs
    dot      ///< the invocations of a workgroup share the sum over k, for few results
  } kind = Kind::tiled;
  std::int64_t bm = 64, bn = 64, bk = 16;  ///< results and k of a workgroup (tiled)
  std::int64_t tm = 4, tn = 4;             ///< results of an invocation
  std::int64_t lanes = 1;                  ///< dot: columns of a workgroup
  std::int64_t threads = 64;               ///< of a workgroup
  std::int64_t splits = 1;                 ///< parts of k that are summed by a second pass
  bool stages = true;                      ///< tiled: two tiles, one is filled while one is used
  bool operator==(const Tile&) const = default;
};
/// "tiled 128x64x16, 8x8 a thread, k in 4 parts".
std::string to_string(const Tile& tile);

/// The candidates for a problem on a target, the one expected to be fastest first.
std::vector<Tile> candidate_tiles(const Problem& problem, const Target& target);

/// WGSL that takes results: functions `finish(z, m, n, value)` (all u32 but the value) and, for
/// four neighbours in n that are all in range, `finish4`.
struct Epilogue {
  std::string functions;
  std::set<int> reads, writes;  ///< arguments
};

/// Which arguments of a pass are declared as array<vec4f>.
using WideArgs = std::set<int>;

/// WGSL of element `index` (WGSL of a u32) of an argument, as it lies in memory.
std::string element(int arg, const std::string& index, const WideArgs& wide);
/// The f32 that element `index` of an operand is.
std::string element(const Operand& operand, const std::string& index, const WideArgs& wide);
/// The vec4f number `index` of a wide operand.
std::string vector(const Operand& operand, const std::string& index);

/// The arguments of the operands that a template may read four at a time.
WideArgs wide_args(const Problem& problem, const std::vector<kernel::BufferArg>& args);

/// The pass that multiplies. With splits the epilogue's z counts the batches of all parts.
struct Body {
  std::string functions;  ///< with globals, before the entry point
  std::string text;       ///< the entry point
  std::array<std::uint32_t, 3> groups{1, 1, 1};
};
/// As render_contraction of render.h, cut as `wanted` says.
RenderedKernel render_contraction(const kernel::Kernel& kernel, const Target& target,
                                  const std::vector<bool>& writable, const Tile& wanted);

Body render_tiled(const Problem& problem, const Tile& tile, const Target& target,
                  const WideArgs& wide);
Body render_direct(const Problem& original, const Tile& tile, const Target& target,
                   const WideArgs& wide);
Body render_dot(const Problem& original, const Tile& tile, const Target& target,
                const WideArgs& wide);

}  // namespace tensorgrad::wgsl
