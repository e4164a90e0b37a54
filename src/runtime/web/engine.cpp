#include "runtime/web/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "codegen/wgsl/program.h"
#include "runtime/web/target.h"
#include "tensorgrad/error.h"

namespace tensorgrad::web {
namespace {

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

}  // namespace

void HostBuffer::check(std::size_t offset, std::size_t size) const {
  if (offset > bytes_ || size > bytes_ - offset) {
    throw ValueError(
        fmt::format("A buffer of {} bytes has no {} bytes at {}.", bytes_, size, offset));
  }
}

void HostBuffer::write(std::size_t offset, std::span<const std::byte> data) {
  check(offset, data.size());
  if (data_.empty() && std::ranges::any_of(data, [](std::byte b) { return b != std::byte{0}; })) {
    data_.resize(bytes_);
  }
  if (!data_.empty()) {
    std::ranges::copy(data, data_.begin() + static_cast<std::ptrdiff_t>(offset));
  }
  written_ = true;
}

void HostBuffer::read(std::size_t offset, std::span<std::byte> data) const {
  check(offset, data.size());
  if (data_.empty()) {
    std::ranges::fill(data, std::byte{0});
  } else {
    std::ranges::copy(std::span(data_).subspan(offset, data.size()), data.begin());
  }
}

std::unique_ptr<DeviceBuffer> PageEngine::allocate(DType dtype, std::int64_t elements) {
  return std::make_unique<HostBuffer>(static_cast<std::size_t>(elements) * info(dtype).bytes);
}

std::unique_ptr<Program> PageEngine::load(const Graph& graph, std::vector<PassReport>* report) {
  return std::make_unique<PageProgram>(
      make_plan(graph, wgsl::schedule_target(target_), PassOptions::from_environment(), report));
}

std::shared_ptr<Engine> make_engine(std::string_view device) {
  return std::make_shared<PageEngine>(parse_target(device));
}

}  // namespace tensorgrad::web
