#include "data/byte_source.h"

#include <fmt/core.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include "tensorgrad/error.h"

namespace tensorgrad {
namespace {

class PlainSource : public ByteSource {
 public:
  explicit PlainSource(std::span<const std::byte> bytes) : rest_(bytes) {}

  std::size_t read(std::span<std::byte> to) override {
    const std::size_t count = std::min(to.size(), rest_.size());
    std::copy_n(rest_.begin(), count, to.begin());
    rest_ = rest_.subspan(count);
    return count;
  }

 private:
  std::span<const std::byte> rest_;
};

bool starts_like_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

class GzipSource : public ByteSource {
 public:
  GzipSource(std::span<const std::byte> bytes, const std::string& source)
      : rest_(bytes), source_(source) {
    constexpr int largest_window_gzip_only = 15 + 16;
    if (inflateInit2(&stream_, largest_window_gzip_only) != Z_OK) throw std::bad_alloc();
  }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;
  ~GzipSource() override { inflateEnd(&stream_); }

  std::size_t read(std::span<std::byte> to) override {
    std::size_t filled = 0;
    while (filled < to.size() && !ended_) filled += inflate_some(to.subspan(filled));
    return filled;
  }

 private:
  std::size_t inflate_some(std::span<std::byte> to) {
    constexpr std::size_t most = std::numeric_limits<uInt>::max();
    const auto offered = static_cast<uInt>(std::min(rest_.size(), most));
    const auto wanted = static_cast<uInt>(std::min(to.size(), most));
    // zlib does not write to its input; its type only predates const.
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(rest_.data()));
    stream_.avail_in = offered;
    stream_.next_out = reinterpret_cast<Bytef*>(to.data());
    stream_.avail_out = wanted;
    const int status = inflate(&stream_, Z_NO_FLUSH);
    const std::size_t produced = wanted - stream_.avail_out;
    rest_ = rest_.subspan(offered - stream_.avail_in);
    if (status == Z_STREAM_END) {
      next_member();
    } else if (status == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (status == Z_BUF_ERROR) {
      throw FormatError(fmt::format("{}: the gzip data ends early.", source_));
    } else if (status != Z_OK) {
      throw FormatError(fmt::format("{}: the gzip data is damaged: {}.", source_,
                                    stream_.msg != nullptr ? stream_.msg : "unknown error"));
    }
    return produced;
  }

  void next_member() {
    if (rest_.empty()) {
      ended_ = true;
      return;
    }
    if (!starts_like_gzip(rest_)) {
      throw FormatError(fmt::format("{}: {} bytes that are not gzip follow the gzip data.", source_,
                                    rest_.size()));
    }
    inflateReset(&stream_);
  }

  z_stream stream_{};
  std::span<const std::byte> rest_;
  std::string source_;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<ByteSource> open_byte_source(std::span<const std::byte> bytes,
                                             const std::string& source) {
  if (starts_like_gzip(bytes)) return std::make_unique<GzipSource>(bytes, source);
  return std::make_unique<PlainSource>(bytes);
}

}  // namespace tensorgrad
