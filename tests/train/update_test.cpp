#include "train/update.h"

#include <cmath>
#include <functional>

#include "nn/evaluate.h"

namespace tensorgrad {
namespace {

using testing::Doubles;
using testing::evaluate;
using testing::expect_near;
using testing::input;
using testing::literal;
using testing::scattered;

constexpr std::int64_t n = 7;
constexpr int steps = 5;

/// One parameter in a plain loop: p and g change into the new p; `s` are its slots; t counts
/// from 1.
using Loop =
    std::function<double(double p, double g, bool decays, std::array<double, 3>& s, int t)>;

Doubles gradient_at(int step) { return scattered(n, 1, static_cast<std::uint32_t>(10 + step)); }
bool decays(std::size_t i) { return i % 3 != 0; }

/// Some steps of the graph's update against the loop; both start from the same parameters.
void check_optimizer(const Optimizer& optimizer, const Loop& loop) {
  const std::vector<std::string> names = slot_names(optimizer);
  Doubles params = scattered(n);
  Doubles expected = params;
  std::vector<std::array<double, 3>> state(n, {0, 0, 0});
  Doubles flags;
  for (std::size_t i = 0; i < n; ++i) flags.push_back(decays(i) ? 1 : 0);
  std::map<std::string, Doubles> values{{"decays", flags}};
  for (const std::string& s : names) values["slot " + s] = Doubles(n, 0);

  std::vector<Tensor> slots;
  for (const std::string& s : names) slots.push_back(input("slot " + s, {n}));
  const auto numbers = static_cast<std::int64_t>(hyper(optimizer, 1, 1).size());
  const Updated updated = update(optimizer, input("params", {n}), input("grads", {n}), slots,
                                 input("hyper", {numbers}), input("decays", {n}, DType::bool_));
  ASSERT_EQ(updated.slots.size(), names.size());
  for (int t = 1; t <= steps; ++t) {
    const std::vector<float> h = hyper(optimizer, t, learning_rate_of(optimizer, t));
    values["params"] = params;
    values["grads"] = gradient_at(t);
    values["hyper"] = Doubles(h.begin(), h.end());
    params = evaluate(updated.params, {.inputs = values});
    std::map<std::string, Doubles> next = values;
    for (std::size_t k = 0; k < names.size(); ++k) {
      next["slot " + names[k]] = evaluate(updated.slots[k], {.inputs = values});
    }
    values = next;
    for (std::size_t i = 0; i < n; ++i) {
      expected[i] = loop(expected[i], gradient_at(t)[i], decays(i), state[i], t);
    }
    SCOPED_TRACE("step " + std::to_string(t));
    expect_near(params, expected, 2e-7);
  }
}

TEST(Update, Sgd) {
  EXPECT_TRUE(slot_names(SGD{}).empty());
  check_optimizer(SGD{.lr = 0.1}, [](double p, double g, bool, auto&, int) { return p - 0.1 * g; });
  check_optimizer(SGD{.lr = 0.1, .weight_decay = 0.5}, [](double p, double g, bool d, auto&, int) {
    return p - 0.1 * (g + (d ? 0.5 * p : 0));
  });
  check_optimizer(SGD{.lr = 0.1, .momentum = 0.9, .dampening = 0.25, .weight_decay = 0.5},
                  [](double p, double g, bool d, auto& s, int t) {
                    g += d ? 0.5 * p : 0;
                    s[0] = t == 1 ? g : 0.9 * s[0] + 0.75 * g;
                    return p - 0.1 * s[0];
                  });
  check_optimizer(SGD{.lr = 0.1, .momentum = 0.9, .nesterov = true},
                  [](double p, double g, bool, auto& s, int) {
                    s[0] = 0.9 * s[0] + g;
                    return p - 0.1 * (g + 0.9 * s[0]);
                  });
}

/// What Adam takes away, in either convention of epsilon.
double adam(double g, std::array<double, 3>& s, int t, double lr, double eps, bool uncorrected) {
  s[0] = 0.8 * s[0] + 0.2 * g;
  s[1] = 0.95 * s[1] + 0.05 * g * g;
  const double c1 = 1 - std::pow(0.8, t);
  const double c2 = 1 - std::pow(0.95, t);
  if (uncorrected) return lr * std::sqrt(c2) / c1 * s[0] / (std::sqrt(s[1]) + eps);
  return lr * (s[0] / c1) / (std::sqrt(s[1] / c2) + eps);
}

TEST(Update, AdamInBothConventionsOfEpsilon) {
  EXPECT_EQ(slot_names(Adam{}), (std::vector<std::string>{"m", "v"}));
  for (bool uncorrected : {false, true}) {
    check_optimizer(Adam{.lr = 0.1,
                         .beta1 = 0.8,
                         .beta2 = 0.95,
                         .eps = 0.01,
                         .weight_decay = 0.5,
                         .eps_on_uncorrected = uncorrected},
                    [=](double p, double g, bool d, auto& s, int t) {
                      return p - adam(g + (d ? 0.5 * p : 0), s, t, 0.1, 0.01, uncorrected);
                    });
  }
}

TEST(Update, AdamWDecaysBesideItsStepUnderASchedule) {
  const Schedule lr = Schedule::linear(0.1, 0, 10);
  for (bool uncorrected : {false, true}) {
    check_optimizer(AdamW{.lr = lr,
                          .weight_decay = 0.5,
                          .beta1 = 0.8,
                          .beta2 = 0.95,
                          .eps = 0.01,
                          .eps_on_uncorrected = uncorrected},
                    [&](double p, double g, bool d, auto& s, int t) {
                      const double rate = lr.at(t);
                      return p * (d ? 1 - rate * 0.5 : 1) - adam(g, s, t, rate, 0.01, uncorrected);
                    });
  }
}

TEST(Update, ScalesTheLearningRateOfEachElement) {
  const std::vector<Optimizer> optimizers{SGD{.momentum = 0.9, .nesterov = true},
                                          Adam{},
                                          AdamW{},
                                          RMSprop{.momentum = 0.5},
                                          Adagrad{},
                                          Lion{.weight_decay = 0.1}};
  for (const Optimizer& optimizer : optimizers) {
    const auto step = [&](double lr, const Tensor& scales) {
      std::map<std::string, Doubles> values{{"params", scattered(n)},
                                            {"grads", gradient_at(1)},
                                            {"decays", Doubles(n, 1)},
                                            {"scales", {1, 0, 2, 1, 1, 3, 1}}};
      std::vector<Tensor> slots;
      for (const std::string& s : slot_names(optimizer)) {
        slots.push_back(input(s, {n}));
        values[s] = scattered(n, 1, 5);
        for (double& v : values[s]) v = std::abs(v);
      }
      const std::vector<float> h = hyper(optimizer, 1, lr);
      values["hyper"] = Doubles(h.begin(), h.end());
      return evaluate(update(optimizer, input("params", {n}), input("grads", {n}), slots,
                             input("hyper", {static_cast<std::int64_t>(h.size())}),
                             input("decays", {n}, DType::bool_), scales)
                          .params,
                      {.inputs = values});
    };
    const Doubles scaled = step(0.1, input("scales", {n}));
    for (const auto& [i, factor] :
         {std::pair(0, 1.0), std::pair(1, 0.0), std::pair(2, 2.0), std::pair(5, 3.0)}) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_NEAR(scaled[at], step(0.1 * factor, {})[at], 1e-7) << optimizer.index() << " " << i;
    }
  }
}

TEST(Update, RmsProp) {
  EXPECT_EQ(slot_names(RMSprop{.momentum = 0.5, .centered = true}),
            (std::vector<std::string>{"square", "mean", "momentum"}));
  check_optimizer(RMSprop{.lr = 0.1, .alpha = 0.9, .eps = 0.01, .weight_decay = 0.5},
                  [](double p, double g, bool d, auto& s, int) {
                    g += d ? 0.5 * p : 0;
                    s[0] = 0.9 * s[0] + 0.1 * g * g;
                    return p - 0.1 * g / (std::sqrt(s[0]) + 0.01);
                  });
  check_optimizer(RMSprop{.lr = 0.1, .alpha = 0.9, .eps = 0.01, .momentum = 0.5, .centered = true},
                  [](double p, double g, bool, auto& s, int) {
                    s[0] = 0.9 * s[0] + 0.1 * g * g;
                    s[1] = 0.9 * s[1] + 0.1 * g;
                    s[2] = 0.5 * s[2] + g / (std::sqrt(s[0] - s[1] * s[1]) + 0.01);
                    return p - 0.1 * s[2];
                  });
  check_optimizer(RMSprop{.lr = 0.1, .alpha = 0.9, .eps = 0.01, .momentum = 0.5},
                  [](double p, double g, bool, auto& s, int) {
                    s[0] = 0.9 * s[0] + 0.1 * g * g;
                    s[2] = 0.5 * s[2] + g / (std::sqrt(s[0]) + 0.01);
                    return p - 0.1 * s[2];
                  });
}

TEST(Update, Adagrad) {
  check_optimizer(Adagrad{.lr = 0.1, .lr_decay = 0.25, .weight_decay = 0.5, .eps = 0.01},
                  [](double p, double g, bool d, auto& s, int t) {
                    g += d ? 0.5 * p : 0;
                    s[0] += g * g;
                    return p - 0.1 / (1 + (t - 1) * 0.25) * g / (std::sqrt(s[0]) + 0.01);
                  });
}

TEST(Update, Lion) {
  check_optimizer(Lion{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.8, .weight_decay = 0.5},
                  [](double p, double g, bool d, auto& s, int) {
                    const double c = 0.9 * s[0] + 0.1 * g;
                    s[0] = 0.8 * s[0] + 0.2 * g;
                    const double sign = c > 0 ? 1 : c < 0 ? -1 : 0;
                    return p * (d ? 1 - 0.1 * 0.5 : 1) - 0.1 * sign;
                  });
}

TEST(Update, AParameterOfZeroGradientStaysWithoutDecay) {
  const std::vector<float> h = hyper(AdamW{}, 1, 1e-3);
  const std::vector<Tensor> slots{zeros({2}), zeros({2})};
  const Updated u =
      update(AdamW{}, array({1, 2}), zeros({2}), slots,
             literal(Doubles(h.begin(), h.end()), {static_cast<std::int64_t>(h.size())}),
             zeros({2}, DType::bool_));
  EXPECT_EQ(evaluate(u.params), (Doubles{1, 2}));
}

TEST(Update, EmptyArenas) {
  const std::vector<Tensor> slots{zeros({0}), zeros({0})};
  const Updated u =
      update(Adam{}, zeros({0}), zeros({0}), slots, zeros({2}), zeros({0}, DType::bool_));
  EXPECT_EQ(u.params.shape(), (Shape{0}));
}

TEST(Update, Hyper) {
  const std::vector<float> std = hyper(Adam{}, 2, 0.5);
  EXPECT_FLOAT_EQ(std[0], static_cast<float>(0.5 / (1 - 0.81)));
  EXPECT_FLOAT_EQ(std[1], static_cast<float>(1 / std::sqrt(1 - 0.999 * 0.999)));
  const std::vector<float> decoupled = hyper(AdamW{.weight_decay = 0.25}, 1, 0.5);
  EXPECT_FLOAT_EQ(decoupled[2], 0.125F);
}

/// The whole message of the E that f throws.
template <class E, class F>
std::string text_of(F f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Update, Errors) {
  EXPECT_EQ(text_of<ValueError>([] { hyper(Adam{}, 0, 1e-3); }),
            "Adam: the step is 0, not at least 1.");
  EXPECT_EQ(text_of<ValueError>([] { hyper(SGD{}, 1, std::nan("")); }),
            "SGD: the learning rate is nan, not a finite number of at least 0.");
  const Tensor x = zeros({3});
  const Tensor flags = zeros({3}, DType::bool_);
  const std::vector<Tensor> two{x, x};
  EXPECT_EQ(text_of<GraphError>([&] { update(Adam{}, x, x, {}, zeros({2}), flags); }),
            "update: Adam takes 2 slots, not 0.");
  EXPECT_EQ(text_of<ShapeError>([&] { update(Adam{}, x, zeros({2}), two, zeros({2}), flags); }),
            "update: the gradients have shape [2], not [3].");
  EXPECT_EQ(text_of<ShapeError>([&] { update(Adam{}, x, x, two, zeros({3}), flags); }),
            "update: the uploaded values have shape [3], not [2].");
  EXPECT_EQ(text_of<DTypeError>([&] { update(Adam{}, x, x, two, zeros({2}), x); }),
            "update: the decay flags are f32, not bool.");
  EXPECT_THROW(update(Adam{.beta1 = 2}, x, x, two, zeros({2}), flags), ValueError);
}

TEST(Clip, ScalesLongGradientsOnly) {
  const Tensor g = array({3, 4});
  const double scale = 1 / (5 + 1e-6);
  expect_near(evaluate(clip_by_global_norm(g, 1)), {3 * scale, 4 * scale}, 1e-12);
  EXPECT_EQ(evaluate(clip_by_global_norm(g, 5.5)), (Doubles{3, 4}));
  EXPECT_EQ(evaluate(clip_by_global_norm(zeros({2}), 1)), (Doubles{0, 0}));
  EXPECT_EQ(text_of<ValueError>([&] { clip_by_global_norm(g, 0); }),
            "clip_by_global_norm: the norm is 0, not a finite number above 0.");
}

}  // namespace
}  // namespace tensorgrad
