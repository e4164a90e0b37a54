#include <cmath>
#include <limits>

#include "nn/evaluate.h"
#include "tensorgrad/optim.h"

namespace tensorgrad {
namespace {

using testing::message_of;

TEST(Schedule, Constant) {
  const Schedule s = 0.25;
  EXPECT_EQ(s.at(1), 0.25);
  EXPECT_EQ(s.at(1000000), 0.25);
  EXPECT_EQ(s.kind(), Schedule::Kind::constant);
}

TEST(Schedule, Linear) {
  const Schedule s = Schedule::linear(1, 0.5, 10);
  EXPECT_DOUBLE_EQ(s.at(0), 1);
  EXPECT_DOUBLE_EQ(s.at(1), 0.95);
  EXPECT_DOUBLE_EQ(s.at(5), 0.75);
  EXPECT_DOUBLE_EQ(s.at(10), 0.5);
  EXPECT_DOUBLE_EQ(s.at(11), 0.5);
}

TEST(Schedule, Cosine) {
  const Schedule s = Schedule::cosine(3, 1, 4);
  EXPECT_DOUBLE_EQ(s.at(0), 3);
  EXPECT_DOUBLE_EQ(s.at(1), 2 + std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(s.at(2), 2);
  EXPECT_DOUBLE_EQ(s.at(4), 1);
  EXPECT_DOUBLE_EQ(s.at(400), 1);
}

TEST(Schedule, WarmupHandsOver) {
  const Schedule s = Schedule::warmup(4, Schedule::linear(1, 0, 10));
  EXPECT_DOUBLE_EQ(s.at(1), 0.25);
  EXPECT_DOUBLE_EQ(s.at(4), 1);
  EXPECT_DOUBLE_EQ(s.at(5), 0.9);
  EXPECT_DOUBLE_EQ(s.at(14), 0);
}

TEST(Schedule, StaircaseKeepsEachStepForAsLong) {
  const Schedule s = Schedule::staircase(1, 0.5, 3);
  for (const auto& [step, value] :
       {std::pair(1, 1.0), {3, 1.0}, {4, 0.5}, {6, 0.5}, {7, 0.25}, {0, 1.0}}) {
    EXPECT_DOUBLE_EQ(s.at(step), value) << step;
  }
}

TEST(Schedule, MultiStepChangesAfterMilestones) {
  const Schedule s = Schedule::multi_step(1, {2, 5}, 0.1);
  for (const auto& [step, value] :
       {std::pair(1, 1.0), {2, 1.0}, {3, 0.1}, {5, 0.1}, {6, 0.01}, {100, 0.01}}) {
    EXPECT_DOUBLE_EQ(s.at(step), value) << step;
  }
  EXPECT_EQ(Schedule::multi_step(1, {}, 0.1).at(9), 1);
}

TEST(Schedule, FromStepIsZeroBefore) {
  const Schedule s = Schedule::from_step(3, Schedule::linear(1, 0, 10));
  EXPECT_EQ(s.at(0), 0);
  EXPECT_EQ(s.at(2), 0);
  EXPECT_DOUBLE_EQ(s.at(3), 0.9);
  EXPECT_DOUBLE_EQ(s.at(4), 0.8);
}

std::vector<Schedule> all_kinds() {
  return {0.1,
          Schedule::linear(0.1, 1e-5, 100),
          Schedule::cosine(3e-4, 0, 5000),
          Schedule::warmup(10, Schedule::cosine(3e-4, 3e-5, 50)),
          Schedule::staircase(0.1, 0.3, 7),
          Schedule::multi_step(1.0 / 3, {3, 9, 27}, 0.1),
          Schedule::from_step(5, Schedule::warmup(2, 0.7))};
}

TEST(Schedule, PrintsAndParses) {
  const std::vector<Schedule> all = all_kinds();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Schedule back = Schedule::parse(to_string(all[i]));
    for (std::size_t j = 0; j < all.size(); ++j) EXPECT_EQ(back == all[j], i == j);
  }
  EXPECT_EQ(to_string(Schedule(0.001)), "0.001");
  EXPECT_EQ(to_string(Schedule::warmup(10, Schedule::cosine(0.5, 0.25, 50))),
            R"({"kind":"warmup","steps":10,"after":{"kind":"cosine","peak":0.5,"final":0.25,)"
            R"("steps":50}})");
}

TEST(Schedule, ParseErrors) {
  const auto message = [](const char* text) {
    return message_of<FormatError>([&] { Schedule::parse(text); });
  };
  EXPECT_EQ(message("{"), "schedule: the text is not JSON: {");
  EXPECT_EQ(message("[1]"), "schedule: [1] is not an object with a \"kind\".");
  EXPECT_EQ(message(R"({"kind":"cubic"})"), "schedule: there is no kind \"cubic\".");
  EXPECT_EQ(message(R"({"kind":"linear","start":1,"final":0})"),
            "schedule: \"steps\" is missing in a \"linear\".");
  EXPECT_EQ(message(R"({"kind":"linear","start":"1","final":0,"steps":3})"),
            "schedule: \"start\" is not a number in a \"linear\".");
  EXPECT_EQ(message(R"({"kind":"linear","start":1,"final":0,"steps":3.5})"),
            "schedule: \"steps\" is not a whole number in a \"linear\".");
  EXPECT_EQ(message(R"({"kind":"linear","start":1,"final":0,"steps":3,"power":2})"),
            "schedule: \"power\" is unknown in a \"linear\".");
  EXPECT_EQ(message(R"({"kind":"multi_step","lr":1,"factor":0.5,"milestones":3})"),
            "schedule: \"milestones\" is not a list in a \"multi_step\".");
  std::string deep = "1";
  for (int i = 0; i < 40; ++i) {
    deep.insert(0, R"({"kind":"warmup","steps":1,"after":)").append(1, '}');
  }
  EXPECT_EQ(message(deep.c_str()), "schedule: more than 32 schedules lie in each other.");
  EXPECT_EQ(message_of<ValueError>([] { Schedule::parse("-1"); }),
            "learning rate: the value is -1, not a finite number of at least 0.");
}

TEST(Schedule, Errors) {
  const double nan = std::nan("");
  EXPECT_EQ(message_of<ValueError>([&] { Schedule{nan}; }),
            "learning rate: the value is nan, not a finite number of at least 0.");
  EXPECT_EQ(message_of<ValueError>([] { Schedule::linear(1, -1, 5); }),
            "linear: the final value is -1, not a finite number of at least 0.");
  EXPECT_EQ(message_of<ValueError>([] { Schedule::cosine(1, 0, 0); }),
            "cosine: the number of steps is 0, not at least 1.");
  EXPECT_EQ(message_of<ValueError>([] { Schedule::warmup(-3, 0.1); }),
            "warmup: the number of steps is -3, not at least 1.");
  EXPECT_EQ(message_of<ValueError>([] { Schedule::staircase(1, INFINITY, 4); }),
            "staircase: the factor is inf, not a finite number of at least 0.");
  EXPECT_EQ(message_of<ValueError>([] { Schedule::multi_step(1, {5, 5}, 0.1); }),
            "multi_step: milestone 5 comes after 5; they must ascend.");
  EXPECT_EQ(message_of<ValueError>([] { Schedule::from_step(0, 0.1); }),
            "from_step: the first step is 0, not at least 1.");
  EXPECT_EQ(message_of<ValueError>([] { Schedule(0.1).at(-1); }), "learning rate: the step is -1.");
}

}  // namespace
}  // namespace tensorgrad
