// Engine: runs graphs on a device, or in the reference interpreter.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "runtime/device.h"
#include "schedule/schedule.h"

namespace tensorgrad {

/// A graph made ready to run. Inputs and states are in the order of the graph's.
class Program {
 public:
  virtual ~Program() = default;
  virtual std::unique_ptr<Completion> run(std::span<const std::span<const std::byte>> inputs,
                                          std::span<DeviceBuffer* const> states) = 0;
  /// The plan, or null in the reference interpreter, which has none.
  virtual const Plan* plan() const { return nullptr; }
  virtual Executable* executable() { return nullptr; }
};

/// Compiles graphs and owns memory.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::string name() const = 0;
  virtual std::unique_ptr<DeviceBuffer> allocate(DType dtype, std::int64_t elements) = 0;
  /// Throws GraphError for an unsound graph, DeviceError or OutOfMemory from the device.
  virtual std::unique_ptr<Program> load(const Graph& graph, std::vector<PassReport>* report) = 0;
  /// False for an engine that only compiles: its programs run elsewhere, its memory is the host's.
  virtual bool runs() const { return true; }
};

/// The engine of a device name: "reference", "web" (which compiles for a page and runs nothing), or
/// one of the backends; "auto" is the best usable one.
/// With `tune`, it has the device tune each program before it is loaded.
/// Throws DeviceError naming the known devices.
std::shared_ptr<Engine> open_engine(const std::string& device, bool tune = false);
/// The engine that `Tensor::to_vector` uses: `auto`, opened at first use.
std::shared_ptr<Engine> default_engine();

}  // namespace tensorgrad
