#include "nn/evaluate.h"
#include "tensorgrad/optim.h"

namespace tensorgrad {
namespace {

using testing::message_of;

TEST(Optimizer, Defaults) {
  EXPECT_EQ(AdamW{}.weight_decay, 0.01);
  EXPECT_EQ(AdamW{}.lr, Schedule(1e-3));
  EXPECT_EQ(to_string(Optimizer(Adam{.lr = 0.005})),
            R"({"kind":"Adam","lr":0.005,"beta1":0.9,"beta2":0.999,"eps":1e-08,)"
            R"("weight_decay":0.0,"eps_on_uncorrected":false})");
}

TEST(Optimizer, PrintsAndParses) {
  const std::vector<Optimizer> all{
      SGD{.lr = 0.1, .momentum = 0.9, .nesterov = true},
      SGD{.lr = 0.1, .momentum = 0.9, .dampening = 0.5, .weight_decay = 1e-4},
      Adam{.lr = Schedule::cosine(1, 0, 9), .beta1 = 0.8, .eps_on_uncorrected = true},
      AdamW{.lr = Schedule::warmup(5, 0.1), .weight_decay = 0.1, .beta2 = 0.95},
      AdamW{},
      RMSprop{.alpha = 0.9, .momentum = 0.5, .centered = true},
      Adagrad{.lr_decay = 0.1, .eps = 1e-9},
      Lion{.beta2 = 0.98, .weight_decay = 1},
      Lion{}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Optimizer back = parse_optimizer(to_string(all[i]));
    for (std::size_t j = 0; j < all.size(); ++j) EXPECT_EQ(back == all[j], i == j);
  }
  EXPECT_EQ(parse_optimizer(R"({"kind":"SGD"})"), Optimizer(SGD{}));
}

TEST(Optimizer, ParseErrors) {
  const auto message = [](const char* text) {
    return message_of<FormatError>([&] { parse_optimizer(text); });
  };
  EXPECT_EQ(message("nothing"), "optimizer: the text is not JSON: nothing");
  EXPECT_EQ(message("3"), "optimizer: 3 is not an object with a \"kind\".");
  EXPECT_EQ(message(R"({"kind":"Adamax"})"), "optimizer: there is no kind \"Adamax\".");
  EXPECT_EQ(message(R"({"kind":"SGD","beta1":0.5})"),
            "optimizer: \"beta1\" is unknown in a \"SGD\".");
  EXPECT_EQ(message(R"({"kind":"SGD","nesterov":1})"),
            "optimizer: \"nesterov\" is not true or false in a \"SGD\".");
}

TEST(Optimizer, Errors) {
  const auto message = [](const Optimizer& o) {
    return message_of<ValueError>([&] { validate(o); });
  };
  EXPECT_EQ(message(Adam{.beta1 = 1}), "Adam: beta1 is 1, not in [0, 1).");
  EXPECT_EQ(message(AdamW{.weight_decay = -1}),
            "AdamW: weight_decay is -1, not a finite number of at least 0.");
  EXPECT_EQ(message(RMSprop{.eps = std::nan("")}),
            "RMSprop: eps is nan, not a finite number of at least 0.");
  EXPECT_EQ(message(SGD{.nesterov = true}),
            "SGD: Nesterov's form needs momentum and no dampening, not 0 and 0.");
  EXPECT_EQ(message(SGD{.momentum = 0.5, .dampening = 0.25, .nesterov = true}),
            "SGD: Nesterov's form needs momentum and no dampening, not 0.5 and 0.25.");
}

TEST(Optimizer, TheScheduleCanBeReplaced) {
  Optimizer o = AdamW{};
  set_schedule(o, Schedule::linear(1, 0, 4));
  EXPECT_EQ(schedule_of(o), Schedule::linear(1, 0, 4));
}

}  // namespace
}  // namespace tensorgrad
