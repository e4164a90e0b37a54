// Models for a web page: what a WebAssembly module offers to JavaScript, and bundles, files with
// which a page runs a model without WebAssembly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensorgrad/compile.h"

namespace tensorgrad::web {

/// What a page asks of a model: numbers by name, such as {"layers": 4, "seed": 1}.
class Options {
 public:
  explicit Options(std::map<std::string, double, std::less<>> values = {},
                   std::string device = "web")
      : values_(std::move(values)), device_(std::move(device)) {}
  /// The device to compile for: "web" with the limits of the page's adapter.
  const std::string& device() const { return device_; }
  /// The number of this name, or `otherwise`.
  double number(std::string_view name, double otherwise) const;
  /// The same for a whole number from `least` to `most`. Throws ValueError for any other.
  std::int64_t integer(std::string_view name, std::int64_t otherwise, std::int64_t least = 0,
                       std::int64_t most = std::int64_t{1} << 31) const;

 private:
  std::map<std::string, double, std::less<>> values_;
  std::string device_;
};

/// A training, compiled for the device "web", and the functions that a page may attach to it.
struct Model {
  AnyTraining training;
  std::map<std::string, Forward> forwards = {};
};

/// The models of a module, by name.
class Models {
 public:
  using Make = std::function<Model(const Options&)>;
  /// `make` is called when a page asks for the model. Throws GraphError for a name used twice.
  void add(std::string name, const Make& make);
  const std::map<std::string, Make, std::less<>>& all() const { return models_; }

 private:
  std::map<std::string, Make, std::less<>> models_;
};

/// Defined by the author of a WebAssembly module: adds its models. Called once, when a page loads
/// the module.
void register_models(Models& models);

/// What goes into a bundle.
struct BundleOptions {
  /// Values of open extents; programs are made for each.
  std::vector<std::int64_t> sizes = {1};
  bool trains = true;   ///< with the training step and the optimizer's state
  bool weights = true;  ///< with the current parameters; else the page starts from initial values
  /// Free text for the page, kept in its checkpoints.
  std::map<std::string, std::string> metadata = {};
};

/// A bundle of a model that was compiled for the device "web": programs, WGSL and weights; the file
/// format is in docs/web.md. It runs on every adapter that has the limits of that device, "web" on
/// all whose memory suffices. Throws GraphError for another device, and DeviceError if a program
/// does not fit into the limits.
std::vector<std::byte> make_bundle(const Model& model, const BundleOptions& options);

}  // namespace tensorgrad::web
