// The code of docs/layers.md, run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "docs/page.h"
#include "runtime/device.h"
// [snippet]
#include <tensorgrad/compile.h>
#include <tensorgrad/nn.h>
#include <tensorgrad/ops.h>

namespace tg = tensorgrad;
using tg::Tensor;
namespace nn = tg::nn;
// [end]

namespace {

class LayersPageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (tg::backends().empty()) GTEST_SKIP() << "this build has no device";
  }
};

// [snippet]
struct Block {
  nn::LayerNorm norm1{64}, norm2{64};
  nn::MultiHeadAttention attention{64, 4, {.causal = true}};
  nn::Linear up{64, 256}, down{256, 64};
  TENSORGRAD_FIELDS(norm1, norm2, attention, up, down)

  Tensor operator()(const Tensor& x) const {  // [N, T, 64]
    const Tensor h = x + attention(norm1(x));
    return h + down(gelu(up(norm2(h))));
  }
};

struct Model {
  nn::Embedding tokens{100, 64}, positions{32, 64};
  std::vector<Block> blocks = std::vector<Block>(2);
  nn::Linear head{64, 100, {.bias = false}};
  TENSORGRAD_FIELDS(tokens, positions, blocks, head)

  Tensor operator()(const Tensor& ids) const {  // [N, 32], i32
    Tensor x = tokens(ids) + positions(tg::arange(32));
    for (const Block& block : blocks) x = block(x);
    return head(x);
  }
};
// [end]

TEST_F(LayersPageTest, Groups) {
  // [snippet]
  const auto loss = [](const Model& m, const tg::Inputs& in) {
    return cross_entropy(m(in["ids"]), in["next"], {.ignore_index = -1, .label_smoothing = 0.1});
  };
  const auto is_embedding = [](const std::string& name, const tg::Shape&) {
    return name.starts_with("tokens") || name.starts_with("positions");
  };
  auto training = tg::compile(
      Model{}, loss,
      {.inputs = {{"ids", {4, 32}, tg::DType::i32}, {"next", {4, 32}, tg::DType::i32}},
       .optimizer = tg::AdamW{.lr = tg::Schedule::warmup(10, tg::Schedule::cosine(3e-3, 0, 100))},
       .clip_norm = 1.0,
       .groups = {{.applies = is_embedding, .lr_scale = 0.5, .decay = false}}});
  // [end]
  std::vector<std::int32_t> ids(4 * 32);
  std::vector<std::int32_t> next(4 * 32);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(i * 7 % 100);
    next[i] = i % 32 == 31 ? -1 : static_cast<std::int32_t>((i + 1) * 7 % 100);
  }
  const float first = training.step({{"ids", ids}, {"next", next}}).loss();
  for (int i = 0; i < 15; ++i) training.step({{"ids", ids}, {"next", next}});
  EXPECT_LT(training.step({{"ids", ids}, {"next", next}}).loss(), first);
}

// [snippet]
struct Vision {
  nn::Conv2d conv{1, 8, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm norm{8};
  nn::Linear head{8 * 4 * 4, 10};
  TENSORGRAD_FIELDS(conv, norm, head)

  Tensor operator()(const Tensor& images) const {  // [N, 1, 8, 8]
    return head(flatten(max_pool2d(relu(norm(conv(images))), 2), 1));
  }
};
// [end]

TEST_F(LayersPageTest, Buffers) {
  const std::vector<float> images(4 * 64, 0.5F);
  const std::vector<std::int32_t> labels{1, 2, 3, 4};
  // [snippet]
  auto training = tg::compile(
      Vision{},
      [](const Vision& m, const tg::Inputs& in) { return cross_entropy(m(in["x"]), in["y"]); },
      {.inputs = {{"x", {4, 1, 8, 8}}, {"y", {4}, tg::DType::i32}}});
  training.step({{"x", images}, {"y", labels}});
  for (const tg::ParamValue& b : training.buffers()) {
    std::printf("%s %s\n", b.name.c_str(), tg::to_string(b.shape).c_str());
  }  // norm.mean [8], norm.variance [8]
  // [end]
  EXPECT_EQ(training.buffers().at(1).name, "norm.variance");
  EXPECT_NE(training.buffers().at(0).values, std::vector<float>(8, 0));
}

// [snippet]
struct Centre {
  tg::Buffer mean{.shape = {2}, .init = tg::Init::zeros()};
  TENSORGRAD_FIELDS(mean)

  Tensor operator()(const Tensor& x) const {  // [N, 2]
    const Tensor now = 0.9 * mean + 0.1 * tg::mean(x, 0);
    return assign(mean, now, x - mean);
  }
};
// [end]

struct Centred {
  Centre centre;
  nn::Linear l{2, 1};
  TENSORGRAD_FIELDS(centre, l)
};

TEST_F(LayersPageTest, OwnBuffers) {
  auto training = tg::compile(
      Centred{},
      [](const Centred& m, const tg::Inputs& in) { return mean(square(m.l(m.centre(in["x"])))); },
      {.inputs = {{"x", {2, 2}}}});
  training.step({{"x", std::vector<float>{1, 2, 3, 4}}});
  EXPECT_THAT(training.buffers().at(0).values,
              ::testing::Pointwise(::testing::FloatNear(1e-6F), std::vector<float>{0.2F, 0.3F}));
}

// [snippet]
struct Coarse {
  nn::Linear up{2, 32}, down{32, 1};
  TENSORGRAD_FIELDS(up, down)

  static Tensor layer(const Tensor& x, const nn::Linear& l) {
    return matmul(x, cast(l.W, tg::DType::f16)) + cast(*l.b, tg::DType::f16);
  }
  Tensor operator()(const Tensor& x) const {  // [N, 2], f16
    return cast(layer(relu(layer(x, up)), down), tg::DType::f32);
  }
};
// [end]

TEST_F(LayersPageTest, HalfPrecision) {
  auto training = tg::compile(
      Coarse{}, [](const Coarse& m, const tg::Inputs& in) { return mse_loss(m(in["x"]), in["y"]); },
      {.inputs = {{"x", {4, 2}, tg::DType::f16}, {"y", {4, 1}}},
       .optimizer = tg::Adam{.lr = 0.01},
       .seed = 3});
  const tg::Half zero(0), one(1);
  const std::vector<tg::Half> x{zero, zero, zero, one, one, zero, one, one};
  const std::vector<float> y{0, 1, 1, 0};
  float loss = 1;
  for (int step = 0; step < 300; ++step) loss = training.step({{"x", x}, {"y", y}}).loss();
  EXPECT_LT(loss, 0.01F);
}

TEST_F(LayersPageTest, NotFinite) {
  std::string message;
  auto training = tg::compile(Centred{},
                              [](const Centred& m, const tg::Inputs& in) {
                                return mean(capture("root", sqrt(in["x"])) * sum(square(m.l.W)));
                              },
                              {.inputs = {{"x", {2}}}, .warn = [](const std::string&) {}});
  const std::vector<float> negative{-1, 1};
  // [snippet]
  try {
    std::printf("%f\n", training.step({{"x", negative}}).loss());
  } catch (const tg::NotFiniteError& error) {
    message = error.what();
  }
  // [end]
  EXPECT_THAT(message, ::testing::StartsWith("step 1: the loss is NaN. The first captured tensor "
                                             "that is not finite is `root`."));
}

TEST(LayersPage, ShowsTheCodeThatIsRun) {
  tg::testing::expect_page_shows("/docs/layers.md", "/tests/docs/layers_test.cpp");
}

}  // namespace
