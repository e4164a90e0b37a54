// The device "cpu": this process's processor and memory.
#pragma once

#include <memory>
#include <string>

#include "runtime/cpu/jit.h"
#include "runtime/cpu/memory.h"
#include "runtime/cpu/thread_pool.h"
#include "runtime/device.h"

namespace tensorgrad::cpu {

/// "" if this processor can run kernels, else what is missing.
std::string unavailable();
/// Opens the device. Throws DeviceError, also where TENSORGRAD_THREADS is no number of threads.
/// With TENSORGRAD_POISON=1 its programs poison their memory, for tests.
std::shared_ptr<Device> open();
/// The same with `threads` threads that run programs, the caller's included.
std::shared_ptr<Device> open(int threads);
/// What tests choose for a device of their own.
struct OpenOptions {
  int threads = 1;
  int compile_threads = 0;  ///< 0: all there are
  bool optimises = true;    ///< see Jit
  bool caches = true;       ///< on disk, as TENSORGRAD_CACHE says
  bool poisons = false;
};
std::shared_ptr<Device> open(const OpenOptions& options);

/// Device memory, which is host memory here.
class Buffer final : public DeviceBuffer {
 public:
  explicit Buffer(std::size_t bytes);
  std::size_t bytes() const override { return memory_.bytes(); }
  void write(std::size_t offset, std::span<const std::byte> data) override;
  void read(std::size_t offset, std::span<std::byte> data) const override;
  std::byte* data() const { return memory_.data(); }

 private:
  void check(std::size_t offset, std::size_t size, const char* verb) const;
  Memory memory_;
};

/// Makes `plan` ready to run on the threads of `pool`. `compile_threads` compile kernels. Where it
/// `poisons`, memory holds NaN until a kernel writes it, so that what reads it before shows.
std::unique_ptr<Executable> load(Jit& jit, const Plan& plan, int compile_threads,
                                 std::shared_ptr<ThreadPool> pool, bool poisons = false);

}  // namespace tensorgrad::cpu
