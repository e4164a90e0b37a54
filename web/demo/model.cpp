// The models of the demonstration page.
#include <cmath>
#include <string>
#include <vector>

#include "tensorgrad/tensorgrad.h"
#include "tensorgrad/web.h"

namespace {

using namespace tensorgrad;  // NOLINT(google-build-using-namespace): the model reads as in the docs

struct Attention {
  std::int64_t heads;
  nn::Linear q, k, v, o;
  TENSORGRAD_FIELDS(q, k, v, o)
  Attention(std::int64_t width, std::int64_t count)
      : heads(count),
        q(width, width, {.bias = false}),
        k(width, width, {.bias = false}),
        v(width, width, {.bias = false}),
        o(width, width, {.bias = false}) {}

  Tensor operator()(const Tensor& x) const {
    return o(merge_heads(tensorgrad::attention(split_heads(q(x), heads), split_heads(k(x), heads),
                                               split_heads(v(x), heads), {.causal = true})));
  }
  /// The same with the probabilities [batch, heads, time, time] captured, to be shown.
  Tensor shown(const Tensor& x, const std::string& name) const {
    const Tensor queries = split_heads(q(x), heads);
    const double scale = 1 / std::sqrt(static_cast<double>(queries.shape().back()));
    const Tensor scores = matmul(queries, transpose(split_heads(k(x), heads))) * scale;
    const Tensor probabilities = capture(name, causal_softmax(scores));
    return o(merge_heads(matmul(probabilities, split_heads(v(x), heads))));
  }
};

struct Block {
  nn::LayerNorm ln1;
  Attention attention;
  nn::LayerNorm ln2;
  nn::Linear up, down;
  TENSORGRAD_FIELDS(ln1, attention, ln2, up, down)
  Block(std::int64_t width, std::int64_t heads)
      : ln1(width),
        attention(width, heads),
        ln2(width),
        up(width, 4 * width),
        down(4 * width, width) {}

  Tensor feed_forward(const Tensor& x) const { return x + down(relu(up(ln2(x)))); }
  Tensor operator()(const Tensor& x) const { return feed_forward(x + attention(ln1(x))); }
  Tensor shown(const Tensor& x, const std::string& name) const {
    return feed_forward(x + attention.shown(ln1(x), name));
  }
};

/// A decoder over characters.
struct TextModel {
  nn::Embedding characters, positions;
  std::vector<Block> layers;
  nn::LayerNorm last;
  nn::Linear head;
  TENSORGRAD_FIELDS(characters, positions, layers, last, head)
  TextModel(std::int64_t vocabulary, std::int64_t context, std::int64_t width, std::int64_t heads,
            std::int64_t count)
      : characters(vocabulary, width),
        positions(context, width),
        layers(static_cast<std::size_t>(count), Block(width, heads)),
        last(width),
        head(width, vocabulary) {}

  Tensor embed(const Tensor& text) const { return 0.1 * (characters(text) + positions.W); }
  /// Characters [batch, context] to logits [batch, context, vocabulary].
  Tensor operator()(const Tensor& text) const {
    Tensor x = embed(text);
    for (const Block& block : layers) x = block(x);
    return head(last(x));
  }
  /// The same with each layer's attention captured as "attention.N".
  Tensor shown(const Tensor& text) const {
    Tensor x = embed(text);
    for (std::size_t i = 0; i < layers.size(); ++i) {
      x = layers[i].shown(x, "attention." + std::to_string(i));
    }
    return head(last(x));
  }
};

web::Model text_model(const web::Options& options) {
  const std::int64_t vocabulary = options.integer("vocabulary", 65, 2, 256);
  const std::int64_t context = options.integer("context", 64, 2, 512);
  const std::int64_t heads = options.integer("heads", 4, 1, 16);
  const std::int64_t width = options.integer("width", 128, heads, 1024);
  const std::int64_t batch = options.integer("batch", 16, 1, 256);
  if (width % heads != 0) throw ValueError("The width must be a multiple of the number of heads.");
  TextModel model(vocabulary, context, width, heads, options.integer("layers", 4, 1, 24));
  auto training = compile(
      std::move(model),
      [](const TextModel& m, const Inputs& in) { return cross_entropy(m(in["x"]), in["y"]); },
      {.inputs = {{"x", {batch, context}, DType::i32}, {"y", {batch, context}, DType::i32}},
       .optimizer = AdamW{.lr = options.number("lr", 1e-3), .weight_decay = 0.1},
       .clip_norm = 1.0,
       .device = options.device(),
       .seed = static_cast<std::uint64_t>(options.integer("seed", 0))});
  const ForwardOptions one{.inputs = {{"x", {1, context}, DType::i32}}};
  Forward next =
      training.attach([](const TextModel& m, const Inputs& in) { return m(in["x"]); }, one);
  Forward shown =
      training.attach([](const TextModel& m, const Inputs& in) { return m.shown(in["x"]); }, one);
  return {training, {{"next", next}, {"shown", shown}}};
}

}  // namespace

namespace tensorgrad::web {

void register_models(Models& models) { models.add("text", text_model); }

}  // namespace tensorgrad::web
