// The devices of this build.
#include <fmt/format.h>

#include <map>
#include <vector>

#include "runtime/device.h"
#include "runtime/mutex.h"
#include "tensorgrad/error.h"
#ifdef TENSORGRAD_WITH_CPU
#include "runtime/cpu/device.h"
#endif

namespace tensorgrad {

std::span<const Backend> backends() {
  static const std::vector<Backend> rows{
#ifdef TENSORGRAD_WITH_CPU
      {"cpu", cpu::unavailable, cpu::open},
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
    if (reason.empty()) return *row;
    reasons += fmt::format("; {}: {}", row->name, reason);
  }
  throw DeviceError("No device of this build is usable" +
                    (reasons.empty() ? ": it was built without backends" : reasons));
}

}  // namespace

std::shared_ptr<Device> open_device(const std::string& name) {
  static Mutex mutex;
  static std::map<std::string, std::shared_ptr<Device>> open_devices;
  const Lock lock(mutex);
  const Backend* backend = name == "auto" ? &best_backend() : find_backend(name);
  if (backend == nullptr) {
    throw DeviceError(
        fmt::format("There is no device \"{}\"; the known ones are {}", name, known_devices()));
  }
  std::shared_ptr<Device>& device = open_devices[backend->name];
  if (!device) {
    if (const std::string reason = backend->unavailable(); !reason.empty()) {
      throw DeviceError(fmt::format("The device \"{}\" is not usable: {}", backend->name, reason));
    }
    device = backend->open();
  }
  return device;
}

}  // namespace tensorgrad
