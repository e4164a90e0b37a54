// Convolutions and their gradients through oneDNN.
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "runtime/cpu/blocked.h"

namespace tensorgrad::cpu {
namespace {

using dnnl::memory;
using kernel::Access;
using kernel::Conv;

constexpr auto f32 = memory::data_type::f32;

/// Dense row-major strides.
memory::dims dense(const memory::dims& extents) {
  memory::dims strides(extents.size(), 1);
  for (std::size_t i = extents.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * extents[i];
  return strides;
}

struct ConvShapes {
  memory::dims x, w, y, stride, dilation, low, high;
};

ConvShapes shapes_of(const Conv& conv) {
  ConvShapes result{{conv.batch, conv.groups * conv.in_channels},
                    {},
                    {conv.batch, conv.groups * conv.out_channels},
                    conv.stride,
                    conv.dilation,
                    conv.pad_low,
                    conv.pad_high};
  if (conv.groups > 1) {
    result.w = {conv.groups, conv.out_channels, conv.in_channels};
  } else {
    result.w = {conv.out_channels, conv.in_channels};
  }
  result.x.insert(result.x.end(), conv.input.begin(), conv.input.end());
  result.w.insert(result.w.end(), conv.kernel.begin(), conv.kernel.end());
  result.y.insert(result.y.end(), conv.output.begin(), conv.output.end());
  for (auto& dilation : result.dilation) dilation -= 1;  // oneDNN counts the skipped elements
  return result;
}

/// Whether oneDNN's own layouts beat dense ones, copies included. They do but for two cases: a 1x1
/// kernel is a matrix product as it is, and with few input channels their gradient would be padded
/// to a whole vector of channels.
bool prefers_own_layouts(const Conv& conv) {
  const auto is_one = [](std::int64_t extent) { return extent == 1; };
  const bool pointwise = std::all_of(conv.kernel.begin(), conv.kernel.end(), is_one) &&
                         std::all_of(conv.stride.begin(), conv.stride.end(), is_one);
  if (pointwise) return false;
  constexpr std::int64_t few = 8;
  const bool depthwise = conv.groups > 1 && conv.in_channels == 1 && conv.out_channels == 1;
  return depthwise || conv.mode != Conv::Mode::input_grad || conv.in_channels >= few;
}

std::unique_ptr<Primitives> build_conv(const Conv& conv, bool own_layouts, int slots) {
  const SingleThread guard;
  auto runner = std::make_unique<Primitives>(slots);
  const ConvShapes shapes = shapes_of(conv);
  const memory::desc user_x(shapes.x, f32, dense(shapes.x));
  const memory::desc user_w(shapes.w, f32, dense(shapes.w));
  const memory::desc user_y(shapes.y, f32, dense(shapes.y));
  const auto wanted = [&](const memory::desc& user, const memory::dims& extents) {
    return own_layouts ? memory::desc(extents, f32, memory::format_tag::any) : user;
  };
  const memory::desc x = wanted(user_x, shapes.x);
  const memory::desc w = wanted(user_w, shapes.w);
  const memory::desc y = wanted(user_y, shapes.y);
  const auto direct = dnnl::algorithm::convolution_direct;
  const bool forward = conv.mode == Conv::Mode::forward;
  const dnnl::convolution_forward::desc forward_desc(
      forward ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training, direct, x,
      w, y, shapes.stride, shapes.dilation, shapes.low, shapes.high);
  const dnnl::convolution_forward::primitive_desc hint(forward_desc, attributes(),
                                                       runner->engine());
  const Primitives::Id bound_x = runner->bind(conv.x, user_x);
  const Primitives::Id bound_w = runner->bind(conv.w, user_w);
  const Primitives::Id bound_y = runner->bind(conv.y, user_y);

  // Runs the primitive between the copies that its layouts ask for.
  const auto schedule = [&](const dnnl::primitive_desc_base& pd, auto primitive,
                            std::pair<int, Primitives::Id> first, const memory::desc& first_desc,
                            std::pair<int, Primitives::Id> second, const memory::desc& second_desc,
                            std::pair<int, Primitives::Id> result,
                            const memory::desc& result_desc) {
    runner->describe(pd.impl_info_str());
    const Primitives::Id a = runner->as_input(first.second, first_desc);
    const Primitives::Id b = runner->as_input(second.second, second_desc);
    const bool direct_result = runner->desc(result.second) == result_desc;
    const Primitives::Id c = direct_result ? result.second : runner->scratch(result_desc);
    runner->add(std::move(primitive),
                {{first.first, a},
                 {second.first, b},
                 {result.first, c},
                 {DNNL_ARG_SCRATCHPAD, runner->scratch(pd.scratchpad_desc())}});
    if (!direct_result) runner->add_reorder(c, result.second);
  };

  switch (conv.mode) {
    case Conv::Mode::forward:
      schedule(hint, dnnl::convolution_forward(hint), {DNNL_ARG_SRC, bound_x}, hint.src_desc(),
               {DNNL_ARG_WEIGHTS, bound_w}, hint.weights_desc(), {DNNL_ARG_DST, bound_y},
               hint.dst_desc());
      break;
    case Conv::Mode::input_grad: {
      const dnnl::convolution_backward_data::primitive_desc pd(
          dnnl::convolution_backward_data::desc(direct, x, w, y, shapes.stride, shapes.dilation,
                                                shapes.low, shapes.high),
          attributes(), runner->engine(), hint);
      schedule(pd, dnnl::convolution_backward_data(pd), {DNNL_ARG_DIFF_DST, bound_y},
               pd.diff_dst_desc(), {DNNL_ARG_WEIGHTS, bound_w}, pd.weights_desc(),
               {DNNL_ARG_DIFF_SRC, bound_x}, pd.diff_src_desc());
      break;
    }
    case Conv::Mode::weight_grad: {
      const dnnl::convolution_backward_weights::primitive_desc pd(
          dnnl::convolution_backward_weights::desc(direct, x, w, y, shapes.stride, shapes.dilation,
                                                   shapes.low, shapes.high),
          attributes(), runner->engine(), hint);
      schedule(pd, dnnl::convolution_backward_weights(pd), {DNNL_ARG_SRC, bound_x}, pd.src_desc(),
               {DNNL_ARG_DIFF_DST, bound_y}, pd.diff_dst_desc(), {DNNL_ARG_DIFF_WEIGHTS, bound_w},
               pd.diff_weights_desc());
      break;
    }
  }
  return runner;
}

std::int64_t product(const memory::dims& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

std::unique_ptr<ContractionRunner> make_convolution(const Conv& conv, int slots) {
  const ConvShapes shapes = shapes_of(conv);
  const auto empty = [](const memory::dims& extents) {
    return std::any_of(extents.begin(), extents.end(), [](std::int64_t n) { return n == 0; });
  };
  if (empty(shapes.x) || empty(shapes.w) || empty(shapes.y)) {
    const bool forward = conv.mode == Conv::Mode::forward;
    const bool to_input = conv.mode == Conv::Mode::input_grad;
    const memory::dims& extents = forward ? shapes.y : to_input ? shapes.x : shapes.w;
    Access out = forward ? conv.y : to_input ? conv.x : conv.w;
    out.strides = dense(extents);
    return make_zero(out, extents);
  }
  const bool own = prefers_own_layouts(conv);
  const auto build = [&](const Conv& part) {
    std::unique_ptr<Primitives> primitives = build_conv(part, own, slots);
    if (is_reference(primitives->description())) {
      std::unique_ptr<Primitives> other = build_conv(part, !own, slots);
      if (!is_reference(other->description())) primitives = std::move(other);
    }
    return primitives;
  };

  const std::int64_t x = product(shapes.x) / conv.batch;
  const std::int64_t y = product(shapes.y) / conv.batch;
  const bool partial = conv.mode == Conv::Mode::weight_grad;
  // Partial sums cost memory and time of their own.
  constexpr std::int64_t most_sums = 8;
  const std::int64_t flops = 2 * conv.batch * y * conv.in_channels * product(conv.kernel);
  const std::int64_t count = std::min(
      conv.batch, block_count(partial ? flops / 2 : flops, partial ? most_sums : most_blocks));
  const std::int64_t images = block_size(conv.batch, count, 1);
  auto runner = std::make_unique<BlockedContraction>(
      std::vector<int>{conv.x.buffer, conv.w.buffer, conv.y.buffer});
  if (partial && images < conv.batch) runner->sum_into(1, conv.w.offset, product(shapes.w));
  std::map<std::int64_t, std::size_t> known;
  for (std::int64_t first = 0; first < conv.batch; first += images) {
    Conv part = conv;
    part.batch = std::min(images, conv.batch - first);
    const auto [shape, added] = known.emplace(part.batch, 0);
    if (added) shape->second = runner->add_shape(build(part));
    Block block;
    if (conv.mode == Conv::Mode::forward) {
      block = {conv.y.offset + first * y, conv.y.offset + (first + part.batch) * y};
    } else if (conv.mode == Conv::Mode::input_grad) {
      block = {conv.x.offset + first * x, conv.x.offset + (first + part.batch) * x};
    }
    runner->add_block({{shape->second, {first * x, 0, first * y}}}, block);
  }
  return runner;
}

}  // namespace tensorgrad::cpu
