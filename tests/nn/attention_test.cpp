#include <cmath>
#include <limits>

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

/// softmax(q k^T) v of one head by loops, where row t sees the columns that `seen` says.
template <class F>
Doubles masked(const Leaves& leaves, std::size_t rows, std::size_t columns, std::size_t d, F seen) {
  const Doubles& q = leaves.inputs.at("q");
  const Doubles& k = leaves.inputs.at("k");
  const Doubles& v = leaves.inputs.at("v");
  Doubles out;
  for (std::size_t t = 0; t < rows; ++t) {
    Doubles sums(d, 0);
    double total = 0;
    for (std::size_t s = 0; s < columns; ++s) {
      if (!seen(t, s)) continue;
      double score = 0;
      for (std::size_t i = 0; i < d; ++i) score += q[t * d + i] * k[s * d + i];
      const double weight = std::exp(score / std::sqrt(static_cast<double>(d)));
      total += weight;
      for (std::size_t i = 0; i < d; ++i) sums[i] += weight * v[s * d + i];
    }
    for (double x : sums) out.push_back(total > 0 ? x / total : 0);
  }
  return out;
}

TEST(Attention, Masks) {
  const Leaves leaves{.inputs = {{"q", scattered(12, 2, 1)},
                                 {"k", scattered(12, 2, 2)},
                                 {"v", scattered(12, 2, 3)}}};
  const std::vector<Tensor> by{input("q", {4, 3}), input("k", {4, 3}), input("v", {4, 3})};
  // Row 2 sees nothing.
  const Doubles flags{1, 1, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0, 1, 1};
  const auto seen = [&](std::size_t t, std::size_t s) { return flags[t * 4 + s] != 0; };
  const Tensor mask = literal(flags, {4, 4}) != 0;
  const Tensor y = attention(by[0], by[1], by[2], {.mask = mask});
  expect_near(evaluate(y, leaves), masked(leaves, 4, 4, 3, seen));
  check_gradients(y, by, leaves);
  expect_near(
      evaluate(attention(by[0], by[1], by[2], {.causal = true, .mask = mask}), leaves),
      masked(leaves, 4, 4, 3, [&](std::size_t t, std::size_t s) { return s <= t && seen(t, s); }));
  // A mask of one row holds for all of them; added scores may hide as well.
  const Tensor hidden = where(take(mask, 0, 0), 0, -std::numeric_limits<double>::infinity());
  const auto first = [&](std::size_t, std::size_t s) { return seen(0, s); };
  expect_near(evaluate(attention(by[0], by[1], by[2], {.mask = take(mask, 0, 0)}), leaves),
              masked(leaves, 4, 4, 3, first));
  expect_near(evaluate(attention(by[0], by[1], by[2], {.mask = hidden}), leaves),
              masked(leaves, 4, 4, 3, first));
}

TEST(Attention, DropsWeightsWhileTraining) {
  const Leaves leaves{.inputs = {{"q", scattered(64)}, {"k", scattered(64)}}};
  const Tensor q = input("q", {8, 8});
  const Tensor k = input("k", {8, 8});
  const Tensor identity = one_hot(arange(8), 8);  // the result is the weights
  const Doubles whole = evaluate(attention(q, k, identity), leaves);
  const Doubles dropped = evaluate(attention(q, k, identity, {.dropout = 0.5}), leaves);
  int gone = 0;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (dropped[i] == 0) {
      ++gone;
    } else {
      EXPECT_NEAR(dropped[i], 2 * whole[i], 1e-9);
    }
  }
  EXPECT_GT(gone, 10);
  EXPECT_LT(gone, 54);
  expect_near(evaluate(attention(q, k, identity, {.dropout = 0.5}),
                       {.inputs = leaves.inputs, .training = false}),
              whole);
}

TEST(MultiHeadAttention, IsItsParts) {
  nn::MultiHeadAttention layer(6, 2, {.causal = true});
  EXPECT_EQ(layer.q.W.init, Init::uniform(std::sqrt(6.0 / 24)));
  EXPECT_EQ(layer.out.W.init, Init::uniform(1 / std::sqrt(6.0)));
  EXPECT_EQ(layer.v.b->init, Init::zeros());
  Leaves leaves{.inputs = {{"x", scattered(2 * 3 * 6)}, {"m", scattered(2 * 3 * 6, 1, 9)}}};
  std::vector<Tensor> by = testing::bind_inputs(layer, leaves);
  const Tensor x = input("x", {2, 3, 6});
  const Tensor m = input("m", {2, 3, 6});
  Tensor heads[2];
  for (int h = 0; h < 2; ++h) {
    const auto part = [&](const Tensor& t) { return narrow(t, -1, 3 * h, 3); };
    heads[h] = attention(part(layer.q(x)), part(layer.k(m)), part(layer.v(m)), {.causal = true});
  }
  const Tensor expected = layer.out(concat({heads[0], heads[1]}, -1));
  expect_near(evaluate(layer(x, m, m), leaves), evaluate(expected, leaves));
  expect_near(evaluate(layer(x), leaves), evaluate(layer(x, x, x), leaves));
  by.push_back(x);
  check_gradients(layer(x), by, leaves);
  EXPECT_EQ(message_of<ValueError>([] { nn::MultiHeadAttention(6, 4); }),
            "MultiHeadAttention: 4 heads do not divide 6 features.");
}

TEST(Attention, Errors) {
  EXPECT_EQ(message_of<ShapeError>([] {
              attention(zeros({4, 3}), zeros({5, 3}), zeros({5, 3}), {.mask = zeros({2, 4, 5})});
            }),
            "attention: the mask has shape [2, 4, 5], which does not broadcast to the scores' "
            "[4, 5].");
  EXPECT_EQ(message_of<DTypeError>([] {
              attention(zeros({4, 3}), zeros({5, 3}), zeros({5, 3}), {.mask = arange(5)});
            }),
            "attention: the mask is i32, not bool or f32.");
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
