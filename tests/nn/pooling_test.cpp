#include <cmath>
#include <limits>

#include "nn/evaluate.h"
#include "tensorgrad/nn.h"

namespace tensorgrad {
namespace {

using testing::check_function;
using testing::Doubles;
using testing::evaluate;
using testing::expect_near;
using testing::input;
using testing::message_of;
using testing::scattered;

struct Case {
  Shape shape;
  Size2 kernel;
  PoolOptions options = {};
};
std::vector<Case> cases() {
  return {{{2, 2, 4, 6}, 2},
          {{1, 2, 4, 6}, {2, 3}},
          {{1, 1, 5, 7}, 2},
          {{1, 2, 5, 5}, 3, {.stride = 1}},
          {{2, 1, 6, 7}, {3, 2}, {.stride = Size2(2, 3)}},
          {{1, 1, 5, 6}, {3, 2}, {.stride = 2, .padding = 1}},
          {{1, 2, 4, 4}, 3, {.padding = {1, 0}}},
          {{1, 1, 3, 3}, 1},
          {{2, 1, 3, 4}, {3, 4}},
          {{0, 2, 4, 4}, 2}};
}

/// Pools by loops: `fold` of the elements of each window; those of the padding are `border`.
template <class Fold>
std::pair<Shape, Doubles> by_loops(const Case& c, const Doubles& x, double border, Fold fold) {
  const Size2 stride = c.options.stride.value_or(c.kernel);
  const Size2 padding = c.options.padding;
  const auto [n, channels, height, width] =
      std::tuple(c.shape[0], c.shape[1], c.shape[2], c.shape[3]);
  const std::int64_t rows = (height + 2 * padding.h - c.kernel.h) / stride.h + 1;
  const std::int64_t columns = (width + 2 * padding.w - c.kernel.w) / stride.w + 1;
  Doubles out;
  for (std::int64_t plane = 0; plane < n * channels; ++plane) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t q = 0; q < columns; ++q) {
        Doubles window;
        for (std::int64_t i = 0; i < c.kernel.h; ++i) {
          for (std::int64_t j = 0; j < c.kernel.w; ++j) {
            const std::int64_t row = r * stride.h + i - padding.h;
            const std::int64_t column = q * stride.w + j - padding.w;
            const bool inside = row >= 0 && row < height && column >= 0 && column < width;
            window.push_back(
                inside ? x[static_cast<std::size_t>((plane * height + row) * width + column)]
                       : border);
          }
        }
        out.push_back(fold(window));
      }
    }
  }
  return {{n, channels, rows, columns}, out};
}

TEST(Pooling, MaximumOfWindows) {
  for (const Case& c : cases()) {
    const Doubles x = scattered(numel(c.shape));
    const auto [shape, expected] = by_loops(
        c, x, -std::numeric_limits<double>::infinity(),
        [](const Doubles& window) { return *std::max_element(window.begin(), window.end()); });
    const Tensor y = max_pool2d(input("x", c.shape), c.kernel, c.options);
    EXPECT_EQ(y.shape(), shape);
    EXPECT_EQ(evaluate(y, {.inputs = {{"x", x}}}), expected) << to_string(c.shape);
  }
}

TEST(Pooling, MeanOfWindows) {
  for (const Case& c : cases()) {
    const Doubles x = scattered(numel(c.shape));
    const auto [shape, expected] = by_loops(c, x, 0, [](const Doubles& window) {
      double total = 0;
      for (double v : window) total += v;
      return total / static_cast<double>(window.size());
    });
    const Tensor y = avg_pool2d(input("x", c.shape), c.kernel, c.options);
    EXPECT_EQ(y.shape(), shape);
    expect_near(evaluate(y, {.inputs = {{"x", x}}}), expected, 1e-12);
  }
}

TEST(Pooling, Gradients) {
  for (const Case& c : cases()) {
    check_function([&](const Tensor& x) { return max_pool2d(x, c.kernel, c.options); }, c.shape);
    check_function([&](const Tensor& x) { return avg_pool2d(x, c.kernel, c.options); }, c.shape);
  }
}

Doubles max_pool_gradient(const Doubles& values, const Shape& shape, Size2 kernel,
                          const PoolOptions& options) {
  const Tensor x = input("x", shape);
  const Tensor y = sum(max_pool2d(x, kernel, options));
  const Tensor seed = full({}, 1);
  return evaluate(vjp(std::span(&y, 1), std::span(&x, 1), std::span(&seed, 1))[0],
                  {.inputs = {{"x", values}}});
}

TEST(Pooling, TheFirstOfEqualMaximaGetsTheDerivative) {
  EXPECT_EQ(max_pool_gradient({1, 3, 3, 3}, {1, 1, 2, 2}, 2, {}), (Doubles{0, 1, 0, 0}));
  EXPECT_EQ(max_pool_gradient({0, 0, 0, 0}, {1, 1, 2, 2}, 2, {}), (Doubles{1, 0, 0, 0}));
  EXPECT_EQ(max_pool_gradient({1, 2, 2, 1}, {1, 1, 1, 4}, {1, 2}, {.stride = 1}),
            (Doubles{0, 2, 1, 0}));
}

TEST(Pooling, NaNWinsTheMaximum) {
  const double nan = std::nan("");
  for (std::size_t i = 0; i < 4; ++i) {
    Doubles x{1, 2, 3, 4};
    x[i] = nan;
    for (const PoolOptions& options : {PoolOptions{}, PoolOptions{.stride = 1}}) {
      expect_near(
          evaluate(max_pool2d(input("x", {1, 1, 2, 2}), 2, options), {.inputs = {{"x", x}}}),
          {nan});
    }
  }
}

TEST(Pooling, Errors) {
  EXPECT_EQ(message_of<ShapeError>([] { max_pool2d(zeros({2, 4, 4}), 2); }),
            "max_pool2d: takes images [N, C, H, W], not shape [2, 4, 4].");
  EXPECT_EQ(message_of<ShapeError>([] { avg_pool2d(zeros({1, 1, 3, 4}), 4); }),
            "avg_pool2d: the kernel's height is 4, more than the input's 3 with padding 0.");
  EXPECT_EQ(message_of<ValueError>([] { max_pool2d(zeros({1, 1, 4, 4}), 0); }),
            "max_pool2d: the kernel's height is 0, not at least 1.");
  EXPECT_EQ(message_of<ValueError>([] { max_pool2d(zeros({1, 1, 4, 4}), 2, {.stride = 0}); }),
            "max_pool2d: the stride is 0, not at least 1.");
  EXPECT_EQ(message_of<ValueError>([] { max_pool2d(zeros({1, 1, 4, 4}), 3, {.padding = {1, 2}}); }),
            "max_pool2d: the padding of the width is 2, not between 0 and half the kernel's 3.");
}

}  // namespace
}  // namespace tensorgrad
