#include "runtime/cpu/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/cpu/contraction.h"
#include "runtime/disk_cache.h"
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

/// The number of threads that run programs: TENSORGRAD_THREADS, or all there are.
int program_threads() {
  const char* variable = std::getenv("TENSORGRAD_THREADS");
  if (variable == nullptr || *variable == '\0') return hardware_threads();
  constexpr int most = 1024;
  const std::string_view text = variable;
  int threads = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (problem != std::errc() || end != text.data() + text.size() || threads < 1 || threads > most) {
    throw DeviceError(fmt::format(
        "TENSORGRAD_THREADS is \"{}\"; it takes a number of threads from 1 to {}", text, most));
  }
  return threads;
}

bool is_set(const char* name) {
  const char* variable = std::getenv(name);
  return variable != nullptr && std::string_view(variable) == "1";
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const OpenOptions& options)
      : jit_(options.caches ? DiskCache::folder_from_environment() : std::filesystem::path(),
             options.optimises),
        pool_(std::make_shared<ThreadPool>(options.threads)),
        compile_threads_(options.compile_threads > 0 ? options.compile_threads
                                                     : hardware_threads()),
        poisons_(options.poisons) {}
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
             {"threads in use", std::to_string(pool_->threads())}}};
  }
  std::unique_ptr<Executable> load(const Plan& plan) override {
    return cpu::load(jit_, plan, compile_threads_, pool_, poisons_);
  }
  Target target() const override { return {}; }
  std::unique_ptr<DeviceBuffer> allocate(DType dtype, std::int64_t elements) override {
    return std::make_unique<Buffer>(static_cast<std::size_t>(elements) *
                                    tensorgrad::info(dtype).bytes);
  }

 private:
  Jit jit_;
  std::shared_ptr<ThreadPool> pool_;
  int compile_threads_;
  bool poisons_;
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

std::shared_ptr<Device> open() { return open(program_threads()); }

std::shared_ptr<Device> open(int threads) {
  return open({.threads = threads, .poisons = is_set("TENSORGRAD_POISON")});
}

std::shared_ptr<Device> open(const OpenOptions& options) {
  return std::make_shared<CpuDevice>(options);
}

}  // namespace tensorgrad::cpu
