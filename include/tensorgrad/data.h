// Data sets: the IDX format, Fashion-MNIST, and batches in a reproducible random order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tensorgrad/error.h"
#include "tensorgrad/tensor.h"

namespace tensorgrad {

/// The array in an IDX file, row-major. The vector's type is the file's element type.
struct IdxArray {
  Shape shape;
  std::variant<std::vector<std::uint8_t>, std::vector<std::int8_t>, std::vector<std::int16_t>,
               std::vector<std::int32_t>, std::vector<float>, std::vector<double>>
      values;
};

/// Reads an IDX file, plain or compressed by gzip (told apart by their first bytes). Throws
/// FormatError, naming the file and the values found, if it cannot be read, has a wrong magic
/// number or type code, extents whose product overflows, fewer or more bytes than its header
/// declares, or damaged gzip data. At most the declared number of bytes is decompressed.
IdxArray read_idx(const std::filesystem::path& path);

/// Like `read_idx` for bytes already in memory. `source` is what error messages call the file.
IdxArray parse_idx(std::span<const std::byte> bytes, const std::string& source);

/// Grey images with one label each.
struct LabelledImages {
  std::int64_t count = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> images;  ///< [count, height, width], row-major, 0 to 255
  std::vector<std::uint8_t> labels;  ///< [count]
};

/// Fashion-MNIST, or a data set of the same four files and ten classes.
struct FashionMnist {
  LabelledImages train;
  LabelledImages test;
  std::vector<std::string> class_names;  ///< of labels 0 to 9
};

/// Where Debian's package dataset-fashion-mnist keeps its files.
inline constexpr const char* fashion_mnist_folder = "/usr/share/datasets/fashion-mnist";

/// Reads {train,t10k}-{images-idx3,labels-idx1}-ubyte, each with or without ".gz". Throws
/// FormatError if a file is missing (and says where to get it) or damaged, if the images are not
/// 28 by 28 bytes, their number is 0 or not that of the labels, or a label is above 9.
FashionMnist load_fashion_mnist(const std::filesystem::path& folder = fashion_mnist_folder);

struct BatchOptions {
  std::uint64_t seed = 0;
  bool shuffle = true;
  bool drop_last = false;  ///< leave out a last batch that is not full
};

/// One pass over a data set, as batches of sample indices. A value; spans it returns live as long
/// as it does.
class EpochBatches {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = std::span<const std::int64_t>;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = value_type;

    Iterator(const EpochBatches* epoch, std::int64_t batch) : epoch_(epoch), batch_(batch) {}
    value_type operator*() const { return (*epoch_)[batch_]; }
    Iterator& operator++() {
      ++batch_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return batch_ == other.batch_; }

   private:
    const EpochBatches* epoch_;
    std::int64_t batch_;
  };

  /// Number of batches.
  std::int64_t size() const { return size_; }
  /// Indices of the samples of one batch. Throws ValueError if `batch` is not in [0, size()).
  std::span<const std::int64_t> operator[](std::int64_t batch) const;
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size_}; }

 private:
  friend class Batches;
  std::vector<std::int64_t> order_;
  std::int64_t batch_size_ = 1;
  std::int64_t size_ = 0;
};

/// Splits `samples` samples into batches, in an order that depends on the seed and the epoch alone
/// and is the same on every platform: a run resumes from (epoch, batch index).
///
///     for (std::span<const std::int64_t> indices : batches.epoch(3)) { ... }
class Batches {
 public:
  /// Throws ValueError unless samples >= 0 and batch_size >= 1.
  Batches(std::int64_t samples, std::int64_t batch_size, BatchOptions options = {});

  /// Number of batches of every epoch.
  std::int64_t batches_per_epoch() const;
  /// The batches of one epoch, counted from 0. Throws ValueError if `epoch` is negative.
  EpochBatches epoch(std::int64_t epoch) const;

 private:
  std::int64_t samples_;
  std::int64_t batch_size_;
  BatchOptions options_;
};

/// How a byte x of an image becomes a float: (x / 255 - mean) / standard_deviation.
struct PixelScaling {
  double mean = 0;
  double standard_deviation = 1;
};

/// The images of these indices as floats, [indices.size(), height, width]. Throws ValueError if an
/// index is out of range or the scaling is not finite with a positive deviation.
std::vector<float> gather_images(const LabelledImages& data, std::span<const std::int64_t> indices,
                                 const PixelScaling& scaling = {});
/// The labels of these indices. Throws ValueError if an index is out of range.
std::vector<std::int32_t> gather_labels(const LabelledImages& data,
                                        std::span<const std::int64_t> indices);

}  // namespace tensorgrad
