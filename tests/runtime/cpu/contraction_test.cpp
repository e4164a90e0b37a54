// Matrix products and convolutions of the CPU backend against plain loops.
#include "runtime/cpu/contraction.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "random_values.h"
#include "runtime/cpu/memory.h"

namespace tensorgrad::cpu {
namespace {

using kernel::Access;
using kernel::Conv;
using kernel::Matmul;

/// Elements from offset 0 that an access reaches.
std::size_t reach(const Access& access, const std::vector<std::int64_t>& extents) {
  std::int64_t last = access.offset;
  for (std::size_t i = 0; i < extents.size(); ++i) last += (extents[i] - 1) * access.strides[i];
  return static_cast<std::size_t>(last) + 1;
}

kernel::Kernel kernel_of(const kernel::Contraction& contraction) {
  kernel::Kernel kernel;
  kernel.name = "contraction";
  kernel.args.assign(3, {});
  kernel.contraction = contraction;
  return kernel;
}

std::string run(const kernel::Kernel& kernel, const std::vector<void*>& args) {
  const auto runner = make_contraction(kernel, 1);
  const Memory scratch(runner->scratch_bytes(), "scratch");
  runner->run(args.data(), scratch.data());
  return runner->description();
}

using Extents = std::vector<std::int64_t>;

Extents join(std::initializer_list<Extents> lists) {
  Extents result;
  for (const Extents& list : lists) result.insert(result.end(), list.begin(), list.end());
  return result;
}

/// Calls f(point) for every point of the extents.
template <class F>
void for_each_point(const Extents& extents, F f) {
  std::int64_t count = 1;
  for (const std::int64_t extent : extents) count *= extent;
  for (std::int64_t i = 0; i < count; ++i) {
    Extents point(extents.size());
    std::int64_t rest = i;
    for (std::size_t axis = extents.size(); axis-- > 0; rest /= extents[axis]) {
      point[axis] = rest % extents[axis];
    }
    f(point);
  }
}

std::size_t place(const Access& access, const Extents& point) {
  std::int64_t result = access.offset;
  for (std::size_t i = 0; i < point.size(); ++i) result += point[i] * access.strides[i];
  return static_cast<std::size_t>(result);
}

void check_matmul(Matmul matmul, const std::string& label) {
  matmul.lhs.buffer = 0;
  matmul.rhs.buffer = 1;
  matmul.out.buffer = 2;
  auto a = random_values(reach(matmul.lhs, join({matmul.batch, {matmul.m}, matmul.k})), 1);
  auto b = random_values(reach(matmul.rhs, join({matmul.batch, matmul.k, {matmul.n}})), 2);
  std::vector<float> c(reach(matmul.out, join({matmul.batch, {matmul.m, matmul.n}})) + 3, 77.0F);
  const std::string implementation = run(kernel_of(matmul), {a.data(), b.data(), c.data()});
  EXPECT_EQ(implementation.find("ref"), std::string::npos) << label << ": " << implementation;
  std::vector<bool> written(c.size(), false);
  for_each_point(join({matmul.batch, {matmul.m, matmul.n}}), [&](const Extents& at) {
    const std::int64_t n = at.back();
    const Extents row(at.begin(), at.end() - 1);
    const Extents batch(row.begin(), row.end() - 1);
    double want = 0;
    for_each_point(matmul.k, [&](const Extents& k) {
      want += static_cast<double>(a[place(matmul.lhs, join({row, k}))]) *
              static_cast<double>(b[place(matmul.rhs, join({batch, k, {n}}))]);
    });
    written[place(matmul.out, at)] = true;
    ASSERT_NEAR(c[place(matmul.out, at)], want, 1e-5 * static_cast<double>(matmul.depth() + 10))
        << label << " at " << testing::PrintToString(at);
  });
  for (std::size_t i = 0; i < c.size(); ++i) {
    ASSERT_TRUE(written[i] || c[i] == 77.0F) << label << " writes outside of its result";
  }
}

struct MatmulCase {
  const char* label;
  Matmul matmul;
};

TEST(Contraction, MatmulReadsAnyDenseOperand) {
  const MatmulCase cases[] = {
      {"plain", {{}, 17, 33, {29}, {0, 0, {29, 1}}, {0, 0, {33, 1}}, {0, 0, {33, 1}}}},
      {"lhs transposed", {{}, 17, 33, {29}, {0, 0, {1, 17}}, {0, 0, {33, 1}}, {0, 0, {33, 1}}}},
      {"rhs transposed", {{}, 17, 33, {29}, {0, 0, {29, 1}}, {0, 0, {1, 29}}, {0, 0, {33, 1}}}},
      {"both transposed", {{}, 17, 33, {29}, {0, 0, {1, 17}}, {0, 0, {1, 29}}, {0, 0, {33, 1}}}},
      {"out transposed", {{}, 17, 33, {29}, {0, 0, {29, 1}}, {0, 0, {33, 1}}, {0, 0, {1, 17}}}},
      {"offsets, wide rows", {{}, 8, 16, {24}, {0, 5, {40, 1}}, {0, 7, {20, 1}}, {0, 3, {50, 1}}}},
      {"batched",
       {{6}, 16, 24, {8}, {0, 0, {128, 8, 1}}, {0, 0, {192, 24, 1}}, {0, 0, {384, 24, 1}}}},
      {"batched, rhs transposed",
       {{6}, 16, 24, {8}, {0, 0, {128, 8, 1}}, {0, 0, {192, 1, 8}}, {0, 0, {384, 24, 1}}}},
      {"rhs repeated",
       {{6}, 16, 24, {8}, {0, 0, {128, 8, 1}}, {0, 0, {0, 24, 1}}, {0, 0, {384, 24, 1}}}},
      {"rhs repeated, lhs spread",
       {{6}, 16, 24, {8}, {0, 0, {200, 8, 1}}, {0, 0, {0, 24, 1}}, {0, 0, {384, 24, 1}}}},
      {"lhs repeated",
       {{3}, 16, 24, {8}, {0, 0, {0, 8, 1}}, {0, 0, {192, 24, 1}}, {0, 0, {384, 24, 1}}}},
      {"lhs repeated, out transposed",
       {{3}, 16, 24, {8}, {0, 0, {0, 8, 1}}, {0, 0, {192, 24, 1}}, {0, 0, {384, 1, 16}}}},
      {"heads are slices of rows",
       {{4}, 16, 16, {8}, {0, 0, {8, 32, 1}}, {0, 0, {8, 1, 32}}, {0, 0, {256, 16, 1}}}},
      {"result in slices of rows",
       {{4}, 16, 8, {16}, {0, 0, {256, 16, 1}}, {0, 0, {8, 32, 1}}, {0, 0, {8, 32, 1}}}},
      {"outer product", {{}, 64, 32, {1}, {0, 0, {1, 1}}, {0, 0, {32, 1}}, {0, 0, {32, 1}}}},
      {"matrix times vector", {{}, 64, 1, {32}, {0, 0, {32, 1}}, {0, 0, {1, 1}}, {0, 0, {1, 1}}}},
      {"row times matrix", {{}, 1, 64, {32}, {0, 0, {32, 1}}, {0, 0, {64, 1}}, {0, 0, {64, 1}}}},
      {"column of a matrix times matrix",
       {{}, 1, 64, {32}, {0, 2, {9, 40}}, {0, 0, {64, 1}}, {0, 0, {64, 1}}}},
      {"one element", {{}, 1, 1, {1}, {0, 0, {9, 9}}, {0, 0, {9, 9}}, {0, 0, {9, 9}}}},
      {"free strides", {{}, 4, 1, {5}, {0, 0, {5, 1}}, {0, 0, {3, 999}}, {0, 0, {2, 999}}}},
      {"heads of a batch of rows",
       {{3, 4},
        16,
        16,
        {8},
        {0, 0, {512, 8, 32, 1}},
        {0, 0, {512, 8, 1, 32}},
        {0, 0, {1024, 256, 16, 1}}}},
      {"results merged into rows",
       {{3, 4},
        16,
        8,
        {16},
        {0, 0, {1024, 256, 16, 1}},
        {0, 0, {512, 8, 32, 1}},
        {0, 0, {512, 8, 32, 1}}}},
      {"one of two batch dimensions repeats",
       {{3, 4},
        16,
        8,
        {16},
        {0, 0, {0, 256, 16, 1}},
        {0, 0, {128, 0, 8, 1}},
        {0, 0, {512, 128, 8, 1}}}},
      {"three products on one operand",
       {{3}, 256, 64, {64}, {0, 0, {0, 64, 1}}, {0, 0, {5000, 64, 1}}, {0, 0, {16384, 64, 1}}}},
      {"a sum of three products",
       {{}, 33, 17, {3, 29}, {0, 0, {29, 2000, 1}}, {0, 0, {600, 1, 29}}, {0, 0, {17, 1}}}},
      {"a sum of three products in a batch, out transposed",
       {{5},
        33,
        17,
        {3, 29},
        {0, 0, {7000, 29, 2000, 1}},
        {0, 0, {0, 600, 17, 1}},
        {0, 0, {561, 1, 33}}}},
      {"two segments of k",
       {{}, 9, 17, {2, 3, 8}, {0, 0, {48, 24, 8, 1}}, {0, 0, {17, 300, 40, 1}}, {0, 0, {17, 1}}}},
      {"nothing to sum over", {{}, 9, 17, {}, {0, 0, {1}}, {0, 0, {1}}, {0, 0, {17, 1}}}},
      {"W2 head", {{}, 256, 65, {128}, {0, 0, {128, 1}}, {0, 0, {1, 128}}, {0, 0, {65, 1}}}},
  };
  for (const MatmulCase& item : cases) check_matmul(item.matmul, item.label);
}

TEST(Contraction, ProductOverNothingIsZero) {
  std::vector<float> c(12, 5.0F);
  Matmul matmul{{}, 3, 4, {0}, {0, 0, {1, 1}}, {1, 0, {4, 1}}, {2, 0, {4, 1}}};
  run(kernel_of(matmul), {nullptr, nullptr, c.data()});
  for (const float value : c) EXPECT_EQ(value, 0.0F);
}

/// Visits all terms of a convolution: f(y index, x index, w index).
template <class F>
void for_each_term(const Conv& conv, F visit) {
  const std::size_t rank = conv.kernel.size();
  const auto count = [](const std::vector<std::int64_t>& extents) {
    std::int64_t n = 1;
    for (const auto extent : extents) n *= extent;
    return n;
  };
  const auto outputs = count(conv.output);
  const auto inputs = count(conv.input);
  const auto taps = count(conv.kernel);
  for (std::int64_t n = 0; n < conv.batch; ++n) {
    for (std::int64_t g = 0; g < conv.groups; ++g) {
      for (std::int64_t o = 0; o < conv.out_channels; ++o) {
        for (std::int64_t i = 0; i < conv.in_channels; ++i) {
          for (std::int64_t p = 0; p < outputs; ++p) {
            for (std::int64_t t = 0; t < taps; ++t) {
              std::int64_t rest_p = p;
              std::int64_t rest_t = t;
              std::int64_t x = 0;
              std::int64_t scale = 1;
              bool inside = true;
              for (std::size_t axis = rank; axis-- > 0;) {
                const auto place = rest_p % conv.output[axis] * conv.stride[axis] +
                                   rest_t % conv.kernel[axis] * conv.dilation[axis] -
                                   conv.pad_low[axis];
                rest_p /= conv.output[axis];
                rest_t /= conv.kernel[axis];
                inside = inside && place >= 0 && place < conv.input[axis];
                x += place * scale;
                scale *= conv.input[axis];
              }
              if (!inside) continue;
              const auto channel_y = (n * conv.groups + g) * conv.out_channels + o;
              const auto channel_x = (n * conv.groups + g) * conv.in_channels + i;
              const auto channel_w = (g * conv.out_channels + o) * conv.in_channels + i;
              visit(static_cast<std::size_t>(channel_y * outputs + p),
                    static_cast<std::size_t>(channel_x * inputs + x),
                    static_cast<std::size_t>(channel_w * taps + t));
            }
          }
        }
      }
    }
  }
}

void check_conv(Conv conv, const std::string& label, bool fast) {
  conv.output.clear();
  std::int64_t inputs = 1;
  std::int64_t outputs = 1;
  std::int64_t taps = 1;
  for (std::size_t axis = 0; axis < conv.kernel.size(); ++axis) {
    const auto span = (conv.kernel[axis] - 1) * conv.dilation[axis] + 1;
    conv.output.push_back((conv.input[axis] + conv.pad_low[axis] + conv.pad_high[axis] - span) /
                              conv.stride[axis] +
                          1);
    inputs *= conv.input[axis];
    outputs *= conv.output[axis];
    taps *= conv.kernel[axis];
  }
  conv.x = {0, 3, {}};
  conv.w = {1, 1, {}};
  conv.y = {2, 2, {}};
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  const auto x = random_values(size(conv.batch * conv.groups * conv.in_channels * inputs + 3), 1);
  const auto w =
      random_values(size(conv.groups * conv.out_channels * conv.in_channels * taps + 1), 2);
  const auto y = random_values(size(conv.batch * conv.groups * conv.out_channels * outputs + 2), 3);
  for (const auto mode : {Conv::Mode::forward, Conv::Mode::input_grad, Conv::Mode::weight_grad}) {
    conv.mode = mode;
    std::vector<float> data[3] = {x, w, y};
    const int result = mode == Conv::Mode::forward ? 2 : mode == Conv::Mode::input_grad ? 0 : 1;
    const auto skip = static_cast<std::size_t>(result == 2 ? 2 : result == 0 ? 3 : 1);
    std::vector<double> want(data[result].size() - skip, 0.0);
    std::vector<double> magnitude(want.size(), 0.0);
    for_each_term(conv, [&](std::size_t iy, std::size_t ix, std::size_t iw) {
      const double vx = x[ix + 3];
      const double vw = w[iw + 1];
      const double vy = y[iy + 2];
      const double term = result == 2 ? vx * vw : result == 0 ? vy * vw : vy * vx;
      const std::size_t place = result == 2 ? iy : result == 0 ? ix : iw;
      want[place] += term;
      magnitude[place] += std::fabs(term);
    });
    const std::string implementation =
        run(kernel_of(conv), {data[0].data(), data[1].data(), data[2].data()});
    if (fast) {
      EXPECT_EQ(implementation.find("ref"), std::string::npos) << label << ": " << implementation;
    }
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(data[result][i + skip], want[i], 1e-6 + 3e-6 * magnitude[i])
          << label << " mode " << static_cast<int>(mode) << " at " << i << " " << implementation;
    }
  }
}

struct ConvCase {
  const char* label;
  Conv conv;
  bool fast = true;
};

Conv conv(std::int64_t batch, std::int64_t groups, std::int64_t in, std::int64_t out,
          std::vector<std::int64_t> input, std::vector<std::int64_t> taps,
          std::vector<std::int64_t> stride, std::vector<std::int64_t> low,
          std::vector<std::int64_t> high, std::vector<std::int64_t> dilation) {
  Conv result;
  result.batch = batch;
  result.groups = groups;
  result.in_channels = in;
  result.out_channels = out;
  result.input = std::move(input);
  result.kernel = std::move(taps);
  result.stride = std::move(stride);
  result.pad_low = std::move(low);
  result.pad_high = std::move(high);
  result.dilation = std::move(dilation);
  return result;
}

TEST(Contraction, ConvolutionsAndTheirGradientsEqualPlainLoops) {
  const ConvCase cases[] = {
      {"W3c first", conv(8, 1, 1, 16, {28, 28}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1})},
      {"W3c second", conv(4, 1, 16, 32, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1})},
      {"1x1", conv(2, 1, 5, 7, {6, 9}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1})},
      {"1x1 with stride", conv(2, 1, 16, 16, {9, 9}, {1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1})},
      {"stride and uneven padding",
       conv(2, 1, 3, 8, {11, 10}, {3, 4}, {2, 3}, {0, 1}, {1, 2}, {1, 1})},
      {"dilation", conv(2, 1, 4, 6, {12, 13}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2})},
      {"groups", conv(2, 3, 4, 5, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1})},
      {"groups of 16", conv(2, 2, 16, 16, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1})},
      {"depthwise", conv(2, 16, 1, 1, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1})},
      {"one axis", conv(3, 1, 4, 8, {20}, {5}, {2}, {2}, {1}, {1})},
      {"three axes",
       conv(2, 1, 3, 4, {5, 6, 7}, {2, 3, 3}, {1, 1, 2}, {0, 1, 1}, {1, 1, 1}, {1, 1, 1})},
      {"input left over by the stride",
       conv(1, 1, 2, 3, {8, 8}, {3, 3}, {2, 2}, {0, 0}, {0, 0}, {1, 1})},
  };
  for (const ConvCase& item : cases) check_conv(item.conv, item.label, item.fast);
}

TEST(Contraction, RefusesWhatTheLibraryCannotDoByName) {
  Conv four_axes = conv(1, 1, 1, 1, {3, 3, 3, 3}, {1, 1, 1, 1}, {1, 1, 1, 1}, {0, 0, 0, 0},
                        {0, 0, 0, 0}, {1, 1, 1, 1});
  four_axes.output = {3, 3, 3, 3};
  try {
    make_contraction(kernel_of(four_axes), 1);
    FAIL() << "a convolution over four axes was accepted";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("\"contraction\" has 4 spatial dimensions, and the cpu device convolves "
                        "over at most 3"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tensorgrad::cpu
