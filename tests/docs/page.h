// Compares the code of a page of the documentation with the code that a test runs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

namespace tensorgrad::testing {

inline std::vector<std::string> lines_of(const std::string& file) {
  std::ifstream text(std::string(TENSORGRAD_SOURCE_DIR) + file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

/// Blocks of lines between a first and a last line, without common indentation.
inline std::vector<std::string> blocks(const std::vector<std::string>& lines,
                                       const std::string& first, const std::string& last) {
  std::vector<std::string> found;
  bool inside = false;
  std::size_t indent = 0;
  for (const std::string& line : lines) {
    const std::size_t start = std::min(line.find_first_not_of(' '), line.size());
    const std::string text = line.substr(start);
    if (!inside && text == first) {
      inside = true;
      indent = start;
      found.emplace_back();
    } else if (inside && text == last) {
      inside = false;
    } else if (inside) {
      found.back() += line.substr(std::min(indent, start)) + "\n";
    }
  }
  return found;
}

/// The blocks of C++ of `page` are what stands between [snippet] and [end] in the file of the test.
inline void expect_page_shows(const std::string& page, const std::string& test) {
  const auto code = blocks(lines_of(test), "// [snippet]", "// [end]");
  const auto shown = blocks(lines_of(page), "```cpp", "```");
  ASSERT_FALSE(shown.empty());
  ASSERT_EQ(shown.size(), code.size());
  for (std::size_t i = 0; i < code.size(); ++i) EXPECT_EQ(shown[i], code[i]) << "block " << i;
}

}  // namespace tensorgrad::testing
