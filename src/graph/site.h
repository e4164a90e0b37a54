// A place in the user's program as text.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "tensorgrad/error.h"

namespace tensorgrad {

/// "model.cpp:12": the file without its folders, and the line.
inline std::string short_text(const Site& site) {
  std::string_view file = site.file_name();
  if (const auto slash = file.find_last_of("/\\"); slash != std::string_view::npos) {
    file.remove_prefix(slash + 1);
  }
  return fmt::format("{}:{}", file, site.line());
}

}  // namespace tensorgrad
