// Matrix products and convolutions as one canonical problem.
#include <functional>
#include <numeric>
#include <type_traits>
#include <utility>

#include "codegen/wgsl/contract.h"

namespace tensorgrad::wgsl {
namespace {

using kernel::Conv;
using kernel::Matmul;

std::int64_t product(const Extents& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

/// Row-major strides, times `unit`.
Extents dense(const Extents& extents) {
  Extents strides(extents.size(), 1);
  for (std::size_t i = extents.size(); i-- > 1;) strides[i - 1] = strides[i] * extents[i];
  return strides;
}

Extents slice(const Extents& from, std::size_t begin, std::size_t count) {
  const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

Extents join(std::int64_t first, const Extents& rest) {
  Extents all{first};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

/// Whether the last dimension of an axis is contiguous.
bool is_contiguous(const Extents& extents, const Extents& strides) {
  for (std::size_t i = extents.size(); i-- > 0;) {
    if (extents[i] != 1) return strides[i] == 1;
  }
  return false;
}

/// Turns windows that no position leaves into plain strides.
void fold_windows(Operand& operand, const Extents& outer, const Extents& depth) {
  std::vector<Window> kept;
  for (const Window& window : operand.windows) {
    std::int64_t lo = window.low;
    std::int64_t hi = window.low;
    const auto extend = [&](const Extents& extents, const Extents& factors) {
      for (std::size_t i = 0; i < extents.size(); ++i) {
        (factors[i] < 0 ? lo : hi) += factors[i] * (extents[i] - 1);
      }
    };
    extend(outer, window.outer);
    extend(depth, window.depth);
    if (window.divisor != 1 || lo < 0 || hi >= window.extent) {
      kept.push_back(window);
      continue;
    }
    operand.offset += window.low * window.stride;
    for (std::size_t i = 0; i < outer.size(); ++i) {
      operand.outer[i] += window.outer[i] * window.stride;
    }
    for (std::size_t i = 0; i < depth.size(); ++i) {
      operand.depth[i] += window.depth[i] * window.stride;
    }
  }
  operand.windows = std::move(kept);
}

/// One window for each spatial dimension d, whose digits are dimension d + 1 of both axes.
struct WindowForm {
  Extents low, outer, depth, divisor, extents;
};
std::vector<Window> make_windows(const WindowForm& form) {
  const std::size_t rank = form.extents.size();
  const Extents strides = dense(form.extents);
  std::vector<Window> windows(rank);
  for (std::size_t d = 0; d < rank; ++d) {
    Window& window = windows[d];
    window.low = form.low[d];
    window.outer.assign(rank + 1, 0);
    window.outer[d + 1] = form.outer[d];
    window.depth.assign(rank + 1, 0);
    window.depth[d + 1] = form.depth[d];
    window.divisor = form.divisor[d];
    window.extent = form.extents[d];
    window.stride = strides[d];
  }
  return windows;
}

/// One extent or several, as a list.
template <class T>
Extents list_of(const T& extents) {
  if constexpr (std::is_arithmetic_v<T>) {
    return {extents};
  } else {
    return extents;
  }
}

Extents negated(Extents values) {
  for (auto& value : values) value = -value;
  return values;
}

}  // namespace

std::int64_t Problem::batches() const { return product(batch); }
std::int64_t Problem::rows() const { return product(m); }
std::int64_t Problem::columns() const { return product(n); }
std::int64_t Problem::depth() const { return product(k); }

Problem problem_of(const Matmul& matmul) {
  Problem p;
  p.batch = list_of(matmul.batch);
  p.k = list_of(matmul.k);
  const std::size_t nb = p.batch.size();
  const std::size_t nk = p.k.size();
  p.m = {matmul.m};
  p.n = {matmul.n};
  const auto& l = matmul.lhs;
  const auto& r = matmul.rhs;
  const auto& o = matmul.out;
  p.lhs = {
      l.buffer, l.offset, slice(l.strides, 0, nb), {l.strides[nb]}, slice(l.strides, nb + 1, nk),
      {}};
  p.rhs = {
      r.buffer, r.offset, slice(r.strides, 0, nb), {r.strides[nb + nk]}, slice(r.strides, nb, nk),
      {}};
  p.out = {o.buffer, o.offset, slice(o.strides, 0, nb), {o.strides[nb]}, {o.strides[nb + 1]}};
  if (!is_contiguous(p.n, p.out.n) && is_contiguous(p.m, p.out.m)) {
    std::swap(p.m, p.n);
    std::swap(p.lhs, p.rhs);
    std::swap(p.out.m, p.out.n);
  }
  return p;
}

Problem problem_of(const Conv& conv) {
  using Mode = Conv::Mode;
  const std::size_t rank = conv.input.size();
  const std::int64_t in_points = product(conv.input);
  const std::int64_t out_points = product(conv.output);
  const std::int64_t taps = product(conv.kernel);
  const std::int64_t in = conv.in_channels;
  const std::int64_t out = conv.out_channels;
  const Extents none(rank, 0);
  const Extents ones(rank, 1);
  const Extents tap_strides = dense(conv.kernel);

  Problem p;
  p.batch = {conv.groups};
  const Extents w_batch{out * in * taps};
  const Extents x_batch{in * in_points};
  const Extents y_batch{out * out_points};
  const std::int64_t x_image = conv.groups * in * in_points;
  const std::int64_t y_image = conv.groups * out * out_points;
  switch (conv.mode) {
    case Mode::forward:
      p.m = {out};
      p.n = join(conv.batch, conv.output);
      p.k = join(in, conv.kernel);
      p.lhs = {conv.w.buffer, conv.w.offset, w_batch, {in * taps}, join(taps, tap_strides), {}};
      p.rhs = {conv.x.buffer,
               conv.x.offset,
               x_batch,
               join(x_image, none),
               join(in_points, none),
               make_windows({negated(conv.pad_low), conv.stride, conv.dilation, ones, conv.input})};
      p.out = {
          conv.y.buffer, conv.y.offset, y_batch, {out_points}, join(y_image, dense(conv.output))};
      break;
    case Mode::input_grad:
      p.m = {in};
      p.n = join(conv.batch, conv.input);
      p.k = join(out, conv.kernel);
      p.lhs = {conv.w.buffer, conv.w.offset, w_batch, {taps}, join(in * taps, tap_strides), {}};
      p.rhs = {
          conv.y.buffer,
          conv.y.offset,
          y_batch,
          join(y_image, none),
          join(out_points, none),
          make_windows({conv.pad_low, ones, negated(conv.dilation), conv.stride, conv.output})};
      p.out = {
          conv.x.buffer, conv.x.offset, x_batch, {in_points}, join(x_image, dense(conv.input))};
      break;
    case Mode::weight_grad:
      p.m = {out};
      p.n = join(in, conv.kernel);
      p.k = join(conv.batch, conv.output);
      p.lhs = {conv.y.buffer,
               conv.y.offset,
               y_batch,
               {out_points},
               join(y_image, dense(conv.output)),
               {}};
      p.rhs = {conv.x.buffer,
               conv.x.offset,
               x_batch,
               join(in_points, none),
               join(x_image, none),
               make_windows({negated(conv.pad_low), conv.dilation, conv.stride, ones, conv.input})};
      p.out = {conv.w.buffer, conv.w.offset, w_batch, {in * taps}, join(taps, tap_strides)};
      break;
  }
  fold_windows(p.rhs, p.n, p.k);
  return p;
}

}  // namespace tensorgrad::wgsl
