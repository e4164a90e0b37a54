// Attention on the CPU: tiles of queries, whose scores stay in the cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/kernel.h"

namespace tensorgrad::cpu {

/// Points of the batch dimensions.
std::int64_t attention_batches(const kernel::Attention& attention);
/// Bytes of working memory that `run_attention` needs, at a multiple of 64.
std::size_t attention_scratch_bytes(const kernel::Attention& attention);
/// Computes batch points [first, last) on this thread. `args` are the addresses of the kernel's
/// arguments. Points may be computed side by side with scratch memory of their own.
void run_attention(const kernel::Attention& attention, void* const* args, std::byte* scratch,
                   std::int64_t first, std::int64_t last);

}  // namespace tensorgrad::cpu
