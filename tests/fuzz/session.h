// One random program after another on one device.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "fuzz/compare.h"

namespace tensorgrad::fuzz {

struct SessionOptions {
  std::string device = "cpu";
  /// Passes that may be switched off; one random set of them is, for each program.
  std::vector<std::string> passes = PassOptions::names();
  GraphOptions graphs;
};

/// What a program showed.
struct Finding {
  std::uint64_t seed = 0;
  std::string what;  ///< a sentence with the values
  std::string text;  ///< the smallest program that still shows it
};

/// Compares random programs on a device with the reference.
class Session {
 public:
  /// Opens the device; "cpu" runs on one thread, with memory that is poisoned until it is written,
  /// and optimises the code of one program in eight only. Throws DeviceError.
  explicit Session(const SessionOptions& options);
  /// The program of that seed, compiled in the way of that seed.
  std::optional<Finding> check(std::uint64_t seed);
  /// The program and how it is compiled, as text.
  std::string describe(std::uint64_t seed) const;

 private:
  Compilation compilation(std::uint64_t seed) const;
  SessionOptions options_;
  std::shared_ptr<Device> device_, optimising_;
};

}  // namespace tensorgrad::fuzz
