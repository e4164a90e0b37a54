// From a plan to modules, buffers and passes.
#include "codegen/wgsl/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <type_traits>
#include <unordered_map>

#include "graph/order.h"
#include "tensorgrad/error.h"

namespace tensorgrad::wgsl {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

std::int64_t round_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

Role role_of(BufferKind kind) {
  switch (kind) {
    case BufferKind::input:
      return Role::input;
    case BufferKind::state:
      return Role::state;
    case BufferKind::output:
      return Role::output;
    case BufferKind::constant:
      return Role::constant;
    case BufferKind::temp:
      break;
  }
  return Role::arena;
}

/// A temp between the first and the last dispatch that touches it.
struct Life {
  int buffer = -1, first = 0, last = 0;
  std::int64_t bytes = 0;  ///< rounded up to the alignment
};

/// A temp's arena (a number from 0) and its offset there.
struct Place {
  int arena = 0;
  std::int64_t offset = 0;
};

class Maker {
 public:
  Maker(const Plan& plan, const Target& target, const Renderer& renderer)
      : plan_(plan), target_(target), renderer_(renderer) {}

  Program make() {
    buffer_of_.assign(plan_.buffers.size(), {});
    place_temps();
    place_others();
    for (std::size_t d = 0; d < plan_.dispatches.size(); ++d) add_dispatch(static_cast<int>(d));
    return std::move(program_);
  }

 private:
  // ---- what is where -----------------------------------------------------------------------------

  std::vector<Life> lives() const {
    std::vector<Life> out;
    std::vector<int> index(plan_.buffers.size(), -1);
    for (std::size_t d = 0; d < plan_.dispatches.size(); ++d) {
      for (const int b : plan_.dispatches[d].buffers) {
        const PlanBuffer& buffer = plan_.buffers[at(b)];
        if (buffer.kind != BufferKind::temp) continue;
        if (index[at(b)] < 0) {
          index[at(b)] = static_cast<int>(out.size());
          out.push_back(
              {b, static_cast<int>(d), 0, round_up(bytes_of(buffer), target_.binding_alignment)});
        }
        out[at(index[at(b)])].last = static_cast<int>(d);
      }
    }
    return out;
  }

  void place_temps() {
    const std::vector<Life> temps = lives();
    std::map<int, Place> places;
    std::vector<std::int64_t> sizes;
    if (plan_.arena_bytes <= target_.buffer_bytes) {
      for (const Life& life : temps) {
        const PlanBuffer& buffer = plan_.buffers[at(life.buffer)];
        places[life.buffer] = {0, buffer.offset};
        sizes.resize(1, 0);
        sizes[0] = std::max(sizes[0], buffer.offset + bytes_of(buffer));
      }
    } else {
      places = spread(temps, sizes);
    }
    const int first = static_cast<int>(program_.buffers.size());
    for (const std::int64_t bytes : sizes) program_.buffers.push_back({Role::arena, -1, bytes, {}});
    for (const auto& [buffer, place] : places) {
      buffer_of_[at(buffer)] = {first + place.arena, place.offset, 0};
    }
  }

  /// Places temps in as many arenas as it takes, largest first, each in the first arena that has
  /// room and there as low as its lifetime allows.
  std::map<int, Place> spread(std::vector<Life> temps, std::vector<std::int64_t>& sizes) const {
    sort_values(temps, [](const Life& a, const Life& b) { return a.bytes > b.bytes; });
    std::map<int, Place> places;
    std::vector<std::vector<Life>> placed;
    for (const Life& life : temps) {
      if (life.bytes > target_.buffer_bytes) over_limit(life.buffer, "maxBufferSize");
      Place place;
      for (;; ++place.arena) {
        if (at(place.arena) == placed.size()) {
          placed.emplace_back();
          sizes.push_back(0);
        }
        place.offset = lowest(life, placed[at(place.arena)], places);
        if (place.offset + life.bytes <= target_.buffer_bytes) break;
      }
      placed[at(place.arena)].push_back(life);
      sizes[at(place.arena)] = std::max(sizes[at(place.arena)], place.offset + life.bytes);
      places[life.buffer] = place;
    }
    return places;
  }

  static std::int64_t lowest(const Life& life, const std::vector<Life>& others,
                             const std::map<int, Place>& places) {
    std::vector<std::pair<std::int64_t, std::int64_t>> taken;
    for (const Life& o : others) {
      if (o.last < life.first || o.first > life.last) continue;
      const std::int64_t start = places.at(o.buffer).offset;
      taken.emplace_back(start, start + o.bytes);
    }
    sort_values(taken);
    std::int64_t offset = 0;
    for (const auto& [from, to] : taken) {
      if (from - offset >= life.bytes) break;
      offset = std::max(offset, to);
    }
    return offset;
  }

  void place_others() {
    for (std::size_t i = 0; i < plan_.buffers.size(); ++i) {
      const PlanBuffer& buffer = plan_.buffers[i];
      if (buffer.kind == BufferKind::temp) continue;
      const std::int64_t bytes = bytes_of(buffer);
      if (bytes > target_.buffer_bytes) over_limit(static_cast<int>(i), "maxBufferSize");
      GpuBuffer out{role_of(buffer.kind), static_cast<int>(i), bytes, {}};
      if (buffer.kind == BufferKind::constant) {
        out.data.resize(static_cast<std::size_t>(bytes));
        to_device(buffer.dtype, memory_bytes(buffer.dtype, target_), buffer.data, out.data);
      }
      buffer_of_[i] = {static_cast<int>(program_.buffers.size()), 0, 0};
      program_.buffers.push_back(std::move(out));
    }
  }

  /// The buffer for scratch number `i` of any kernel: kernels never run at the same time, and two
  /// pieces of scratch of one kernel may differ in whether a pass writes them.
  int scratch_buffer(std::size_t i, std::int64_t bytes) {
    while (scratch_.size() <= i) {
      scratch_.push_back(static_cast<int>(program_.buffers.size()));
      program_.buffers.push_back({Role::arena, -1, 4, {}});
    }
    GpuBuffer& buffer = program_.buffers[at(scratch_[i])];
    buffer.bytes = std::max(buffer.bytes, bytes);
    return scratch_[i];
  }

  // ---- passes ------------------------------------------------------------------------------------

  /// Which arguments must be bound read_write: those that are written, and those that share a
  /// buffer with one that is.
  std::vector<bool> writable_args(const Dispatch& dispatch) const {
    const kernel::Kernel& k = plan_.kernels[at(dispatch.kernel)];
    std::vector<bool> out(k.args.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      for (std::size_t j = 0; j < out.size(); ++j) {
        out[i] = out[i] || (k.args[j].written && buffer_of_[at(dispatch.buffers[i])].buffer ==
                                                     buffer_of_[at(dispatch.buffers[j])].buffer);
      }
    }
    return out;
  }

  const RenderedKernel& rendered(int kernel, const std::vector<bool>& writable) {
    const auto [found, added] = rendered_.try_emplace({kernel, writable});
    if (added) found->second = renderer_(plan_.kernels[at(kernel)], target_, writable);
    return found->second;
  }

  int module_of(const RenderedPass& pass, const std::string& name) {
    const auto [found, added] =
        modules_.try_emplace(pass.text, static_cast<int>(program_.modules.size()));
    if (added) {
      Module module{name, pass.text, {}};
      for (const PassBinding& b : pass.bindings) module.writable.push_back(b.writable);
      program_.modules.push_back(std::move(module));
    }
    return found->second;
  }

  void add_dispatch(int d) {
    const Dispatch& dispatch = plan_.dispatches[at(d)];
    const kernel::Kernel& k = plan_.kernels[at(dispatch.kernel)];
    for (std::size_t i = 0; i < k.args.size(); ++i) {
      if (bytes_of(k.args[i]) > target_.binding_bytes) {
        over_limit(dispatch.buffers[i], "maxStorageBufferBindingSize");
      }
    }
    const RenderedKernel& out = rendered(dispatch.kernel, writable_args(dispatch));
    for (const RenderedPass& from : out.passes) {
      if (from.bindings.size() > at(target_.storage_buffers)) {
        throw DeviceError(
            fmt::format("The kernel `{}` binds {} buffers, but the device allows {} "
                        "(maxStorageBuffersPerShaderStage)",
                        dispatch.name, from.bindings.size(), target_.storage_buffers));
      }
      if (std::find(from.groups.begin(), from.groups.end(), 0U) != from.groups.end()) continue;
      Pass pass{module_of(from, k.name), d, from.groups, {}};
      for (const PassBinding& b : from.bindings) {
        pass.bindings.push_back(b.arg >= 0 ? bind_arg(dispatch, b.arg)
                                           : bind_scratch(dispatch, out, b.scratch));
      }
      check_sharing(dispatch, from, pass);
      program_.passes.push_back(std::move(pass));
    }
  }

  Binding bind_arg(const Dispatch& dispatch, int arg) const {
    Binding binding = buffer_of_[at(dispatch.buffers[at(arg)])];
    const kernel::BufferArg& bound = plan_.kernels[at(dispatch.kernel)].args[at(arg)];
    binding.offset += memory_bytes(bound.dtype, target_) * dispatch.offset(at(arg));
    binding.bytes = bytes_of(bound);
    return binding;
  }

  Binding bind_scratch(const Dispatch& dispatch, const RenderedKernel& rendered, int scratch) {
    const std::int64_t bytes =
        round_up(std::max<std::int64_t>(4, rendered.scratch_bytes[at(scratch)]), 4);
    if (bytes > std::min(target_.binding_bytes, target_.buffer_bytes)) {
      throw DeviceError(fmt::format(
          "The kernel `{}` needs {} bytes of working memory, but the device allows {} in a binding",
          dispatch.name, bytes, std::min(target_.binding_bytes, target_.buffer_bytes)));
    }
    return {scratch_buffer(at(scratch), bytes), 0, bytes};
  }

  /// WebGPU refuses a dispatch that binds one buffer both ways, or writable ranges that overlap.
  static void check_sharing(const Dispatch& dispatch, const RenderedPass& from, const Pass& pass) {
    for (std::size_t i = 0; i < pass.bindings.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const Binding& a = pass.bindings[i];
        const Binding& b = pass.bindings[j];
        if (a.buffer != b.buffer) continue;
        const bool a_writes = from.bindings[i].writable;
        const bool b_writes = from.bindings[j].writable;
        const bool overlap = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
        if (a_writes == b_writes && !(a_writes && overlap)) continue;
        throw GraphError(fmt::format(
            "The kernel `{}` binds bytes [{}, {}) to {} and bytes [{}, {}) to {} of one buffer",
            dispatch.name, a.offset, a.offset + a.bytes, a_writes ? "write" : "read", b.offset,
            b.offset + b.bytes, b_writes ? "write" : "read"));
      }
    }
  }

  /// Of a buffer of the plan, or an argument.
  template <class B>
  std::int64_t bytes_of(const B& buffer) const {
    return device_bytes(buffer.dtype, buffer.elements, target_);
  }

  // ---- errors ------------------------------------------------------------------------------------

  std::string describe(int b) const {
    const PlanBuffer& buffer = plan_.buffers[at(b)];
    if (!buffer.name.empty()) {
      return fmt::format("tensor `{}` of shape {}", buffer.name, to_string(buffer.shape));
    }
    for (const Dispatch& dispatch : plan_.dispatches) {
      const auto& args = plan_.kernels[at(dispatch.kernel)].args;
      for (std::size_t i = 0; i < args.size(); ++i) {
        if (dispatch.buffers[i] == b && args[i].written) {
          return fmt::format("result of `{}` with {} elements", dispatch.name, buffer.elements);
        }
      }
    }
    return fmt::format("constant with {} elements", buffer.elements);
  }

  [[noreturn]] void over_limit(int b, const char* limit) const {
    const bool binding = std::strcmp(limit, "maxBufferSize") != 0;
    throw DeviceError(
        fmt::format("The {} takes {} bytes on the device, which allows {} in one {} "
                    "({})",
                    describe(b), bytes_of(plan_.buffers[at(b)]),
                    binding ? target_.binding_bytes : target_.buffer_bytes,
                    binding ? "binding" : "buffer", limit));
  }

  const Plan& plan_;
  const Target& target_;
  const Renderer& renderer_;
  Program program_;
  std::vector<Binding> buffer_of_;  ///< each plan buffer's place, its size left open
  std::vector<int> scratch_;
  std::map<std::pair<int, std::vector<bool>>, RenderedKernel> rendered_;
  std::unordered_map<std::string, int> modules_;
};

}  // namespace

std::int64_t device_bytes(DType dtype, std::int64_t elements, const Target& target) {
  const std::int64_t bytes = memory_bytes(dtype, target) * std::max<std::int64_t>(elements, 1);
  return (bytes + element_bytes - 1) / element_bytes * element_bytes;
}

namespace {

/// Elements of one type as elements of another.
template <class From, class To>
void converted(std::span<const std::byte> from, std::span<std::byte> to) {
  const std::size_t count = std::min(from.size() / sizeof(From), to.size() / sizeof(To));
  for (std::size_t i = 0; i < count; ++i) {
    From value{};
    std::memcpy(&value, &from[i * sizeof value], sizeof value);
    To result{};
    if constexpr (std::is_integral_v<From>) {
      result = value != 0 ? 1 : 0;
    } else {
      result = static_cast<To>(value);
    }
    std::memcpy(&to[i * sizeof result], &result, sizeof result);
  }
}

bool is_as_on_host(DType dtype, std::int64_t bytes) {
  return bytes == static_cast<std::int64_t>(info(dtype).bytes);
}

}  // namespace

void to_device(DType dtype, std::int64_t bytes, std::span<const std::byte> host,
               std::span<std::byte> device) {
  if (host.empty()) return;
  if (is_as_on_host(dtype, bytes)) {
    std::memcpy(device.data(), host.data(), host.size());
  } else if (dtype == DType::bool_) {
    converted<std::uint8_t, std::uint32_t>(host, device);
  } else {
    converted<Half, float>(host, device);
  }
}

void to_host(DType dtype, std::int64_t bytes, std::span<const std::byte> device,
             std::span<std::byte> host) {
  if (host.empty()) return;
  if (is_as_on_host(dtype, bytes)) {
    std::memcpy(host.data(), device.data(), host.size());
  } else if (dtype == DType::bool_) {
    converted<std::uint32_t, std::uint8_t>(device, host);
  } else {
    converted<float, Half>(device, host);
  }
}

tensorgrad::Target schedule_target(const Target& target) {
  return {.max_buffers = target.storage_buffers,
          .alignment = target.binding_alignment,
          .bool_bytes = memory_bytes(DType::bool_, target),
          .half_bytes = memory_bytes(DType::f16, target),
          .attention = true,
          .half_operands = true};
}

Program make_program(const Plan& plan, const Target& target, const Renderer& renderer) {
  return Maker(plan, target, renderer).make();
}

}  // namespace tensorgrad::wgsl
