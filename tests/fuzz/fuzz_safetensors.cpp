// libFuzzer entry point: no bytes make the safetensors parser or the conversions fail other than by
// a FormatError.
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensorgrad/io.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const tensorgrad::SafeTensors file =
        tensorgrad::parse_safetensors(std::as_bytes(std::span(data, size)), "input");
    for (const tensorgrad::SafeTensor& tensor : file.tensors) {
      try {
        tensorgrad::to_float_vector(tensor);
        tensorgrad::to_int32_vector(tensor);
      } catch (const tensorgrad::FormatError&) {
        continue;
      }
    }
  } catch (const tensorgrad::FormatError&) {
    return 0;
  }
  return 0;
}
