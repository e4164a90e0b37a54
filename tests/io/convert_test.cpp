// Conversions between the element types of files and those of tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "io/temp_folder.h"
#include "tensorgrad/io.h"

namespace tensorgrad {
namespace {

using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr float inf = std::numeric_limits<float>::infinity();

template <class T>
SafeTensor tensor_of(const std::string& dtype, const std::vector<T>& values) {
  const auto owner = std::make_shared<std::vector<T>>(values);
  return {"w",
          dtype,
          {static_cast<std::int64_t>(values.size())},
          std::as_bytes(std::span<const T>(*owner)),
          owner};
}

using Bits16 = std::vector<std::uint16_t>;
using Bits8 = std::vector<std::uint8_t>;

TEST(Convert, HalfFloatsAreExact) {
  EXPECT_THAT(to_float_vector(tensor_of(
                  "F16", Bits16{0x3c00, 0xc000, 0x7bff, 0x0001, 0x0400, 0x7c00, 0xfc00, 0x3555})),
              ElementsAre(1.0F, -2.0F, 65504.0F, 0x1p-24F, 0x1p-14F, inf, -inf, 0.333251953125F));
  EXPECT_TRUE(std::isnan(to_float_vector(tensor_of("F16", Bits16{0x7e01}))[0]));
  EXPECT_TRUE(std::signbit(to_float_vector(tensor_of("F16", Bits16{0x8000}))[0]));
  EXPECT_THAT(to_float_vector(tensor_of("BF16", Bits16{0x3f80, 0xc040, 0x7f80, 0x0001})),
              ElementsAre(1.0F, -3.0F, inf, 0x1p-133F));
}

TEST(Convert, EightBitFloatsAreExact) {
  EXPECT_THAT(to_float_vector(tensor_of("F8_E4M3", Bits8{0x38, 0xb8, 0x7e, 0x01, 0x08})),
              ElementsAre(1.0F, -1.0F, 448.0F, 0x1p-9F, 0x1p-6F));
  EXPECT_TRUE(std::isnan(to_float_vector(tensor_of("F8_E4M3", Bits8{0x7f}))[0]));
  EXPECT_THAT(to_float_vector(tensor_of("F8_E5M2", Bits8{0x3c, 0x7b, 0x7c, 0x01})),
              ElementsAre(1.0F, 57344.0F, inf, 0x1p-16F));
}

TEST(Convert, DoublesRound) {
  EXPECT_THAT(
      to_float_vector(tensor_of(
          "F64", std::vector<double>{0.1, 1e-50, -std::numeric_limits<double>::infinity(),
                                     static_cast<double>(std::numeric_limits<float>::max())})),
      ElementsAre(0.1F, 0.0F, -inf, std::numeric_limits<float>::max()));
  EXPECT_THAT(message_of<FormatError>(
                  [] { to_float_vector(tensor_of("F64", std::vector<double>{1, -1e39})); }),
              AllOf(HasSubstr("Element 1 of tensor \"w\" of F64"), HasSubstr("-1e+39")));
}

TEST(Convert, IntegersBecomeFloatsOnlyIfExact) {
  using I64 = std::vector<std::int64_t>;
  EXPECT_THAT(to_float_vector(tensor_of("I64", I64{0, -16777216, 16777218, std::int64_t{1} << 62,
                                                   std::numeric_limits<std::int64_t>::min()})),
              ElementsAre(0.0F, -16777216.0F, 16777218.0F, 0x1p62F, -0x1p63F));
  EXPECT_THAT(message_of<FormatError>([] { to_float_vector(tensor_of("I64", I64{-16777217})); }),
              HasSubstr("-16777217, which float cannot hold"));
  EXPECT_THROW(to_float_vector(tensor_of("U64", std::vector<std::uint64_t>{~std::uint64_t{0}})),
               FormatError);
  EXPECT_THROW(to_float_vector(tensor_of("I32", std::vector<std::int32_t>{2147483647})),
               FormatError);
  EXPECT_THAT(to_float_vector(tensor_of("I8", std::vector<std::int8_t>{-128, 127})),
              ElementsAre(-128, 127));
}

TEST(Convert, IntegersKeepTheirValueOrAreRefused) {
  EXPECT_THAT(to_int32_vector(tensor_of("I64", std::vector<std::int64_t>{-2147483648, 2147483647})),
              ElementsAre(std::numeric_limits<std::int32_t>::min(), 2147483647));
  EXPECT_THROW(to_int32_vector(tensor_of("I64", std::vector<std::int64_t>{2147483648})),
               FormatError);
  EXPECT_THROW(to_int32_vector(tensor_of("U32", std::vector<std::uint32_t>{2147483648U})),
               FormatError);
  EXPECT_THROW(to_uint32_vector(tensor_of("I8", std::vector<std::int8_t>{-1})), FormatError);
  EXPECT_THAT(to_uint32_vector(tensor_of("U32", std::vector<std::uint32_t>{4294967295U})),
              ElementsAre(4294967295U));
}

TEST(Convert, FloatsBecomeIntegersOnlyIfTheyAreIntegers) {
  EXPECT_THAT(to_int32_vector(tensor_of("F32", std::vector<float>{-3, 0x1p30F, -0x1p31F})),
              ElementsAre(-3, 1 << 30, std::numeric_limits<std::int32_t>::min()));
  for (const float value : {0.5F, inf, -inf, std::nanf(""), 0x1p31F}) {
    EXPECT_THROW(to_int32_vector(tensor_of("F32", std::vector<float>{value})), FormatError)
        << value;
  }
  EXPECT_THROW(to_uint32_vector(tensor_of("F32", std::vector<float>{-1})), FormatError);
}

TEST(Convert, RefusesBadBoolsDTypesAndSizes) {
  EXPECT_THAT(to_float_vector(tensor_of("BOOL", Bits8{0, 1})), ElementsAre(0, 1));
  EXPECT_THROW(to_float_vector(tensor_of("BOOL", Bits8{2})), FormatError);
  EXPECT_THROW(to_float_vector(tensor_of("X", Bits8{2})), FormatError);
  EXPECT_THAT(message_of<FormatError>([] { to_float_vector(tensor_of("F32", Bits8{2})); }),
              HasSubstr("1 bytes of data, but F32 of shape [1] takes 4"));
}

}  // namespace
}  // namespace tensorgrad
