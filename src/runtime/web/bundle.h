// Bundles: what a page needs to run a model, in one piece of memory.
//
// "tgbundle", u32 version 1, u32 size of the header, the header as JSON (its size makes the data
// start at a multiple of 16), the data. Numbers are little-endian. docs/web.md describes the
// header.
#pragma once

#include <cstddef>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "codegen/wgsl/program.h"
#include "tensorgrad/compile.h"
#include "train/core.h"

namespace tensorgrad::web {

/// Collects programs that share modules and data.
class BundleWriter {
 public:
  using Json = nlohmann::ordered_json;

  explicit BundleWriter(const wgsl::Target& target) : target_(target) {}

  /// A program: `role` is "init", "step" or "forward", `name` the forward's, and `inputs` how many
  /// of the plan's inputs the page feeds; names of the others are preceded by "$". Throws
  /// DeviceError if the plan does not fit the target.
  void add_program(const std::string& role, const std::string& name, const Plan& plan,
                   const detail::OutputList& outputs, std::size_t inputs);
  /// Appends data; its place is [begin, end].
  Json add_data(std::span<const std::byte> bytes);
  /// The bundle with the other members of the header.
  std::vector<std::byte> finish(const Json& header);

 private:
  Json needs() const;
  int module_id(const wgsl::Module& module);

  wgsl::Target target_;
  Json modules_ = Json::array();
  Json programs_ = Json::array();
  std::map<std::string, int> known_;
  std::vector<std::byte> data_;
  std::int64_t largest_binding_ = 0, largest_buffer_ = 0;
  std::size_t most_bindings_ = 0;
  std::uint32_t most_groups_ = 0;
  bool subgroups_ = false, f16_ = false;
};

/// Whether the parameters were written since they were allocated, by a checkpoint for example;
/// else they have their initial values, which only a page computes.
bool has_weights(detail::TrainingCore& training);

/// The header's members that describe a training: parameters, states, optimizer, inputs, forwards.
/// `trains`: with the inputs of the step and the optimizer's state. `weights`: the current values
/// are added to the data.
nlohmann::ordered_json describe(detail::TrainingCore& training,
                                const std::map<std::string, Forward>& forwards, bool trains,
                                bool weights, BundleWriter& writer);

/// The engine's target. Throws GraphError for an engine of another device than "web".
const wgsl::Target& target_of(Engine& engine);

/// Adds a program for these input shapes, which is compiled if it is not there. Throws GraphError
/// for an unknown role or forward, ShapeError for shapes that do not fit the declarations.
void add_compiled(BundleWriter& writer, detail::TrainingCore& training,
                  std::map<std::string, Forward>& forwards, const std::string& role,
                  const std::string& name, const std::vector<Shape>& shapes);

}  // namespace tensorgrad::web
