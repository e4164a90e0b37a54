// Plan: all that a runtime needs to run a compiled program. Points back into nothing.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernel/kernel.h"
#include "tensorgrad/dtype.h"
#include "tensorgrad/tensor.h"

namespace tensorgrad {

/// What the scheduler must know of the device that a plan is for.
struct Target {
  int max_buffers = std::numeric_limits<int>::max();  ///< arguments that a kernel may have
  std::int64_t alignment = 64;                        ///< of what an argument is bound to, in bytes
  std::int64_t bool_bytes = 1;                        ///< bytes of a bool in device memory
  std::int64_t half_bytes = 2;                        ///< bytes of an f16 there
  bool attention = true;       ///< whether it has kernels of attention; else its steps stay
  bool half_operands = false;  ///< whether contractions read f16; else a copy is made in f32
  /// Bytes of an element in device memory.
  std::int64_t bytes(DType dtype) const {
    if (dtype == DType::bool_) return bool_bytes;
    return dtype == DType::f16 ? half_bytes : static_cast<std::int64_t>(info(dtype).bytes);
  }
};

/// Where a plan buffer lives.
enum class BufferKind : std::uint8_t {
  input,    ///< uploaded before each run
  state,    ///< persistent, owned by the caller, shared between plans, updated in place
  output,   ///< read back after the run on request
  temp,     ///< inside the arena, at `offset`
  constant  ///< uploaded once, from `data`
};

/// One buffer of a plan.
struct PlanBuffer {
  BufferKind kind = BufferKind::temp;
  std::string name;  ///< input, state and output name; "" for temps
  DType dtype = DType::f32;
  Shape shape;  ///< as the user sees it (inputs, states, outputs)
  std::int64_t elements = 0;
  std::int64_t offset = 0;      ///< bytes into the arena (temp)
  std::vector<std::byte> data;  ///< constant
  std::int64_t bytes() const { return elements * static_cast<std::int64_t>(info(dtype).bytes); }
};

/// One kernel run: which kernel, on which buffers.
struct Dispatch {
  int kernel = -1;           ///< into Plan::kernels
  std::vector<int> buffers;  ///< Plan::buffers, one for each kernel argument
  std::string name;          ///< for people, with the user's names and lines
  /// The element of each buffer that its argument starts at (none given: 0); in bytes a multiple of
  /// the alignment.
  std::vector<std::int64_t> offsets = {};
  std::int64_t offset(std::size_t i) const { return i < offsets.size() ? offsets[i] : 0; }
};

/// A compiled program: kernels (each distinct one once), buffers, dispatches in order.
struct Plan {
  std::vector<kernel::Kernel> kernels;
  std::vector<PlanBuffer> buffers;
  std::vector<Dispatch> dispatches;
  std::int64_t arena_bytes = 0;  ///< peak of the temps
  /// Bytes of all buffers: arena, inputs, outputs, states, constants.
  std::int64_t total_bytes() const;
};

}  // namespace tensorgrad
