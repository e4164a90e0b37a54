// The adapter that a page's programs are made for.
#pragma once

#include <string>
#include <string_view>

#include "codegen/wgsl/target.h"

namespace tensorgrad::web {

/// The target that a device name stands for: "web" is what every adapter guarantees; "web:" is
/// followed by JSON as a page tells it: {"limits": {...}, "features": [...], "adapter": {...}} with
/// WebGPU's names. Throws FormatError for other text.
wgsl::Target parse_target(std::string_view device);

}  // namespace tensorgrad::web
