#include "runtime/web/host.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "runtime/web/bundle.h"
#include "schedule/print.h"
#include "train/core.h"
#include "train/parse_json.h"

namespace tensorgrad::web {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

const Json& member(const Json& request, const char* key) {
  if (!request.contains(key)) throw FormatError(fmt::format("The request has no \"{}\".", key));
  return request[key];
}
std::string text(const Json& request, const char* key) {
  const Json& value = member(request, key);
  if (!value.is_string()) {
    throw FormatError(fmt::format("\"{}\" of the request is not text.", key));
  }
  return value.get<std::string>();
}

Options options_of(const Json& request) {
  std::map<std::string, double, std::less<>> values;
  for (const auto& [key, value] : member(request, "options").items()) {
    if (!value.is_number()) {
      throw FormatError(fmt::format("The option \"{}\" is not a number.", key));
    }
    values[key] = value.get<double>();
  }
  std::string device = "web";
  if (const auto target = request.find("target"); target != request.end()) {
    device += ":" + target->dump();
  }
  return Options(std::move(values), std::move(device));
}

Model make_model(const Models& models, const Json& request) {
  const std::string name = text(request, "model");
  const auto it = models.all().find(name);
  if (it == models.all().end()) {
    std::vector<std::string> names;
    for (const auto& [known, make] : models.all()) names.push_back('"' + known + '"');
    throw GraphError(fmt::format("The module has no model \"{}\"; it has {}.", name,
                                 names.empty() ? "none" : fmt::to_string(fmt::join(names, ", "))));
  }
  Model model = it->second(options_of(request));
  static_cast<void>(target_of(model.training.core().engine()));
  return model;
}

std::vector<Shape> shapes_of(const Json& request) {
  const Json& list = member(request, "shapes");
  std::vector<Shape> shapes;
  for (const Json& item : list) {
    shapes.emplace_back();
    for (const Json& extent : item) {
      if (!extent.is_number_integer()) throw FormatError("A shape is not a list of whole numbers.");
      shapes.back().push_back(extent.get<std::int64_t>());
    }
  }
  return shapes;
}

std::vector<std::byte> skeleton(Model& model) {
  detail::TrainingCore& training = model.training.core();
  BundleWriter writer(target_of(training.engine()));
  const bool weights = has_weights(training);
  if (!weights) add_compiled(writer, training, model.forwards, "init", "", {});
  Json header = describe(training, model.forwards, true, weights, writer);
  return writer.finish(header);
}

std::vector<std::byte> program(Model& model, const Json& request) {
  detail::TrainingCore& training = model.training.core();
  BundleWriter writer(target_of(training.engine()));
  add_compiled(writer, training, model.forwards, text(request, "role"), text(request, "name"),
               shapes_of(request));
  // The page has the rest already.
  return writer.finish({{"params", Json::array()},
                        {"states", Json::array()},
                        {"inputs", Json::array()},
                        {"forwards", Json::array()}});
}

std::string inspect(Model model) {
  const detail::Compiled* step = model.training.core().compiled();
  if (step == nullptr) throw GraphError("The training step has open inputs: it has no plan yet.");
  return to_string(step->graph) + to_string(*step->program->plan());
}

}  // namespace

std::vector<std::byte> ModuleHost::call(std::string_view request_text) {
  const Json request = parse_json(request_text);
  if (!request.is_object()) throw FormatError("The request is not a JSON object.");
  const std::string what = text(request, "call");
  if (what == "models") {
    Json names = Json::array();
    for (const auto& [name, make] : models_.all()) names.push_back(name);
    return bytes_of(names.dump());
  }
  if (what == "inspect") return bytes_of(inspect(make_model(models_, request)));
  if (what == "open") {
    opened_.emplace(next_, make_model(models_, request));
    return bytes_of(Json{{"handle", next_++}}.dump());
  }
  const Json& handle = member(request, "handle");
  const auto opened =
      handle.is_number_integer() ? opened_.find(handle.get<std::int64_t>()) : opened_.end();
  if (opened == opened_.end()) {
    throw GraphError(fmt::format("There is no open model {}.", handle.dump()));
  }
  if (what == "bundle") return skeleton(opened->second);
  if (what == "program") return program(opened->second, request);
  if (what == "close") {
    opened_.erase(opened);
    return {};
  }
  throw FormatError(fmt::format("There is no call \"{}\".", what));
}

std::string type_name(const std::exception& error) {
  if (dynamic_cast<const ShapeError*>(&error) != nullptr) return "ShapeError";
  if (dynamic_cast<const DTypeError*>(&error) != nullptr) return "DTypeError";
  if (dynamic_cast<const GraphError*>(&error) != nullptr) return "GraphError";
  if (dynamic_cast<const ValueError*>(&error) != nullptr) return "ValueError";
  if (dynamic_cast<const OutOfMemory*>(&error) != nullptr) return "OutOfMemory";
  if (dynamic_cast<const DeviceError*>(&error) != nullptr) return "DeviceError";
  if (dynamic_cast<const FormatError*>(&error) != nullptr) return "FormatError";
  return "Error";
}

}  // namespace tensorgrad::web
