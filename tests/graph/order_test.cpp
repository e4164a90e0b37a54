#include "graph/order.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tensorgrad {
namespace {

TEST(Order, IndicesOfEqualValuesStayAscending) {
  const std::vector<int> values{3, 1, 2, 1, 3, 1};
  EXPECT_EQ(sorted_indices(values), (std::vector<std::size_t>{1, 3, 5, 2, 0, 4}));
  EXPECT_EQ(sorted_indices(values, std::greater<>()), (std::vector<std::size_t>{0, 4, 2, 1, 3, 5}));
  EXPECT_TRUE(sorted_indices(std::vector<int>{}).empty());
}

TEST(Order, SortsByAnyOrderAndKeepsEqualValuesInPlace) {
  std::vector<std::pair<int, std::string>> values;
  for (int i = 0; i < 200; ++i) values.emplace_back(i * 37 % 10, std::to_string(i));
  sort_values(values, [](const auto& a, const auto& b) { return a.first > b.first; });
  ASSERT_EQ(values.size(), 200U);
  for (std::size_t i = 1; i < values.size(); ++i) {
    EXPECT_GE(values[i - 1].first, values[i].first);
    if (values[i - 1].first == values[i].first) {
      EXPECT_LT(std::stoi(values[i - 1].second), std::stoi(values[i].second));
    }
  }
}

TEST(Order, MovesValuesThatCannotBeCopied) {
  std::vector<std::unique_ptr<int>> values;
  for (const int v : {2, 3, 1}) values.push_back(std::make_unique<int>(v));
  sort_values(values, [](const auto& a, const auto& b) { return *a < *b; });
  EXPECT_EQ(*values[0] * 100 + *values[1] * 10 + *values[2], 123);
}

}  // namespace
}  // namespace tensorgrad
