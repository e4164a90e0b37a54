#include "runtime/cpu/blocked.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/cpu/memory.h"

namespace tensorgrad::cpu {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t block_count(std::int64_t flops, std::int64_t most) {
  // Some tens of microseconds pay for a block of its own.
  constexpr std::int64_t block_flops = 16'000'000;
  return std::clamp(flops / block_flops, std::int64_t{1}, std::max<std::int64_t>(most, 1));
}

std::int64_t block_size(std::int64_t extent, std::int64_t count, std::int64_t unit) {
  return std::min(extent, ceil_div(ceil_div(extent, count), unit) * unit);
}

bool is_reference(const std::string& implementation) {
  return implementation.find("ref") != std::string::npos;
}

void BlockedContraction::sum_into(std::size_t operand, std::int64_t offset, std::int64_t elements) {
  sum_operand_ = operand;
  sum_offset_ = offset;
  sum_elements_ = elements;
}

std::size_t BlockedContraction::add_shape(std::unique_ptr<Primitives> primitives) {
  own_bytes_ = std::max(own_bytes_, primitives->scratch_bytes());
  shapes_.push_back(std::move(primitives));
  return shapes_.size() - 1;
}

void BlockedContraction::add_block(std::vector<Call> calls, Block block) {
  calls_.push_back(std::move(calls));
  blocks_.push_back(block);
}

void BlockedContraction::run_block(std::size_t block, void* const* args, const Scratch& scratch,
                                   int slot) {
  constexpr std::size_t most_operands = 4;
  std::array<std::byte*, most_operands> bases{};
  for (const Call& call : calls_[block]) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      bases[i] = static_cast<std::byte*>(args[buffers_[i]]) +
                 call.shifts[i] * static_cast<std::int64_t>(sizeof(float));
    }
    if (sum_elements_ > 0) {
      // The sequence adds the operand's offset, which the share has not.
      bases[sum_operand_] = reinterpret_cast<std::byte*>(share(scratch, block) - sum_offset_);
    }
    shapes_[call.shape]->run({bases.data(), buffers_.size()}, scratch.own, slot);
  }
}

void BlockedContraction::finish(void* const* args, const Scratch& scratch) {
  if (sum_elements_ == 0) return;
  float* out = static_cast<float*>(args[buffers_[sum_operand_]]) + sum_offset_;
  std::copy_n(share(scratch, 0), sum_elements_, out);
  for (std::size_t block = 1; block < blocks_.size(); ++block) {
    const float* part = share(scratch, block);
    for (std::int64_t i = 0; i < sum_elements_; ++i) out[i] += part[i];
  }
}

std::size_t BlockedContraction::shared_bytes() const {
  return blocks_.size() * share_elements() * sizeof(float);
}

std::string BlockedContraction::description() const {
  const std::string text = "oneDNN " + shapes_.front()->description();
  return blocks_.size() == 1 ? text : fmt::format("{} in {} blocks", text, blocks_.size());
}

std::size_t BlockedContraction::share_elements() const {
  constexpr std::int64_t line = Memory::alignment / sizeof(float);
  return static_cast<std::size_t>(ceil_div(sum_elements_, line) * line);
}

float* BlockedContraction::share(const Scratch& scratch, std::size_t block) const {
  return reinterpret_cast<float*>(scratch.shared) + block * share_elements();
}

namespace {

class Zero final : public WholeRunner {
 public:
  Zero(kernel::Access out, std::vector<std::int64_t> extents)
      : out_(std::move(out)), extents_(std::move(extents)) {}
  std::size_t own_bytes() const override { return 0; }
  std::string description() const override { return "zero"; }

 private:
  void run_whole(void* const* args, std::byte*) override {
    clear(static_cast<float*>(args[out_.buffer]) + out_.offset, 0);
  }
  void clear(float* data, std::size_t axis) const {
    if (axis == extents_.size()) {
      *data = 0;
      return;
    }
    for (std::int64_t i = 0; i < extents_[axis]; ++i) {
      clear(data + i * out_.strides[axis], axis + 1);
    }
  }
  kernel::Access out_;
  std::vector<std::int64_t> extents_;
};

}  // namespace

std::unique_ptr<ContractionRunner> make_zero(const kernel::Access& out,
                                             const std::vector<std::int64_t>& extents) {
  return std::make_unique<Zero>(out, extents);
}

}  // namespace tensorgrad::cpu
