#include "workloads.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <numbers>

#include "graph/graph.h"
#include "ops/primitives.h"
#include "tensorgrad/nn.h"
#include "tensorgrad/ops.h"
#include "train/engine.h"

namespace tensorgrad::tools {
namespace {

constexpr int batch_count = 32;

// ---- W1 ------------------------------------------------------------------------------------------

struct SineMlp {
  nn::Linear l1{1, 64}, l2{64, 64}, l3{64, 1};
  TENSORGRAD_FIELDS(l1, l2, l3)
  Tensor operator()(const Tensor& x) const { return l3(relu(l2(relu(l1(x))))); }
};

std::vector<WorkloadBatch> sine_batches() {
  Mulberry r(1001);
  std::vector<WorkloadBatch> out(batch_count);
  for (WorkloadBatch& b : out) {
    for (int i = 0; i < 256; ++i) {
      b.x_float.push_back(static_cast<float>((2 * r.next() - 1) * std::numbers::pi));
      b.y_float.push_back(static_cast<float>(std::sin(static_cast<double>(b.x_float.back()))));
    }
  }
  return out;
}

// ---- W2 ------------------------------------------------------------------------------------------

struct TextConfig {
  std::int64_t vocabulary = 65, context = 64, width = 128, heads = 4, layers = 4, hidden = 512,
               batch = 16;
  bool gelu = false;
  bool approximate = false;  // gelu by tanh
};

struct Attention {
  std::int64_t heads;
  nn::Linear q, k, v, o;
  TENSORGRAD_FIELDS(q, k, v, o)
  Attention(std::int64_t width, std::int64_t head_count)
      : heads(head_count),
        q(width, width, {.bias = false}),
        k(width, width, {.bias = false}),
        v(width, width, {.bias = false}),
        o(width, width, {.bias = false}) {}
  Tensor operator()(const Tensor& x) const {
    const auto split = [&](const nn::Linear& w) { return split_heads(w(x), heads); };
    return o(merge_heads(attention(split(q), split(k), split(v), {.causal = true})));
  }
};

struct FeedForward {
  nn::Linear up, down;
  bool with_gelu, approximate;
  TENSORGRAD_FIELDS(up, down)
  explicit FeedForward(const TextConfig& c)
      : up(c.width, c.hidden),
        down(c.hidden, c.width),
        with_gelu(c.gelu),
        approximate(c.approximate) {}
  Tensor operator()(const Tensor& x) const {
    const Tensor h = up(x);
    return down(with_gelu ? gelu(h, {.approximate = approximate}) : relu(h));
  }
};

struct Block {
  nn::LayerNorm ln1;
  Attention attn;
  nn::LayerNorm ln2;
  FeedForward mlp;
  TENSORGRAD_FIELDS(ln1, attn, ln2, mlp)
  explicit Block(const TextConfig& c)
      : ln1(c.width), attn(c.width, c.heads), ln2(c.width), mlp(c) {}
  Tensor operator()(Tensor x) const {
    x = x + attn(ln1(x));
    return x + mlp(ln2(x));
  }
};

struct TextModel {
  Param tok_emb, pos_emb;
  std::vector<Block> layers;
  nn::LayerNorm lnf;
  TENSORGRAD_FIELDS(tok_emb, pos_emb, layers, lnf)
  explicit TextModel(const TextConfig& c)
      : tok_emb{{c.vocabulary, c.width}},
        pos_emb{{c.context, c.width}},
        layers(static_cast<std::size_t>(c.layers), Block(c)),
        lnf(c.width) {}
  Tensor operator()(const Tensor& tokens) const {
    Tensor x = gather(tok_emb, tokens) + pos_emb;
    for (const Block& b : layers) x = b(x);
    return matmul(lnf(x), transpose(tok_emb));
  }
};

// Of W2, W2g and W6.
TextConfig text_config(const std::string& name) {
  TextConfig config;
  if (name == "W6") {
    config = {.vocabulary = 50304,
              .context = 1024,
              .width = 768,
              .heads = 12,
              .layers = 12,
              .hidden = 3072,
              .batch = 8,
              .approximate = true};
  }
  config.gelu = name != "W2";
  return config;
}

std::vector<WorkloadBatch> text_batches(const TextConfig& c) {
  constexpr int length = 65536;
  Mulberry corpus_random(2001);
  std::vector<std::int32_t> corpus(length, 0);
  for (std::size_t i = 1; i < corpus.size(); ++i) {
    corpus[i] = (corpus[i - 1] * 3 + 7 + static_cast<int>(std::floor(corpus_random.next() * 4))) %
                static_cast<std::int32_t>(c.vocabulary);
  }
  Mulberry r(2002);
  std::vector<WorkloadBatch> out(batch_count);
  for (WorkloadBatch& b : out) {
    for (std::int64_t row = 0; row < c.batch; ++row) {
      const auto from = static_cast<std::ptrdiff_t>(
          std::floor(r.next() * static_cast<double>(length - c.context - 1)));
      const auto start = corpus.begin() + from;
      b.x_index.insert(b.x_index.end(), start, start + c.context);
      b.y_index.insert(b.y_index.end(), start + 1, start + c.context + 1);
    }
  }
  return out;
}

// Tokens that have nothing to do with one another.
std::vector<WorkloadBatch> token_batches(const TextConfig& c, std::uint32_t seed, int count) {
  Mulberry r(seed);
  std::vector<WorkloadBatch> out(static_cast<std::size_t>(count));
  for (WorkloadBatch& b : out) {
    for (std::int64_t row = 0; row < c.batch; ++row) {
      std::vector<std::int32_t> tokens;
      for (std::int64_t i = 0; i <= c.context; ++i) {
        tokens.push_back(
            static_cast<std::int32_t>(std::floor(r.next() * static_cast<double>(c.vocabulary))));
      }
      b.x_index.insert(b.x_index.end(), tokens.begin(), tokens.end() - 1);
      b.y_index.insert(b.y_index.end(), tokens.begin() + 1, tokens.end());
    }
  }
  return out;
}

// ---- W3, W3c -------------------------------------------------------------------------------------

struct DigitMlp {
  nn::Linear fc1{784, 256}, fc2{256, 10};
  TENSORGRAD_FIELDS(fc1, fc2)
  Tensor operator()(const Tensor& x) const { return fc2(relu(fc1(x))); }
};

struct DigitCnn {
  nn::Conv2d conv1{1, 16, 3, {.padding = 1}}, conv2{16, 32, 3, {.padding = 1}};
  nn::Linear fc1{1568, 64}, fc2{64, 10};
  TENSORGRAD_FIELDS(conv1, conv2, fc1, fc2)
  Tensor operator()(const Tensor& x) const {
    Tensor h = max_pool2d(relu(conv1(x)), 2);
    h = max_pool2d(relu(conv2(h)), 2);
    return fc2(relu(fc1(flatten(h, 1))));
  }
};

std::vector<WorkloadBatch> digit_batches(int size, std::uint32_t seed) {
  Mulberry template_random(3001);
  std::vector<float> templates(7840);
  for (float& t : templates) t = static_cast<float>(template_random.next());
  Mulberry r(seed);
  std::vector<WorkloadBatch> out(batch_count);
  for (WorkloadBatch& b : out) {
    for (int row = 0; row < size; ++row) {
      const int label = static_cast<int>(std::floor(10 * r.next()));
      b.y_index.push_back(label);
      for (int j = 0; j < 784; ++j) {
        const double t = templates[static_cast<std::size_t>(label * 784 + j)];
        b.x_float.push_back(static_cast<float>(0.5 * t + 0.5 * r.next()));
      }
    }
  }
  return out;
}

std::vector<WorkloadBatch> batches_of(const std::string& name) {
  if (name == "W1") return sine_batches();
  if (name == "W3") return digit_batches(128, 3002);
  if (name == "W3c") return digit_batches(64, 3003);
  const TextConfig config = text_config(name);
  return name == "W6" ? token_batches(config, 6002, 4) : text_batches(config);
}

// ---- parameters ----------------------------------------------------------------------------------

// Initial values from one stream, walked in the model's order; `scale` gives a parameter's bound,
// or nothing for ones and zeros.
template <class Model>
std::vector<ParamValue> initial_values(
    const Model& model, std::uint32_t seed,
    const std::function<std::optional<double>(const std::string&)>& scale) {
  Mulberry r(seed);
  std::vector<ParamValue> out;
  visit_params(model, [&](const std::string& name, const Param& p) {
    const auto n = static_cast<std::size_t>(numel(p.shape));
    ParamValue v{name, p.shape, {}};
    if (const auto s = scale(name)) {
      v.values = r.symmetric(n, *s);
    } else {
      v.values.assign(n, name.ends_with(".g") ? 1.0F : 0.0F);
    }
    out.push_back(std::move(v));
  });
  return out;
}

bool decays(const std::string& name) { return name.ends_with(".W") || name.ends_with("_emb"); }

template <class Model>
void set_decay(Model& model) {
  visit_params(model, [](const std::string& name, Param& p) { p.decay = decays(name); });
}

template <class Model, class Loss>
WorkloadRun train(std::string name, Model model, Loss loss, const TrainOptions& options,
                  std::vector<ParamValue> initial, int steps) {
  set_decay(model);
  WorkloadRun run;
  run.name = std::move(name);
  run.initial = std::move(initial);
  run.reference_steps = steps;
  run.training = std::make_shared<AnyTraining>(compile(std::move(model), loss, options));
  run.restart();
  return run;
}

const auto classify = [](const auto& m, const Inputs& in) {
  return cross_entropy(m(in["x"]), in["y"]);
};

}  // namespace

double Mulberry::next() {
  state_ += 0x6D2B79F5U;
  std::uint32_t t = (state_ ^ (state_ >> 15)) * (1U | state_);
  t = (t + (t ^ (t >> 7)) * (61U | t)) ^ t;
  return static_cast<double>(t ^ (t >> 14)) / 4294967296.0;
}

std::vector<float> Mulberry::symmetric(std::size_t n, double scale) {
  std::vector<float> out(n);
  for (float& x : out) x = static_cast<float>((2.0 * next() - 1.0) * scale);
  return out;
}

Feed WorkloadBatch::feed() const {
  const HostView x = x_float.empty() ? HostView(x_index) : HostView(x_float);
  const HostView y = y_float.empty() ? HostView(y_index) : HostView(y_float);
  return {{"x", x}, {"y", y}};
}

void WorkloadRun::restart() {
  training->reset();
  training->set_params(initial);
}

StepResult WorkloadRun::step(std::int64_t t) {
  return training->step(batches[static_cast<std::size_t>(t) % batches.size()].feed());
}

std::vector<std::string> workload_names() { return {"W1", "W2", "W2g", "W3", "W3c"}; }
std::vector<std::string> large_workload_names() { return {"W6"}; }
std::vector<std::string> operation_names() { return {"W4", "W4l", "W5"}; }

WorkloadRun compile_workload(const std::string& name, const std::string& device,
                             bool uncorrected_epsilon) {
  if (name == "W1") {
    SineMlp model;
    auto initial = initial_values(model, 1, [](const std::string& n) {
      return std::optional(n.starts_with("l1") ? 1.0 : 1 / std::sqrt(64.0));
    });
    return train(
        name, model,
        [](const SineMlp& m, const Inputs& in) { return mean(square(m(in["x"]) - in["y"])); },
        {.inputs = {{"x", {256, 1}}, {"y", {256, 1}}},
         .optimizer = Adam{.lr = 0.005, .eps_on_uncorrected = uncorrected_epsilon},
         .device = device},
        std::move(initial), 200);
  }
  if (name == "W2" || name == "W2g" || name == "W6") {
    const TextConfig config = text_config(name);
    TextModel model(config);
    auto initial = initial_values(model, name == "W6" ? 6 : 2, [](const std::string& n) {
      return decays(n) ? std::optional(0.02 * std::sqrt(3.0)) : std::nullopt;
    });
    const Shape shape{config.batch, config.context};
    return train(
        name, std::move(model), classify,
        {.inputs = {{"x", shape, DType::i32}, {"y", shape, DType::i32}},
         .optimizer =
             AdamW{.lr = 3e-4, .weight_decay = 0.1, .eps_on_uncorrected = uncorrected_epsilon},
         .device = device},
        std::move(initial), name == "W6" ? 5 : 30);
  }
  if (name == "W3") {
    DigitMlp model;
    auto initial = initial_values(model, 3, [](const std::string& n) {
      return std::optional(n.starts_with("fc1") ? 1 / std::sqrt(784.0) : 1 / std::sqrt(256.0));
    });
    return train(name, model, classify,
                 {.inputs = {{"x", {128, 784}}, {"y", {128}, DType::i32}},
                  .optimizer = Adam{.lr = 1e-3, .eps_on_uncorrected = uncorrected_epsilon},
                  .device = device},
                 std::move(initial), 50);
  }
  if (name == "W3c") {
    DigitCnn model;
    auto initial = initial_values(model, 4, [](const std::string& n) {
      return std::optional(n.starts_with("conv1")   ? 1 / std::sqrt(9.0)
                           : n.starts_with("conv2") ? 1 / std::sqrt(9.0 * 16)
                           : n.starts_with("fc1")   ? 1 / std::sqrt(1568.0)
                                                    : 1 / std::sqrt(64.0));
    });
    return train(
        name, model, classify,
        {.inputs = {{"x", {64, 1, 28, 28}}, {"y", {64}, DType::i32}},
         .optimizer =
             AdamW{.lr = 1e-3, .weight_decay = 0.01, .eps_on_uncorrected = uncorrected_epsilon},
         .clip_norm = 1.0,
         .device = device},
        std::move(initial), 20);
  }
  throw ValueError(fmt::format("There is no training workload `{}`; there are {}.", name,
                               fmt::join(workload_names(), ", ")) +
                   " W6 is for large GPUs.");
}

WorkloadRun open_workload(const std::string& name, const std::string& device,
                          bool uncorrected_epsilon) {
  WorkloadRun run = compile_workload(name, device, uncorrected_epsilon);
  run.batches = batches_of(name);
  return run;
}

namespace {

// A graph whose operands stay on the device.
OperationRun operation(const std::string& name, const std::string& device,
                       const std::vector<std::pair<Shape, std::uint32_t>>& operands,
                       const std::function<Tensor(const std::vector<Tensor>&)>& f,
                       std::int64_t flops) {
  struct Held {
    std::shared_ptr<Engine> engine;
    std::unique_ptr<Program> program;
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    std::vector<DeviceBuffer*> states;
  };
  auto held = std::make_shared<Held>();
  held->engine = open_engine(device);
  Graph graph;
  std::int64_t bytes = 0;
  for (const auto& [shape, seed] : operands) {
    graph.states.push_back(prim::input(
        InputRole::state, fmt::format("operand{}", graph.states.size()), {shape, DType::f32}));
    const std::vector<float> values =
        Mulberry(seed).symmetric(static_cast<std::size_t>(numel(shape)), 1.0);
    held->buffers.push_back(held->engine->allocate(DType::f32, numel(shape)));
    held->buffers.back()->write(0, std::as_bytes(std::span(values)));
    held->states.push_back(held->buffers.back().get());
    bytes += 4 * numel(shape);
  }
  const Tensor result = f(graph.states);
  bytes += 4 * result.size();
  graph.outputs = {{"result", result}};
  held->program = held->engine->load(graph, nullptr);
  OperationRun run;
  run.name = name;
  run.flops = flops;
  run.bytes = bytes;
  run.run = [held] { held->program->run({}, held->states)->output(0); };
  run.plan = held->program->plan();
  if (held->program->executable()) {
    run.device_seconds = [held] {
      constexpr int repeats = 10;
      return held->program->executable()->seconds({}, held->states, repeats) / repeats;
    };
  }
  run.check = [held] {
    const auto done = held->program->run({}, held->states);
    const auto out = done->output(0);
    double sum = 0;
    double magnitude = 0;
    for (std::size_t i = 0; i < out.size(); i += sizeof(float)) {
      float v = 0;
      std::memcpy(&v, &out[i], sizeof v);
      sum += v;
      magnitude += std::abs(static_cast<double>(v));
    }
    return std::pair(sum, magnitude);
  };
  return run;
}

}  // namespace

std::vector<OperationRun> open_operations(const std::string& name, const std::string& device) {
  std::vector<OperationRun> out;
  if (name == "W4" || name == "W4l") {
    const std::vector<std::int64_t> small{256, 512, 1024};
    const std::vector<std::int64_t> large{2048, 4096};
    for (const std::int64_t n : name == "W4" ? small : large) {
      out.push_back(operation(
          fmt::format("W4 matmul {}", n), device, {{{n, n}, 40}, {{n, n}, 41}},
          [](const std::vector<Tensor>& x) { return matmul(x[0], x[1]); }, 2 * n * n * n));
    }
    return out;
  }
  if (name == "W5") {
    out.push_back(operation(
        "W5 softmax", device, {{{4096, 1024}, 50}},
        [](const std::vector<Tensor>& x) { return softmax(x[0], -1); }, 4096 * 1024 * 5));
    out.push_back(operation(
        "W5 layernorm", device, {{{4096, 768}, 51}, {{768}, 52}, {{768}, 53}},
        [](const std::vector<Tensor>& x) {
          const Tensor centred = x[0] - mean(x[0], Reduce(-1, true));
          const Tensor variance = mean(square(centred), Reduce(-1, true));
          return centred * rsqrt(variance + 1e-5) * x[1] + x[2];
        },
        4096 * 768 * 8));
    out.push_back(operation(
        "W5 sum", device, {{{1 << 22}, 54}}, [](const std::vector<Tensor>& x) { return sum(x[0]); },
        1 << 22));
    return out;
  }
  throw ValueError(fmt::format("There is no operation workload `{}`; there are {}.", name,
                               fmt::join(operation_names(), ", ")));
}

}  // namespace tensorgrad::tools
