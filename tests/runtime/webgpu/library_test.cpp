#include "runtime/webgpu/library.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "io/temp_folder.h"
#include "tensorgrad/error.h"

namespace tensorgrad::webgpu {
namespace {

using test::message_of;
using test::TempFolder;

/// A variable of the environment for the time of a test.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    setenv(name, value.c_str(), 1);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() {
    if (old_.empty()) {
      unsetenv(name_);
    } else {
      setenv(name_, old_.c_str(), 1);
    }
  }

 private:
  const char* name_;
  std::string old_;
};

TEST(WebGpuLibrary, MissingSaysWhereItWouldBeAndHowToGetIt) {
  const ScopedVariable chosen("TENSORGRAD_WEBGPU_LIBRARY", "/no/such/library.so");
  const std::string message = message_of<DeviceError>([] { find_library(); });
  EXPECT_NE(message.find("/no/such/library.so"), std::string::npos) << message;
  EXPECT_NE(message.find("scripts/setup --webgpu"), std::string::npos) << message;
}

TEST(WebGpuLibrary, IsFoundInTheDataFolder) {
  const TempFolder folder;
  std::filesystem::create_directories(folder.path() / "tensorgrad");
  const auto file = folder.path() / "tensorgrad/libwebgpu_wrapper.so";
  std::ofstream(file) << "anything";
  const ScopedVariable chosen("TENSORGRAD_WEBGPU_LIBRARY", "");
  const ScopedVariable data("XDG_DATA_HOME", folder.path().string());
  const auto candidates = library_candidates();
  EXPECT_NE(std::find(candidates.begin(), candidates.end(), file), candidates.end());
  const std::string message = message_of<DeviceError>([&] { const Library library(file); });
  EXPECT_NE(message.find("cannot be opened"), std::string::npos) << message;
}

TEST(WebGpuLibrary, AnotherLibraryIsRefusedWithTheFunctionsItLacks) {
  const std::string message = message_of<DeviceError>([] { const Library library("libm.so.6"); });
  EXPECT_NE(message.find("libm.so.6 lacks wgpuCreateInstance"), std::string::npos) << message;
}

TEST(WebGpuLibrary, NoDriverIsNamed) {
  const ScopedVariable drivers("VK_DRIVER_FILES", "/no/such/driver.json");
  const std::string message = missing_vulkan_files();
  EXPECT_NE(message.find("Vulkan"), std::string::npos) << message;
}

}  // namespace
}  // namespace tensorgrad::webgpu
