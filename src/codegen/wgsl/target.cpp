#include "codegen/wgsl/target.h"

#include <fmt/format.h>

namespace tensorgrad::wgsl {

std::string Target::key() const {
  return fmt::format(
      "storage {} binding {} buffer {} alignment {} invocations {} x {} workgroup {} groups {} "
      "subgroups {}-{} f16 {} guarded {} cpu {} units {}",
      storage_buffers, binding_bytes, buffer_bytes, binding_alignment, invocations,
      workgroup_size_x, workgroup_bytes, groups, subgroup_min, subgroup_max, f16, guarded, cpu,
      units);
}

}  // namespace tensorgrad::wgsl
