// The program that the README shows is the example that is built and run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace {

std::string read(const std::string& path) {
  std::ifstream file(std::string(TENSORGRAD_SOURCE_DIR) + "/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(Readme, ShowsTheExampleThatRuns) {
  const std::string example = read("examples/sine.cpp");
  ASSERT_FALSE(example.empty());
  EXPECT_THAT(read("README.md"), testing::HasSubstr("```cpp\n" + example + "```"));
}

}  // namespace
