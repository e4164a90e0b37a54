// f16 in host memory.
#include "tensorgrad/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace tensorgrad {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

TEST(Half, EveryNumberKeepsItsBits) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const Half half = Half::from_bits(static_cast<std::uint16_t>(bits));
    const float value = half;
    if (std::isnan(value)) {
      EXPECT_EQ(bits & 0x7C00, 0x7C00);
      EXPECT_TRUE(std::isnan(static_cast<float>(Half(value))));
      continue;
    }
    ASSERT_EQ(Half(value).bits(), bits) << value;
  }
}

TEST(Half, NumbersFollowEachOther) {
  EXPECT_EQ(static_cast<float>(Half::from_bits(0x0001)), 0x1p-24F);
  EXPECT_EQ(static_cast<float>(Half::from_bits(0x03FF)), 0x1p-14F - 0x1p-24F);
  EXPECT_EQ(static_cast<float>(Half::from_bits(0x0400)), 0x1p-14F);
  EXPECT_EQ(static_cast<float>(Half::from_bits(0x3C00)), 1.0F);
  EXPECT_EQ(static_cast<float>(Half::from_bits(0x7BFF)), 65504.0F);
  EXPECT_EQ(static_cast<float>(Half::from_bits(0xFC00)), -infinity);
}

TEST(Half, RoundsToNearestAndEven) {
  // Between each number and the next: below the middle down, above it up, in it to even bits.
  for (std::uint16_t bits = 0; bits < 0x7BFF; ++bits) {
    const double low = Half::from_bits(bits);
    const double high = Half::from_bits(static_cast<std::uint16_t>(bits + 1));
    const double middle = (low + high) / 2;
    const int even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(Half(middle).bits(), even) << middle;
    ASSERT_EQ(Half(std::nextafter(middle, 0)).bits(), bits) << middle;
    ASSERT_EQ(Half(std::nextafter(middle, infinity)).bits(), bits + 1) << middle;
    ASSERT_EQ(Half(-middle).bits(), even + 0x8000) << middle;
  }
}

TEST(Half, EndsAreInfinities) {
  EXPECT_EQ(Half(65519.99).bits(), 0x7BFF);
  EXPECT_EQ(Half(65520).bits(), 0x7C00);
  EXPECT_EQ(Half(-1e300).bits(), 0xFC00);
  EXPECT_EQ(Half(0x1p-25).bits(), 0);  // the middle of 0 and the smallest number
  EXPECT_EQ(Half(-0.0).bits(), 0x8000);
  EXPECT_TRUE(std::isnan(round_to_half(std::nan(""))));
}

}  // namespace
}  // namespace tensorgrad
