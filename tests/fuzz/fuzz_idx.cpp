// libFuzzer entry point: no bytes make the IDX parser, or the decompression below it, fail other
// than by a FormatError.
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensorgrad/data.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    tensorgrad::parse_idx(std::as_bytes(std::span(data, size)), "input");
  } catch (const tensorgrad::FormatError&) {
    return 0;
  }
  return 0;
}
