#include "runtime/webgpu/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "codegen/wgsl/program.h"
#include "tensorgrad/error.h"

namespace tensorgrad::webgpu {
namespace {

/// What was found on this machine: an adapter, or the reason why there is none.
struct Found {
  std::shared_ptr<const Adapter> adapter;
  std::string reason;
};

Found look() {
  try {
    static_cast<void>(find_library());
    // Found out without opening it, which takes a while.
    if (std::string missing = missing_vulkan_files(); !missing.empty()) return {nullptr, missing};
    return {std::make_shared<const Adapter>(std::make_shared<const Instance>(Library::open()),
                                            dawn::BackendType::vulkan),
            ""};
  } catch (const DeviceError& error) {
    return {nullptr, error.what()};
  }
}

const Found& found() {
  static const Found found = look();
  return found;
}

constexpr std::uint64_t word = 4;

}  // namespace

std::string unavailable() { return found().reason; }

bool automatic() { return found().adapter != nullptr && !found().adapter->software(); }

std::shared_ptr<Device> open() {
  if (!found().adapter) throw DeviceError(found().reason);
  // An adapter gives one device, and this one is asked for again after a loss.
  auto adapter =
      std::make_shared<const Adapter>(found().adapter->instance(), dawn::BackendType::vulkan);
  return std::make_shared<WebGpuDevice>(
      Context::open(std::move(adapter), ContextOptions::from_environment()));
}

// ---- staging -------------------------------------------------------------------------------------

GpuMemory StagingPool::take(std::uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    auto best = idle_.end();
    for (auto it = idle_.begin(); it != idle_.end(); ++it) {
      if (it->bytes() >= bytes && (best == idle_.end() || it->bytes() < best->bytes())) best = it;
    }
    if (best != idle_.end()) {
      GpuMemory memory = std::move(*best);
      idle_.erase(best);
      return memory;
    }
  }
  return context_->allocate(bytes, dawn::usage::map_read | dawn::usage::copy_dst,
                            "reading results back");
}

void StagingPool::give_back(GpuMemory memory) noexcept {
  const std::lock_guard lock(mutex_);
  std::uint64_t total = memory.bytes();
  for (const GpuMemory& m : idle_) total += m.bytes();
  // Room for the list itself; without it the buffer is dropped, which is always right.
  constexpr std::size_t most = 32;
  if (total > kept_bytes_ || idle_.size() >= most) return;
  try {
    idle_.push_back(std::move(memory));
  } catch (const std::bad_alloc&) {
  }
}

Usage StagingPool::idle() const {
  const std::lock_guard lock(mutex_);
  Usage usage{idle_.size(), 0};
  for (const GpuMemory& m : idle_) usage.bytes += m.bytes();
  return usage;
}

// ---- buffers -------------------------------------------------------------------------------------

namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last = 0;
  return ++last;
}

}  // namespace

Buffer::Buffer(std::shared_ptr<Context> context, std::shared_ptr<StagingPool> staging, DType dtype,
               std::int64_t elements)
    : context_(std::move(context)),
      staging_(std::move(staging)),
      dtype_(dtype),
      unit_(static_cast<std::size_t>(wgsl::memory_bytes(dtype, context_->adapter().target()))),
      bytes_(static_cast<std::size_t>(elements) * info(dtype).bytes),
      memory_(
          context_->allocate(static_cast<std::uint64_t>(
                                 wgsl::device_bytes(dtype, elements, context_->adapter().target())),
                             dawn::usage::storage | dawn::usage::copy_src | dawn::usage::copy_dst,
                             fmt::format("a buffer of {} elements", elements))),
      id_(next_id()) {}

void Buffer::check_range(std::size_t offset, std::size_t size, const char* verb) const {
  if (offset > bytes() || size > bytes() - offset) {
    throw ValueError(fmt::format("A {} of {} bytes at {} leaves a device buffer of {} bytes", verb,
                                 size, offset, bytes()));
  }
}

void Buffer::write(std::size_t offset, std::span<const std::byte> data) {
  check_range(offset, data.size(), "write");
  context_->check();
  if (data.empty()) return;
  if (const std::size_t size = info(dtype_).bytes; size != unit_) {
    std::vector<std::byte> words(data.size() / size * unit_);
    wgsl::to_device(dtype_, static_cast<std::int64_t>(unit_), data, words);
    context_->write(memory_.get(), offset / size * unit_, words);
  } else if (offset % word == 0 && data.size() % word == 0) {
    context_->write(memory_.get(), offset, data);
  } else {  // the device is written in whole words
    const std::size_t first = offset / word * word;
    std::vector<std::byte> words((offset + data.size() + word - 1) / word * word - first);
    read_words(first, words);
    std::memcpy(&words[offset - first], data.data(), data.size());
    context_->write(memory_.get(), first, words);
  }
  context_->check();
}

void Buffer::read(std::size_t offset, std::span<std::byte> data) const {
  check_range(offset, data.size(), "read");
  context_->check();
  if (data.empty()) return;
  if (const std::size_t size = info(dtype_).bytes; size != unit_) {
    std::vector<std::byte> words(data.size() / size * unit_);
    read_words(offset / size * unit_, words);
    wgsl::to_host(dtype_, static_cast<std::int64_t>(unit_), words, data);
  } else if (offset % word == 0 && data.size() % word == 0) {
    read_words(offset, data);
  } else {
    const std::size_t first = offset / word * word;
    std::vector<std::byte> words((offset + data.size() + word - 1) / word * word - first);
    read_words(first, words);
    std::memcpy(data.data(), &words[offset - first], data.size());
  }
}

void Buffer::read_words(std::uint64_t offset, std::span<std::byte> data) const {
  // Two pieces are under way at a time: one is copied on the device while the other is read.
  constexpr std::uint64_t piece = std::uint64_t{32} << 20U;
  struct Part {
    GpuMemory memory;
    std::uint64_t offset = 0, bytes = 0;
  };
  std::vector<Part> parts;
  const auto send = [&](std::uint64_t from) {
    Part part;
    part.offset = from;
    part.bytes = std::min<std::uint64_t>(piece, data.size() - from);
    part.memory = staging_->take(std::bit_ceil(part.bytes));
    auto encoder = context_->encoder();
    context_->api().command_encoder_copy_buffer_to_buffer(
        encoder.get(), memory_.get(), offset + from, part.memory.get(), 0, part.bytes);
    context_->submit(std::move(encoder));
    parts.push_back(std::move(part));
  };
  std::uint64_t sent = 0;
  std::uint64_t done = 0;
  while (done < data.size()) {
    while (sent < data.size() && parts.size() < 2) {
      send(sent);
      sent += parts.back().bytes;
    }
    Part part = std::move(parts.front());
    parts.erase(parts.begin());
    context_->map(part.memory.get(), part.bytes);
    context_->read_mapped(part.memory.get(), 0, data.subspan(part.offset, part.bytes));
    context_->api().buffer_unmap(part.memory.get());
    done += part.bytes;
    staging_->give_back(std::move(part.memory));
  }
}

// ---- the device ----------------------------------------------------------------------------------

WebGpuDevice::WebGpuDevice(std::shared_ptr<Context> context)
    : context_(std::move(context)),
      staging_(std::make_shared<StagingPool>(context_, std::uint64_t{64} << 20U)),
      winners_(context_) {}

DeviceInfo WebGpuDevice::info() const {
  auto details = context_->adapter().details();
  details.emplace_back("validation", context_->validates() ? "on" : "off");
  return {"webgpu", context_->adapter().description(), std::move(details)};
}

Target WebGpuDevice::target() const { return wgsl::schedule_target(context_->adapter().target()); }

std::unique_ptr<Executable> WebGpuDevice::load(const Plan& plan) {
  return webgpu::load(context_, context_->adapter().target(), plan, tuned_renderer(winners_));
}

std::vector<TunedKernel> WebGpuDevice::tune(const Plan& plan, bool again,
                                            const std::function<void(const TunedKernel&)>& report) {
  return webgpu::tune(context_, context_->adapter().target(), winners_, *this, plan, again, report);
}

std::unique_ptr<DeviceBuffer> WebGpuDevice::allocate(DType dtype, std::int64_t elements) {
  const wgsl::Target& adapter = context_->adapter().target();
  const std::int64_t most = adapter.buffer_bytes;
  const std::int64_t bytes = wgsl::device_bytes(dtype, elements, adapter);
  if (bytes > most) {
    throw OutOfMemory(
        fmt::format("A buffer of {} bytes is asked of a device that allows {} in one "
                    "(maxBufferSize)",
                    bytes, most));
  }
  return std::make_unique<Buffer>(context_, staging_, dtype, elements);
}

Usage WebGpuDevice::usage() const {
  Usage usage = context_->usage();
  const Usage idle = staging_->idle();
  usage.bytes -= idle.bytes;
  usage.buffers -= idle.buffers;
  return usage;
}

}  // namespace tensorgrad::webgpu
