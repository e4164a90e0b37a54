#include "png.h"

#include <fmt/core.h>
#include <zlib.h>

#include <array>
#include <new>
#include <string_view>

#include "tensorgrad/error.h"

namespace tensorgrad::tools {
namespace {

void append_u32(std::vector<std::uint8_t>& to, std::uint32_t value) {
  for (const int shift : {24, 16, 8, 0}) to.push_back(static_cast<std::uint8_t>(value >> shift));
}

void append_chunk(std::vector<std::uint8_t>& png, std::string_view type,
                  std::span<const std::uint8_t> data) {
  append_u32(png, static_cast<std::uint32_t>(data.size()));
  const std::size_t covered_by_crc = png.size();
  png.insert(png.end(), type.begin(), type.end());
  png.insert(png.end(), data.begin(), data.end());
  const auto crc = crc32(0, png.data() + covered_by_crc, static_cast<uInt>(data.size() + 4));
  append_u32(png, static_cast<std::uint32_t>(crc));
}

}  // namespace

std::vector<std::uint8_t> encode_png(std::span<const std::uint8_t> pixels, std::uint32_t width,
                                     std::uint32_t height) {
  if (width == 0 || height == 0 || pixels.size() != std::size_t{width} * height) {
    throw ValueError(fmt::format("An image of {} by {} pixels cannot be made of {} bytes.", width,
                                 height, pixels.size()));
  }
  std::vector<std::uint8_t> rows;
  rows.reserve(pixels.size() + height);
  for (std::size_t y = 0; y < height; ++y) {
    rows.push_back(0);  // the row's filter: none
    const auto row = pixels.subspan(y * width, width);
    rows.insert(rows.end(), row.begin(), row.end());
  }
  uLongf packed_size = compressBound(static_cast<uLong>(rows.size()));
  std::vector<std::uint8_t> packed(packed_size);
  if (compress2(packed.data(), &packed_size, rows.data(), static_cast<uLong>(rows.size()),
                Z_BEST_COMPRESSION) != Z_OK) {
    throw std::bad_alloc();  // the only other failure, a small buffer, is excluded by its bound
  }
  packed.resize(packed_size);

  std::vector<std::uint8_t> png{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  std::vector<std::uint8_t> header;
  append_u32(header, width);
  append_u32(header, height);
  // 8 bits a sample, grey; the only compression, filter method and no interlacing.
  header.insert(header.end(), {8, 0, 0, 0, 0});
  append_chunk(png, "IHDR", header);
  append_chunk(png, "IDAT", packed);
  append_chunk(png, "IEND", {});
  return png;
}

std::string to_base64(std::span<const std::uint8_t> bytes) {
  constexpr std::string_view digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) group = group << 8 | (j < count ? bytes[i + j] : 0U);
    for (std::size_t j = 0; j < 4; ++j) {
      text += j <= count ? digits[group >> (18 - 6 * j) & 63U] : '=';
    }
  }
  return text;
}

}  // namespace tensorgrad::tools
