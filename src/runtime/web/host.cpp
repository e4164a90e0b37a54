#include "runtime/web/host.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "schedule/print.h"
#include "train/core.h"

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
  if (const std::string device = model.training.core().engine().name(); device != "web") {
    throw GraphError(
        fmt::format("The model \"{}\" is compiled for the device {}; a page needs the device web.",
                    name, device));
  }
  return model;
}

std::string inspect(Model model) {
  const detail::Compiled* step = model.training.core().compiled();
  if (step == nullptr) throw GraphError("The training step has open inputs: it has no plan yet.");
  return to_string(step->graph) + to_string(*step->program->plan());
}

}  // namespace

std::vector<std::byte> ModuleHost::call(std::string_view request_text) {
  const Json request = Json::parse(request_text, nullptr, false);
  if (!request.is_object()) throw FormatError("The request is not a JSON object.");
  const std::string what = text(request, "call");
  if (what == "models") {
    Json names = Json::array();
    for (const auto& [name, make] : models_.all()) names.push_back(name);
    return bytes_of(names.dump());
  }
  if (what == "inspect") return bytes_of(inspect(make_model(models_, request)));
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
