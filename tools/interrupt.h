// Ctrl-C as a question that a loop asks.
#pragma once

namespace tensorgrad::tools {

/// While it lives, the first SIGINT or SIGTERM is only noted; a second one ends the process as
/// usual. At most one at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  ~InterruptGuard();
  /// Whether a signal has come.
  static bool interrupted();
};

}  // namespace tensorgrad::tools
