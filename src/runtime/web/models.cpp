// Options and lists of models.
#include <fmt/format.h>

#include <cmath>

#include "tensorgrad/web.h"

namespace tensorgrad::web {

double Options::number(std::string_view name, double otherwise) const {
  const auto it = values_.find(name);
  return it == values_.end() ? otherwise : it->second;
}

std::int64_t Options::integer(std::string_view name, std::int64_t otherwise, std::int64_t least,
                              std::int64_t most) const {
  const auto it = values_.find(name);
  if (it == values_.end()) return otherwise;
  const double value = it->second;
  if (!(value == std::floor(value) && value >= static_cast<double>(least) &&
        value <= static_cast<double>(most))) {
    throw ValueError(fmt::format("The option \"{}\" is {}, not a whole number from {} to {}.", name,
                                 value, least, most));
  }
  return static_cast<std::int64_t>(value);
}

void Models::add(std::string name, const Make& make) {
  if (const auto [it, inserted] = models_.try_emplace(std::move(name), make); !inserted) {
    throw GraphError(fmt::format("Two models are named \"{}\".", it->first));
  }
}

}  // namespace tensorgrad::web
