#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/idx_file.h"
#include "io/temp_folder.h"
#include "tensorgrad/data.h"

namespace tensorgrad {
namespace {

using test::gzip;
using test::idx_file;
using test::message_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
std::vector<T> values_of(const std::vector<std::byte>& file) {
  return std::get<std::vector<T>>(parse_idx(file, "f").values);
}

std::string error_of(const std::vector<std::byte>& file) {
  return message_of<FormatError>([&] { parse_idx(file, "data.idx"); });
}

std::vector<std::byte> small_file() {
  return idx_file(0x0B, {2, 2}, {0, 1, 2, 3, 0xff, 0xfe, 6, 7});
}

std::vector<std::byte> joined(std::vector<std::byte> a, const std::vector<std::byte>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(Idx, ReadsEveryElementType) {
  EXPECT_THAT(values_of<std::uint8_t>(idx_file(0x08, {3}, {0, 128, 255})),
              ElementsAre(0, 128, 255));
  EXPECT_THAT(values_of<std::int8_t>(idx_file(0x09, {2}, {0x80, 0x7f})), ElementsAre(-128, 127));
  EXPECT_THAT(values_of<std::int16_t>(small_file()), ElementsAre(1, 0x203, -2, 0x607));
  EXPECT_THAT(values_of<std::int32_t>(idx_file(0x0C, {2}, {1, 2, 3, 4, 0xff, 0xff, 0xff, 0xff})),
              ElementsAre(0x01020304, -1));
  EXPECT_THAT(values_of<float>(idx_file(0x0D, {1}, {0xbf, 0xc0, 0, 0})), ElementsAre(-1.5F));
  EXPECT_THAT(
      values_of<double>(idx_file(0x0E, {1}, {0x40, 0x09, 0x21, 0xfb, 0x54, 0x44, 0x2d, 0x18})),
      ElementsAre(3.141592653589793));
}

TEST(Idx, ReadsShapes) {
  EXPECT_EQ(parse_idx(small_file(), "f").shape, (Shape{2, 2}));
  EXPECT_EQ(parse_idx(idx_file(0x08, {}, {7}), "f").shape, Shape{});
  const IdxArray empty = parse_idx(idx_file(0x08, {4294967295U, 0}, {}), "f");
  EXPECT_EQ(empty.shape, (Shape{4294967295, 0}));
  EXPECT_TRUE(std::get<0>(empty.values).empty());
}

TEST(Idx, ReadsCompressedAndPlainFilesAlike) {
  const test::TempFolder folder;
  std::vector<std::uint8_t> elements(3'000'000);
  for (std::size_t i = 0; i < elements.size(); ++i)
    elements[i] = static_cast<std::uint8_t>(i * i >> 8);
  const auto plain = idx_file(0x08, {3, 1000, 1000}, elements);
  test::put(folder / "plain", plain);
  test::put(folder / "packed", gzip(plain));
  for (const char* name : {"plain", "packed"}) {
    const IdxArray array = read_idx(folder / name);
    EXPECT_EQ(array.shape, (Shape{3, 1000, 1000}));
    EXPECT_EQ(std::get<0>(array.values), elements);
  }
  EXPECT_THROW(read_idx(folder / "missing"), FormatError);
}

TEST(Idx, ReadsGzipFilesOfSeveralMembers) {
  const auto plain = small_file();
  const std::span<const std::byte> bytes(plain);
  const auto file = joined(joined(gzip(bytes.first(3)), gzip({})), gzip(bytes.subspan(3)));
  EXPECT_THAT(values_of<std::int16_t>(file), ElementsAre(1, 0x203, -2, 0x607));
}

TEST(Idx, RefusesBadHeaders) {
  EXPECT_THAT(error_of({}), AllOf(HasSubstr("data.idx"), HasSubstr("0 bytes")));
  EXPECT_THAT(error_of(test::to_bytes("PNG data")), HasSubstr("50 4e"));
  for (const int code : {0x00, 0x07, 0x0A, 0x0F, 0xff}) {
    EXPECT_THAT(error_of(idx_file(code, {1}, {0})), HasSubstr("type code")) << code;
  }
  EXPECT_THAT(error_of(idx_file(0x08, {0xffffffffU, 0xffffffffU, 2}, {})),
              HasSubstr("beyond 64 bits"));
  EXPECT_THAT(error_of(idx_file(0x0E, {0xffffffffU, 0xffffffffU}, {})),
              HasSubstr("beyond 64 bits"));
  EXPECT_THAT(error_of(idx_file(0x08, {0, 0xffffffffU, 0xffffffffU, 2}, {})),
              HasSubstr("beyond 64 bits"));
}

TEST(Idx, RefusesSizesOtherThanDeclared) {
  EXPECT_THAT(error_of(idx_file(0x08, {4}, {1, 2, 3})), HasSubstr("ends after 3 of the 4 bytes"));
  EXPECT_THAT(error_of(idx_file(0x08, {2}, {1, 2, 3})), HasSubstr("more bytes follow the 2"));
  // A declared size that no machine could allocate is refused for what the file holds.
  EXPECT_THAT(error_of(idx_file(0x08, {0x7fffffffU, 0x7fffffffU}, {1, 2, 3})),
              HasSubstr("ends after 3 of"));
  EXPECT_THAT(error_of(gzip(idx_file(0x08, {0x7fffffffU, 0x7fffffffU}, {1, 2, 3}))),
              HasSubstr("ends after 3 of"));
  EXPECT_THAT(error_of(gzip(idx_file(0x08, {2}, std::vector<std::uint8_t>(50'000'000)))),
              HasSubstr("more bytes follow the 2"));
}

TEST(Idx, RefusesDamagedGzip) {
  const auto packed = gzip(small_file());
  auto bad_crc = packed;
  bad_crc[packed.size() - 8] ^= std::byte{1};
  EXPECT_THAT(error_of(bad_crc), HasSubstr("incorrect data check"));
  auto bad_size = packed;
  bad_size[packed.size() - 1] ^= std::byte{1};
  EXPECT_THAT(error_of(bad_size), HasSubstr("incorrect length check"));
  EXPECT_THAT(error_of(joined(packed, test::to_bytes("tail"))),
              HasSubstr("4 bytes that are not gzip"));
  EXPECT_THAT(error_of(joined(packed, {std::byte{0x1f}, std::byte{0x8b}})),
              HasSubstr("ends early"));
}

TEST(Idx, RefusesATruncationAtEveryByte) {
  for (const auto& whole : {small_file(), gzip(small_file())}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_THROW(parse_idx(std::span(whole).first(size), "f"), FormatError) << size;
    }
  }
}

TEST(Idx, SurvivesEveryBitFlip) {
  for (const auto& whole : {small_file(), gzip(small_file())}) {
    int refused = 0;
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
      auto bytes = whole;
      bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      try {
        parse_idx(bytes, "f");
      } catch (const FormatError&) {
        ++refused;
      }
    }
    EXPECT_GT(refused, 80);
  }
}

}  // namespace
}  // namespace tensorgrad
