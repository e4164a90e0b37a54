#include "tensorgrad/error.h"

#include <fmt/format.h>

#include "graph/node.h"

namespace tensorgrad {

Error::Error(const std::string& message, const Site& site)
    : std::runtime_error(fmt::format("{}\n  at {}:{}", message,
                                     SiteScope::resolve(site).file_name(),
                                     SiteScope::resolve(site).line())) {}

}  // namespace tensorgrad
