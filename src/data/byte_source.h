// A stream of bytes, plain or decompressed, for parsers of binary formats.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace tensorgrad {

/// Delivers bytes in order.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  /// Fills `to` from its start and returns how many bytes that were; fewer than asked for only at
  /// the end of the stream. Throws FormatError if compressed data is damaged.
  virtual std::size_t read(std::span<std::byte> to) = 0;
};

/// The bytes themselves, or what they decompress to if they start like a gzip file (of any number
/// of members). `bytes` must outlive the result; `source` is what errors call the file.
std::unique_ptr<ByteSource> open_byte_source(std::span<const std::byte> bytes,
                                             const std::string& source);

}  // namespace tensorgrad
