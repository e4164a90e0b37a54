// Text for HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace tensorgrad::tools {

/// `text` with the characters that HTML gives a meaning replaced by entities; safe in elements and
/// in quoted attributes. Control characters that HTML does not allow become U+FFFD.
std::string escape_html(std::string_view text);

}  // namespace tensorgrad::tools
