// Builders of primitive nodes, for composed functions, rules and transforms. Operands must already
// have the exact shapes and dtypes that the primitive takes; the public functions of
// tensorgrad/ops.h broadcast and promote first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/node.h"
#include "kernel/expr.h"
#include "ops/registry.h"
#include "tensorgrad/tensor.h"

namespace tensorgrad::prim {

// leaves (ops/leaf.cpp)
Tensor constant(double value, DType dtype, const Site& site = Site::current());
/// A constant of any shape: a broadcast scalar.
Tensor full(const Shape& shape, double value, DType dtype, const Site& site = Site::current());
Tensor zeros_like(const Tensor& t);
/// 0, 1, 2, … along `axis` of `shape` (i32, u32 or f32).
Tensor iota(const Shape& shape, int axis, DType dtype, const Site& site = Site::current());
Tensor data(const Type& type, std::vector<std::byte> bytes, const Site& site = Site::current());
Tensor data(const Type& type, std::shared_ptr<const HostData> value,
            const Site& site = Site::current());
Tensor input(InputRole role, const std::string& name, const Type& type,
             const Site& site = Site::current());
/// A bool scalar: true while training, false elsewhere; bound when a program is compiled.
Tensor training_flag(const Site& site = Site::current());
/// A fresh key u32[2] for one stochastic call, bound when a program is compiled: calls in one
/// program get different keys, by their order. Every call makes a distinct node.
Tensor step_key(const Site& site = Site::current());

// elementwise (ops/elementwise.cpp): equal shapes
/// The name of the row of a scalar function: its own, but `maximum` and `minimum`, since `max` and
/// `min` are reductions.
std::string_view op_name(kernel::Fn fn);
Tensor map(kernel::Fn fn, std::vector<Tensor> operands, const Site& site = Site::current());
Tensor cast(const Tensor& x, DType dtype, const Site& site = Site::current());
Tensor bitcast(const Tensor& x, DType dtype, const Site& site = Site::current());
inline Tensor neg(const Tensor& a) { return map(kernel::Fn::neg, {a}); }
inline Tensor add(const Tensor& a, const Tensor& b) { return map(kernel::Fn::add, {a, b}); }
inline Tensor sub(const Tensor& a, const Tensor& b) { return map(kernel::Fn::sub, {a, b}); }
inline Tensor mul(const Tensor& a, const Tensor& b) { return map(kernel::Fn::mul, {a, b}); }
inline Tensor div(const Tensor& a, const Tensor& b) { return map(kernel::Fn::div, {a, b}); }
inline Tensor select(const Tensor& c, const Tensor& a, const Tensor& b) {
  return map(kernel::Fn::select, {c, a, b});
}
/// a + b where either may be empty (zero).
Tensor add_any(const Tensor& a, const Tensor& b);

// movement (ops/view.cpp, ops/slice.cpp, ops/concat.cpp)
Tensor reshape(const Tensor& x, const Shape& shape, const Site& site = Site::current());
/// A new node of the same value: what transforms differentiate by, so that nothing else that was
/// computed from `x` before is taken for a function of it.
Tensor identity(const Tensor& x, const Site& site = Site::current());
Tensor permute(const Tensor& x, const std::vector<int>& axes, const Site& site = Site::current());
/// Operand dimension i becomes output dimension axes[i]; extents are equal or the operand's is 1.
Tensor broadcast(const Tensor& x, const Shape& shape, const std::vector<int>& axes,
                 const Site& site = Site::current());
/// NumPy broadcasting: aligned at the last dimension.
Tensor broadcast_to(const Tensor& x, const Shape& shape, const Site& site = Site::current());
Tensor slice(const Tensor& x, const Shape& start, const Shape& limit, const Shape& stride,
             const Site& site = Site::current());
Tensor pad(const Tensor& x, const Shape& low, const Shape& high, const Shape& interior,
           const Site& site = Site::current());
Tensor flip(const Tensor& x, const std::vector<int>& axes, const Site& site = Site::current());
Tensor concat(std::span<const Tensor> parts, int axis, const Site& site = Site::current());
/// Moves the dimension `from` to the front.
Tensor move_to_front(const Tensor& x, int from);
/// Repeats `x` along a new leading dimension.
Tensor add_leading(const Tensor& x, std::int64_t size);

// tags (ops/tags.cpp)
Tensor capture(const std::string& name, const Tensor& x, const Site& site = Site::current());
/// Passes the value under a name for messages; always a new node.
Tensor named(const std::string& name, const Tensor& x, const Site& site = Site::current());
/// Passes the value; its tangent is zero.
Tensor stop_gradient(const Tensor& x, const Site& site = Site::current());
/// Passes `x`; a compiled training gives `value` to the buffer of that name.
Tensor assign(const std::string& buffer, const Tensor& x, const Tensor& value,
              const Site& site = Site::current());
/// Passes `x`, as a node that is never merged with `x` and is computed from only when `after` is
/// there: what is made of it is computed again.
Tensor barrier(const Tensor& x, const Tensor& after, const Site& site = Site::current());

// derivatives that a program gives itself (ops/custom.cpp)
/// Passes `value`, a function of `inputs` with the derivative of `rule`.
Tensor custom(const Tensor& value, std::span<const Tensor> inputs,
              std::span<const Tensor> residuals, std::shared_ptr<const CustomRule> rule,
              const Site& site = Site::current());
/// The tangent of a `custom` node as an expression that can only be transposed. `tangents` has an
/// entry an operand.
Tensor custom_tangent(const Tensor& y, std::span<const Tensor> tangents);

// reductions (ops/reduce.cpp): `axes` sorted and distinct; the dimensions vanish
Tensor reduce(kernel::Combiner combiner, const Tensor& x, const std::vector<int>& axes,
              const Site& site = Site::current());
inline Tensor sum(const Tensor& x, const std::vector<int>& axes) {
  return reduce(kernel::Combiner::sum, x, axes);
}
/// A tensor of the reduced shape, repeated back over the reduced axes to `shape`.
Tensor unreduce(const Tensor& reduced, const Shape& shape, const std::vector<int>& axes);

// running combinations (ops/scan.cpp)
/// cumsum, cumprod, cummax, cummin, or the position along the axis of the running extremum; with
/// `reverse` from the end of the axis.
Tensor scan(kernel::Combiner combiner, const Tensor& x, int axis, bool reverse = false,
            const Site& site = Site::current());

// sorting (ops/sort.cpp)
Tensor sort(const Tensor& x, int axis, bool descending = false, const Site& site = Site::current());
Tensor argsort(const Tensor& x, int axis, bool descending = false,
               const Site& site = Site::current());

// contractions (ops/contract.cpp)
Tensor dot_general(const Tensor& a, const Tensor& b, const DotAttr& dims,
                   const Site& site = Site::current());

// convolution (ops/conv.cpp): see ConvAttr. `conv` takes the extents of x and w from its operands;
// the gradients need them in `attr`.
Tensor conv(const Tensor& x, const Tensor& w, const ConvAttr& attr,
            const Site& site = Site::current());
Tensor conv_input_grad(const Tensor& dy, const Tensor& w, const ConvAttr& attr,
                       const Site& site = Site::current());
Tensor conv_weight_grad(const Tensor& x, const Tensor& dy, const ConvAttr& attr,
                        const Site& site = Site::current());

// attention (ops/attention.cpp): made by the schedule where a graph computes it in steps
/// A result of attention over q [..., T, d], k [..., S, d], v [..., S, e] and, if it is defined,
/// an additive mask [..., T, S]: out [..., T, e] or lse [..., T], the logarithm of the sum of the
/// exponentials of a row of scores.
Tensor attention(LowerAttention::Result result, const Tensor& q, const Tensor& k, const Tensor& v,
                 const Tensor& mask, const AttentionAttr& attr, const Site& site = Site::current());
/// The gradient with respect to q, k or v, given that of out.
Tensor attention_grad(LowerAttention::Result result, const Tensor& q, const Tensor& k,
                      const Tensor& v, const Tensor& out, const Tensor& lse, const Tensor& dout,
                      const Tensor& mask, const AttentionAttr& attr,
                      const Site& site = Site::current());

// indirection (ops/gather.cpp)
/// out[a..., i..., b...] = x[a..., indices[i...], b...] along `axis`; an index out of range reads
/// NaN (float) or 0.
Tensor gather(const Tensor& x, const Tensor& indices, int axis, const Site& site = Site::current());
/// The same with `fill` for an index out of range. With 0 it is the transpose of scatter_add.
Tensor gather_or(const Tensor& x, const Tensor& indices, int axis, double fill,
                 const Site& site = Site::current());
/// out[a..., i, b...] = x[a..., indices[a..., i, b...], b...]: `indices` have the shape of x but
/// along `axis`. An index out of range reads `fill`, with a derivative of 0.
Tensor take_along_axis(const Tensor& x, const Tensor& indices, int axis, double fill = 0,
                       const Site& site = Site::current());
/// Zeros of extent `size` along `axis`, to which every slice of `updates` is added at its index;
/// indices out of range are dropped. The transpose of gather.
Tensor scatter_add(const Tensor& indices, const Tensor& updates, int axis, std::int64_t size,
                   const Site& site = Site::current());

// random bits (ops/random.cpp)
/// Word `word` (0 or 1) of the Threefry-2x32 block of (key0, key1) at counter (x0, x1), all u32 of
/// one shape.
Tensor threefry(const Tensor& key0, const Tensor& key1, const Tensor& x0, const Tensor& x1,
                int word, const Site& site = Site::current());
/// Both words of the block of a key and a counter that are known.
std::array<std::uint32_t, 2> threefry_words(std::array<std::uint32_t, 2> key,
                                            std::array<std::uint32_t, 2> counter);

/// Axes 0..rank-1.
std::vector<int> all_axes(int rank);

}  // namespace tensorgrad::prim

namespace tensorgrad {
// The rows of each family file; the registry joins them in this order.
std::span<const Op> leaf_ops();
std::span<const Op> elementwise_ops();
std::span<const Op> view_ops();
std::span<const Op> slice_ops();
std::span<const Op> concat_ops();
std::span<const Op> tag_ops();
std::span<const Op> custom_ops();
std::span<const Op> reduce_ops();
std::span<const Op> scan_ops();
std::span<const Op> sort_ops();
std::span<const Op> contract_ops();
std::span<const Op> conv_ops();
std::span<const Op> attention_ops();
std::span<const Op> gather_ops();
std::span<const Op> random_ops();
}  // namespace tensorgrad
