// The outputs of one run, by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph/node.h"
#include "runtime/device.h"

namespace tensorgrad::detail {

/// Names and types of a program's outputs; the first is the result.
struct OutputList {
  std::vector<std::pair<std::string, Type>> outputs;
};

class Outcome {
 public:
  /// `step` is that of a training whose loss is checked, else 0.
  Outcome(std::shared_ptr<const OutputList> list, std::unique_ptr<Completion> completion,
          std::int64_t step = 0)
      : list_(std::move(list)), completion_(std::move(completion)), step_(step) {}
  const Type& type(std::size_t i) const { return list_->outputs.at(i).second; }
  std::span<const std::byte> bytes(std::size_t i) { return completion_->output(i); }
  /// Position of a captured tensor. Throws GraphError, listing the names there are.
  std::size_t find(std::string_view name, const Site& site) const;
  /// Throws NotFiniteError if the result of a checked step is NaN.
  void check_loss(const Site& site);

 private:
  std::shared_ptr<const OutputList> list_;
  std::unique_ptr<Completion> completion_;
  std::int64_t step_;
};

}  // namespace tensorgrad::detail
