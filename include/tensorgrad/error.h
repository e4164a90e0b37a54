// The exceptions of the library.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace tensorgrad {

/// Where in the user's program an op was called: as std::source_location, without the function's
/// name, which each call would put into the program.
class Site {
 public:
  /// Nowhere: line 0 of "".
  constexpr Site() = default;
  /// As a default argument, the place of the call.
  static constexpr Site current(const char* file = __builtin_FILE(),
                                std::uint_least32_t line = __builtin_LINE()) noexcept {
    return Site(file, line);
  }
  constexpr const char* file_name() const noexcept { return file_; }
  constexpr std::uint_least32_t line() const noexcept { return line_; }

 private:
  constexpr Site(const char* file, std::uint_least32_t line) : file_(file), line_(line) {}
  const char* file_ = "";
  std::uint_least32_t line_ = 0;
};

/// Base of all exceptions. `what()` is a sentence with the actual values, followed, where the
/// error belongs to a call, by a line "  at FILE:LINE".
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
  Error(const std::string& message, const Site& site);
};

/// Shapes, ranks or axes that an op cannot take.
class ShapeError : public Error {
 public:
  using Error::Error;
};
/// Element types that an op cannot take.
class DTypeError : public Error {
 public:
  using Error::Error;
};
/// A graph that cannot be built, differentiated or compiled; unknown or missing names.
class GraphError : public Error {
 public:
  using Error::Error;
};
/// A value outside its allowed range (a probability of 2, a learning rate of NaN).
class ValueError : public Error {
 public:
  using Error::Error;
};
/// A number that is NaN or infinite where that shows that a training has failed.
class NotFiniteError : public ValueError {
 public:
  using ValueError::ValueError;
};
/// A device that is missing, lost, or that refuses a program.
class DeviceError : public Error {
 public:
  using Error::Error;
};
/// An allocation that the device or the host cannot serve.
class OutOfMemory : public DeviceError {
 public:
  using DeviceError::DeviceError;
};
/// A device that went away with all that was in its memory. Opened again by name it is a new one,
/// on which what was saved or read before can be rebuilt.
class DeviceLost : public DeviceError {
 public:
  using DeviceError::DeviceError;
};
/// A file whose contents break its format, or that cannot be read or written.
class FormatError : public Error {
 public:
  using Error::Error;
};

}  // namespace tensorgrad
