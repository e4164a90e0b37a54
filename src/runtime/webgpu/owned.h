// Ownership of the library's reference-counted objects.
#pragma once

#include <utility>

namespace tensorgrad::webgpu {

/// One reference to an object of the library, released on destruction.
template <class T>
class Owned {
 public:
  Owned() = default;
  Owned(T handle, void (*release)(T)) : handle_(handle), release_(release) {}
  Owned(Owned&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), release_(other.release_) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(release_, other.release_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle_ != nullptr) release_(handle_);
  }

  T get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  T handle_ = nullptr;
  void (*release_)(T) = nullptr;
};

}  // namespace tensorgrad::webgpu
