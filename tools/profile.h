// Where the time of a compiled step goes, kernel by kernel.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "kernel/kernel.h"
#include "tensorgrad/compile.h"
#include "train/engine.h"

namespace tensorgrad::tools {

/// One dispatch of a step.
struct KernelTime {
  std::string name;
  kernel::Cost cost;
  double seconds = 0;  ///< on the device
};

/// A step by its dispatches, in order.
struct StepProfile {
  std::string title;  ///< "W1 on webgpu"
  std::vector<KernelTime> kernels;
  double seconds() const;  ///< of all dispatches
};

/// Seconds of each dispatch of `program`, the least of a few runs on the arrays of `feed`, zeros
/// for the other inputs, and on memory of its own, so that a training stays as it is. Throws what
/// the device throws.
std::vector<double> profile(Program& program, Engine& engine, const Feed& feed = {});
/// The same with names and costs. The program has a plan.
StepProfile profile_step(const std::string& title, Program& program, Engine& engine,
                         const Feed& feed = {});
/// Seconds of one run of the program's kernels back to back, without a new batch: the best mean of
/// a few tries within about `budget` seconds, on arrays and memory as `profile` has them.
double replay_seconds(Program& program, Engine& engine, const Feed& feed, double budget);

/// A table in plain text: time, share, operations and bytes a second of each dispatch.
std::string profile_table(const StepProfile& profile);
/// The step as a trace in Chrome's JSON format, which Perfetto and chrome://tracing open: the
/// dispatches one after the other.
std::string profile_trace(const StepProfile& profile);
/// Writes both into `folder`, as NAME.txt and NAME.trace.json. Throws FormatError.
void write_profile(const std::filesystem::path& folder, const std::string& name,
                   const StepProfile& profile);

}  // namespace tensorgrad::tools
