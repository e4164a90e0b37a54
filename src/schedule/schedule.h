// From a graph to a plan: the list of passes.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"
#include "schedule/plan.h"

namespace tensorgrad {

/// One pass as it ran.
struct PassReport {
  std::string name;
  double milliseconds = 0;
  bool on = true;
  std::string result;  ///< "212 nodes", "14 kernels"
};

/// Which passes run. Switching one off may cost speed or memory, and changes results within
/// rounding only.
class PassOptions {
 public:
  /// All passes.
  PassOptions() = default;
  /// From a list such as "-fuse_maps,-fuse_rows". Throws ValueError for an unknown name.
  explicit PassOptions(const std::string& list);
  /// From the environment variable TENSORGRAD_PASSES, or all.
  static PassOptions from_environment();
  bool on(const std::string& pass) const { return !off_.contains(pass); }
  /// Names of all passes that can be switched off, in order.
  static std::vector<std::string> names();

 private:
  std::unordered_set<std::string> off_;
};

/// Runs the passes. `report`, if given, receives one entry a pass.
Plan make_plan(Graph graph, const Target& target = {},
               const PassOptions& options = PassOptions::from_environment(),
               std::vector<PassReport>* report = nullptr);

}  // namespace tensorgrad
