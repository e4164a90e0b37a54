// Whether a device computes what a program means.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/graphs.h"
#include "runtime/device.h"
#include "schedule/schedule.h"

namespace tensorgrad::fuzz {

/// How a program is compiled.
struct Compilation {
  std::shared_ptr<Device> device;
  Target target;
  std::vector<std::string> off;  ///< passes that do not run
  bool flushes = false;          ///< the device may take a denormal for 0, as WGSL allows
  PassOptions passes() const;
};

/// The first element of a result that is beyond its tolerance, or an exception.
struct Difference {
  std::string what;  ///< a sentence with the values
};

/// Outputs and updated states as the device computes them, in the order of the graph's. Throws what
/// the library throws.
std::vector<RefArray> run(const Program& program, const Compilation& how);

/// Compares a run with the reference. The tolerance of an element is by the conditioning of the
/// program: the reference runs several times with errors of the size that every op's row allows,
/// and what those errors make of the element (a comparison that turns, a sum that cancels) is what
/// a device may do too.
std::optional<Difference> compare(const Program& program, const Compilation& how);

}  // namespace tensorgrad::fuzz
