// Builds IDX files, plain and compressed, for tests.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tensorgrad::test {

inline std::vector<std::byte> idx_file(int type_code, const std::vector<std::uint32_t>& extents,
                                       const std::vector<std::uint8_t>& elements) {
  std::vector<std::byte> bytes{std::byte{0}, std::byte{0}, static_cast<std::byte>(type_code),
                               static_cast<std::byte>(extents.size())};
  for (const std::uint32_t extent : extents) {
    for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<std::byte>(extent >> shift));
  }
  for (const std::uint8_t element : elements) bytes.push_back(static_cast<std::byte>(element));
  return bytes;
}

inline std::vector<std::byte> gzip(std::span<const std::byte> plain) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::vector<std::byte> packed(deflateBound(&stream, plain.size()) + 64);
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

}  // namespace tensorgrad::test
