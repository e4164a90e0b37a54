#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

namespace tensorgrad {

/// The value of a JSON text, members in the order of the text; a discarded one if the text is not
/// JSON, or JSON of more than 64 levels.
nlohmann::ordered_json parse_json(std::string_view text);

}  // namespace tensorgrad
