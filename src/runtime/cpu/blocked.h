// Contractions as blocks of oneDNN calls, and what their makers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernel/kernel.h"
#include "runtime/cpu/contraction.h"
#include "runtime/cpu/primitives.h"

namespace tensorgrad::cpu {

/// The most blocks that a contraction is cut into: blocks share caches and repeat some
/// preparation, so they are few.
constexpr std::int64_t most_blocks = 16;
/// Into how many blocks work of `flops` is cut, at most `most`.
std::int64_t block_count(std::int64_t flops, std::int64_t most);
/// The size of each of `count` blocks but the last: a multiple of `unit`.
std::int64_t block_size(std::int64_t extent, std::int64_t count, std::int64_t unit);
std::int64_t ceil_div(std::int64_t a, std::int64_t b);
/// Whether oneDNN computes with its plain loops.
bool is_reference(const std::string& implementation);

/// Blocks that each run sequences of primitives on parts of the operands.
class BlockedContraction final : public ContractionRunner {
 public:
  /// One run of a sequence. `shifts` are elements from the start of each bound operand.
  struct Call {
    std::size_t shape;
    std::vector<std::int64_t> shifts;
  };

  /// `buffers` are the arguments that the sequences bind, in order.
  explicit BlockedContraction(std::vector<int> buffers) : buffers_(std::move(buffers)) {}

  /// The blocks write to shares of the scratch memory instead of operand `operand`, whose
  /// `elements` elements from `offset` become their sum.
  void sum_into(std::size_t operand, std::int64_t offset, std::int64_t elements);
  std::size_t add_shape(std::unique_ptr<Primitives> primitives);
  void add_block(std::vector<Call> calls, Block block);

  const std::vector<Block>& blocks() const override { return blocks_; }
  void run_block(std::size_t block, void* const* args, const Scratch& scratch, int slot) override;
  void finish(void* const* args, const Scratch& scratch) override;
  std::size_t shared_bytes() const override;
  std::size_t own_bytes() const override { return own_bytes_; }
  std::string description() const override;

 private:
  std::size_t share_elements() const;
  float* share(const Scratch& scratch, std::size_t block) const;

  std::vector<int> buffers_;
  std::vector<std::unique_ptr<Primitives>> shapes_;
  std::vector<std::vector<Call>> calls_;  ///< of each block
  std::vector<Block> blocks_;
  std::size_t sum_operand_ = 0;
  std::int64_t sum_offset_ = 0, sum_elements_ = 0;
  std::size_t own_bytes_ = 0;
};

/// A contraction over nothing: `out`, if it has elements, becomes zero.
std::unique_ptr<ContractionRunner> make_zero(const kernel::Access& out,
                                             const std::vector<std::int64_t>& extents);

/// The makers behind `make_contraction`. Throw dnnl::error.
std::unique_ptr<ContractionRunner> make_matmul(const kernel::Matmul& matmul, int slots);
std::unique_ptr<ContractionRunner> make_convolution(const kernel::Conv& conv, int slots);

}  // namespace tensorgrad::cpu
