#include "runtime/webgpu/adapter.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "tensorgrad/error.h"

namespace tensorgrad::webgpu {
namespace {

const char* name(dawn::AdapterType type) {
  switch (type) {
    case dawn::AdapterType::discrete:
      return "discrete GPU";
    case dawn::AdapterType::integrated:
      return "integrated GPU";
    case dawn::AdapterType::cpu:
      return "software adapter on the CPU";
    case dawn::AdapterType::unknown:
      break;
  }
  return "GPU of an unknown kind";
}

/// Groups that run at the same time, which no adapter tells.
int guess_units(dawn::AdapterType type) {
  constexpr int discrete = 128;
  constexpr int integrated = 24;
  switch (type) {
    case dawn::AdapterType::cpu:
      return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    case dawn::AdapterType::integrated:
      return integrated;
    case dawn::AdapterType::discrete:
    case dawn::AdapterType::unknown:
      break;
  }
  return discrete;
}

std::string list_features(const Adapter& adapter) {
  std::string out;
  const std::pair<dawn::Feature, const char*> known[] = {
      {dawn::Feature::timestamp_query, "timestamp-query"},
      {dawn::Feature::shader_f16, "shader-f16"},
      {dawn::Feature::subgroups, "subgroups"}};
  for (const auto& [feature, text] : known) {
    if (!adapter.has(feature)) continue;
    out += (out.empty() ? "" : ", ") + std::string(text);
  }
  return out.empty() ? "none" : out;
}

Owned<dawn::Instance> make_instance(const dawn::Api& api) {
  dawn::InstanceDescriptor descriptor;
  descriptor.capabilities.timed_wait_any = 1;
  descriptor.capabilities.timed_wait_any_max = 1;
  return {api.create_instance(&descriptor), api.instance_release};
}

}  // namespace

Instance::Instance(std::shared_ptr<const Library> library)
    : library_(std::move(library)), handle_(make_instance(library_->api())) {
  if (!handle_) {
    throw DeviceError(
        fmt::format("The WebGPU library {} makes no instance", library_->path().string()));
  }
}

void Instance::wait(dawn::Future future) const {
  dawn::FutureWaitInfo info{future, 0};
  const dawn::WaitStatus status = api().instance_wait_any(handle(), 1, &info, dawn::no_timeout);
  if (status != dawn::WaitStatus::success) {
    throw DeviceError(fmt::format("The WebGPU library refuses to wait (status {})",
                                  static_cast<std::uint32_t>(status)));
  }
}

Adapter::Adapter(std::shared_ptr<const Instance> instance, dawn::BackendType backend)
    : instance_(std::move(instance)) {
  const dawn::Api& api = instance_->api();
  struct Reply {
    dawn::Adapter adapter = nullptr;
    std::string message;
  } reply;
  dawn::RequestAdapterOptions options;
  options.backend = backend;
  dawn::CallbackInfo<dawn::AdapterCallback> callback;
  callback.first = &reply;
  callback.callback = [](dawn::Status, dawn::Adapter adapter, dawn::StringView message, void* user,
                         void*) {
    *static_cast<Reply*>(user) = {adapter, dawn::to_string(message)};
  };
  instance_->wait(api.instance_request_adapter(instance_->handle(), &options, callback));
  if (reply.adapter == nullptr) {
    throw DeviceError(backend == dawn::BackendType::vulkan
                          ? useless_vulkan_drivers()
                          : fmt::format("There is no such adapter: {}", reply.message));
  }
  handle_ = {reply.adapter, api.adapter_release};

  dawn::AdapterInfo info;
  api.adapter_get_info(handle(), &info);
  name_ = dawn::to_string(info.device);
  vendor_ = dawn::to_string(info.vendor);
  architecture_ = dawn::to_string(info.architecture);
  driver_ = dawn::to_string(info.description);
  type_ = info.type;
  subgroup_min_ = info.subgroup_min;
  subgroup_max_ = info.subgroup_max;
  api.adapter_info_free_members(info);
  api.adapter_get_limits(handle(), &limits_);
  limits_.next = nullptr;
  dawn::SupportedFeatures features;
  api.adapter_get_features(handle(), &features);
  features_.assign(features.features, features.features + features.count);
  api.supported_features_free_members(features);
}

bool Adapter::has(dawn::Feature feature) const {
  return std::find(features_.begin(), features_.end(), feature) != features_.end();
}

std::string Adapter::description() const {
  return fmt::format("{}, {}", name_.empty() ? "an adapter without a name" : name_, name(type_));
}

std::vector<std::pair<std::string, std::string>> Adapter::details() const {
  const auto number = [](auto value) { return fmt::format("{}", value); };
  const dawn::Limits& l = limits_;
  return {{"driver", driver_},
          {"kind", software() ? "software: `auto` does not take it" : name(type_)},
          {"vendor", vendor_ + (architecture_.empty() ? "" : " " + architecture_)},
          {"features", list_features(*this)},
          {"subgroup size", has(dawn::Feature::subgroups)
                                ? fmt::format("{} to {}", subgroup_min_, subgroup_max_)
                                : "none"},
          {"storage buffers in a kernel", number(l.storage_buffers)},
          {"largest binding", number(l.storage_binding_bytes) + " B"},
          {"largest buffer", number(l.buffer_bytes) + " B"},
          {"alignment of a binding", number(l.storage_alignment) + " B"},
          {"invocations in a workgroup", number(l.invocations)},
          {"workgroup memory", number(l.workgroup_bytes) + " B"},
          {"workgroups in a dimension", number(l.groups)},
          {"library", instance_->library().path().string()}};
}

wgsl::Target Adapter::target() const {
  wgsl::Target t;
  t.storage_buffers = static_cast<int>(limits_.storage_buffers);
  t.binding_bytes = static_cast<std::int64_t>(limits_.storage_binding_bytes);
  t.buffer_bytes = static_cast<std::int64_t>(limits_.buffer_bytes);
  t.binding_alignment = limits_.storage_alignment;
  t.invocations = limits_.invocations;
  t.workgroup_size_x = limits_.workgroup_size_x;
  t.workgroup_bytes = limits_.workgroup_bytes;
  t.groups = limits_.groups;
  if (has(dawn::Feature::subgroups)) {
    t.subgroup_min = static_cast<int>(subgroup_min_);
    t.subgroup_max = static_cast<int>(subgroup_max_);
  }
  t.f16 = has(dawn::Feature::shader_f16);
  t.guarded = false;  // devices are opened without (Context)
  t.cpu = software();
  t.units = guess_units(type_);
  return t;
}

}  // namespace tensorgrad::webgpu
