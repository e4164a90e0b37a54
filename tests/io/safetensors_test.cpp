#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "io/temp_folder.h"
#include "tensorgrad/io.h"

namespace tensorgrad {
namespace {

using test::message_of;
using test::put;
using test::TempFolder;
using test::to_bytes;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

// A file of this header text and `data_bytes` bytes of data 0, 1, 2, ...
std::vector<std::byte> file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::vector<std::byte> bytes(8);
  std::memcpy(bytes.data(), &length, 8);
  const auto text = to_bytes(header);
  bytes.insert(bytes.end(), text.begin(), text.end());
  for (std::size_t i = 0; i < data_bytes; ++i) bytes.push_back(static_cast<std::byte>(i));
  return bytes;
}

std::string error_of(const std::vector<std::byte>& bytes) {
  return message_of<FormatError>([&] { parse_safetensors(bytes, "model.st"); });
}

std::string error_of(const std::string& header, std::size_t data_bytes = 0) {
  return error_of(file_of(header, data_bytes));
}

std::vector<std::byte> small_file() {
  return file_of(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[2,1],"data_offsets":[8,10]}} )",
      10);
}

TEST(Safetensors, ReadsAHandMadeFile) {
  const SafeTensors file = parse_safetensors(small_file(), "model.st");
  EXPECT_THAT(file.metadata, ElementsAre(testing::Pair("format", "pt")));
  ASSERT_EQ(file.tensors.size(), 2U);
  EXPECT_EQ(file.tensors[0].name, "a");
  EXPECT_EQ(file.tensors[0].dtype, "F32");
  EXPECT_EQ(file.tensors[0].shape, Shape{2});
  EXPECT_EQ(file.at("b").shape, (Shape{2, 1}));
  EXPECT_THAT(to_float_vector(file.at("b")), ElementsAre(8, 9));
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_THAT(message_of<FormatError>([&] { file.at("c"); }),
              AllOf(HasSubstr("\"c\""), HasSubstr("\"a\", \"b\"")));
}

TEST(Safetensors, ReadsAnEmptyFile) {
  EXPECT_TRUE(parse_safetensors(file_of("{}", 0), "f").tensors.empty());
  const SafeTensors empty = parse_safetensors(
      file_of(R"({"e":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]}})", 0), "f");
  EXPECT_EQ(empty.at("e").shape, (Shape{0, 3}));
  EXPECT_TRUE(empty.at("e").bytes.empty());
}

TEST(Safetensors, TensorsOutliveTheFile) {
  const SafeTensor kept = parse_safetensors(small_file(), "f").at("b");
  EXPECT_THAT(to_int32_vector(kept), ElementsAre(8, 9));
}

TEST(Safetensors, RoundTripsEveryDType) {
  const TempFolder folder;
  std::mt19937 random(1);
  SafeTensors written;
  written.metadata = {{"step", "12"}, {"quote\"\\", "line\nend \xc3\xa9"}};
  for (const char* dtype : {"BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "I16", "U16", "F16", "BF16",
                            "I32", "U32", "F32", "F64", "I64", "U64"}) {
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 0}, Shape{1, 5, 7}}) {
      const std::size_t elements = static_cast<std::size_t>(numel(shape));
      const auto owner =
          std::make_shared<std::vector<std::byte>>(elements * safetensors_dtype_bytes(dtype));
      for (std::byte& b : *owner) b = static_cast<std::byte>(random() & 1);
      written.tensors.push_back({std::string(dtype) + " \"" + to_string(shape) + "\xe2\x88\x87",
                                 dtype, shape, *owner, owner});
    }
  }
  write_safetensors(folder / "all.st", written);
  EXPECT_EQ(folder.file_count(), 1U);
  const SafeTensors read = read_safetensors(folder / "all.st");
  EXPECT_EQ(read.metadata, written.metadata);
  ASSERT_EQ(read.tensors.size(), written.tensors.size());
  for (const SafeTensor& tensor : written.tensors) {
    const SafeTensor& back = read.at(tensor.name);
    EXPECT_EQ(back.dtype, tensor.dtype);
    EXPECT_EQ(back.shape, tensor.shape);
    EXPECT_TRUE(std::ranges::equal(back.bytes, tensor.bytes)) << tensor.name;
  }
}

TEST(Safetensors, WrittenFilesAreAlignedSortedAndReproducible) {
  const TempFolder folder;
  SafeTensors contents;
  contents.tensors = {make_safetensor("z", {3}, std::vector<float>{1, 2, 3}),
                      make_safetensor("m", {1}, std::span<const bool>(std::array{true})),
                      make_safetensor("a", {1}, std::vector<std::int32_t>{-7})};
  write_safetensors(folder / "one.st", contents);
  std::ranges::reverse(contents.tensors);
  write_safetensors(folder / "two.st", contents);
  const auto bytes = read_file(folder / "one.st");
  EXPECT_EQ(bytes, read_file(folder / "two.st"));
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0U);
  const SafeTensors read = read_safetensors(folder / "one.st");
  EXPECT_EQ(read.tensors[0].name, "a");
  EXPECT_EQ(read.tensors[1].name, "z");
  EXPECT_EQ(read.tensors[2].name, "m");
  EXPECT_THAT(to_float_vector(read.at("z")), ElementsAre(1, 2, 3));
  EXPECT_THAT(to_int32_vector(read.at("a")), ElementsAre(-7));
  EXPECT_THAT(to_uint32_vector(read.at("m")), ElementsAre(1));
}

TEST(Safetensors, RefusesToWriteWhatTheFormatCannotHold) {
  const TempFolder folder;
  put(folder / "old.st", small_file());
  const auto refuse = [&](std::vector<SafeTensor> tensors,
                          std::map<std::string, std::string> meta) {
    const std::string message = message_of<FormatError>(
        [&] { write_safetensors(folder / "old.st", {std::move(tensors), std::move(meta)}); });
    EXPECT_EQ(read_file(folder / "old.st"), small_file());
    EXPECT_EQ(folder.file_count(), 1U);
    return message;
  };
  const SafeTensor good = make_safetensor("x", {2}, std::vector<float>{1, 2});
  EXPECT_THAT(refuse({good, good}, {}), HasSubstr("given twice"));
  SafeTensor bad = good;
  bad.shape = {3};
  EXPECT_THAT(refuse({bad}, {}), AllOf(HasSubstr("8 bytes"), HasSubstr("takes 12")));
  bad = good;
  bad.dtype = "F31";
  EXPECT_THAT(refuse({bad}, {}), HasSubstr("unknown dtype \"F31\""));
  bad = good;
  bad.name = "__metadata__";
  EXPECT_THAT(refuse({bad}, {}), HasSubstr("reserves"));
  bad.name = "\xff";
  EXPECT_THAT(refuse({bad}, {}), HasSubstr("UTF-8"));
  bad = good;
  bad.shape = {-2};
  EXPECT_THAT(refuse({bad}, {}), HasSubstr("negative"));
  EXPECT_THAT(refuse({good}, {{"k", "\xc3"}}), HasSubstr("UTF-8"));
  EXPECT_THROW(make_safetensor("x", {3}, std::vector<float>{1, 2}), ShapeError);
}

TEST(Safetensors, RefusesBadHeaderLengths) {
  EXPECT_THAT(error_of(std::vector<std::byte>{}),
              AllOf(HasSubstr("model.st"), HasSubstr("0 bytes")));
  EXPECT_THAT(error_of(std::vector<std::byte>(7)), HasSubstr("7 bytes"));
  auto bytes = small_file();
  bytes[2] = std::byte{1};
  EXPECT_THAT(error_of(bytes), AllOf(HasSubstr("header length is 65"), HasSubstr("follow it")));
  bytes[7] = std::byte{0xff};
  EXPECT_THAT(error_of(bytes), HasSubstr("more than the 100000000 allowed"));
}

TEST(Safetensors, RefusesHeadersThatAreNotItsJson) {
  for (const char* header : {"", "[]", "null", " {}", "\xef\xbb\xbf{}"}) {
    EXPECT_THAT(error_of(header), HasSubstr("starts with")) << header;
  }
  for (const char* header :
       {"{", "{\"a", "{}}", "{} x", "{,}", "{\"a\":}", "{\"\xff\":{}}", "{\"\xc3\":{}}",
        "{\"__metadata__\":{\"a\":\"\xed\xa0\x80\"}}", "{\"\\ud800\":{}}", "{/**/}", "{\"a\":nan}",
        "{'a':{}}", "{\"__metadata__\":{\"a\":\"\n\"}}"}) {
    EXPECT_THAT(error_of(header), HasSubstr("not valid UTF-8 JSON at byte")) << header;
  }
  EXPECT_THAT(error_of(std::string("{}\0{}", 5)), HasSubstr("zero byte at its byte 2"));
}

TEST(Safetensors, RefusesDuplicateNames) {
  const std::string a = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(error_of("{" + a + "," + a + "}", 1), HasSubstr("\"a\" appears twice"));
  EXPECT_THAT(error_of("{" + a + ",\"\\u0061\"" + a.substr(3) + "}", 1), HasSubstr("twice"));
  EXPECT_THAT(error_of(R"({"__metadata__":{},"__metadata__":{}})"), HasSubstr("twice"));
  EXPECT_THAT(error_of(R"({"__metadata__":{"k":"1","k":"2"}})"), HasSubstr("\"k\" appears twice"));
  EXPECT_THAT(error_of(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("two fields \"dtype\""));
}

TEST(Safetensors, RefusesMissingAndIllTypedFields) {
  const auto tensor = [](const std::string& fields) {
    return error_of("{\"a\":{" + fields + "}}", 8);
  };
  EXPECT_THAT(tensor(""), HasSubstr("tensor \"a\" has no dtype"));
  EXPECT_THAT(tensor(R"("dtype":"U8","data_offsets":[0,8])"), HasSubstr("has no shape"));
  EXPECT_THAT(tensor(R"("dtype":"U8","shape":[8])"), HasSubstr("has no data_offsets"));
  for (const char* value : {"7", "-7", "7.5", "null", "true", "[]", "{}", "1e999"}) {
    EXPECT_THAT(tensor(std::string("\"dtype\":") + value),
                HasSubstr(*value == '1' ? "JSON" : "dtype of tensor"))
        << value;
  }
  for (const char* value : {"7", "\"8\"", "null", "false", "{}"}) {
    EXPECT_THAT(tensor(std::string("\"shape\":") + value), HasSubstr("shape of tensor \"a\" is"));
    EXPECT_THAT(tensor(std::string("\"data_offsets\":") + value),
                HasSubstr("data_offsets of tensor"));
  }
  for (const char* value :
       {"-1", "1.0", "\"1\"", "null", "[1]", "{}", "18446744073709551616", "9223372036854775808"}) {
    EXPECT_THAT(tensor(std::string("\"shape\":[1,") + value + "]"), HasSubstr("not a size"))
        << value;
  }
  for (const char* value : {"-1", "1.0", "\"1\"", "null", "[1]", "18446744073709551616"}) {
    EXPECT_THAT(tensor(std::string("\"data_offsets\":[0,") + value + "]"),
                HasSubstr("not an offset"))
        << value;
  }
  EXPECT_THAT(tensor(R"("data_offsets":[0])"), HasSubstr("1 data_offsets instead of 2"));
  EXPECT_THAT(tensor(R"("data_offsets":[0,1,2])"), HasSubstr("3 data_offsets instead of 2"));
  EXPECT_THAT(tensor(R"("strides":[1])"), HasSubstr("unknown field \"strides\""));
  EXPECT_THAT(error_of(R"({"a":[]})"), HasSubstr("instead of an object"));
  EXPECT_THAT(error_of(R"({"a":"b"})"), HasSubstr("instead of an object"));
}

TEST(Safetensors, RefusesMetadataThatIsNotStrings) {
  EXPECT_THAT(error_of(R"({"__metadata__":[]})"), HasSubstr("__metadata__ is an array"));
  EXPECT_THAT(error_of(R"({"__metadata__":"x"})"), HasSubstr("__metadata__ is the string"));
  for (const char* value : {"1", "null", "{}", "[]", "1.5", "true"}) {
    EXPECT_THAT(error_of(std::string(R"({"__metadata__":{"k":)") + value + "}}"),
                HasSubstr("instead of a string"));
  }
}

TEST(Safetensors, RefusesDeepNesting) {
  const std::size_t deep = 1'000'000;
  EXPECT_THAT(error_of("{\"a\":" + std::string(deep, '[')), HasSubstr("an array"));
  std::string objects = "{";
  for (std::size_t i = 0; i < deep; ++i) objects += "\"a\":{";
  EXPECT_THAT(error_of(objects), HasSubstr("unknown field"));
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + offsets + "]}";
}

TEST(Safetensors, RefusesSizesThatDoNotMatch) {
  EXPECT_THAT(error_of("{" + entry("a", "F12", "1", "0,4") + "}", 4),
              AllOf(HasSubstr("model.st"), HasSubstr("\"a\""), HasSubstr("unknown dtype \"F12\"")));
  EXPECT_THAT(error_of("{" + entry("a", "f32", "1", "0,4") + "}", 4), HasSubstr("unknown dtype"));
  EXPECT_THAT(error_of("{" + entry("a", "F32", "2", "0,4") + "}", 4),
              AllOf(HasSubstr("4 bytes"), HasSubstr("[2]"), HasSubstr("takes 8")));
  EXPECT_THAT(error_of("{" + entry("a", "F32", "4294967296,4294967296", "0,0") + "}"),
              HasSubstr("beyond 64 bits"));
  EXPECT_THAT(error_of("{" + entry("a", "F32", "0,4294967296,4294967296", "0,0") + "}"),
              HasSubstr("beyond 64 bits"));
  EXPECT_THAT(error_of("{" + entry("a", "F64", "2305843009213693952", "0,0") + "}"),
              HasSubstr("beyond 64 bits"));
}

TEST(Safetensors, RefusesOffsetsThatDoNotTileTheData) {
  EXPECT_THAT(error_of("{" + entry("a", "U8", "4", "4,0") + "}", 4),
              HasSubstr("[4, 0], which are reversed"));
  EXPECT_THAT(error_of("{" + entry("a", "U8", "5", "0,5") + "}", 4),
              HasSubstr("beyond the 4 bytes"));
  EXPECT_THAT(
      error_of("{" + entry("a", "U8", "0", "18446744073709551615,18446744073709551615") + "}"),
      HasSubstr("beyond the 0 bytes"));
  EXPECT_THAT(
      error_of("{" + entry("a", "U8", "3", "0,3") + "," + entry("b", "U8", "2", "2,4") + "}", 4),
      AllOf(HasSubstr("\"b\""), HasSubstr("overlaps")));
  EXPECT_THAT(
      error_of("{" + entry("a", "U8", "4", "0,4") + "," + entry("b", "U8", "0", "2,2") + "}", 4),
      HasSubstr("overlaps"));
  EXPECT_THAT(
      error_of("{" + entry("a", "U8", "1", "0,1") + "," + entry("b", "U8", "2", "2,4") + "}", 4),
      AllOf(HasSubstr("\"b\""), HasSubstr("no tensor holds the bytes from 1")));
  EXPECT_THAT(error_of("{" + entry("a", "U8", "3", "1,4") + "}", 4), HasSubstr("from 0"));
  EXPECT_THAT(error_of("{" + entry("a", "U8", "3", "0,3") + "}", 4), HasSubstr("last 1 of 4"));
  EXPECT_THAT(error_of("{}", 1), HasSubstr("last 1 of 1"));
}

TEST(Safetensors, RefusesATruncationAtEveryByte) {
  const auto whole = small_file();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THROW(parse_safetensors(std::span(whole).first(size), "f"), FormatError) << size;
  }
}

TEST(Safetensors, SurvivesEveryBitFlip) {
  const auto whole = small_file();
  int refused = 0;
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    auto bytes = whole;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    try {
      parse_safetensors(bytes, "f");
    } catch (const FormatError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace tensorgrad
