#include "profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "io/temp_folder.h"
#include "runtime/device.h"
#include "tensorgrad/error.h"
#include "train/core.h"
#include "workloads.h"

namespace tensorgrad::tools {
namespace {

using ::testing::HasSubstr;

const StepProfile sample{"a step", {{"first", {4000, 2000}, 2e-6}, {"second", {100, 300}, 6e-6}}};

TEST(Profile, TableHasTimesSharesAndRates) {
  const std::string table = profile_table(sample);
  EXPECT_THAT(table, HasSubstr("2.00   25.0%        1.0       2.0  first\n"));
  EXPECT_THAT(table, HasSubstr("6.00   75.0%"));
  EXPECT_THAT(table, HasSubstr("8.00"));
}

TEST(Profile, TraceIsChromesFormat) {
  const nlohmann::json trace = nlohmann::json::parse(profile_trace(sample));
  std::vector<nlohmann::json> kernels;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X") kernels.push_back(event);
  }
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[0]["name"], "first");
  EXPECT_DOUBLE_EQ(kernels[0]["ts"], 0.0);
  EXPECT_DOUBLE_EQ(kernels[0]["dur"], 2.0);
  EXPECT_DOUBLE_EQ(kernels[1]["ts"], 2.0);
  EXPECT_EQ(kernels[1]["args"]["flops"], 300);
}

TEST(Profile, OfATrainingLeavesItAsItIs) {
  for (const Backend& backend : backends()) {
    if (!backend.unavailable().empty()) continue;
    const WorkloadRun run = open_workload("W1", backend.name);
    detail::TrainingCore& core = run.training->core();
    Program& program = *core.compiled()->program;
    const StepProfile profile = profile_step("W1", program, core.engine());
    EXPECT_EQ(profile.kernels.size(), program.plan()->dispatches.size());
    EXPECT_GT(profile.seconds(), 0);
    EXPECT_GT(replay_seconds(program, core.engine(), run.batches[0].feed(), 1e-3), 0);
    const auto params = run.training->params();
    for (std::size_t i = 0; i < params.size(); ++i) {
      EXPECT_EQ(params[i].values, run.initial[i].values) << backend.name;
    }
    const test::TempFolder folder;
    write_profile(folder / "deep", "W1", profile);
    EXPECT_TRUE(std::filesystem::exists(folder / "deep" / "W1.txt"));
    EXPECT_TRUE(std::filesystem::exists(folder / "deep" / "W1.trace.json"));
    EXPECT_THROW(write_profile("/proc/none", "W1", profile), FormatError);
  }
}

}  // namespace
}  // namespace tensorgrad::tools
