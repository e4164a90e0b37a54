// The fixed workloads that libraries are compared by: models, data and optimizers given exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensorgrad/compile.h"

namespace tensorgrad {
struct Plan;
}

namespace tensorgrad::tools {

/// The generator of all inputs: mulberry32.
class Mulberry {
 public:
  explicit Mulberry(std::uint32_t seed) : state_(seed) {}
  /// The next number in [0, 1).
  double next();
  /// `n` numbers (2 u - 1) * scale, rounded to float.
  std::vector<float> symmetric(std::size_t n, double scale);

 private:
  std::uint32_t state_;
};

/// One batch: an input array of floats or of class indices, and targets likewise.
struct WorkloadBatch {
  std::vector<float> x_float;
  std::vector<std::int32_t> x_index;
  std::vector<float> y_float;
  std::vector<std::int32_t> y_index;
  /// The arrays as a feed, valid while the batch lives.
  Feed feed() const;
};

/// A training workload, compiled on a device with its initial parameters.
struct WorkloadRun {
  std::string name;
  std::shared_ptr<AnyTraining> training;
  std::vector<WorkloadBatch> batches;
  int reference_steps = 0;

  /// Sets the initial parameters and forgets the optimizer's state.
  void restart();
  /// Step t uses batch t mod the number of batches.
  StepResult step(std::int64_t t);
  std::vector<ParamValue> initial;
};

/// Names of the training workloads: W1, W2, W2g, W3, W3c.
std::vector<std::string> workload_names();
/// Those that take a large GPU: W6, a transformer of 124 million parameters.
std::vector<std::string> large_workload_names();
/// Compiles a workload, without its batches: for what feeds it itself, or only looks at it.
/// `uncorrected_epsilon` selects the convention of Adam that adds epsilon to the uncorrected root.
/// Throws ValueError for an unknown name, and what `compile` throws.
WorkloadRun compile_workload(const std::string& name, const std::string& device,
                             bool uncorrected_epsilon = false);
/// The same with its batches.
WorkloadRun open_workload(const std::string& name, const std::string& device,
                          bool uncorrected_epsilon = false);

/// An operation that is run on arrays that stay on the device.
struct OperationRun {
  std::string name;           ///< "W4 matmul 1024"
  std::int64_t flops = 0;     ///< of one run
  std::int64_t bytes = 0;     ///< that one run must move
  std::function<void()> run;  ///< runs once, waits, reads the result
  /// Runs some times back to back; seconds that the device spends on one. Empty for the reference.
  std::function<double()> device_seconds;
  /// What the device runs; null for the reference.
  const Plan* plan = nullptr;
  /// Sum and sum of magnitudes of the result, in double.
  std::function<std::pair<double, double>()> check;
};
/// Names of the operation workloads: W4, W4l, W5.
std::vector<std::string> operation_names();
/// The operations of a workload. Throws ValueError for an unknown name.
std::vector<OperationRun> open_operations(const std::string& name, const std::string& device);

}  // namespace tensorgrad::tools
