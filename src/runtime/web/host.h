// What a page asks of a C++ module, as JSON requests and answers.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensorgrad/web.h"

namespace tensorgrad::web {

/// Serves requests. Objects that a page opened live until it closes them.
class ModuleHost {
 public:
  explicit ModuleHost(Models models) : models_(std::move(models)) {}

  /// Requests, by "call":
  ///   models                                     the names, a JSON list
  ///   open {model, options, target}              traces a model: {"handle": n}
  ///   bundle {handle}                            a bundle without programs, but with the one that
  ///                                              makes the initial values where it needs them
  ///   program {handle, role, name, shapes}       a bundle of one program for these input shapes
  ///   inspect {model, options}                   graph and plan of the training step, as text
  ///   close {handle}
  /// Throws FormatError for a request of another form, and what the model throws.
  std::vector<std::byte> call(std::string_view request);

 private:
  Models models_;
  std::map<std::int64_t, Model> opened_;
  std::int64_t next_ = 1;
};

/// "ShapeError" for a ShapeError, "Error" for any other exception.
std::string type_name(const std::exception& error);

}  // namespace tensorgrad::web
