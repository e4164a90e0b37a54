// A plan as WebGPU runs it: modules, buffers, passes. No device in it, so that the native runtime,
// the browser and a file of a compiled model share it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "codegen/wgsl/render.h"
#include "codegen/wgsl/target.h"
#include "schedule/plan.h"

namespace tensorgrad::wgsl {

/// A WGSL module with one entry point "main".
struct Module {
  std::string name;  ///< of the first kernel that uses it, for people
  std::string text;
  std::vector<bool> writable;  ///< for each binding of group 0: read_write, else read
};

/// What a buffer of the program is for. Plan temps and scratch live in `arena` buffers.
enum class Role : std::uint8_t { arena, input, output, state, constant };

/// A buffer to create (a state is given by the caller instead).
struct GpuBuffer {
  Role role = Role::arena;
  int plan_buffer = -1;         ///< into Plan::buffers; -1 for an arena
  std::int64_t bytes = 0;       ///< on the device, a multiple of 4, at least 4
  std::vector<std::byte> data;  ///< constant: bytes in the device's form
};

/// A range of a buffer.
struct Binding {
  int buffer = -1;  ///< into Program::buffers
  std::int64_t offset = 0, bytes = 0;
};

/// One dispatchWorkgroups.
struct Pass {
  int module = -1;
  int dispatch = -1;  ///< into Plan::dispatches
  std::array<std::uint32_t, 3> groups{1, 1, 1};
  std::vector<Binding> bindings;
};

/// All that a WebGPU runtime needs.
struct Program {
  std::vector<Module> modules;  ///< each distinct text once
  std::vector<GpuBuffer> buffers;
  std::vector<Pass> passes;  ///< in order
};

/// What the scheduler must keep to for `target`.
tensorgrad::Target schedule_target(const Target& target);

/// What turns a kernel into passes: `render`, or a test's own.
using Renderer = std::function<RenderedKernel(const kernel::Kernel&, const Target&,
                                              const std::vector<bool>& writable)>;

/// Renders every kernel of the plan and lays out its buffers: input, output, state and constant
/// have one each; temps keep their offsets in one arena, or lie in several where one would be over
/// the target's buffer size; scratch lies in arenas of its own. Throws DeviceError naming the
/// tensor and its bytes where a buffer or a binding is over the target's limit.
Program make_program(const Plan& plan, const Target& target, const Renderer& renderer = render);

/// Bytes of a buffer that holds `elements` on the device, in whole words; no buffer is empty.
std::int64_t device_bytes(DType dtype, std::int64_t elements, const Target& target);
/// Host bytes in the device's form, in which an element takes `bytes` (see memory_bytes), and back.
/// The device's may be padded.
void to_device(DType dtype, std::int64_t bytes, std::span<const std::byte> host,
               std::span<std::byte> device);
void to_host(DType dtype, std::int64_t bytes, std::span<const std::byte> device,
             std::span<std::byte> host);

}  // namespace tensorgrad::wgsl
