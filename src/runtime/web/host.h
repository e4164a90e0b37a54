// What a page asks of a C++ module, as JSON requests and answers.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "tensorgrad/web.h"

namespace tensorgrad::web {

/// Serves requests.
class ModuleHost {
 public:
  explicit ModuleHost(Models models) : models_(std::move(models)) {}

  /// Requests, by "call":
  ///   models                                     the names, a JSON list
  ///   inspect {model, options}                   graph and plan of the training step, as text
  /// Throws FormatError for a request of another form, and what the model throws.
  std::vector<std::byte> call(std::string_view request);

 private:
  Models models_;
};

/// "ShapeError" for a ShapeError, "Error" for any other exception.
std::string type_name(const std::exception& error);

}  // namespace tensorgrad::web
