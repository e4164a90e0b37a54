// The values of tensors that have been computed.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>

#include "graph/node.h"
#include "runtime/mutex.h"

namespace tensorgrad {

/// A table beside the nodes, which stay as they are: what was read once is not computed again. It
/// keeps no node alive, and drops the values of nodes that are gone when it grows. May be used from
/// several threads.
class KnownValues {
 public:
  /// The value of a node: its own if it is a literal array, else the one remembered, or null.
  std::shared_ptr<const HostData> find(const Node& node);
  void remember(const Tensor& tensor, std::shared_ptr<const HostData> value);
  /// How many values are held, those of nodes that are gone included.
  std::size_t size() const;

 private:
  struct Entry {
    std::weak_ptr<const Node> node;
    std::shared_ptr<const HostData> value;
  };
  void sweep();

  mutable Mutex mutex_;
  std::unordered_map<const Node*, Entry> entries_;
  std::size_t bytes_ = 0;
  // Sweeping when the table has doubled costs a constant a value.
  std::size_t sweep_at_count_ = 64, sweep_at_bytes_ = std::size_t{1} << 22;
};

/// Those of the default device.
KnownValues& known_values();

}  // namespace tensorgrad
