// Single rows where the generated tests cannot tell: known values, and what an op rejects.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/sampling.h"
#include "tensorgrad/error.h"

namespace tensorgrad::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

Tensor f32(const Shape& shape, std::vector<double> values) {
  return tensor_of({{shape, DType::f32}, std::move(values)});
}
Tensor i32(const Shape& shape, std::vector<double> values) {
  return tensor_of({{shape, DType::i32}, std::move(values)});
}
Tensor ones(const Shape& shape, DType dtype = DType::f32) { return prim::full(shape, 1, dtype); }
std::vector<double> values(const Tensor& t) { return interpret(t).data; }

template <class E, class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "no such error";
}

ConvAttr conv_options(const Shape& stride, const Shape& low, const Shape& high,
                      const Shape& dilation, std::int64_t groups = 1) {
  return {stride, low, high, dilation, groups, {}, {}};
}
const ConvAttr plain_1d = conv_options({1}, {0}, {0}, {1});

// ---- values
// --------------------------------------------------------------------------------------

TEST(DotGeneral, MatrixProduct) {
  const Tensor a = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor b = f32({3, 2}, {7, 8, 9, 10, 11, 12});
  EXPECT_THAT(values(prim::dot_general(a, b, {{}, {}, {1}, {0}})), ElementsAre(58, 64, 139, 154));
}

TEST(DotGeneral, BatchComesFirstThenLeftThenRight) {
  const Tensor y =
      prim::dot_general(ones({2, 5, 3, 4}), ones({3, 4, 2, 6}), {{0, 2}, {2, 0}, {3}, {1}});
  EXPECT_EQ(y.shape(), (Shape{2, 3, 5, 6}));
  EXPECT_THAT(values(y), ::testing::Each(4.0));
}

TEST(DotGeneral, NothingContractedIsZero) {
  EXPECT_THAT(values(prim::dot_general(ones({2, 0}), ones({0, 2}), {{}, {}, {1}, {0}})),
              ElementsAre(0, 0, 0, 0));
}

TEST(Conv, CrossCorrelation) {
  const Tensor x = f32({1, 1, 5}, {1, 2, 3, 4, 5});
  const Tensor w = f32({1, 1, 3}, {1, 10, 100});
  EXPECT_THAT(values(prim::conv(x, w, plain_1d)), ElementsAre(321, 432, 543));
  EXPECT_THAT(values(prim::conv(x, w, conv_options({2}, {2}, {0}, {1}))),
              ElementsAre(100, 321, 543));
  EXPECT_THAT(values(prim::conv(x, w, conv_options({1}, {0}, {1}, {2}))), ElementsAre(531, 42));
}

TEST(Conv, TwoDimensions) {
  const Tensor x = f32({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  const Tensor w = f32({1, 1, 2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(values(prim::conv(x, w, conv_options({1, 1}, {0, 0}, {0, 0}, {1, 1}))),
              ElementsAre(37, 47, 67, 77));
}

TEST(Conv, GroupsSeeTheirOwnChannels) {
  const Tensor x = f32({1, 2, 2}, {1, 2, 10, 20});
  const Tensor w = f32({4, 1, 1}, {1, 2, 3, 4});
  const Tensor y = prim::conv(x, w, conv_options({1}, {0}, {0}, {1}, 2));
  EXPECT_THAT(values(y), ElementsAre(1, 2, 2, 4, 30, 60, 40, 80));
}

// With a stride that does not divide, the last inputs meet no kernel: their gradient is 0.
TEST(Conv, InputGradientOfUnusedInputsIsZero) {
  ConvAttr a = conv_options({3}, {0}, {0}, {1});
  a.input_size = {7};
  a.kernel_size = {2};
  const Tensor dx = prim::conv_input_grad(ones({1, 1, 2}), f32({1, 1, 2}, {5, 7}), a);
  EXPECT_THAT(values(dx), ElementsAre(5, 7, 0, 5, 7, 0, 0));
}

TEST(Gather, OutOfRangeReadsNanOrZero) {
  const Tensor at = i32({4}, {2, -1, 3, 0});
  const std::vector<double> f = values(prim::gather(f32({3}, {10, 20, 30}), at, 0));
  EXPECT_EQ(f[0], 30);
  EXPECT_TRUE(std::isnan(f[1]));
  EXPECT_TRUE(std::isnan(f[2]));
  EXPECT_EQ(f[3], 10);
  EXPECT_THAT(values(prim::gather(i32({3}, {10, 20, 30}), at, 0)), ElementsAre(30, 0, 0, 10));
}

TEST(Gather, IndicesReplaceTheAxis) {
  const Tensor x = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor y = prim::gather(x, i32({2, 2}, {2, 0, 1, 1}), 1);
  EXPECT_EQ(y.shape(), (Shape{2, 2, 2}));
  EXPECT_THAT(values(y), ElementsAre(3, 1, 2, 2, 6, 4, 5, 5));
}

TEST(ScatterAdd, AddsRepeatsAndDropsOutOfRange) {
  const Tensor y = prim::scatter_add(i32({5}, {1, 1, -1, 3, 0}), f32({5}, {1, 2, 4, 8, 16}), 0, 3);
  EXPECT_THAT(values(y), ElementsAre(16, 3, 0));
}

// ---- errors
// --------------------------------------------------------------------------------------

TEST(RowErrors, Elementwise) {
  EXPECT_THAT(message_of<ShapeError>([] { prim::add(ones({2, 3}), ones({3, 2})); }),
              StartsWith("add: shapes differ: [2, 3] and [3, 2].\n  at "));
  EXPECT_THAT(message_of<DTypeError>([] { prim::add(ones({2}), ones({2}, DType::i32)); }),
              StartsWith("add: dtypes differ: f32 and i32.\n"));
  EXPECT_THAT(message_of<DTypeError>([] { prim::map(kernel::Fn::exp, {ones({2}, DType::i32)}); }),
              StartsWith("exp: takes f32 or f16, not i32.\n"));
  EXPECT_THAT(message_of<DTypeError>([] {
                prim::map(kernel::Fn::max, {ones({2}, DType::bool_), ones({2}, DType::bool_)});
              }),
              StartsWith("maximum: takes f32, f16, i32 or u32, not bool.\n"));
}

TEST(RowErrors, DotGeneral) {
  const Tensor a = ones({2, 3});
  EXPECT_THAT(
      message_of<ShapeError>([&] { prim::dot_general(a, ones({4, 5}), {{}, {}, {1}, {0}}); }),
      StartsWith("dot_general: contracted extents differ: 3 along axis 1 of [2, 3], 4 along "
                 "axis 0 of [4, 5].\n"));
  EXPECT_THAT(
      message_of<ShapeError>([&] { prim::dot_general(a, a, {{}, {}, {2}, {0}}); }),
      StartsWith("dot_general: axis 2 is out of range for the left operand of shape [2, 3].\n"));
  EXPECT_THAT(
      message_of<ShapeError>([&] { prim::dot_general(a, a, {{0}, {0}, {0}, {1}}); }),
      StartsWith("dot_general: axis 0 of the left operand of shape [2, 3] is named twice.\n"));
  EXPECT_THAT(
      message_of<ShapeError>([&] { prim::dot_general(a, a, {{}, {}, {0, 1}, {0}}); }),
      StartsWith("dot_general: 2 contracted axes of the left operand are paired with 1 of the "
                 "right.\n"));
  EXPECT_THAT(message_of<DTypeError>(
                  [&] { prim::dot_general(a, ones({3}, DType::i32), {{}, {}, {1}, {0}}); }),
              StartsWith("dot_general: takes f32 or f16, not i32.\n"));
}

TEST(RowErrors, Conv) {
  EXPECT_THAT(message_of<ShapeError>([] { prim::conv(ones({2, 3}), ones({4, 3, 3}), plain_1d); }),
              StartsWith("conv: the input of shape [2, 3] has no spatial dimension after its first "
                         "two.\n"));
  EXPECT_THAT(
      message_of<ShapeError>([] { prim::conv(ones({2, 3, 9}), ones({4, 2, 3}), plain_1d); }),
      StartsWith("conv: an input of shape [2, 3, 9] has 3 channels, but a kernel of shape "
                 "[4, 2, 3] with groups = 1 takes 2.\n"));
  EXPECT_THAT(
      message_of<ShapeError>([] { prim::conv(ones({2, 3, 4}), ones({4, 3, 5}), plain_1d); }),
      StartsWith("conv: the kernel is larger than the padded input in spatial dimension 0: "
                 "extent 5 with dilation 1 spans 5 elements, the input has 0 + 4 + 0.\n"));
  EXPECT_THAT(message_of<ShapeError>([] {
                prim::conv(ones({2, 4, 9}), ones({3, 2, 3}), conv_options({1}, {0}, {0}, {1}, 2));
              }),
              StartsWith("conv: 3 channels of the kernel of shape [3, 2, 3] do not divide into 2 "
                         "groups.\n"));
  EXPECT_THAT(message_of<ShapeError>([] {
                prim::conv(ones({2, 3, 9}), ones({4, 3, 3}), conv_options({0}, {0}, {0}, {1}));
              }),
              StartsWith("conv: stride [0] has an entry below 1.\n"));
  EXPECT_THAT(message_of<ShapeError>([] {
                prim::conv(ones({2, 3, 9}), ones({4, 3, 3}), conv_options({1, 1}, {0}, {0}, {1}));
              }),
              StartsWith("conv: stride [1, 1] does not have one entry for each of the 1 spatial "
                         "dimensions of the input.\n"));
}

TEST(RowErrors, GatherAndScatter) {
  EXPECT_THAT(message_of<ShapeError>([] { prim::gather(ones({2, 3}), i32({1}, {0}), 2); }),
              StartsWith("gather: axis 2 is out of range for shape [2, 3].\n"));
  EXPECT_THAT(message_of<DTypeError>([] { prim::gather(ones({2, 3}), ones({1}), 0); }),
              StartsWith("gather: the indices are f32, not i32.\n"));
  EXPECT_THAT(
      message_of<ShapeError>([] { prim::scatter_add(i32({3}, {0, 1, 2}), ones({2, 4}), 0, 5); }),
      StartsWith("scatter_add: updates of shape [2, 4] do not have the shape [3] of the "
                 "indices from axis 0 on.\n"));
}

}  // namespace
}  // namespace tensorgrad::testing
