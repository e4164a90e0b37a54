// The engine that compiles for a page.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "codegen/wgsl/target.h"
#include "train/engine.h"

namespace tensorgrad::web {

/// Memory of the host that stands for a page's: it holds what is written, for a bundle.
class HostBuffer : public DeviceBuffer {
 public:
  explicit HostBuffer(std::size_t bytes) : bytes_(bytes) {}
  std::size_t bytes() const override { return bytes_; }
  void write(std::size_t offset, std::span<const std::byte> data) override;
  void read(std::size_t offset, std::span<std::byte> data) const override;
  /// Whether anything was written, and whether anything but zeros was.
  bool written() const { return written_; }
  bool holds_values() const { return !data_.empty(); }

 private:
  void check(std::size_t offset, std::size_t size) const;
  std::size_t bytes_;
  bool written_ = false;
  std::vector<std::byte> data_;  // empty while all are zero
};

/// An engine whose programs are run by JavaScript: it makes plans for an adapter and holds what is
/// written to its memory. Running a program throws DeviceError.
class PageEngine : public Engine {
 public:
  explicit PageEngine(const wgsl::Target& target) : target_(target) {}
  std::string name() const override { return "web"; }
  std::unique_ptr<DeviceBuffer> allocate(DType dtype, std::int64_t elements) override;
  std::unique_ptr<Program> load(const Graph& graph, std::vector<PassReport>* report) override;
  bool runs() const override { return false; }
  const wgsl::Target& target() const { return target_; }

 private:
  wgsl::Target target_;
};

/// The engine of a device name: "web", or "web:" and a description of the adapter (target.h).
std::shared_ptr<Engine> make_engine(std::string_view device);

}  // namespace tensorgrad::web
