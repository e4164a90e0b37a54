// What the WGSL renderer must know of an adapter.
#pragma once

#include <cstdint>
#include <string>

namespace tensorgrad::wgsl {

/// Limits and features of an adapter. The defaults are what every WebGPU implementation guarantees.
struct Target {
  int storage_buffers = 8;                   ///< maxStorageBuffersPerShaderStage
  std::int64_t binding_bytes = 128LL << 20;  ///< maxStorageBufferBindingSize
  std::int64_t buffer_bytes = 256LL << 20;   ///< maxBufferSize
  std::int64_t binding_alignment = 256;      ///< minStorageBufferOffsetAlignment
  std::int64_t invocations = 256;            ///< maxComputeInvocationsPerWorkgroup
  std::int64_t workgroup_size_x = 256;       ///< maxComputeWorkgroupSizeX
  std::int64_t workgroup_bytes = 16384;      ///< maxComputeWorkgroupStorageSize
  std::int64_t groups = 65535;               ///< maxComputeWorkgroupsPerDimension
  int subgroup_min = 0, subgroup_max = 0;    ///< 0: the adapter has no subgroups
  bool f16 = false;                          ///< shader-f16
  bool guarded = true;                       ///< every access to memory is checked, as in a browser
  bool cpu = false;  ///< a software adapter: workgroup memory is no faster than a buffer
  int units = 1;     ///< guess of the groups that run at the same time

  /// All of the above as text: a part of cache keys.
  std::string key() const;
};

}  // namespace tensorgrad::wgsl
