// Finding and opening the WebGPU library.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/webgpu/dawn.h"

namespace tensorgrad::webgpu {

/// The library and its functions. Once opened it stays until the process ends: it has threads and
/// drivers of its own.
class Library {
 public:
  /// Opens a file. Throws DeviceError with the system's reason, or naming the functions it lacks.
  explicit Library(const std::filesystem::path& path);
  /// Opens the file that `find_library` gives.
  static std::shared_ptr<const Library> open();

  const dawn::Api& api() const { return api_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  dawn::Api api_;
};

/// Where the library is looked for, in order: TENSORGRAD_WEBGPU_LIBRARY alone if it is set, else
/// beside the running program, in XDG_DATA_HOME/tensorgrad (or HOME/.local/share/tensorgrad), and
/// in /usr/local/lib/tensorgrad.
std::vector<std::filesystem::path> library_candidates();
/// The first candidate that exists. Throws DeviceError saying where it was looked for and how to
/// get it.
std::filesystem::path find_library();

/// What keeps Vulkan, which the library needs, from having any adapter, as a sentence: no loader,
/// or no file that describes a driver. "" if both are there.
std::string missing_vulkan_files();
/// What to say where they are there and yet no adapter is.
std::string useless_vulkan_drivers();

}  // namespace tensorgrad::webgpu
