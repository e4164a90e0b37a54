#include <cmath>

#include "nn/evaluate.h"
#include "tensorgrad/nn.h"

namespace tensorgrad {
namespace {

using testing::check_gradients;
using testing::Doubles;
using testing::evaluate;
using testing::expect_near;
using testing::input;
using testing::Leaves;
using testing::literal;
using testing::message_of;
using testing::scattered;

TEST(Heads, AreContiguousPartsOfTheFeatures) {
  const Tensor x = literal(Doubles{0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23}, {3, 4});
  const Tensor heads = split_heads(x, 2);
  EXPECT_EQ(heads.shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(evaluate(heads), (Doubles{0, 1, 10, 11, 20, 21, 2, 3, 12, 13, 22, 23}));
  EXPECT_EQ(evaluate(merge_heads(heads)), evaluate(x));
  EXPECT_EQ(split_heads(zeros({5, 3, 8}), 4).shape(), (Shape{5, 4, 3, 2}));
  EXPECT_EQ(merge_heads(zeros({5, 4, 3, 2})).shape(), (Shape{5, 3, 8}));
}

/// softmax(q k^T * scale) v of one head by loops.
Doubles by_loops(const Doubles& q, const Doubles& k, const Doubles& v, std::size_t rows,
                 std::size_t columns, std::size_t d, std::size_t e, double scale, bool causal) {
  Doubles out;
  for (std::size_t t = 0; t < rows; ++t) {
    const std::size_t seen = causal ? std::min(t + 1, columns) : columns;
    Doubles weights;
    double total = 0;
    for (std::size_t s = 0; s < seen; ++s) {
      double score = 0;
      for (std::size_t i = 0; i < d; ++i) score += q[t * d + i] * k[s * d + i];
      weights.push_back(std::exp(score * scale));
      total += weights.back();
    }
    for (std::size_t j = 0; j < e; ++j) {
      double sum = 0;
      for (std::size_t s = 0; s < seen; ++s) sum += weights[s] / total * v[s * e + j];
      out.push_back(sum);
    }
  }
  return out;
}

TEST(Attention, Value) {
  const Leaves leaves{.inputs = {{"q", scattered(4 * 3, 2, 1)},
                                 {"k", scattered(5 * 3, 2, 2)},
                                 {"v", scattered(5 * 2, 2, 3)}}};
  const Tensor q = input("q", {4, 3});
  const Tensor k = input("k", {5, 3});
  const Tensor v = input("v", {5, 2});
  const auto expected = [&](double scale, bool causal) {
    return by_loops(leaves.inputs.at("q"), leaves.inputs.at("k"), leaves.inputs.at("v"), 4, 5, 3, 2,
                    scale, causal);
  };
  expect_near(evaluate(attention(q, k, v), leaves), expected(1 / std::sqrt(3.0), false));
  expect_near(evaluate(attention(q, k, v, {.causal = true}), leaves),
              expected(1 / std::sqrt(3.0), true));
  expect_near(evaluate(attention(q, k, v, {.scale = 0.25}), leaves), expected(0.25, false));
  EXPECT_EQ(attention(zeros({2, 4, 6, 3}), zeros({2, 4, 5, 3}), zeros({2, 4, 5, 7})).shape(),
            (Shape{2, 4, 6, 7}));
}

TEST(Attention, Gradients) {
  const Leaves leaves{.inputs = {{"q", scattered(2 * 3 * 2, 1, 1)},
                                 {"k", scattered(2 * 3 * 2, 1, 2)},
                                 {"v", scattered(2 * 3 * 2, 1, 3)}}};
  const std::vector<Tensor> by{input("q", {2, 3, 2}), input("k", {2, 3, 2}), input("v", {2, 3, 2})};
  check_gradients(attention(by[0], by[1], by[2]), by, leaves);
  check_gradients(attention(by[0], by[1], by[2], {.causal = true}), by, leaves);
  const Tensor x = input("x", {2, 3, 4});
  check_gradients(merge_heads(square(split_heads(x, 2))), {x}, {.inputs = {{"x", scattered(24)}}});
}

TEST(Attention, Errors) {
  EXPECT_EQ(message_of<ShapeError>([] { split_heads(zeros({2, 6}), 4); }),
            "split_heads: 4 heads do not divide the 6 features of [2, 6].");
  EXPECT_EQ(message_of<ValueError>([] { split_heads(zeros({2, 6}), 0); }),
            "split_heads: the number of heads is 0, not at least 1.");
  EXPECT_EQ(message_of<ShapeError>([] { merge_heads(zeros({2, 6})); }),
            "merge_heads: takes [..., heads, T, d], not shape [2, 6].");
  EXPECT_EQ(message_of<ShapeError>([] { attention(zeros({2, 3}), zeros({2, 4}), zeros({2, 3})); }),
            "attention: q [2, 3] and k [2, 4] have 3 and 4 features.");
  EXPECT_EQ(message_of<ShapeError>([] { attention(zeros({2, 3}), zeros({5, 3}), zeros({4, 3})); }),
            "attention: k [5, 3] and v [4, 3] have 5 and 4 positions.");
  EXPECT_EQ(message_of<ShapeError>([] { attention(zeros({3}), zeros({5, 3}), zeros({4, 3})); }),
            "attention: takes [..., T, d], not shape [3].");
}

}  // namespace
}  // namespace tensorgrad
