// Fashion-MNIST from its four IDX files.
#include <fmt/core.h>

#include <algorithm>
#include <system_error>

#include "tensorgrad/data.h"

namespace tensorgrad {
namespace {

constexpr std::int64_t image_extent = 28;
constexpr int classes = 10;

std::filesystem::path locate(const std::filesystem::path& folder, const std::string& name) {
  for (const std::filesystem::path& path : {folder / (name + ".gz"), folder / name}) {
    std::error_code unreadable;
    if (std::filesystem::exists(path, unreadable)) return path;
  }
  throw FormatError(fmt::format(
      "The folder {} has no file {} or {}.gz: install the Debian package dataset-fashion-mnist, or "
      "name the folder that holds the files with --data.",
      folder.string(), name, name));
}

struct Bytes {
  Shape shape;
  std::vector<std::uint8_t> values;
};

Bytes read_bytes(const std::filesystem::path& path) {
  IdxArray array = read_idx(path);
  auto* values = std::get_if<std::vector<std::uint8_t>>(&array.values);
  if (values == nullptr) {
    throw FormatError(fmt::format("{}: the elements are not unsigned bytes.", path.string()));
  }
  return {std::move(array.shape), std::move(*values)};
}

LabelledImages load_part(const std::filesystem::path& folder, const std::string& part) {
  const std::filesystem::path images_path = locate(folder, part + "-images-idx3-ubyte");
  const std::filesystem::path labels_path = locate(folder, part + "-labels-idx1-ubyte");
  Bytes images = read_bytes(images_path);
  Bytes labels = read_bytes(labels_path);
  if (images.shape.size() != 3 || images.shape[0] == 0 || images.shape[1] != image_extent ||
      images.shape[2] != image_extent) {
    throw FormatError(
        fmt::format("{}: the shape is {} instead of [N, 28, 28] with N of at least 1.",
                    images_path.string(), to_string(images.shape)));
  }
  if (labels.shape != Shape{images.shape[0]}) {
    throw FormatError(fmt::format("{}: the shape is {} instead of [{}], for as many images.",
                                  labels_path.string(), to_string(labels.shape), images.shape[0]));
  }
  const auto above =
      std::ranges::find_if(labels.values, [](std::uint8_t label) { return label >= classes; });
  if (above != labels.values.end()) {
    throw FormatError(fmt::format("{}: label {} is {}, above 9.", labels_path.string(),
                                  above - labels.values.begin(), *above));
  }
  return {images.shape[0], image_extent, image_extent, std::move(images.values),
          std::move(labels.values)};
}

}  // namespace

FashionMnist load_fashion_mnist(const std::filesystem::path& folder) {
  return {load_part(folder, "train"),
          load_part(folder, "t10k"),
          {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
           "Bag", "Ankle boot"}};
}

}  // namespace tensorgrad
