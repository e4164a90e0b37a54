// Operations on tensors. Binary operations broadcast as NumPy does: shapes are aligned at the last
// dimension and extents of 1 repeat. A C++ number takes the dtype of the tensor beside it (a
// fractional number beside integers makes f32); f16 beside f32 becomes f32, bool and integer
// tensors beside a float take its dtype, and bool beside an integer becomes that integer. i32
// beside u32 is a DTypeError. Every function throws ShapeError or DTypeError, with the caller's
// line, for what it cannot take.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensorgrad/tensor.h"

namespace tensorgrad {

// ---- making tensors ------------------------------------------------------------------------------

/// A tensor of one value.
Tensor full(const Shape& shape, double value, DType dtype = DType::f32,
            Site site = Site::current());
Tensor zeros(const Shape& shape, DType dtype = DType::f32, Site site = Site::current());
Tensor ones(const Shape& shape, DType dtype = DType::f32, Site site = Site::current());
Tensor zeros_like(const Tensor& x, Site site = Site::current());
Tensor ones_like(const Tensor& x, Site site = Site::current());
/// 0, 1, …, n - 1.
Tensor arange(std::int64_t n, DType dtype = DType::i32, Site site = Site::current());
/// start, start + step, … below stop (above it for a negative step), f32. Throws ValueError for a
/// step of 0 or a bound that is not finite.
Tensor arange(double start, double stop, double step = 1, Site site = Site::current());
/// `count` numbers at equal distances from `start` to `stop`, both included, f32.
Tensor linspace(double start, double stop, std::int64_t count, Site site = Site::current());
/// Ones on diagonal `diagonal` (above the main one if positive) of [rows, columns], else zeros.
Tensor eye(std::int64_t rows, std::int64_t columns, int diagonal = 0, DType dtype = DType::f32,
           Site site = Site::current());
Tensor eye(std::int64_t n, Site site = Site::current());
/// A one-dimensional f32 tensor of the listed values.
Tensor array(std::initializer_list<float> values, Site site = Site::current());
/// A tensor that copies `values`, row-major. Throws ShapeError if their number is not numel(shape).
Tensor array(std::span<const float> values, const Shape& shape, Site site = Site::current());
Tensor array(std::span<const std::int32_t> values, const Shape& shape, Site site = Site::current());
Tensor array(std::span<const std::uint32_t> values, const Shape& shape,
             Site site = Site::current());
Tensor array(std::span<const Half> values, const Shape& shape, Site site = Site::current());
/// A bool tensor from bytes that are 0 or 1.
Tensor array(std::span<const std::uint8_t> values, const Shape& shape, Site site = Site::current());

// ---- arithmetic ----------------------------------------------------------------------------------

Tensor operator+(const Operand& a, const Operand& b);
Tensor operator-(const Operand& a, const Operand& b);
Tensor operator*(const Operand& a, const Operand& b);
/// True division: integers become f32 first, as in NumPy and PyTorch.
Tensor operator/(const Operand& a, const Operand& b);
Tensor operator-(const Operand& a);
/// a and b must be integers, or be bool: bitwise, or logical.
Tensor operator&(const Operand& a, const Operand& b);
Tensor operator|(const Operand& a, const Operand& b);
Tensor operator^(const Operand& a, const Operand& b);
Tensor operator~(const Operand& a);
Tensor operator!(const Operand& a);
/// Integers; a shift by 32 or more gives 0 (or -1 for a negative i32 shifted right).
Tensor operator<<(const Operand& a, const Operand& b);
Tensor operator>>(const Operand& a, const Operand& b);
Tensor left_shift(const Operand& a, const Operand& b);
Tensor right_shift(const Operand& a, const Operand& b);
/// Comparisons give bool; all but != are false where an operand is NaN.
Tensor operator==(const Operand& a, const Operand& b);
Tensor operator!=(const Operand& a, const Operand& b);
Tensor operator<(const Operand& a, const Operand& b);
Tensor operator<=(const Operand& a, const Operand& b);
Tensor operator>(const Operand& a, const Operand& b);
Tensor operator>=(const Operand& a, const Operand& b);

/// Elementwise maximum and minimum; NaN if either operand is. Equal operands share the derivative.
Tensor maximum(const Operand& a, const Operand& b);
Tensor minimum(const Operand& a, const Operand& b);
/// a^b for f32 and f16.
Tensor pow(const Operand& a, const Operand& b);
/// The angle of the point (b, a), f32 or f16.
Tensor atan2(const Operand& a, const Operand& b);
/// C's remainder: a - b * trunc(a / b). Integers by 0 give 0.
Tensor fmod(const Operand& a, const Operand& b);
/// Quotient rounded toward 0, or toward -infinity. Integers by 0 give 0, and -2^31 by -1 wraps to
/// -2^31.
Tensor trunc_divide(const Operand& a, const Operand& b);
Tensor floor_divide(const Operand& a, const Operand& b);
/// NumPy's remainder: a - b * floor(a / b), with the sign of b.
Tensor remainder(const Operand& a, const Operand& b);
/// min(max(x, low), high).
Tensor clamp(const Tensor& x, const Operand& low, const Operand& high);
/// a where the bool condition holds, else b; all three broadcast.
Tensor where(const Tensor& condition, const Operand& a, const Operand& b);

// ---- elementwise functions (f32 and f16 unless said otherwise) -----------------------------------

Tensor abs(const Tensor& x, Site site = Site::current());   ///< |x|; floats or i32
Tensor sign(const Tensor& x, Site site = Site::current());  ///< -1, 0, 1; floats or i32
Tensor exp(const Tensor& x, Site site = Site::current());
Tensor expm1(const Tensor& x, Site site = Site::current());  ///< e^x - 1, accurate near 0
Tensor log(const Tensor& x, Site site = Site::current());
Tensor log1p(const Tensor& x, Site site = Site::current());  ///< log(1 + x), accurate near 0
Tensor exp2(const Tensor& x, Site site = Site::current());   ///< 2^x
Tensor log2(const Tensor& x, Site site = Site::current());
Tensor log10(const Tensor& x, Site site = Site::current());
Tensor sqrt(const Tensor& x, Site site = Site::current());
Tensor cbrt(const Tensor& x, Site site = Site::current());  ///< cube root, of negative numbers too
Tensor rsqrt(const Tensor& x, Site site = Site::current());
Tensor reciprocal(const Tensor& x, Site site = Site::current());
Tensor square(const Tensor& x, Site site = Site::current());
/// sin, cos and tan are accurate to a few ULP for |x| < 2^51; beyond, where neighbouring f32 are
/// millions of turns apart, the result is some value in the function's range.
Tensor sin(const Tensor& x, Site site = Site::current());
Tensor cos(const Tensor& x, Site site = Site::current());
Tensor tan(const Tensor& x, Site site = Site::current());
Tensor asin(const Tensor& x, Site site = Site::current());
Tensor acos(const Tensor& x, Site site = Site::current());
Tensor atan(const Tensor& x, Site site = Site::current());
Tensor sinh(const Tensor& x, Site site = Site::current());
Tensor cosh(const Tensor& x, Site site = Site::current());
Tensor tanh(const Tensor& x, Site site = Site::current());
Tensor asinh(const Tensor& x, Site site = Site::current());
Tensor acosh(const Tensor& x, Site site = Site::current());
Tensor atanh(const Tensor& x, Site site = Site::current());
Tensor sigmoid(const Tensor& x, Site site = Site::current());  ///< 1 / (1 + e^-x)
Tensor erf(const Tensor& x, Site site = Site::current());
Tensor erfc(const Tensor& x, Site site = Site::current());
Tensor floor(const Tensor& x, Site site = Site::current());
Tensor ceil(const Tensor& x, Site site = Site::current());
Tensor round(const Tensor& x, Site site = Site::current());  ///< ties to even
Tensor trunc(const Tensor& x, Site site = Site::current());  ///< toward 0
Tensor isnan(const Tensor& x, Site site = Site::current());
Tensor isinf(const Tensor& x, Site site = Site::current());
Tensor isfinite(const Tensor& x, Site site = Site::current());

/// Another dtype. Float to integer truncates and saturates, NaN gives 0; integers wrap; to bool is
/// x != 0.
Tensor cast(const Tensor& x, DType dtype, Site site = Site::current());
/// The same bits as another 32-bit dtype.
Tensor bitcast(const Tensor& x, DType dtype, Site site = Site::current());

// ---- reductions ----------------------------------------------------------------------------------

/// Which axes to reduce (negative ones count from the end; none given means all) and whether the
/// reduced dimensions stay with extent 1.
struct Reduce {
  std::optional<std::vector<int>> axes = {};
  bool keepdims = false;
  Reduce() = default;
  // NOLINTBEGIN(google-explicit-constructor): sum(x, -1) and sum(x, {0, 1}) read as in NumPy
  Reduce(int axis, bool keep = false) : axes(std::vector<int>{axis}), keepdims(keep) {}
  Reduce(std::initializer_list<int> list, bool keep = false)
      : axes(std::vector<int>(list)), keepdims(keep) {}
  Reduce(std::vector<int> list, bool keep = false) : axes(std::move(list)), keepdims(keep) {}
  // NOLINTEND(google-explicit-constructor)
};

Tensor sum(const Tensor& x, const Reduce& over = {}, Site site = Site::current());
Tensor prod(const Tensor& x, const Reduce& over = {}, Site site = Site::current());
/// Largest (smallest) element, NaN if any is. Throws ShapeError where there is none.
Tensor max(const Tensor& x, const Reduce& over = {}, Site site = Site::current());
Tensor min(const Tensor& x, const Reduce& over = {}, Site site = Site::current());
/// Arithmetic mean, f16 of f16, else f32. Of no elements: NaN.
Tensor mean(const Tensor& x, const Reduce& over = {}, Site site = Site::current());
/// Mean squared distance from the mean, divided by n - ddof.
Tensor var(const Tensor& x, const Reduce& over = {}, int ddof = 0, Site site = Site::current());
/// Position (i32) of the first largest (smallest) element in row-major order over the axes.
Tensor argmax(const Tensor& x, const Reduce& over = {}, Site site = Site::current());
Tensor argmin(const Tensor& x, const Reduce& over = {}, Site site = Site::current());
/// Whether any (all) elements of a bool tensor are true.
Tensor any(const Tensor& x, const Reduce& over = {}, Site site = Site::current());
Tensor all(const Tensor& x, const Reduce& over = {}, Site site = Site::current());
/// log(sum(exp(x))), safe from overflow.
Tensor logsumexp(const Tensor& x, const Reduce& over = {}, Site site = Site::current());

// ---- running combinations and order --------------------------------------------------------------

/// How a running combination goes along its axis.
struct Cumulative {
  bool reverse = false;    ///< from the end of the axis to its front
  bool exclusive = false;  ///< each element stands for those before it; the first is 0 (or 1)
};
/// Running sum and product along `axis`. bool counts as i32.
Tensor cumsum(const Tensor& x, int axis, Cumulative how = {}, Site site = Site::current());
Tensor cumprod(const Tensor& x, int axis, Cumulative how = {}, Site site = Site::current());
/// Largest (smallest) element so far along `axis`; NaN from the first NaN on.
Tensor cummax(const Tensor& x, int axis, bool reverse = false, Site site = Site::current());
Tensor cummin(const Tensor& x, int axis, bool reverse = false, Site site = Site::current());
/// Position (i32) along `axis` of the first largest (smallest) element so far.
Tensor cumargmax(const Tensor& x, int axis, bool reverse = false, Site site = Site::current());
Tensor cumargmin(const Tensor& x, int axis, bool reverse = false, Site site = Site::current());

/// The elements along `axis` in ascending order, or with `descending` the largest first. Equal
/// elements keep their order; NaN counts as the largest value, so it comes last (first).
Tensor sort(const Tensor& x, int axis = -1, bool descending = false, Site site = Site::current());
/// The positions (i32) along `axis` that the elements of `sort` come from.
Tensor argsort(const Tensor& x, int axis = -1, bool descending = false,
               Site site = Site::current());

// ---- shape ---------------------------------------------------------------------------------------

/// The same elements under another shape; one extent may be -1 and is inferred.
Tensor reshape(const Tensor& x, const Shape& shape, Site site = Site::current());
/// Joins dimensions first..last into one (all of them by default).
Tensor flatten(const Tensor& x, int first = 0, int last = -1, Site site = Site::current());
/// Swaps the last two dimensions.
Tensor transpose(const Tensor& x, Site site = Site::current());
/// Output dimension i is dimension axes[i].
Tensor permute(const Tensor& x, std::vector<int> axes, Site site = Site::current());
Tensor swap_axes(const Tensor& x, int a, int b, Site site = Site::current());
/// Repeats to `shape` by NumPy's rules.
Tensor broadcast_to(const Tensor& x, const Shape& shape, Site site = Site::current());
/// Inserts a dimension of extent 1; removes one.
Tensor unsqueeze(const Tensor& x, int axis, Site site = Site::current());
Tensor squeeze(const Tensor& x, int axis, Site site = Site::current());
/// Elements start, start + step, … below stop along one axis; negative bounds count from the end,
/// and bounds beyond it are cut, as in Python.
struct Range {
  std::int64_t start = 0;
  std::optional<std::int64_t> stop = {};
  std::int64_t step = 1;
};
Tensor slice(const Tensor& x, int axis, Range range, Site site = Site::current());
/// `length` elements from `start` along `axis`.
Tensor narrow(const Tensor& x, int axis, std::int64_t start, std::int64_t length,
              Site site = Site::current());
/// Element `index` along `axis`; the dimension goes away.
Tensor take(const Tensor& x, int axis, std::int64_t index, Site site = Site::current());
/// `value` around the tensor: {low, high} for each dimension.
Tensor pad(const Tensor& x, const std::vector<std::pair<std::int64_t, std::int64_t>>& widths,
           double value = 0, Site site = Site::current());
Tensor flip(const Tensor& x, std::vector<int> axes, Site site = Site::current());
/// Rolls the elements along `axis` by `shift` places toward its end; those that leave come in at
/// the other side.
Tensor roll(const Tensor& x, std::int64_t shift, int axis, Site site = Site::current());
/// Every element along `axis` `count` times in a row.
Tensor repeat(const Tensor& x, std::int64_t count, int axis, Site site = Site::current());
/// The whole tensor counts[i] times along dimension i, one count a dimension.
Tensor tile(const Tensor& x, const std::vector<std::int64_t>& counts, Site site = Site::current());
/// The last two dimensions with zeros above (below) diagonal `diagonal`.
Tensor tril(const Tensor& x, int diagonal = 0, Site site = Site::current());
Tensor triu(const Tensor& x, int diagonal = 0, Site site = Site::current());
/// Joins along an axis; stacks along a new one.
Tensor concat(const std::vector<Tensor>& parts, int axis = 0, Site site = Site::current());
Tensor stack(const std::vector<Tensor>& parts, int axis = 0, Site site = Site::current());
/// Parts of the given extents along `axis`, or `parts` equal ones.
std::vector<Tensor> split(const Tensor& x, const std::vector<std::int64_t>& sizes, int axis = 0,
                          Site site = Site::current());
std::vector<Tensor> split_equal(const Tensor& x, std::int64_t parts, int axis = 0,
                                Site site = Site::current());

// ---- products ------------------------------------------------------------------------------------

/// Matrix product over the last two dimensions, leading ones broadcast; vectors as in NumPy.
Tensor matmul(const Tensor& a, const Tensor& b, Site site = Site::current());
/// The general contraction: pairs of dimensions that are kept in step (batch) or summed over. The
/// result has the batch dimensions, then the rest of `a`, then the rest of `b`.
struct DotDims {
  std::vector<int> a_contract, b_contract, a_batch = {}, b_batch = {};
};
Tensor dot_general(const Tensor& a, const Tensor& b, const DotDims& dims,
                   Site site = Site::current());

/// Convolution (cross-correlation, as in PyTorch) of x [N, C, spatial...] with w [O, C / groups,
/// kernel...], any number of spatial dimensions; each option has one entry a spatial dimension, or
/// one for all.
struct ConvOptions {
  std::vector<std::int64_t> stride = {1}, padding = {0}, dilation = {1};
  std::int64_t groups = 1;
};
Tensor conv(const Tensor& x, const Tensor& w, const ConvOptions& options = {},
            Site site = Site::current());
/// Transposed convolution of x [N, C, spatial...] with w [C, O / groups, kernel...], as in PyTorch:
/// the gradient of `conv` by its input. The output has (n - 1) * stride - 2 * padding + dilation *
/// (kernel - 1) + 1 + output_padding elements in each spatial dimension; output_padding is smaller
/// than stride.
Tensor conv_transpose(const Tensor& x, const Tensor& w, const ConvOptions& options = {},
                      const std::vector<std::int64_t>& output_padding = {0},
                      Site site = Site::current());

// ---- indices -------------------------------------------------------------------------------------

/// Slices of x along `axis` at the given i32 positions: the indices' shape replaces the dimension.
/// A position out of range reads NaN (floats) or 0.
Tensor gather(const Tensor& x, const Tensor& indices, int axis = 0, Site site = Site::current());
/// Element indices[a..., i, b...] along `axis` of x[a..., :, b...], for each element of `indices`,
/// whose shape is that of x but along `axis`: what argsort and argmax point to. A position out of
/// range reads NaN (floats) or 0.
Tensor take_along_axis(const Tensor& x, const Tensor& indices, int axis,
                       Site site = Site::current());
/// Zeros of extent `size` along `axis`, with every slice of `updates` added at its position:
/// the transpose of gather, always in the same order. Positions out of range are dropped.
Tensor scatter_add(const Tensor& indices, const Tensor& updates, std::int64_t size, int axis = 0,
                   Site site = Site::current());
/// f32 1 where the class index equals the position along a new last dimension of extent `classes`.
Tensor one_hot(const Tensor& indices, std::int64_t classes, Site site = Site::current());

// ---- marks ---------------------------------------------------------------------------------------

/// Returns `x`, and makes it readable by name from the result of a compiled program.
Tensor capture(std::string_view name, const Tensor& x, Site site = Site::current());
/// Returns `x` with a zero derivative.
Tensor stop_gradient(const Tensor& x, Site site = Site::current());

}  // namespace tensorgrad
