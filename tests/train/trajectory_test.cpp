// Layers, loss, derivatives and optimizer together: the first losses of a fixed training, which are
// known in double precision for both conventions of Adam's epsilon.
#include <cmath>
#include <numbers>

#include "nn/evaluate.h"
#include "tensorgrad/nn.h"
#include "train/update.h"

namespace tensorgrad {
namespace {

using testing::Doubles;
using testing::input;

/// The generator of the fixed data (mulberry32), in [0, 1).
class Draws {
 public:
  explicit Draws(std::uint32_t seed) : state_(seed) {}
  double next() {
    state_ += 0x6D2B79F5U;
    std::uint32_t t = (state_ ^ (state_ >> 15)) * (1U | state_);
    t = (t + (t ^ (t >> 7)) * (61U | t)) ^ t;
    return (t ^ (t >> 14)) / 4294967296.0;
  }

 private:
  std::uint32_t state_;
};

struct Mlp {
  nn::Linear l1{1, 64}, l2{64, 64}, l3{64, 1};
  TENSORGRAD_FIELDS(l1, l2, l3)
  Tensor operator()(const Tensor& x) const { return l3(relu(l2(relu(l1(x))))); }
};

/// A parameter with its state, in double.
struct Trained {
  Tensor place;
  Doubles value;
  std::vector<Doubles> slots;
};

Doubles losses(const Optimizer& optimizer, int steps) {
  constexpr std::int64_t batch = 256;
  Mlp model;
  std::vector<Trained> trained;
  Draws start(1);
  double scale = 0;
  visit_params(model, [&](const std::string& name, Param& p) {
    p.bind(input(name, p.shape), name);
    if (p.shape.size() == 2) scale = 1 / std::sqrt(static_cast<double>(p.shape[0]));
    Doubles value;
    for (std::int64_t i = 0; i < numel(p.shape); ++i) {
      value.push_back(static_cast<float>((2.0 * start.next() - 1.0) * scale));
    }
    trained.push_back({p.bound, value, std::vector<Doubles>(2, Doubles(value.size(), 0))});
  });
  const Tensor loss = mse_loss(model(input("x", {batch, 1})), input("y", {batch, 1}));
  std::vector<Tensor> by;
  for (const Trained& t : trained) by.push_back(t.place);
  const Tensor seed = full({}, 1);
  std::vector<Tensor> outputs{loss};
  for (const Tensor& g : vjp(std::span(&loss, 1), by, std::span(&seed, 1))) {
    const std::int64_t n = g.size();
    const std::string& name = by[outputs.size() / 3].node().attr<InputAttr>().name;
    const std::vector<Tensor> slots{input(name + " m", {n}), input(name + " v", {n})};
    const Updated u = update(optimizer, flatten(by[outputs.size() / 3]), flatten(g), slots,
                             input("hyper", {2}), zeros({n}, DType::bool_));
    outputs.insert(outputs.end(), {u.params, u.slots[0], u.slots[1]});
  }

  Draws data(1001);
  Doubles out;
  for (int step = 1; step <= steps; ++step) {
    std::map<std::string, Doubles> values;
    for (std::int64_t i = 0; i < batch; ++i) {
      const auto x = static_cast<float>((2.0 * data.next() - 1.0) * std::numbers::pi);
      values["x"].push_back(x);
      values["y"].push_back(static_cast<float>(std::sin(static_cast<double>(x))));
    }
    const std::vector<float> h = hyper(optimizer, step, learning_rate_of(optimizer, step));
    values["hyper"] = Doubles(h.begin(), h.end());
    for (const Trained& t : trained) {
      const std::string& name = t.place.node().attr<InputAttr>().name;
      values[name] = t.value;
      values[name + " m"] = t.slots[0];
      values[name + " v"] = t.slots[1];
    }
    const std::vector<RefArray> results = interpret(outputs, [&](const Node& leaf) -> RefArray {
      return {leaf.type, values.at(leaf.attr<InputAttr>().name)};
    });
    out.push_back(results[0].data[0]);
    for (std::size_t i = 0; i < trained.size(); ++i) {
      trained[i].value = results[1 + 3 * i].data;
      trained[i].slots = {results[2 + 3 * i].data, results[3 + 3 * i].data};
    }
  }
  return out;
}

void expect_close(const Doubles& actual, const Doubles& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-7) << "step " << i + 1;
  }
}

TEST(Trajectory, OfThePerceptronWithAdam) {
  expect_close(losses(Adam{.lr = 0.005}, 3),
               {0.688699350441029, 0.33147020724613363, 0.18166812585596684});
  expect_close(losses(Adam{.lr = 0.005, .eps_on_uncorrected = true}, 3),
               {0.688699350441029, 0.3314731745018542, 0.18165262804047425});
}

}  // namespace
}  // namespace tensorgrad
