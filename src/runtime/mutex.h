// A lock, also where there are no threads.
#pragma once

#if defined(__wasm__) && !defined(_REENTRANT)

namespace tensorgrad {

/// WebAssembly without threads has no std::mutex, and nothing to exclude.
class Mutex {
 public:
  void lock() {}
  void unlock() {}
};

/// Holds a mutex for as long as it lives.
class Lock {
 public:
  explicit Lock(Mutex& /*mutex*/) {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() {}  // NOLINT(modernize-use-equals-default): an unused lock must not be warned of
};

}  // namespace tensorgrad

#else

#include <mutex>

namespace tensorgrad {

using Mutex = std::mutex;
/// Holds a mutex for as long as it lives.
using Lock = std::lock_guard<std::mutex>;

}  // namespace tensorgrad

#endif
