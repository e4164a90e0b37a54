// Requests of a page to a C++ module.
#include "runtime/web/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensorgrad/nn.h"

namespace tensorgrad::web {
namespace {

using ::testing::HasSubstr;

struct Line {
  nn::Linear fc{3, 2};
  TENSORGRAD_FIELDS(fc)
  Tensor operator()(const Tensor& x) const { return fc(x); }
};

ModuleHost host() {
  Models models;
  models.add("line", [](const Options& options) -> Model {
    const std::int64_t batch = options.integer("batch", 4, 1, 100);
    // NOLINTNEXTLINE(cppcoreguidelines-slicing): a handle without the type is what is asked for
    return {compile(Line{},
                    [](const Line& m, const Inputs& in) { return mean(square(m(in["x"]))); },
                    {.inputs = {{"x", {batch, 3}}}, .device = options.device()})};
  });
  return ModuleHost(std::move(models));
}

std::string ask(ModuleHost& host, std::string_view request) {
  const std::vector<std::byte> answer = host.call(request);
  return {reinterpret_cast<const char*>(answer.data()), answer.size()};
}

TEST(ModuleHost, ListsModels) {
  ModuleHost h = host();
  EXPECT_EQ(ask(h, R"({"call": "models"})"), R"(["line"])");
}

TEST(ModuleHost, PrintsGraphAndPlan) {
  ModuleHost h = host();
  const std::string text =
      ask(h, R"({"call": "inspect", "model": "line", "options": {"batch": 7}})");
  EXPECT_THAT(text, HasSubstr("output loss"));
  EXPECT_THAT(text, HasSubstr("f32[21] x"));
  EXPECT_THAT(text, HasSubstr("dispatch kernel 0 on"));
}

TEST(ModuleHost, RefusesWhatMakesNoSense) {
  ModuleHost h = host();
  EXPECT_THROW(ask(h, "nonsense"), FormatError);
  EXPECT_THROW(ask(h, R"({"call": "dance"})"), FormatError);
  EXPECT_THROW(ask(h, R"({"call": "inspect", "model": "circle", "options": {}})"), GraphError);
  EXPECT_THROW(ask(h, R"({"call": "inspect", "model": "line", "options": {"batch": 0.5}})"),
               ValueError);
  EXPECT_THROW(ask(h, R"({"call": "inspect", "model": "line", "options": {"batch": "a"}})"),
               FormatError);
}

TEST(ModuleHost, NamesOfExceptions) {
  EXPECT_EQ(type_name(ShapeError("")), "ShapeError");
  EXPECT_EQ(type_name(OutOfMemory("")), "OutOfMemory");
  EXPECT_EQ(type_name(std::runtime_error("")), "Error");
}

}  // namespace
}  // namespace tensorgrad::web
