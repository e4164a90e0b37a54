// Aligned host memory.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <string>

#include "tensorgrad/error.h"

namespace tensorgrad::cpu {

/// Uninitialised bytes that start at a cache line.
class Memory {
 public:
  static constexpr std::size_t alignment = 64;

  Memory() = default;
  /// Throws OutOfMemory, naming `purpose`.
  Memory(std::size_t bytes, const std::string& purpose) : bytes_(bytes) {
    if (bytes == 0) return;
    const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    if (rounded >= bytes) {
      data_.reset(static_cast<std::byte*>(
          ::operator new(rounded, std::align_val_t(alignment), std::nothrow)));
    }
    if (!data_) {
      throw OutOfMemory("The CPU has no " + std::to_string(bytes) + " bytes of memory for " +
                        purpose);
    }
  }
  std::byte* data() const { return data_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Release {
    void operator()(std::byte* data) const {
      ::operator delete(data, std::align_val_t(alignment), std::nothrow);
    }
  };
  std::unique_ptr<std::byte, Release> data_;
  std::size_t bytes_ = 0;
};

/// The next multiple of the alignment.
inline std::size_t aligned(std::size_t bytes) {
  return (bytes + Memory::alignment - 1) / Memory::alignment * Memory::alignment;
}

}  // namespace tensorgrad::cpu
