#include "runtime/webgpu/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>

#include "tensorgrad/error.h"

namespace tensorgrad::webgpu {
namespace {

namespace fs = std::filesystem;

constexpr const char* file_name = "libwebgpu_wrapper.so";
constexpr const char* how_to_get_it =
    "`scripts/setup --webgpu` fetches it, and TENSORGRAD_WEBGPU_LIBRARY names another file";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// The paths of a list separated by colons.
std::vector<fs::path> split(const std::string& list) {
  std::vector<fs::path> out;
  std::size_t start = 0;
  while (start <= list.size()) {
    const std::size_t end = std::min(list.find(':', start), list.size());
    if (end > start) out.emplace_back(list.substr(start, end - start));
    start = end + 1;
  }
  return out;
}

/// The files that describe Vulkan drivers: those that the environment lists, else those in the
/// folders that the loader searches.
std::vector<fs::path> driver_files() {
  for (const char* name : {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"}) {
    if (const std::string list = environment(name); !list.empty()) {
      std::vector<fs::path> out;
      std::error_code ignored;
      for (const fs::path& file : split(list)) {
        if (fs::exists(file, ignored)) out.push_back(file);
      }
      return out;
    }
  }
  std::vector<fs::path> folders = split(environment("XDG_DATA_DIRS"));
  folders.insert(folders.end(), {"/etc", "/usr/local/etc", "/usr/share", "/usr/local/share"});
  if (const std::string home = environment("HOME"); !home.empty()) {
    folders.push_back(fs::path(home) / ".local/share");
  }
  std::vector<fs::path> out;
  for (const fs::path& folder : folders) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder / "vulkan/icd.d", none)) {
      if (entry.path().extension() == ".json") out.push_back(entry.path());
    }
  }
  return out;
}

}  // namespace

Library::Library(const fs::path& path) : path_(path) {
  // Local, because it also exports thousands of C++ symbols that must not meet the program's own.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    throw DeviceError(fmt::format("The WebGPU library {} cannot be opened: {}", path.string(),
                                  reason == nullptr ? "no reason is given" : reason));
  }
  std::vector<std::string> missing;
  for_each_function(api_, [&]<class F>(const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(handle, name));
    if (function == nullptr) missing.emplace_back(name);
  });
  if (!missing.empty()) {
    throw DeviceError(
        fmt::format("The WebGPU library {} lacks {}: it is not the expected version; {}",
                    path.string(), fmt::join(missing, ", "), how_to_get_it));
  }
}

std::shared_ptr<const Library> Library::open() {
  static const auto library = std::make_shared<const Library>(find_library());
  return library;
}

std::vector<fs::path> library_candidates() {
  if (const std::string chosen = environment("TENSORGRAD_WEBGPU_LIBRARY"); !chosen.empty()) {
    return {chosen};
  }
  std::vector<fs::path> out;
  std::error_code none;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", none); !program.empty()) {
    out.push_back(program.parent_path() / file_name);
  }
  if (const std::string data = environment("XDG_DATA_HOME"); !data.empty()) {
    out.push_back(fs::path(data) / "tensorgrad" / file_name);
  } else if (const std::string home = environment("HOME"); !home.empty()) {
    out.push_back(fs::path(home) / ".local/share/tensorgrad" / file_name);
  }
  out.push_back(fs::path("/usr/local/lib/tensorgrad") / file_name);
  return out;
}

fs::path find_library() {
  const std::vector<fs::path> candidates = library_candidates();
  std::vector<std::string> names;
  for (const fs::path& candidate : candidates) {
    std::error_code none;
    if (fs::exists(candidate, none)) return candidate;
    names.push_back(candidate.string());
  }
  throw DeviceError(fmt::format("The WebGPU library is missing (it would be {}); {}",
                                fmt::join(names, " or "), how_to_get_it));
}

std::string missing_vulkan_files() {
  void* loader = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  if (loader == nullptr) {
    return "The Vulkan loader libvulkan.so.1 is missing; in Debian it is the package libvulkan1";
  }
  dlclose(loader);
  if (!driver_files().empty()) return "";
  return "There is no Vulkan driver; a GPU's maker supplies one (in Debian nvidia-vulkan-icd for "
         "NVIDIA, mesa-vulkan-drivers for AMD and Intel), and chromium-common has one that "
         "computes on the CPU, at VK_DRIVER_FILES=/usr/lib/chromium/vk_swiftshader_icd.json";
}

std::string useless_vulkan_drivers() {
  std::vector<std::string> names;
  for (const fs::path& driver : driver_files()) names.push_back(driver.string());
  return fmt::format(
      "No Vulkan driver offers an adapter that WebGPU can use ({}); VK_LOADER_DEBUG=error makes "
      "the "
      "Vulkan loader say why",
      fmt::join(names, ", "));
}

}  // namespace tensorgrad::webgpu
