// A device that is open: buffers, pipelines, submissions, and what goes wrong with them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/disk_cache.h"
#include "runtime/webgpu/adapter.h"

namespace tensorgrad::webgpu {

class Context;

/// Memory on the device, returned to it at once on destruction.
class GpuMemory {
 public:
  GpuMemory() = default;
  GpuMemory(GpuMemory&&) noexcept = default;
  GpuMemory& operator=(GpuMemory&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(buffer_, other.buffer_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  ~GpuMemory();

  dawn::Buffer get() const { return buffer_.get(); }
  std::uint64_t bytes() const { return bytes_; }

 private:
  friend class Context;
  std::shared_ptr<Context> context_;
  Owned<dawn::Buffer> buffer_;
  std::uint64_t bytes_ = 0;
};

/// What the device holds now.
struct Usage {
  std::size_t buffers = 0;
  std::uint64_t bytes = 0;
};

/// How a device is opened.
struct ContextOptions {
  /// Checks every call and every index of a kernel, as a browser does. Without it the device
  /// trusts kernels and calls, which is faster.
  bool validate = false;
  /// Where compiled kernels are kept; "" keeps none.
  std::filesystem::path cache_folder;

  /// TENSORGRAD_WEBGPU_VALIDATE=1 switches validation on; the cache is a folder `webgpu` in that of
  /// DiskCache::folder_from_environment.
  static ContextOptions from_environment();
};

/// A kernel to compile.
struct Shader {
  std::string name;  ///< for people
  std::string text;
  std::vector<bool> writable;  ///< of each binding
};

/// A compiled kernel.
struct Pipeline {
  Owned<dawn::ComputePipeline> pipeline;
  dawn::BindGroupLayout layout = nullptr;  ///< the context's
};

/// Thread-safe.
class Context : public std::enable_shared_from_this<Context> {
 public:
  /// Throws DeviceError.
  static std::shared_ptr<Context> open(std::shared_ptr<const Adapter> adapter,
                                       const ContextOptions& options);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const dawn::Api& api() const { return adapter_->instance()->api(); }
  const Adapter& adapter() const { return *adapter_; }
  dawn::Device device() const { return device_.get(); }
  dawn::Queue queue() const { return queue_.get(); }
  bool validates() const { return options_.validate; }

  void wait(dawn::Future future) const { adapter_->instance()->wait(future); }
  /// Waits for all that was submitted.
  void wait_idle() const;
  /// What is kept on disk between processes.
  DiskCache& cache() { return cache_; }

  /// Throws what went wrong since the last check: DeviceLost for ever after the device is gone,
  /// OutOfMemory or DeviceError once for each error that no call could report itself.
  void check();
  bool lost() const { return lost_.load(std::memory_order_acquire); }

  /// Zeroed memory. `what` is what it is for: "the parameters". Throws OutOfMemory, DeviceError.
  GpuMemory allocate(std::uint64_t bytes, dawn::Flags usage, const std::string& what);
  Usage usage() const;

  /// Copies into a buffer, in order with submissions. Offset and size are multiples of 4.
  void write(dawn::Buffer buffer, std::uint64_t offset, std::span<const std::byte> data);
  /// Submits what was encoded, and keeps the device from falling too many runs behind.
  void submit(Owned<dawn::CommandEncoder> encoder);
  Owned<dawn::CommandEncoder> encoder();
  /// Copies out of a buffer that `staging`, of at least its size, was copied to.
  void read_mapped(dawn::Buffer staging, std::uint64_t offset, std::span<std::byte> data) const;
  /// Maps bytes of a staging buffer for reading, after all work submitted before.
  void map(dawn::Buffer staging, std::uint64_t bytes);

  /// Compiles in parallel what is not compiled yet; in the order of `shaders`. Throws DeviceError
  /// with the kernel's name, the message with its line, and the text.
  std::vector<std::shared_ptr<const Pipeline>> compile(std::span<const Shader> shaders);
  Owned<dawn::BindGroup> bind(dawn::BindGroupLayout layout,
                              std::span<const dawn::BindGroupEntry> entries);

 private:
  /// What callbacks of the library tell. They may come from its threads.
  struct Log {
    std::mutex mutex;
    std::optional<std::pair<dawn::ErrorType, std::string>> error;
    std::string lost_message;
  };
  struct Layout {
    Owned<dawn::BindGroupLayout> group;
    Owned<dawn::PipelineLayout> pipeline;
  };

  Context(std::shared_ptr<const Adapter> adapter, const ContextOptions& options);
  void request_device();
  void forget(GpuMemory& memory) noexcept;
  friend class GpuMemory;

  const Layout& layout(const std::vector<bool>& writable);
  Owned<dawn::ShaderModule> module(const Shader& shader);
  std::shared_ptr<const Pipeline> find_pipeline(const std::string& text);

  std::shared_ptr<const Adapter> adapter_;
  ContextOptions options_;
  DiskCache cache_;
  Log log_;
  std::atomic<bool> lost_ = false, failed_ = false;
  Owned<dawn::Device> device_;
  Owned<dawn::Queue> queue_;
  std::atomic<std::size_t> buffers_ = 0;
  std::atomic<std::uint64_t> bytes_ = 0;

  std::mutex create_mutex_;  ///< error scopes nest, so one thread creates at a time
  std::map<std::vector<bool>, Layout> layouts_;
  std::map<std::string, std::pair<std::uint64_t, std::shared_ptr<const Pipeline>>> pipelines_;
  std::uint64_t pipeline_uses_ = 0;

  std::mutex backlog_mutex_;
  std::vector<dawn::Future> backlog_;  ///< ends of earlier submissions
  unsigned submissions_ = 0;
};

}  // namespace tensorgrad::webgpu
