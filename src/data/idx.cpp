// The IDX format: two zero bytes, a type code, a rank, big-endian extents and elements.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "data/byte_source.h"
#include "tensorgrad/data.h"
#include "tensorgrad/io.h"

namespace tensorgrad {
namespace {

template <class T>
void to_host_order(std::span<T> values) {
  if constexpr (sizeof(T) > 1 && std::endian::native == std::endian::little) {
    for (T& value : values) {
      auto bytes = std::bit_cast<std::array<std::byte, sizeof(T)>>(value);
      std::ranges::reverse(bytes);
      value = std::bit_cast<T>(bytes);
    }
  }
}

std::uint32_t read_extent(ByteSource& from, int dimension, int rank, const std::string& source) {
  std::array<std::byte, 4> bytes{};
  if (from.read(bytes) != bytes.size()) {
    throw FormatError(fmt::format("{}: the file ends in extent {} of {} of the IDX header.", source,
                                  dimension, rank));
  }
  std::uint32_t extent = 0;
  for (const std::byte b : bytes) extent = extent << 8 | std::to_integer<std::uint32_t>(b);
  return extent;
}

template <class T>
std::vector<T> read_elements(ByteSource& from, const Shape& shape, const std::string& source) {
  constexpr std::uint64_t limit = std::numeric_limits<std::int64_t>::max();
  std::uint64_t count = sizeof(T);
  bool overflows = false;
  for (const std::int64_t extent : shape) {
    if (extent == 0) continue;
    overflows = overflows || count > limit / static_cast<std::uint64_t>(extent);
    if (!overflows) count *= static_cast<std::uint64_t>(extent);
  }
  if (overflows) {
    throw FormatError(
        fmt::format("{}: an IDX array of shape {} with elements of {} bytes has a "
                    "size beyond 64 bits.",
                    source, to_string(shape), sizeof(T)));
  }
  count = std::ranges::find(shape, 0) != shape.end() ? 0 : count / sizeof(T);

  // Grows with what the file really holds: a small file may declare any size.
  constexpr std::uint64_t step = std::uint64_t{1} << 16;
  std::vector<T> values;
  while (values.size() < count) {
    const std::size_t old_size = values.size();
    values.resize(std::min(count, old_size + std::max<std::uint64_t>(step, old_size)));
    const auto fresh = std::as_writable_bytes(std::span(values).subspan(old_size));
    const std::size_t got = from.read(fresh);
    if (got != fresh.size()) {
      throw FormatError(
          fmt::format("{}: the file ends after {} of the {} bytes that an IDX array "
                      "of shape {} takes.",
                      source, old_size * sizeof(T) + got, count * sizeof(T), to_string(shape)));
    }
  }
  std::array<std::byte, 1> extra{};
  if (from.read(extra) != 0) {
    throw FormatError(
        fmt::format("{}: more bytes follow the {} that an IDX array of shape {} takes.", source,
                    count * sizeof(T), to_string(shape)));
  }
  to_host_order(std::span(values));
  return values;
}

}  // namespace

IdxArray parse_idx(std::span<const std::byte> bytes, const std::string& source) {
  const std::unique_ptr<ByteSource> from = open_byte_source(bytes, source);
  std::array<std::byte, 4> magic{};
  if (const std::size_t got = from->read(magic); got != magic.size()) {
    throw FormatError(
        fmt::format("{}: the file has {} bytes; an IDX file starts with 4.", source, got));
  }
  const auto type_code = std::to_integer<int>(magic[2]);
  const auto rank = std::to_integer<int>(magic[3]);
  if (magic[0] != std::byte{0} || magic[1] != std::byte{0}) {
    throw FormatError(fmt::format(
        "{}: the file starts with the bytes {:02x} {:02x}; an IDX file starts with 00 00.", source,
        std::to_integer<int>(magic[0]), std::to_integer<int>(magic[1])));
  }
  IdxArray result;
  for (int dimension = 0; dimension < rank; ++dimension) {
    result.shape.push_back(read_extent(*from, dimension, rank, source));
  }
  switch (type_code) {
    case 0x08:
      result.values = read_elements<std::uint8_t>(*from, result.shape, source);
      break;
    case 0x09:
      result.values = read_elements<std::int8_t>(*from, result.shape, source);
      break;
    case 0x0B:
      result.values = read_elements<std::int16_t>(*from, result.shape, source);
      break;
    case 0x0C:
      result.values = read_elements<std::int32_t>(*from, result.shape, source);
      break;
    case 0x0D:
      result.values = read_elements<float>(*from, result.shape, source);
      break;
    case 0x0E:
      result.values = read_elements<double>(*from, result.shape, source);
      break;
    default:
      throw FormatError(
          fmt::format("{}: the IDX type code is 0x{:02x}, which is none of 0x08, "
                      "0x09, 0x0b, 0x0c, 0x0d and 0x0e.",
                      source, type_code));
  }
  return result;
}

IdxArray read_idx(const std::filesystem::path& path) {
  return parse_idx(read_file(path), path.string());
}

}  // namespace tensorgrad
