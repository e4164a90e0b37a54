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

/// out[b, m, n] = sum over k of lhs[b, m, k] * rhs[b, k, n], float. Strides of `lhs` are
/// {b, m, k}, of `rhs` {b, k, n}, of `out` {b, m, n}; either the last or the one before it is 1 in
/// each (a dimension of extent 1 does not count). A batch stride of 0 repeats an operand.
struct Matmul {
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  Access lhs, rhs, out;
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

using Contraction = std::variant<Matmul, Conv>;

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
/// epilogue, possibly empty) as a load of buffer `out`; or a sort, without a nest.
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
