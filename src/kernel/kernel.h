// Kernel IR: loops over an index space with scalar expressions, contractions, sorts. Names no op.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kernel/expr.h"

namespace tensorgrad::kernel {

/// A buffer that a kernel touches. Two arguments of one kernel never overlap.
struct BufferArg {
  DType dtype = DType::f32;
  std::int64_t elements = 0;  ///< size of the view that is bound
  bool read = false, written = false;
};

struct Loop {
  std::int64_t extent = 1;
};

/// How values of a reduction combine. `argmax` and `argmin` give the position (i32) of the first
/// extremum in iteration order; NaN counts as the extremum, as in NumPy.
enum class Combiner : std::uint8_t { sum, prod, max, min, argmax, argmin };
const char* name(Combiner combiner);
/// Neutral element of `combiner` for `dtype`.
double neutral(Combiner combiner, DType dtype);

/// One running reduction over a stage's loops.
struct Accumulator {
  Combiner combiner = Combiner::sum;
  Expr value;
  DType dtype = DType::f32;  ///< of the value; an argmax result is i32
  Index position;            ///< argmax, argmin: the position within the reduced space
};

/// buffer[index] = value, or += where `accumulate` (scatter: iterations run in order). Nothing is
/// stored where `cond` is defined and false.
struct Store {
  int buffer = -1;
  Index index;
  Expr value;
  Expr cond;
  bool accumulate = false;
};

/// A stage runs for every point of the outer loops. It does one of three things:
/// - with accumulators alone it reduces over its loops, innermost last; the results are then read
/// as
///   `acc(stage, slot)` by later stages;
/// - with stores alone it runs them at every point of its loops, in any order;
/// - with both it scans: it runs its loops in order, innermost last. At each point every
/// accumulator
///   first takes the point's value (which reads no accumulator of this stage), then the stores run.
///   There `acc(stage, slot)` is the running value with this point included, for argmax and argmin
///   the running position. Later stages read the totals.
struct Stage {
  std::vector<int> loops;  ///< indices into Kernel::loops
  std::vector<Accumulator> accumulators;
  std::vector<Store> stores;
};

/// Outer loops (independent iterations, outermost first), then the stages in order for each.
struct LoopNest {
  std::vector<int> outer;
  std::vector<Stage> stages;
};

/// A buffer accessed as offset + sum of stride * dimension.
struct Access {
  int buffer = -1;
  std::int64_t offset = 0;
  std::vector<std::int64_t> strides;
};

/// out[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n], float, where b runs over the points of
/// all `batch` dimensions and k over those of all `k` dimensions (outermost first; with none there
/// is one point). Strides of `lhs` are {batch..., m, k...}, of `rhs` {batch..., k..., n}, of `out`
/// {batch..., m, n}. In `lhs` m or the last k dimension has stride 1, in `rhs` the last k dimension
/// or n, in `out` m or n (a dimension of extent 1 does not count). A stride of 0 in a batch or
/// outer k dimension repeats an operand; places of `out` are distinct. The scheduler gives no batch
/// or k dimension of extent 1 and none that could be merged with its neighbour.
struct Matmul {
  std::vector<std::int64_t> batch;
  std::int64_t m = 1, n = 1;
  std::vector<std::int64_t> k;
  Access lhs, rhs, out;
  std::int64_t batches() const;  ///< points of the batch dimensions
  std::int64_t depth() const;    ///< points of the k dimensions
};

/// A convolution over dense row-major buffers: x [N, G*I, spatial...], w [G*O, I, spatial...],
/// y [N, G*O, spatial...]. `mode` says which of the three is computed from the other two.
struct Conv {
  enum class Mode : std::uint8_t { forward, input_grad, weight_grad } mode = Mode::forward;
  std::int64_t batch = 1, groups = 1, in_channels = 1, out_channels = 1;  ///< channels of a group
  std::vector<std::int64_t> input, kernel, output;                        ///< spatial extents
  std::vector<std::int64_t> stride, pad_low, pad_high, dilation;
  Access x, w, y;  ///< offsets only; strides are empty
};

/// Scaled dot-product attention without its matrix of probabilities, for every point b of the
/// `batch` dimensions, f32:
///   s[t, u] = scale * (sum over d < depth of q[b, t, d] * k[b, u, d]) + mask[b, t, u]
/// for t < queries, u < keys; where `causal` holds, only u <= t count and s is -infinity elsewhere.
/// Without a mask `mask.buffer` is -1. Every row counts at least one finite s.
///   lse[b, t]    = log(sum over u of exp(s[t, u]))          p[t, u] = exp(s[t, u] - lse[b, t])
/// forward writes lse and, for e < value_depth, out, those of which the buffer is not -1:
///   out[b, t, e] = sum over u of p[t, u] * v[b, u, e]
/// backward reads q, k, v, mask, out, lse and dout and writes those of dq, dk and dv whose buffer
/// is not -1:
///   delta[t]     = sum over e of dout[b, t, e] * out[b, t, e]
///   dp[t, u]     = sum over e of dout[b, t, e] * v[b, u, e]
///   ds[t, u]     = scale * p[t, u] * (dp[t, u] - delta[t])
///   dq[b, t, d]  = sum over u of ds[t, u] * k[b, u, d]
///   dk[b, u, d]  = sum over t of ds[t, u] * q[b, t, d]
///   dv[b, u, e]  = sum over t of p[t, u] * dout[b, t, e]
/// Strides are {batch..., row, column}, of lse {batch..., row}; those of the last dimension are 1,
/// 0 in a batch dimension or in a row of the mask repeats it (read operands only).
struct Attention {
  enum class Mode : std::uint8_t { forward, backward } mode = Mode::forward;
  std::vector<std::int64_t> batch;
  std::int64_t queries = 1, keys = 1, depth = 1, value_depth = 1;
  double scale = 1;
  bool causal = false;
  Access q, k, v, mask, out, lse;
  Access dout, dq, dk, dv;  ///< backward only; buffers are -1 in forward
};

using Contraction = std::variant<Matmul, Conv, Attention>;

/// Sorts rows of `length` elements, stably. Strides are {outer, length, inner}: element k of row
/// (o, i) of an access is buffer[offset + o * strides[0] + k * strides[1] + i * strides[2]]. NaN is
/// the largest value, and -0 equals 0. `values` receives the sorted elements, `indices` (i32) the
/// positions in the row that they come from; either has buffer -1 where it is not wanted. With
/// `descending` the largest come first; equal elements keep their order all the same.
struct Sort {
  std::int64_t outer = 1, length = 1, inner = 1;
  bool descending = false;
  Access in, values, indices;
};

/// One unit of work: a loop nest; or a contraction whose result is then read by the nest (its
/// epilogue, possibly empty) as a load of buffer `out`; or attention or a sort, without a nest.
struct Kernel {
  std::string name;  ///< for people: "contract 256x64x64 + add + relu"
  std::vector<BufferArg> args;
  Pool pool;
  std::vector<Loop> loops;
  std::optional<Contraction> contraction;
  std::optional<Sort> sort;
  LoopNest nest;
};

/// Bytes read and written (each element of each buffer counted once per kernel) and floating
/// operations.
struct Cost {
  std::int64_t bytes = 0, flops = 0;
};
Cost cost(const Kernel& kernel);

/// Readable, canonical text (equal kernels print equally, names apart).
std::string to_string(const Kernel& kernel);
/// Throws GraphError if the kernel breaks a rule of the IR: an undefined buffer or loop, an index
/// that can leave its buffer, a stage that reads a later result.
void verify(const Kernel& kernel);

}  // namespace tensorgrad::kernel
