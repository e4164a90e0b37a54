// Images in HTML pages without files of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tensorgrad::tools {

/// An 8-bit grey PNG of `width` by `height` pixels, given row by row. Throws ValueError if `pixels`
/// is not width * height bytes or an extent is 0.
std::vector<std::uint8_t> encode_png(std::span<const std::uint8_t> pixels, std::uint32_t width,
                                     std::uint32_t height);

/// Base64 with padding (RFC 4648).
std::string to_base64(std::span<const std::uint8_t> bytes);

}  // namespace tensorgrad::tools
