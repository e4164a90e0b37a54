#include "runtime/web/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensorgrad/error.h"
#include "train/parse_json.h"

namespace tensorgrad::web {
namespace {

using Json = nlohmann::ordered_json;

// Sets `field` to a limit that the page names, and never above what the type holds.
template <class T>
void take(const Json& limits, const char* name, T& field) {
  const auto it = limits.find(name);
  if (it == limits.end()) return;
  if (!it->is_number() || it->get<double>() < 0) {
    throw FormatError(fmt::format("The limit {} is {}, not a number.", name, it->dump()));
  }
  constexpr double most = std::is_same_v<T, int> ? 1e9 : 9e15;
  field = static_cast<T>(std::min(it->get<double>(), most));
}

bool has_feature(const Json& features, const char* name) {
  return std::find(features.begin(), features.end(), Json(name)) != features.end();
}

}  // namespace

wgsl::Target parse_target(std::string_view device) {
  wgsl::Target target;
  if (device == "web") return target;
  constexpr std::string_view prefix = "web:";
  if (device.starts_with(prefix)) device.remove_prefix(prefix.size());
  const Json json = parse_json(device);
  if (!json.is_object()) {
    throw FormatError(fmt::format("The adapter is described by \"{}\", not JSON.", device));
  }
  if (const auto limits = json.find("limits"); limits != json.end() && limits->is_object()) {
    take(*limits, "maxStorageBuffersPerShaderStage", target.storage_buffers);
    take(*limits, "maxStorageBufferBindingSize", target.binding_bytes);
    take(*limits, "maxBufferSize", target.buffer_bytes);
    take(*limits, "minStorageBufferOffsetAlignment", target.binding_alignment);
    take(*limits, "maxComputeInvocationsPerWorkgroup", target.invocations);
    take(*limits, "maxComputeWorkgroupSizeX", target.workgroup_size_x);
    take(*limits, "maxComputeWorkgroupStorageSize", target.workgroup_bytes);
    take(*limits, "maxComputeWorkgroupsPerDimension", target.groups);
  }
  const Json features = json.value("features", Json::array());
  if (const auto adapter = json.find("adapter"); adapter != json.end() && adapter->is_object()) {
    if (has_feature(features, "subgroups")) {
      take(*adapter, "subgroupMinSize", target.subgroup_min);
      take(*adapter, "subgroupMaxSize", target.subgroup_max);
    }
    target.cpu = adapter->value("software", false);
  }
  return target;
}

}  // namespace tensorgrad::web
