// The device "webgpu": any GPU, natively.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "codegen/wgsl/program.h"
#include "runtime/device.h"
#include "runtime/webgpu/context.h"
#include "runtime/webgpu/tune.h"

namespace tensorgrad::webgpu {

/// "" if there is a library and an adapter, else what is missing and how to get it.
std::string unavailable();
/// Whether `auto` may take the adapter: a GPU, not a software adapter.
bool automatic();
/// Opens the device on the best adapter. Throws DeviceError.
std::shared_ptr<Device> open();

/// Host-visible buffers for reading back, kept for the next time.
class StagingPool {
 public:
  /// Keeps idle buffers of up to `kept_bytes` in all.
  StagingPool(std::shared_ptr<Context> context, std::uint64_t kept_bytes)
      : context_(std::move(context)), kept_bytes_(kept_bytes) {}
  /// The smallest idle one of at least that size, or a new one. Throws OutOfMemory.
  GpuMemory take(std::uint64_t bytes);
  /// `memory` is not mapped.
  void give_back(GpuMemory memory) noexcept;
  /// What is kept for the next time.
  Usage idle() const;

 private:
  std::shared_ptr<Context> context_;
  std::uint64_t kept_bytes_;
  mutable std::mutex mutex_;
  std::vector<GpuMemory> idle_;
};

/// Memory that outlives programs.
class Buffer final : public DeviceBuffer {
 public:
  Buffer(std::shared_ptr<Context> context, std::shared_ptr<StagingPool> staging, DType dtype,
         std::int64_t elements);
  std::size_t bytes() const override { return bytes_; }
  void write(std::size_t offset, std::span<const std::byte> data) override;
  void read(std::size_t offset, std::span<std::byte> data) const override;

  dawn::Buffer handle() const { return memory_.get(); }
  const Context& context() const { return *context_; }
  /// Never the same for two buffers of a process.
  std::uint64_t id() const { return id_; }

 private:
  void check_range(std::size_t offset, std::size_t size, const char* verb) const;
  /// Whole words of device memory; blocks until they are here.
  void read_words(std::uint64_t offset, std::span<std::byte> data) const;

  std::shared_ptr<Context> context_;
  std::shared_ptr<StagingPool> staging_;
  DType dtype_;
  std::size_t unit_;  ///< bytes of an element on the device
  std::size_t bytes_;
  GpuMemory memory_;
  std::uint64_t id_;
};

/// A device on an adapter. Several may be open at the same time.
class WebGpuDevice final : public Device {
 public:
  explicit WebGpuDevice(std::shared_ptr<Context> context);
  DeviceInfo info() const override;
  Target target() const override;
  std::unique_ptr<Executable> load(const Plan& plan) override;
  std::unique_ptr<DeviceBuffer> allocate(DType dtype, std::int64_t elements) override;
  bool lost() const override { return context_->lost(); }

  std::vector<TunedKernel> tune(const Plan& plan, bool again,
                                const std::function<void(const TunedKernel&)>& report) override;

  Context& context() { return *context_; }
  /// What programs, their results and buffers hold now; not what is kept to read back through.
  Usage usage() const;

 private:
  std::shared_ptr<Context> context_;
  std::shared_ptr<StagingPool> staging_;
  Winners winners_;
};

/// Makes `plan` ready to run. Throws DeviceError, with the text of a kernel that does not compile.
std::unique_ptr<Executable> load(std::shared_ptr<Context> context, const wgsl::Target& target,
                                 const Plan& plan, const wgsl::Renderer& renderer);

}  // namespace tensorgrad::webgpu
