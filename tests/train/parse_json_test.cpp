#include "train/parse_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace tensorgrad {
namespace {

using Json = nlohmann::ordered_json;

TEST(ParseJson, GivesTheLibrarysValue) {
  for (const char* text :
       {"null", "true", "-7", "18446744073709551615", "0.002", "1e-8", "\"a\\u00e9\\n\"", "[]",
        "{}", "[1,[2,{\"b\":[3,false]},[]],\"c\"]",
        " {\"z\": {\"y\": {}, \"x\": [1.5, null]}, \"a\": 1} ", "{\"twice\": 1, \"twice\": [2]}",
        "[-0.0, 1e308, 123456789012345678901234567890]"}) {
    const Json want = Json::parse(text);
    const Json got = parse_json(text);
    EXPECT_EQ(got.dump(), want.dump()) << text;
    EXPECT_EQ(got.type(), want.type()) << text;
  }
}

TEST(ParseJson, DiscardsWhatIsNotJson) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "1 2", "nul", "\"\xff\"", "1e999", "[}"}) {
    EXPECT_TRUE(parse_json(text).is_discarded()) << text;
  }
}

TEST(ParseJson, TakesDeepNesting) {
  constexpr int depth = 5000;
  const std::string text = std::string(depth, '[') + std::string(depth, ']');
  EXPECT_EQ(parse_json(text).dump(), text);
}

}  // namespace
}  // namespace tensorgrad
