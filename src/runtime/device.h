// The backend interface: what a device can do with a Plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "schedule/plan.h"
#include "tensorgrad/dtype.h"

namespace tensorgrad {

/// Device memory that outlives one program: parameters, optimizer state. Freed on destruction.
/// Sizes and offsets are those of host bytes, where a bool takes one; what it takes on the device
/// is the device's matter.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual std::size_t bytes() const = 0;
  /// Copies host bytes in, or out; ordered after all runs submitted before. Throws ValueError if
  /// the range leaves the buffer.
  virtual void write(std::size_t offset, std::span<const std::byte> data) = 0;
  virtual void read(std::size_t offset, std::span<std::byte> data) const = 0;
};

/// The outcome of one run. Waits only when read.
class Completion {
 public:
  virtual ~Completion() = default;
  /// Bytes of plan output `i` (in the order of the plan's output buffers); waits for the run.
  virtual std::span<const std::byte> output(std::size_t i) = 0;
};

/// A plan made ready on a device.
class Executable {
 public:
  virtual ~Executable() = default;
  /// Runs once. `inputs` and `states` are in the order of the plan's buffers of that kind; sizes
  /// are checked by the caller. Input bytes are consumed before the call returns.
  virtual std::unique_ptr<Completion> run(std::span<const std::span<const std::byte>> inputs,
                                          std::span<DeviceBuffer* const> states) = 0;
  /// Source text of plan kernel `i` in the backend's language.
  virtual std::string source(std::size_t kernel) const = 0;
  /// Bytes really allocated by this executable (arena, inputs, outputs, constants).
  virtual std::size_t allocated_bytes() const = 0;
  /// Seconds spent in each dispatch during one profiled run with the given feeds.
  virtual std::vector<double> profile(std::span<const std::span<const std::byte>> inputs,
                                      std::span<DeviceBuffer* const> states) = 0;
  /// Seconds that the device spends on `repeats` runs back to back, the inputs being there.
  virtual double seconds(std::span<const std::span<const std::byte>> inputs,
                         std::span<DeviceBuffer* const> states, int repeats) {
    double total = 0;
    for (int i = 0; i < repeats; ++i) {
      for (const double s : profile(inputs, states)) total += s;
    }
    return total;
  }
};

/// What a device says of itself.
struct DeviceInfo {
  std::string name;         ///< "cpu"
  std::string description;  ///< "AMD EPYC 9755, 2 threads, AVX-512"
  std::vector<std::pair<std::string, std::string>> details;  ///< limits, versions
};

/// The ways to run a kernel that a device timed.
struct TunedKernel {
  struct Candidate {
    std::string name;
    double seconds = 0;  ///< of one run; 0 where it was not timed
    std::string error;   ///< why it was dropped, or ""
  };
  std::string name;                   ///< of the kernel
  int dispatches = 0;                 ///< of the plan that run it
  std::vector<Candidate> candidates;  ///< the one that is taken without tuning first
  std::size_t winner = 0;             ///< into candidates
  bool known = false;                 ///< from an earlier time; nothing was timed now
};

/// A place that runs plans.
class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceInfo info() const = 0;
  /// What a plan for this device must keep to.
  virtual Target target() const = 0;
  /// Compiles every kernel of the plan. Throws DeviceError, OutOfMemory.
  virtual std::unique_ptr<Executable> load(const Plan& plan) = 0;
  /// Zeroed memory for `elements` numbers. Throws OutOfMemory.
  virtual std::unique_ptr<DeviceBuffer> allocate(DType dtype, std::int64_t elements) = 0;
  /// Times the ways that the device knows to run each distinct kernel of the plan, and keeps the
  /// fastest for later calls of `load`, in this process and others. Kernels that were tuned before
  /// are timed only if `again` is set. `report` is called with each result as it is known. Devices
  /// that know but one way do nothing. Throws DeviceError, OutOfMemory.
  virtual std::vector<TunedKernel> tune(const Plan& plan, bool again,
                                        const std::function<void(const TunedKernel&)>& report) {
    static_cast<void>(plan);
    static_cast<void>(again);
    static_cast<void>(report);
    return {};
  }
  /// Whether the device is gone with its memory: every call throws DeviceLost from then on.
  virtual bool lost() const { return false; }
};

/// A row of the device list.
struct Backend {
  std::string name;
  /// "" if usable, else a sentence that says what is missing and how to get it.
  std::string (*unavailable)();
  std::shared_ptr<Device> (*open)();
  /// Whether "auto" may take it: it is usable, and what it computes on is not merely imitated.
  bool (*automatic)();
};
/// The backends of this build, best default last.
std::span<const Backend> backends();
/// Opens (once, and again after it was lost) the device of that name; "auto" is the last backend
/// that allows it. Throws DeviceError naming the known devices and, for one that is not usable, the
/// reason.
std::shared_ptr<Device> open_device(const std::string& name);

}  // namespace tensorgrad
