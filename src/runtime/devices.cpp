// The devices of this build.
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <vector>

#include "runtime/device.h"
#include "runtime/mutex.h"
#include "tensorgrad/error.h"
#ifdef TENSORGRAD_WITH_CPU
#include "runtime/cpu/device.h"
#endif
#ifdef TENSORGRAD_WITH_WEBGPU
#include "runtime/webgpu/device.h"
#endif

namespace tensorgrad {

std::span<const Backend> backends() {
  static const std::vector<Backend> rows{
#ifdef TENSORGRAD_WITH_CPU
      {"cpu", cpu::unavailable, cpu::open, [] { return true; }},
#endif
#ifdef TENSORGRAD_WITH_WEBGPU
      {"webgpu", webgpu::unavailable, webgpu::open, webgpu::automatic},
#endif
  };
  return rows;
}

namespace {

/// The row of that name, or null.
const Backend* find_backend(const std::string& name) {
  for (const Backend& backend : backends()) {
    if (backend.name == name) return &backend;
  }
  return nullptr;
}

std::string known_devices() {
  std::string names = "auto";
  for (const Backend& backend : backends()) names += ", " + backend.name;
  return names;
}

const Backend& best_backend() {
  std::string reasons;
  const auto rows = backends();
  for (auto row = rows.rbegin(); row != rows.rend(); ++row) {
    const std::string reason = row->unavailable();
    if (reason.empty() && row->automatic()) return *row;
    reasons += fmt::format("; {}: {}", row->name,
                           reason.empty() ? "it is taken only when asked for by name" : reason);
  }
  throw DeviceError("No device of this build is usable" +
                    (reasons.empty() ? ": it was built without backends" : reasons));
}

/// The devices that are open, by name.
struct OpenDevices {
  Mutex mutex;
  std::map<std::string, std::shared_ptr<Device>> devices;
};

OpenDevices& open_devices() {
  static OpenDevices open;
  return open;
}

void close_devices() {
  OpenDevices& open = open_devices();
  const Lock lock(open.mutex);
  open.devices.clear();
}

}  // namespace

std::shared_ptr<Device> open_device(const std::string& name) {
  OpenDevices& open = open_devices();
  const Lock lock(open.mutex);
  const Backend* backend = name == "auto" ? &best_backend() : find_backend(name);
  if (backend == nullptr) {
    throw DeviceError(
        fmt::format("There is no device \"{}\"; the known ones are {}", name, known_devices()));
  }
  std::shared_ptr<Device>& device = open.devices[backend->name];
  if (!device || device->lost()) {
    if (const std::string reason = backend->unavailable(); !reason.empty()) {
      throw DeviceError(fmt::format("The device \"{}\" is not usable: {}", backend->name, reason));
    }
    device = backend->open();
    // Drivers were loaded meanwhile, and are unloaded before what is older than they are.
    std::atexit(close_devices);
  }
  return device;
}

}  // namespace tensorgrad
