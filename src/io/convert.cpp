// Conversions between the element types of files and those of tensors.
#include <fmt/core.h>

#include <bit>
#include <cmath>
#include <concepts>
#include <cstring>
#include <limits>
#include <utility>

#include "io/safetensors_header.h"
#include "tensorgrad/io.h"

namespace tensorgrad {
namespace {

// A float of 1 sign, `exponent_bits` and `mantissa_bits` bits as a float, which is exact for every
// format not wider than float. With `has_infinity` false, only all ones is special, and a NaN.
float widen(std::uint32_t bits, int exponent_bits, int mantissa_bits, bool has_infinity) {
  const std::uint32_t exponent_mask = (1U << exponent_bits) - 1;
  const std::uint32_t mantissa_mask = (1U << mantissa_bits) - 1;
  const std::uint32_t exponent = (bits >> mantissa_bits) & exponent_mask;
  const std::uint32_t mantissa = bits & mantissa_mask;
  const bool negative = ((bits >> (exponent_bits + mantissa_bits)) & 1U) != 0;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  float magnitude = 0;
  if (exponent == exponent_mask && (has_infinity || mantissa == mantissa_mask)) {
    magnitude = has_infinity && mantissa == 0 ? std::numeric_limits<float>::infinity()
                                              : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), 1 - bias - mantissa_bits);
  } else {
    magnitude = std::ldexp(static_cast<float>(mantissa | (mantissa_mask + 1)),
                           static_cast<int>(exponent) - bias - mantissa_bits);
  }
  return std::copysign(magnitude, negative ? -1.0F : 1.0F);
}

template <class T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

[[noreturn]] void lossy(const SafeTensor& tensor, std::size_t index, const std::string& value,
                        std::string_view target) {
  throw FormatError(fmt::format("Element {} of tensor {} of {} is {}, which {} cannot hold.", index,
                                quote(tensor.name), tensor.dtype, value, target));
}

float to_target(double value, const SafeTensor& tensor, std::size_t index, float /*tag*/) {
  // Values that round to infinity are those from half a step beyond the largest float.
  if (std::isfinite(value) && std::abs(value) >= 0x1.ffffffp127) {
    lossy(tensor, index, fmt::format("{}", value), "float");
  }
  return static_cast<float>(value);
}

float to_target(float value, const SafeTensor& /*tensor*/, std::size_t /*index*/, float /*tag*/) {
  return value;
}

template <std::integral I>
float to_target(I value, const SafeTensor& tensor, std::size_t index, float /*tag*/) {
  const auto converted = static_cast<float>(value);
  // Comparing in the wider type would round the integer again; its trailing zeros tell exactly.
  const auto magnitude =
      value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value);
  if (magnitude != 0 && std::bit_width(magnitude) - std::countr_zero(magnitude) > 24) {
    lossy(tensor, index, fmt::format("{}", value), "float");
  }
  return converted;
}

template <std::floating_point F, std::integral I>
I to_target(F value, const SafeTensor& tensor, std::size_t index, I /*tag*/) {
  const auto wide = static_cast<double>(value);
  if (!(wide >= static_cast<double>(std::numeric_limits<I>::min()) &&
        wide <= static_cast<double>(std::numeric_limits<I>::max())) ||
      std::trunc(wide) != wide) {
    lossy(tensor, index, fmt::format("{}", value), "a 32-bit integer of this kind");
  }
  return static_cast<I>(wide);
}

template <std::integral S, std::integral I>
I to_target(S value, const SafeTensor& tensor, std::size_t index, I /*tag*/) {
  if (!std::in_range<I>(value)) {
    lossy(tensor, index, fmt::format("{}", value), "a 32-bit integer of this kind");
  }
  return static_cast<I>(value);
}

template <class Target, class Source, class Decode>
std::vector<Target> convert_each(const SafeTensor& tensor, Decode decode) {
  std::vector<Target> result(tensor.bytes.size() / sizeof(Source));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto stored = load<Source>(tensor.bytes.data() + i * sizeof(Source));
    result[i] = to_target(decode(stored, i), tensor, i, Target{});
  }
  return result;
}

template <class Target, class Source>
std::vector<Target> convert_plain(const SafeTensor& tensor) {
  return convert_each<Target, Source>(tensor, [](Source value, std::size_t) { return value; });
}

template <class Target>
std::vector<Target> convert(const SafeTensor& tensor) {
  const std::string& dtype = tensor.dtype;
  const std::size_t expected =
      static_cast<std::size_t>(numel(tensor.shape)) * safetensors_dtype_bytes(dtype);
  if (tensor.bytes.size() != expected) {
    throw FormatError(fmt::format("Tensor {} has {} bytes of data, but {} of shape {} takes {}.",
                                  quote(tensor.name), tensor.bytes.size(), dtype,
                                  to_string(tensor.shape), expected));
  }
  if (dtype == "F32") return convert_plain<Target, float>(tensor);
  if (dtype == "F64") return convert_plain<Target, double>(tensor);
  if (dtype == "I8") return convert_plain<Target, std::int8_t>(tensor);
  if (dtype == "U8") return convert_plain<Target, std::uint8_t>(tensor);
  if (dtype == "I16") return convert_plain<Target, std::int16_t>(tensor);
  if (dtype == "U16") return convert_plain<Target, std::uint16_t>(tensor);
  if (dtype == "I32") return convert_plain<Target, std::int32_t>(tensor);
  if (dtype == "U32") return convert_plain<Target, std::uint32_t>(tensor);
  if (dtype == "I64") return convert_plain<Target, std::int64_t>(tensor);
  if (dtype == "U64") return convert_plain<Target, std::uint64_t>(tensor);
  if (dtype == "F16") {
    return convert_each<Target, std::uint16_t>(
        tensor, [](std::uint16_t bits, std::size_t) { return widen(bits, 5, 10, true); });
  }
  if (dtype == "BF16") {
    return convert_each<Target, std::uint16_t>(tensor, [](std::uint16_t bits, std::size_t) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    });
  }
  if (dtype == "F8_E4M3") {
    return convert_each<Target, std::uint8_t>(
        tensor, [](std::uint8_t bits, std::size_t) { return widen(bits, 4, 3, false); });
  }
  if (dtype == "F8_E5M2") {
    return convert_each<Target, std::uint8_t>(
        tensor, [](std::uint8_t bits, std::size_t) { return widen(bits, 5, 2, true); });
  }
  return convert_each<Target, std::uint8_t>(tensor, [&](std::uint8_t value, std::size_t i) {
    if (value > 1) lossy(tensor, i, fmt::format("{}", value), "a BOOL");
    return value;
  });
}

template <class T>
SafeTensor make(std::string name, std::string dtype, Shape shape, std::span<const T> values) {
  if (static_cast<std::uint64_t>(numel(shape)) != values.size()) {
    throw ShapeError(fmt::format("Tensor {} of shape {} is given {} values instead of {}.",
                                 quote(name), to_string(shape), values.size(), numel(shape)));
  }
  static_assert(sizeof(bool) == 1);
  const auto bytes = std::as_bytes(values);
  const auto owner = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  return {std::move(name), std::move(dtype), std::move(shape), *owner, owner};
}

}  // namespace

std::vector<float> to_float_vector(const SafeTensor& tensor) { return convert<float>(tensor); }

std::vector<std::int32_t> to_int32_vector(const SafeTensor& tensor) {
  return convert<std::int32_t>(tensor);
}

std::vector<std::uint32_t> to_uint32_vector(const SafeTensor& tensor) {
  return convert<std::uint32_t>(tensor);
}

SafeTensor make_safetensor(std::string name, Shape shape, std::span<const float> values) {
  return make(std::move(name), "F32", std::move(shape), values);
}

SafeTensor make_safetensor(std::string name, Shape shape, std::span<const std::int32_t> values) {
  return make(std::move(name), "I32", std::move(shape), values);
}

SafeTensor make_safetensor(std::string name, Shape shape, std::span<const std::uint32_t> values) {
  return make(std::move(name), "U32", std::move(shape), values);
}

SafeTensor make_safetensor(std::string name, Shape shape, std::span<const bool> values) {
  return make(std::move(name), "BOOL", std::move(shape), values);
}

}  // namespace tensorgrad
