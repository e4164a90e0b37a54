#include "html.h"

namespace tensorgrad::tools {

std::string escape_html(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default: {
        const auto code = static_cast<unsigned char>(c);
        const bool disallowed =
            code == 0x7f || (code < 0x20 && c != '\t' && c != '\n' && c != '\r');
        if (disallowed) {
          result += "\xef\xbf\xbd";
        } else {
          result += c;
        }
      }
    }
  }
  return result;
}

}  // namespace tensorgrad::tools
