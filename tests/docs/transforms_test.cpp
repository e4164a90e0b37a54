// The code of docs/transforms.md, run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "docs/page.h"
#include "runtime/device.h"
// [snippet]
#include <tensorgrad/jit.h>
#include <tensorgrad/nn.h>
#include <tensorgrad/transforms.h>

namespace tg = tensorgrad;
using tg::Tensor;
// [end]

namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Pointwise;

// [snippet]
struct Spring {
  Tensor stiffness, rest;
  TENSORGRAD_FIELDS(stiffness, rest)
};

Tensor energy(const Spring& spring, const Tensor& x) {
  return 0.5 * sum(spring.stiffness * square(x - spring.rest));
}
// [end]

class TransformsPageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (tg::backends().empty()) GTEST_SKIP() << "this build has no device";
  }
};

std::vector<float> values(const Tensor& t) { return t.to_vector<float>(); }
auto near(std::vector<float> expected) { return Pointwise(FloatNear(1e-5F), expected); }

TEST_F(TransformsPageTest, Gradients) {
  // [snippet]
  const Spring spring{tg::array({2.0F, 3.0F}), tg::array({0.0F, 1.0F})};
  const Tensor x = tg::array({1.0F, 3.0F});

  const Spring by_spring = tg::grad(energy)(spring, x);       // a Spring of derivatives
  const Tensor force = tg::grad<1>(energy)(spring, x);        // by the second argument
  const auto [s, f] = tg::grad<0, 1>(energy)(spring, x);      // by both
  const auto [e, g] = tg::value_and_grad(energy)(spring, x);  // the energy too
  // [end]
  EXPECT_THAT(values(by_spring.stiffness), near({0.5F, 2}));
  EXPECT_THAT(values(by_spring.rest), near({-2, -6}));
  EXPECT_THAT(values(force), near({2, 6}));
  EXPECT_THAT(values(s.rest), near({-2, -6}));
  EXPECT_THAT(values(f), near({2, 6}));
  EXPECT_THAT(values(e), near({7}));
  EXPECT_THAT(values(g.rest), near({-2, -6}));
}

TEST_F(TransformsPageTest, Aux) {
  const Tensor x = tg::array({1.0F, 3.0F});
  // [snippet]
  const auto with_norm = [](const Tensor& v) {
    const Tensor squares = square(v);
    return std::pair(sum(squares * squares), sqrt(sum(squares)));
  };
  const auto [slope, norm] = tg::grad(with_norm, tg::has_aux)(x);
  // [end]
  EXPECT_THAT(values(slope), near({4, 108}));
  EXPECT_THAT(values(norm), near({3.1622777F}));
}

TEST_F(TransformsPageTest, Directions) {
  const Tensor x = tg::array({1.0F, 3.0F});
  // [snippet]
  const auto h = [](const Tensor& v) { return sin(v) * sum(v); };
  const auto [y, tangent] = tg::jvp(h, x, tg::ones({2}));  // J t
  const auto [same_y, pull] = tg::vjp(h, x);
  const Tensor cotangent = pull(tg::ones({2}));                                      // t^T J
  const Tensor jacobian = tg::jacfwd(h)(x);                                          // [2, 2]
  const Tensor second = tg::hessian([&](const Tensor& v) { return sum(h(v)); })(x);  // [2, 2]
  // [end]
  const std::vector<float> j = values(jacobian);
  EXPECT_THAT(values(tangent), near({j[0] + j[1], j[2] + j[3]}));
  EXPECT_THAT(values(cotangent), near({j[0] + j[2], j[1] + j[3]}));
  EXPECT_THAT(values(y), near(values(same_y)));
  EXPECT_NEAR(values(second)[1], values(second)[2], 1e-5);
}

TEST_F(TransformsPageTest, Batches) {
  // [snippet]
  const auto score = [](const Tensor& query, const Tensor& keys) { return matmul(keys, query); };
  const Tensor queries = tg::ones({5, 3});
  const Tensor keys = tg::ones({7, 3});
  const Tensor scores = tg::vmap(score, {.in_axes = {0, tg::unmapped}})(queries, keys);  // [5, 7]
  const Tensor columns =
      tg::vmap(score, {.in_axes = {0, tg::unmapped}, .out_axes = {1}})(queries, keys);  // [7, 5]
  // [end]
  EXPECT_EQ(scores.shape(), (tg::Shape{5, 7}));
  EXPECT_EQ(columns.shape(), (tg::Shape{7, 5}));
  // [snippet]
  const auto loss = [](const Tensor& w, const Tensor& example) { return square(sum(w * example)); };
  const Tensor examples = tg::array({1, 2, 3, 4, 5, 6});
  const auto per_example = tg::vmap(tg::grad(loss), {.in_axes = {tg::unmapped, 0}});
  const Tensor gradients = per_example(tg::ones({2}), reshape(examples, {3, 2}));  // [3, 2]
  // [end]
  EXPECT_THAT(values(gradients), near({6, 12, 42, 56, 110, 132}));
}

TEST_F(TransformsPageTest, OwnDerivatives) {
  const Tensor x = tg::array({1.0F, 3.0F});
  // [snippet]
  // The identity, whose gradient is kept within [-1, 1] on its way back.
  const auto clip_gradient =
      tg::custom_vjp([](const Tensor& v) { return std::pair(v, std::tuple<>()); },
                     [](std::tuple<>, const Tensor& cotangent) { return clamp(cotangent, -1, 1); });
  const Tensor clipped =
      tg::grad([&](const Tensor& v) { return sum(square(clip_gradient(v))); })(x);  // 1, 1
  // [end]
  EXPECT_THAT(values(clipped), near({1, 1}));
  // [snippet]
  const auto straight_through = [](const Tensor& v) {
    return v + stop_gradient(round(v) - v);  // rounds; its derivative is 1
  };
  // [end]
  const auto rounded = [&](const Tensor& v) { return sum(straight_through(v)); };
  EXPECT_THAT(values(tg::grad(rounded)(x)), near({1, 1}));
}

TEST_F(TransformsPageTest, Recomputation) {
  tg::nn::Linear up(4, 16), down(16, 4);
  tg::initialise(up, 1);
  tg::initialise(down, 2);
  const Tensor x = tg::ones({3, 4});
  // [snippet]
  const auto block = tg::checkpoint([&](const Tensor& h) { return h + down(gelu(up(h))); });
  const Tensor slope = tg::grad([&](const Tensor& h) { return sum(block(block(h))); })(x);
  // [end]
  const auto plain = [&](const Tensor& h) { return h + down(gelu(up(h))); };
  EXPECT_THAT(values(slope),
              near(values(tg::grad([&](const Tensor& h) { return sum(plain(plain(h))); })(x))));
}

TEST_F(TransformsPageTest, Eager) {
  const Tensor target = tg::array({1.0F, 3.0F});
  // [snippet]
  const auto distance = [&](const Tensor& v) { return sum(square(v - target)); };
  Tensor w = tg::zeros({2});
  for (int step = 0; step < 100; ++step) {
    w = tg::materialise(w - 0.1 * tg::grad(distance)(w));
  }
  // [end]
  EXPECT_THAT(values(w), near({1, 3}));
  w = tg::zeros({2});
  // [snippet]
  const auto descend = tg::jit([](const Tensor& v, const Tensor& to) {
    return v - 0.1 * tg::grad([&](const Tensor& u) { return sum(square(u - to)); })(v);
  });
  for (int step = 0; step < 100; ++step) w = descend(w, target);
  // [end]
  EXPECT_THAT(values(w), near({1, 3}));
}

TEST_F(TransformsPageTest, Errors) {
  std::string message;
  // [snippet]
  const auto accuracy = [](const Tensor& logits) {
    return mean(cast(argmax(logits, -1) == 1, tg::DType::f32));
  };
  try {
    tg::grad(accuracy)(tg::ones({4, 3}));
  } catch (const tg::GraphError& error) {
    std::puts(error.what());
    message = error.what();
  }
  // [end]
  EXPECT_THAT(message, ::testing::StartsWith("argmax: has no derivative: its result is i32. Put "
                                             "stop_gradient before it if none is wanted."));
}

TEST(TransformsPage, ShowsTheCodeThatIsRun) {
  tg::testing::expect_page_shows("/docs/transforms.md", "/tests/docs/transforms_test.cpp");
}

}  // namespace
