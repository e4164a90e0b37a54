#include <gtest/gtest.h>

#include "runtime/device.h"
#include "tensorgrad/error.h"

namespace tensorgrad {
namespace {

TEST(Devices, OpensEachDeviceOnce) {
  for (const Backend& backend : backends()) {
    if (!backend.unavailable().empty()) continue;
    const auto device = open_device(backend.name);
    EXPECT_EQ(device, open_device(backend.name));
    EXPECT_EQ(device->info().name, backend.name);
  }
}

TEST(Devices, UnknownNameListsTheKnownOnes) {
  try {
    open_device("abacus");
    FAIL() << "a device that does not exist was opened";
  } catch (const DeviceError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("\"abacus\""), std::string::npos) << message;
    for (const Backend& backend : backends()) {
      EXPECT_NE(message.find(backend.name), std::string::npos) << message;
    }
  }
}

TEST(Devices, AutoIsTheLastThatAllowsIt) {
  std::string best;
  for (const Backend& backend : backends()) {
    if (backend.unavailable().empty() && backend.automatic()) best = backend.name;
  }
  if (best.empty()) {
    EXPECT_THROW(open_device("auto"), DeviceError);
  } else {
    EXPECT_EQ(open_device("auto")->info().name, best);
  }
}

}  // namespace
}  // namespace tensorgrad
