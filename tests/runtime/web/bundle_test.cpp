// Bundles: the header and the data of a small model.
#include "runtime/web/bundle.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "runtime/web/target.h"
#include "tensorgrad/nn.h"
#include "tensorgrad/web.h"

namespace tensorgrad::web {
namespace {

using Json = nlohmann::json;

struct Line {
  nn::Linear fc{3, 2};
  TENSORGRAD_FIELDS(fc)
  Tensor operator()(const Tensor& x) const { return fc(x); }
};

Model line(const std::string& device, std::int64_t batch = 4) {
  auto training = compile(
      Line{}, [](const Line& m, const Inputs& in) { return mse_loss(m(in["x"]), in["y"]); },
      {.inputs = {{"x", {batch, 3}}, {"y", {batch, 2}}}, .optimizer = Adam{}, .device = device});
  const Forward forward = training.attach(
      [](const Line& m, const Inputs& in) { return capture("out", m(in["x"])) * 2; },
      {.inputs = {{"x", {dyn, 3}}}});
  const AnyTraining& any = training;
  return {any, {{"twice", forward}}};
}

struct Parsed {
  Json header;
  std::span<const std::byte> data;
};

Parsed parse(std::span<const std::byte> bundle) {
  EXPECT_EQ(std::memcmp(bundle.data(), "tgbundle", 8), 0);
  std::uint32_t numbers[2];
  std::memcpy(numbers, bundle.data() + 8, sizeof numbers);
  EXPECT_EQ(numbers[0], 1U);
  EXPECT_EQ((16 + numbers[1]) % 16, 0U);
  const auto* text = reinterpret_cast<const char*>(bundle.data()) + 16;
  return {Json::parse(text, text + numbers[1]), bundle.subspan(16 + numbers[1])};
}

TEST(Bundle, HoldsProgramsAndWeights) {
  Model model = line("web");
  ParamValue bias{"fc.b", {2}, {1.5F, -2.0F}};
  model.training.set_params(std::span(&bias, 1));
  const std::vector<std::byte> bundle = make_bundle(model, {.sizes = {1, 5}});
  const auto [header, data] = parse(bundle);
  EXPECT_EQ(header["format"], "tensorgrad-bundle");
  EXPECT_EQ(header["bytes"], data.size());
  EXPECT_TRUE(header["needs"]["limits"].empty()) << header["needs"];
  ASSERT_EQ(header["states"].size(), 3U);
  EXPECT_EQ(header["states"][1]["name"], "optimizer.m");
  EXPECT_EQ(header["optimizer"]["kind"], "Adam");
  ASSERT_EQ(header["params"].size(), 2U);
  const auto find = [&](const std::string& name) -> Json {
    for (const Json& p : header["params"]) {
      if (p["name"] == name) return p;
    }
    return {};
  };
  const auto begin = header["states"][0]["data"][0].get<std::size_t>();
  float values[2];
  std::memcpy(values, data.data() + begin + 4 * find("fc.b")["offset"].get<std::size_t>(),
              sizeof values);
  EXPECT_EQ(values[0], 1.5F);
  EXPECT_EQ(values[1], -2.0F);
  // The step, and the forward for two sizes; initial values are not needed.
  ASSERT_EQ(header["programs"].size(), 3U);
  const Json& step = header["programs"][0];
  EXPECT_EQ(step["role"], "step");
  EXPECT_EQ(step["outputs"][0]["name"], "loss");
  ASSERT_EQ(step["inputs"].size(), 3U);
  EXPECT_EQ(step["inputs"][2]["name"], "$hyper");
  const Json& forward = header["programs"][2];
  EXPECT_EQ(forward["inputs"][0]["shape"], Json({5, 3}));
  EXPECT_EQ(forward["outputs"][1]["name"], "out");
  for (const Json& p : header["programs"]) {
    for (const Json& pass : p["passes"]) {
      const Json& module = header["modules"].at(pass["module"].get<std::size_t>());
      EXPECT_EQ(pass["bindings"].size(), module["types"].size());
      EXPECT_LE(module["types"].size(), 8U);
    }
  }
}

TEST(Bundle, WithoutWeightsStartsFromInitialValues) {
  const std::vector<std::byte> bundle = make_bundle(line("web"), {.trains = false});
  const auto [header, data] = parse(bundle);
  ASSERT_EQ(header["programs"].size(), 2U);
  EXPECT_EQ(header["programs"][0]["role"], "init");
  EXPECT_EQ(header["states"].size(), 1U);
  EXPECT_FALSE(header["states"][0].contains("data"));
  EXPECT_TRUE(header["inputs"].empty());
}

TEST(Bundle, RefusesOtherDevices) { EXPECT_THROW(make_bundle(line("reference"), {}), GraphError); }

TEST(Bundle, ACompiledTrainingRunsNowhereElse) {
  Model model = line("web");
  const std::vector<float> x(12), y(8);
  EXPECT_THROW(model.training.step({{"x", x}, {"y", y}}), DeviceError);
}

TEST(Target, ReadsWhatAPageTells) {
  const wgsl::Target least = parse_target("web");
  EXPECT_EQ(least.storage_buffers, 8);
  const wgsl::Target t = parse_target(
      R"(web:{"limits": {"maxStorageBuffersPerShaderStage": 10, "maxBufferSize": 1e12},
          "features": ["subgroups"],
          "adapter": {"subgroupMinSize": 4, "subgroupMaxSize": 8, "software": true}})");
  EXPECT_EQ(t.storage_buffers, 10);
  EXPECT_EQ(t.buffer_bytes, 1000000000000);
  EXPECT_EQ(t.subgroup_min, 4);
  EXPECT_EQ(t.subgroup_max, 8);
  EXPECT_TRUE(t.cpu);
  EXPECT_FALSE(t.f16);
  EXPECT_THROW(parse_target("web:nonsense"), FormatError);
  EXPECT_THROW(parse_target(R"(web:{"limits": {"maxBufferSize": "big"}})"), FormatError);
}

}  // namespace
}  // namespace tensorgrad::web
