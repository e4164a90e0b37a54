// The page about primitive ops is what the registry says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "ops/registry.h"
#include "ops_table.h"

namespace tensorgrad::tools {
namespace {

TEST(OpsPage, IsUpToDate) {
  std::ifstream file(std::string(TENSORGRAD_SOURCE_DIR) + "/docs/ops.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), ops_markdown()) << "run: tensorgrad ops > docs/ops.md";
}

TEST(OpsPage, TellsDerivativesApart) {
  const auto entries = op_entries();
  const auto entry = [&](const std::string& name) {
    for (const OpEntry& e : entries) {
      if (e.name == name) return e;
    }
    return OpEntry{};
  };
  EXPECT_EQ(entry("exp").derivative, "yes");
  EXPECT_EQ(entry("floor").derivative, "zero");
  EXPECT_THAT(entry("bit_and").derivative, testing::StartsWith("none: "));
  EXPECT_EQ(entry("cumsum").kind, "scan");
  EXPECT_TRUE(entry("cumsum").linear);
  EXPECT_FALSE(entry("cumprod").linear);
  EXPECT_THAT(entry("gather").dtypes, testing::Contains("f32 and i32"));
}

TEST(OpsPage, JsonHasEveryOp) {
  const auto list = nlohmann::json::parse(ops_json());
  ASSERT_EQ(list.size(), registry().size());
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(list[i].at("name").get<std::string>(), *registry()[i]->name);
  }
}

}  // namespace
}  // namespace tensorgrad::tools
