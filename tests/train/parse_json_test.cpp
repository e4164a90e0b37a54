#include "train/parse_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tensorgrad {
namespace {

std::string nested(std::size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

TEST(ParseJson, KeepsTheOrderOfMembers) {
  EXPECT_EQ(parse_json(R"({"b": [1, -2, 2.5, null], "a": {"c": true, "d": "x"}})").dump(),
            R"({"b":[1,-2,2.5,null],"a":{"c":true,"d":"x"}})");
}

TEST(ParseJson, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "nul"}) {
    EXPECT_TRUE(parse_json(text).is_discarded()) << text;
  }
}

TEST(ParseJson, RefusesWhatWouldFillTheStack) {
  EXPECT_EQ(parse_json(nested(64)).dump(), nested(64));
  EXPECT_TRUE(parse_json(nested(65)).is_discarded());
  EXPECT_TRUE(parse_json(nested(1'000'000)).is_discarded());
}

}  // namespace
}  // namespace tensorgrad
