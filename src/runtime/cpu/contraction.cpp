#include "runtime/cpu/contraction.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/cpu/attention.h"
#include "runtime/cpu/blocked.h"
#include "tensorgrad/error.h"

namespace tensorgrad::cpu {
namespace {

using kernel::Attention;
using kernel::Conv;
using kernel::Matmul;

/// Blocks of batch points.
class AttentionRunner final : public ContractionRunner {
 public:
  explicit AttentionRunner(Attention attention) : attention_(std::move(attention)) {
    const std::int64_t points = attention_batches(attention_);
    // Three products of the backward pass have the size of the two of the forward pass, and both
    // work on each score besides.
    constexpr std::int64_t flops_of_score = 64;
    const std::int64_t passes = attention_.mode == Attention::Mode::forward ? 1 : 2;
    const std::int64_t of_score =
        2 * passes * (attention_.depth + attention_.value_depth + flops_of_score);
    const std::int64_t flops = points * attention_.queries * attention_.keys * of_score;
    size_ = block_size(points, block_count(flops, std::min(points, most_blocks)), 1);
    blocks_.resize(static_cast<std::size_t>(size_ == 0 ? 1 : ceil_div(points, size_)));
  }
  const std::vector<Block>& blocks() const override { return blocks_; }
  void run_block(std::size_t block, void* const* args, const Scratch& scratch, int) override {
    const SingleThread guard;
    const std::int64_t first = static_cast<std::int64_t>(block) * size_;
    run_attention(attention_, args, scratch.own, first,
                  std::min(first + size_, attention_batches(attention_)));
  }
  void finish(void* const*, const Scratch&) override {}
  std::size_t shared_bytes() const override { return 0; }
  std::size_t own_bytes() const override { return attention_scratch_bytes(attention_); }
  std::string description() const override { return "attention in tiles"; }

 private:
  Attention attention_;
  std::int64_t size_ = 0;  ///< points of a block
  std::vector<Block> blocks_;
};

}  // namespace

void ContractionRunner::run(void* const* args, std::byte* scratch) {
  const Scratch parts{scratch, scratch + shared_bytes()};
  for (std::size_t i = 0; i < blocks().size(); ++i) run_block(i, args, parts, 0);
  finish(args, parts);
}

std::unique_ptr<ContractionRunner> make_contraction(const kernel::Kernel& kernel, int slots) {
  try {
    if (const auto* matmul = std::get_if<Matmul>(&*kernel.contraction)) {
      return make_matmul(*matmul, slots);
    }
    if (const auto* attention = std::get_if<Attention>(&*kernel.contraction)) {
      return std::make_unique<AttentionRunner>(*attention);
    }
    const Conv& conv = std::get<Conv>(*kernel.contraction);
    constexpr std::size_t most_dimensions = 3;  // that oneDNN convolves over
    if (conv.input.size() > most_dimensions) {
      throw DeviceError(
          fmt::format("The convolution of kernel \"{}\" has {} spatial dimensions, and the cpu "
                      "device convolves over at most {}",
                      kernel.name, conv.input.size(), most_dimensions));
    }
    return make_convolution(conv, slots);
  } catch (const dnnl::error& error) {
    throw DeviceError(fmt::format("oneDNN refuses the contraction of kernel \"{}\": {}",
                                  kernel.name, error.message));
  }
}

std::string contraction_library_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace tensorgrad::cpu
