// The JSON header of a safetensors file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensorgrad/tensor.h"

namespace tensorgrad {

/// What the header says of one tensor; dtype, shape and offsets are well-typed but not yet checked
/// against each other or the data.
struct HeaderEntry {
  std::string name;
  std::string dtype;
  Shape shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

struct Header {
  std::vector<HeaderEntry> entries;  ///< in the order of the text
  std::map<std::string, std::string> metadata;
};

/// Parses the header of the file called `source`. Throws FormatError if the text is not exactly a
/// JSON object of the structure that the format asks for, or names a tensor or a field twice.
Header parse_header(std::string_view text, const std::string& source);

/// `text` in double quotes, escaped to printable ASCII and shortened, as error messages show a name
/// that comes from a file.
std::string quote(std::string_view text);

}  // namespace tensorgrad
