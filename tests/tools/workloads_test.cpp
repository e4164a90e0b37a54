// The fixed workloads: inputs bit for bit, losses along the recorded ones.
#include "workloads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/device.h"

namespace tensorgrad::tools {
namespace {

nlohmann::json read_json(const std::string& name) {
  std::ifstream file(std::string(TENSORGRAD_SOURCE_DIR) + "/tests/data/" + name);
  return nlohmann::json::parse(file);
}

template <class T>
void expect_summary(const std::vector<T>& values, const nlohmann::json& expected,
                    const std::string& what) {
  double sum = 0;
  for (const T& v : values) sum += v;
  ASSERT_FALSE(values.empty()) << what;
  EXPECT_EQ(static_cast<double>(values.front()), expected[0].get<double>()) << what;
  EXPECT_EQ(static_cast<double>(values.back()), expected[1].get<double>()) << what;
  EXPECT_NEAR(sum, expected[2].get<double>(), 1e-9 * std::max(1.0, std::abs(sum))) << what;
}

struct Case {
  std::string device, work;
  bool slow = false;  ///< the device only imitates a GPU
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.work << " on " << c.device; }
};

/// Every workload on every usable device.
std::vector<Case> cases() {
  std::vector<Case> out;
  for (const Backend& backend : backends()) {
    if (!backend.unavailable().empty()) continue;
    for (const std::string& work : workload_names()) {
      out.push_back({backend.name, work, !backend.automatic()});
    }
  }
  return out;
}

class Workloads : public testing::TestWithParam<Case> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Workloads);

// Largest distance from the double-precision losses.
double tolerance(const std::string& name) {
  // Which side of a kink of relu a unit falls on is decided by rounding; W2g has no kinks.
  if (name == "W2") return 5e-4;
  if (name == "W3c") return 2e-5;
  return 1e-5;
}

TEST_P(Workloads, FollowTheRecordedLosses) {
  const auto& [device, work, slow] = GetParam();
  const nlohmann::json reference = read_json("reference_losses.json");
  for (const bool uncorrected : {false, true}) {
    WorkloadRun run = open_workload(work, device, uncorrected);
    auto losses = reference.at(work + (uncorrected ? ".hat" : ".std"))
                      .at("losses")
                      .get<std::vector<double>>();
    ASSERT_EQ(static_cast<std::size_t>(run.reference_steps), losses.size());
    constexpr std::size_t few = 3;
    if (slow && work != "W1") losses.resize(std::min(few, losses.size()));
    for (std::size_t t = 0; t < losses.size(); ++t) {
      const double loss = run.step(static_cast<std::int64_t>(t)).loss();
      ASSERT_NEAR(loss, losses[t], tolerance(work))
          << work << " step " << t << (uncorrected ? ", uncorrected epsilon" : "");
    }
  }
}

TEST_P(Workloads, HaveTheRecordedInputs) {
  const nlohmann::json inputs = read_json("workload_inputs.json");
  const std::string name = GetParam().work == "W2g" ? "W2" : GetParam().work;
  const WorkloadRun run = open_workload(GetParam().work, GetParam().device);
  const auto& expected = inputs.at(name);
  for (const ParamValue& p : run.initial) {
    ASSERT_TRUE(expected.at("params").contains(p.name)) << p.name;
    expect_summary(p.values, expected["params"][p.name], p.name);
  }
  EXPECT_EQ(expected["params"].size(), run.initial.size());
  for (const std::size_t b : {std::size_t{0}, std::size_t{31}}) {
    const auto& batch = expected.at("batch" + std::to_string(b));
    const WorkloadBatch& have = run.batches.at(b);
    const auto key = [&](std::initializer_list<const char*> names) {
      for (const char* n : names) {
        if (batch.contains(n)) return std::string(n);
      }
      return std::string();
    };
    const std::string x = key({"x", "tokens"});
    const std::string y = key({"y", "targets"});
    if (have.x_float.empty()) {
      expect_summary(have.x_index, batch.at(x), x);
    } else {
      expect_summary(have.x_float, batch.at(x), x);
    }
    if (have.y_float.empty()) {
      expect_summary(have.y_index, batch.at(y), y);
    } else {
      expect_summary(have.y_float, batch.at(y), y);
    }
  }
}

TEST_P(Workloads, GiveTheSameBitsTwice) {
  WorkloadRun run = open_workload(GetParam().work, GetParam().device);
  const auto train = [&] {
    run.restart();
    for (int t = 0; t < (GetParam().slow ? 2 : 3); ++t) run.step(t);
    return run.training->params();
  };
  const auto first = train();
  const auto second = train();
  for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(first[i].values, second[i].values);
}

INSTANTIATE_TEST_SUITE_P(All, Workloads, testing::ValuesIn(cases()), [](const auto& test) {
  return test.param.work + "_" + test.param.device;
});

TEST(Operations, HaveTheRecordedResults) {
  if (backends().empty()) GTEST_SKIP() << "built without backends";
  const std::vector<std::pair<double, double>> products = {
      {-1405.66314, 277986.5105}, {-3657.3685, 1571017.602}, {-14712.5856, 8931419.15}};
  const auto matmuls = open_operations("W4", "auto");
  for (std::size_t i = 0; i < products.size(); ++i) {
    const auto [sum, magnitude] = matmuls[i].check();
    EXPECT_NEAR(sum, products[i].first, 1e-5 * products[i].second) << matmuls[i].name;
    EXPECT_NEAR(magnitude, products[i].second, 1e-5 * products[i].second) << matmuls[i].name;
  }
  const std::vector<std::pair<double, double>> rows = {
      {4096.00001, 4096.00001}, {-71746.1405, 2104309.61}, {-609.35034, 609.35034}};
  const auto memory = open_operations("W5", "auto");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto [sum, magnitude] = memory[i].check();
    const double scale = i == 2 ? 1e3 : rows[i].second;
    EXPECT_NEAR(sum, rows[i].first, 1e-5 * scale) << memory[i].name;
    EXPECT_NEAR(magnitude, rows[i].second, 1e-5 * scale) << memory[i].name;
  }
}

}  // namespace
}  // namespace tensorgrad::tools
