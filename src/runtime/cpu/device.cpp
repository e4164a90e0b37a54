#include "runtime/cpu/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <mutex>
#include <thread>

#include "runtime/cpu/contraction.h"
#include "tensorgrad/error.h"

namespace tensorgrad::cpu {
namespace {

/// The processor's name as its maker gives it, or `otherwise` where the system does not tell.
std::string processor_name(const std::string& otherwise) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const auto colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return otherwise;
}

int hardware_threads() {
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

class CpuDevice final : public Device {
 public:
  DeviceInfo info() const override {
    const Processor& processor = jit_.processor();
    const std::string vectors = processor.vector_bits == 512   ? "AVX-512"
                                : processor.vector_bits == 256 ? "AVX"
                                                               : "128-bit vectors";
    const int threads = hardware_threads();
    return {"cpu",
            fmt::format("{}, {} thread{}, {}", processor_name(processor.name), threads,
                        threads == 1 ? "" : "s", vectors),
            {{"target", processor.name},
             {"vector bits", std::to_string(processor.vector_bits)},
             {"LLVM", processor.llvm_version},
             {"oneDNN", contraction_library_version()},
             {"threads for contractions", std::to_string(contraction_threads)}}};
  }
  std::unique_ptr<Executable> load(const Plan& plan) override {
    return cpu::load(jit_, plan, hardware_threads(), contraction_threads);
  }
  Target target() const override { return {}; }
  std::unique_ptr<DeviceBuffer> allocate(DType dtype, std::int64_t elements) override {
    return std::make_unique<Buffer>(static_cast<std::size_t>(elements) *
                                    tensorgrad::info(dtype).bytes);
  }

 private:
  /// One, because a barrier between threads of a busy machine costs more than most contractions
  /// take. A larger number works; it is the only switch.
  static constexpr int contraction_threads = 1;
  Jit jit_;
};

}  // namespace

Buffer::Buffer(std::size_t bytes) : memory_(bytes, "a device buffer") {
  if (bytes > 0) std::memset(memory_.data(), 0, bytes);
}

void Buffer::check(std::size_t offset, std::size_t size, const char* verb) const {
  if (offset > bytes() || size > bytes() - offset) {
    throw ValueError(fmt::format("A {} of {} bytes at {} leaves a device buffer of {} bytes", verb,
                                 size, offset, bytes()));
  }
}

void Buffer::write(std::size_t offset, std::span<const std::byte> data) {
  check(offset, data.size(), "write");
  if (!data.empty()) std::memcpy(memory_.data() + offset, data.data(), data.size());
}

void Buffer::read(std::size_t offset, std::span<std::byte> data) const {
  check(offset, data.size(), "read");
  if (!data.empty()) std::memcpy(data.data(), memory_.data() + offset, data.size());
}

std::string unavailable() { return ""; }

std::shared_ptr<Device> open() { return std::make_shared<CpuDevice>(); }

}  // namespace tensorgrad::cpu
