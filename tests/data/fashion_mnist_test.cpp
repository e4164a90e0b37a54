#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "data/idx_file.h"
#include "io/temp_folder.h"
#include "tensorgrad/data.h"

namespace tensorgrad {
namespace {

using test::idx_file;
using test::message_of;
using test::put;
using test::TempFolder;
using testing::AllOf;
using testing::HasSubstr;

void put_part(const TempFolder& folder, const std::string& part, std::uint32_t images,
              const std::vector<std::uint8_t>& labels, bool packed) {
  std::vector<std::uint8_t> pixels(images * 28 * 28);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i);
  const auto image_file = idx_file(0x08, {images, 28, 28}, pixels);
  const auto label_file = idx_file(0x08, {static_cast<std::uint32_t>(labels.size())}, labels);
  const std::string end = packed ? "-ubyte.gz" : "-ubyte";
  put(folder / (part + "-images-idx3" + end), packed ? test::gzip(image_file) : image_file);
  put(folder / (part + "-labels-idx1" + end), packed ? test::gzip(label_file) : label_file);
}

std::string error_of(const TempFolder& folder) {
  return message_of<FormatError>([&] { load_fashion_mnist(folder.path()); });
}

TEST(FashionMnist, ReadsItsFourFiles) {
  const TempFolder folder;
  put_part(folder, "train", 3, {0, 9, 4}, true);
  put_part(folder, "t10k", 2, {1, 2}, false);
  const FashionMnist data = load_fashion_mnist(folder.path());
  EXPECT_EQ(data.train.count, 3);
  EXPECT_EQ(data.train.height, 28);
  EXPECT_EQ(data.train.width, 28);
  EXPECT_EQ(data.train.images.size(), 3U * 28 * 28);
  EXPECT_EQ(data.train.images[300], 300 % 256);
  EXPECT_THAT(data.train.labels, testing::ElementsAre(0, 9, 4));
  EXPECT_EQ(data.test.count, 2);
  ASSERT_EQ(data.class_names.size(), 10U);
  EXPECT_EQ(data.class_names[9], "Ankle boot");
}

TEST(FashionMnist, SaysHowToGetMissingFiles) {
  const TempFolder folder;
  EXPECT_THAT(error_of(folder), AllOf(HasSubstr("train-images-idx3-ubyte"),
                                      HasSubstr("dataset-fashion-mnist"), HasSubstr("--data")));
  EXPECT_THROW(load_fashion_mnist(folder / "missing"), FormatError);
}

TEST(FashionMnist, RefusesFilesThatDoNotMatch) {
  const TempFolder folder;
  put_part(folder, "t10k", 2, {1, 2}, false);
  put_part(folder, "train", 2, {1, 2, 3}, false);
  EXPECT_THAT(error_of(folder), HasSubstr("[3] instead of [2]"));
  put_part(folder, "train", 2, {9, 10}, false);
  EXPECT_THAT(error_of(folder), HasSubstr("label 1 is 10"));
  put_part(folder, "train", 0, {}, false);
  EXPECT_THAT(error_of(folder), HasSubstr("[0, 28, 28]"));
  put(folder / "train-images-idx3-ubyte", idx_file(0x08, {1, 2, 2}, {1, 2, 3, 4}));
  EXPECT_THAT(error_of(folder), HasSubstr("[1, 2, 2] instead of [N, 28, 28]"));
  put(folder / "train-images-idx3-ubyte", idx_file(0x09, {1}, {1}));
  EXPECT_THAT(error_of(folder), HasSubstr("not unsigned bytes"));
}

TEST(FashionMnist, ReadsTheInstalledDataSet) {
  if (!std::filesystem::exists(fashion_mnist_folder)) {
    GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  }
  const FashionMnist data = load_fashion_mnist();
  EXPECT_EQ(data.train.count, 60000);
  EXPECT_EQ(data.test.count, 10000);
  for (const LabelledImages* part : {&data.train, &data.test}) {
    std::array<std::int64_t, 10> counts{};
    for (const std::uint8_t label : part->labels) ++counts[label];
    EXPECT_THAT(counts, testing::Each(part->count / 10));
  }
  EXPECT_EQ(data.train.labels[0], 9);
}

}  // namespace
}  // namespace tensorgrad
