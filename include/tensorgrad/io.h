// Reading and writing tensors in files: the safetensors format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensorgrad/error.h"
#include "tensorgrad/tensor.h"

namespace tensorgrad {

/// One named tensor of a safetensors file: little-endian, row-major elements. A tensor read from a
/// file shares the file's bytes, so a copy is cheap and outlives the `SafeTensors` it came from.
struct SafeTensor {
  std::string name;
  std::string dtype;  ///< the format's name: "F32", "BF16", "I64", ...
  Shape shape;
  std::span<const std::byte> bytes;   ///< numel(shape) elements; alignment is not guaranteed
  std::shared_ptr<const void> owner;  ///< keeps `bytes` alive; empty if the caller does
};

/// The contents of a safetensors file: tensors in the order of its header, and free-form metadata.
struct SafeTensors {
  std::vector<SafeTensor> tensors;
  std::map<std::string, std::string> metadata;

  /// The tensor of this name, or nullptr.
  const SafeTensor* find(std::string_view name) const;
  /// The tensor of this name. Throws FormatError, naming those present, if there is none.
  const SafeTensor& at(std::string_view name) const;
};

/// Bytes of one element of a safetensors dtype: BOOL U8 I8 F8_E4M3 F8_E5M2 (1), I16 U16 F16 BF16
/// (2), I32 U32 F32 (4), I64 U64 F64 (8). Throws FormatError for any other name.
std::size_t safetensors_dtype_bytes(std::string_view dtype);

/// Reads a whole file once and returns views into it. Throws FormatError, naming the file, the
/// tensor and the values found, if the file cannot be read or breaks the format: a header that is
/// truncated, larger than 100 MB or not the JSON the format asks for, duplicate names, unknown
/// dtypes, or tensors whose bytes do not match their shape, overlap, or do not tile the data.
SafeTensors read_safetensors(const std::filesystem::path& path);

/// Like `read_safetensors` for bytes already in memory, which are copied once. `source` is what
/// error messages call the file.
SafeTensors parse_safetensors(std::span<const std::byte> bytes, const std::string& source);

/// Writes the tensors (largest elements first, then by name, so that every tensor is aligned) and
/// metadata to `path`, replacing a file that is there at once: a crash or an error leaves either
/// the old file or the new one. Throws FormatError if a name, dtype, shape or size is not valid or
/// the file cannot be written; the old file is then unchanged.
void write_safetensors(const std::filesystem::path& path, const SafeTensors& contents);

/// A tensor that owns a copy of `values`: F32, I32, U32, or BOOL with one byte an element. Throws
/// ShapeError if the number of values is not numel(shape).
SafeTensor make_safetensor(std::string name, Shape shape, std::span<const float> values);
SafeTensor make_safetensor(std::string name, Shape shape, std::span<const std::int32_t> values);
SafeTensor make_safetensor(std::string name, Shape shape, std::span<const std::uint32_t> values);
SafeTensor make_safetensor(std::string name, Shape shape, std::span<const bool> values);

/// The elements as floats. F16, BF16, F8 and F32 are exact and F64 is rounded to nearest. Throws
/// FormatError if an integer has no exact float, a finite F64 is beyond the range of float, a BOOL
/// is neither 0 nor 1, or the bytes do not match dtype and shape.
std::vector<float> to_float_vector(const SafeTensor& tensor);
/// The elements as 32-bit integers. Throws FormatError if an element, of any dtype, is not exactly
/// an integer in range.
std::vector<std::int32_t> to_int32_vector(const SafeTensor& tensor);
std::vector<std::uint32_t> to_uint32_vector(const SafeTensor& tensor);

/// The whole contents of a regular file. Throws FormatError, with the system's reason, if it
/// cannot be read.
std::vector<std::byte> read_file(const std::filesystem::path& path);

/// Replaces the contents of `path` by the concatenation of `parts`, or leaves it unchanged: the
/// bytes go to a temporary file in the same folder, are flushed to the disk, and the file is
/// renamed over `path`. Throws FormatError, with the system's reason, and removes the temporary
/// file if that fails.
void write_file_atomically(const std::filesystem::path& path,
                           std::span<const std::span<const std::byte>> parts);

}  // namespace tensorgrad
