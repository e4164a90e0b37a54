#include "runtime/web/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "tensorgrad/error.h"

namespace tensorgrad::web {
namespace {

// Zeros until it is written: a page that only compiles pays for no copy of the parameters.
class HostBuffer : public DeviceBuffer {
 public:
  explicit HostBuffer(std::size_t bytes) : bytes_(bytes) {}
  std::size_t bytes() const override { return bytes_; }
  void write(std::size_t offset, std::span<const std::byte> data) override {
    check(offset, data.size());
    if (data_.empty()) {
      if (std::ranges::all_of(data, [](std::byte b) { return b == std::byte{0}; })) return;
      data_.resize(bytes_);
    }
    std::ranges::copy(data, data_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  void read(std::size_t offset, std::span<std::byte> data) const override {
    check(offset, data.size());
    if (data_.empty()) {
      std::ranges::fill(data, std::byte{0});
    } else {
      std::ranges::copy(std::span(data_).subspan(offset, data.size()), data.begin());
    }
  }

 private:
  void check(std::size_t offset, std::size_t size) const {
    if (offset > bytes_ || size > bytes_ - offset) {
      throw ValueError(
          fmt::format("A buffer of {} bytes has no {} bytes at {}.", bytes_, size, offset));
    }
  }
  std::size_t bytes_;
  std::vector<std::byte> data_;
};

class PageProgram : public Program {
 public:
  explicit PageProgram(Plan plan) : plan_(std::move(plan)) {}
  std::unique_ptr<Completion> run(std::span<const std::span<const std::byte>> /*inputs*/,
                                  std::span<DeviceBuffer* const> /*states*/) override {
    throw DeviceError(
        "A program of the device web is run by a page; export it, or compile for another device.");
  }
  const Plan* plan() const override { return &plan_; }

 private:
  Plan plan_;
};

// What every WebGPU implementation guarantees: 8 storage buffers a stage, offsets in multiples of
// 256 bytes; truth values are words in WGSL's storage.
constexpr Target guaranteed{.max_buffers = 8, .alignment = 256, .bool_bytes = 4};

class PageEngine : public Engine {
 public:
  std::string name() const override { return "web"; }
  std::unique_ptr<DeviceBuffer> allocate(DType dtype, std::int64_t elements) override {
    return std::make_unique<HostBuffer>(static_cast<std::size_t>(elements) * info(dtype).bytes);
  }
  std::unique_ptr<Program> load(const Graph& graph, std::vector<PassReport>* report) override {
    return std::make_unique<PageProgram>(
        make_plan(graph, guaranteed, PassOptions::from_environment(), report));
  }
  bool runs() const override { return false; }
};

}  // namespace

std::shared_ptr<Engine> make_engine() { return std::make_shared<PageEngine>(); }

}  // namespace tensorgrad::web
