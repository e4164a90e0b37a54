// Dawn's C API, the part that compute needs, as the pinned library exports it. Declared here so
// that a build needs no header and no package: the library is opened at run time (library.h).
//
// Handles are pointers, every enum and Bool has 32 bits, flags have 64. The first value of every
// status is success. A handle is never null on failure: an invalid object is a handle too, and
// error scopes tell.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tensorgrad::webgpu::dawn {

using Bool = std::uint32_t;
using Flags = std::uint64_t;

// ---- handles -------------------------------------------------------------------------------------

using Instance = struct InstanceObject*;
using Adapter = struct AdapterObject*;
using Device = struct DeviceObject*;
using Queue = struct QueueObject*;
using Buffer = struct BufferObject*;
using ShaderModule = struct ShaderModuleObject*;
using BindGroup = struct BindGroupObject*;
using BindGroupLayout = struct BindGroupLayoutObject*;
using PipelineLayout = struct PipelineLayoutObject*;
using ComputePipeline = struct ComputePipelineObject*;
using CommandEncoder = struct CommandEncoderObject*;
using CommandBuffer = struct CommandBufferObject*;
using ComputePassEncoder = struct ComputePassEncoderObject*;
using QuerySet = struct QuerySetObject*;

// ---- enums and flags -----------------------------------------------------------------------------

/// Of every kind of request.
enum class Status : std::uint32_t { success = 1 };
enum class WaitStatus : std::uint32_t { success = 1, timed_out = 2, error = 3 };
/// What follows in a chain of extensions.
enum class ChainType : std::uint32_t {
  none = 0,
  wgsl_source = 2,
  cache = 0x50007,
  toggles = 0x5000A
};
enum class Feature : std::uint32_t {
  timestamp_query = 3,
  shader_f16 = 0xA,
  subgroups = 0x11,
  implicit_device_synchronization = 0x50004
};
enum class CallbackMode : std::uint32_t {
  wait_any_only = 1,     ///< called within instance_wait_any
  allow_spontaneous = 3  ///< called at any time, on any thread
};
enum class BackendType : std::uint32_t { undefined = 0, null = 1, vulkan = 6 };
enum class AdapterType : std::uint32_t { discrete = 1, integrated = 2, cpu = 3, unknown = 4 };
enum class FeatureLevel : std::uint32_t { core = 2 };
enum class PowerPreference : std::uint32_t { high_performance = 2 };
enum class ErrorFilter : std::uint32_t { validation = 1, out_of_memory = 2, internal = 3 };
enum class ErrorType : std::uint32_t {
  none = 1,
  validation = 2,
  out_of_memory = 3,
  internal = 4,
  unknown = 5
};
enum class LostReason : std::uint32_t { unknown = 1, destroyed = 2 };
enum class MessageType : std::uint32_t { error = 1, warning = 2, info = 3 };
enum class BindingType : std::uint32_t { not_used = 0, storage = 3, read_only_storage = 4 };
enum class QueryType : std::uint32_t { timestamp = 2 };

namespace usage {
inline constexpr Flags map_read = 1, copy_src = 4, copy_dst = 8, storage = 0x80,
                       query_resolve = 0x200;
}
inline constexpr Flags stage_compute = 4, map_mode_read = 1;
inline constexpr std::uint64_t whole_size = UINT64_MAX, no_timeout = UINT64_MAX;

// ---- structs -------------------------------------------------------------------------------------

/// Text that need not end with a zero. Null with the length `to_zero` is no text at all.
struct StringView {
  static constexpr std::size_t to_zero = SIZE_MAX;
  const char* data = nullptr;
  std::size_t length = to_zero;
};
inline StringView view(const std::string& text) { return {text.data(), text.size()}; }
inline std::string to_string(StringView text) {
  if (text.data == nullptr) return {};
  return text.length == StringView::to_zero ? std::string(text.data)
                                            : std::string(text.data, text.length);
}

/// First member of every extension.
struct Chained {
  Chained* next = nullptr;
  ChainType type = ChainType::none;
};

struct Future {
  std::uint64_t id = 0;
};
struct FutureWaitInfo {
  Future future;
  Bool completed = 0;
};

template <class F>
struct CallbackInfo {
  Chained* next = nullptr;
  CallbackMode mode = CallbackMode::wait_any_only;
  F callback = nullptr;
  void* first = nullptr;
  void* second = nullptr;
};
template <class F>
struct ErrorCallbackInfo {  ///< without a mode: called within the call that fails
  Chained* next = nullptr;
  F callback = nullptr;
  void* first = nullptr;
  void* second = nullptr;
};

struct CompilationMessage {
  Chained* next = nullptr;
  StringView message;
  MessageType type = MessageType::error;
  std::uint64_t line = 0, column = 0, offset = 0, length = 0;
};
struct CompilationInfo {
  Chained* next = nullptr;
  std::size_t count = 0;
  const CompilationMessage* messages = nullptr;
};

using AdapterCallback = void (*)(Status, Adapter, StringView message, void*, void*);
using DeviceCallback = void (*)(Status, Device, StringView message, void*, void*);
using MapCallback = void (*)(Status, StringView message, void*, void*);
using WorkDoneCallback = void (*)(Status, StringView message, void*, void*);
using PopErrorCallback = void (*)(Status, ErrorType, StringView message, void*, void*);
using PipelineCallback = void (*)(Status, ComputePipeline, StringView message, void*, void*);
using CompilationCallback = void (*)(Status, const CompilationInfo*, void*, void*);
using LostCallback = void (*)(const Device*, LostReason, StringView message, void*, void*);
using ErrorCallback = void (*)(const Device*, ErrorType, StringView message, void*, void*);
/// Copies the value of `key` to `value` if it has room; the value's size, 0 if there is none.
using LoadCacheCallback = std::size_t (*)(const void* key, std::size_t key_bytes, void* value,
                                          std::size_t value_bytes, void*);
using StoreCacheCallback = void (*)(const void* key, std::size_t key_bytes, const void* value,
                                    std::size_t value_bytes, void*);

struct InstanceDescriptor {
  Chained* next = nullptr;
  struct {
    Chained* next = nullptr;
    Bool timed_wait_any = 0;
    std::size_t timed_wait_any_max = 0;
  } capabilities;
};
/// Behaviour to switch on and off by name; unknown names are ignored.
struct Toggles {
  Chained chain{nullptr, ChainType::toggles};
  std::size_t enabled_count = 0;
  const char* const* enabled = nullptr;
  std::size_t disabled_count = 0;
  const char* const* disabled = nullptr;
};
/// Where compiled pipelines are kept. Called from any thread.
struct CacheDescriptor {
  Chained chain{nullptr, ChainType::cache};
  StringView isolation_key{nullptr, 0};
  LoadCacheCallback load = nullptr;
  StoreCacheCallback store = nullptr;
  void* user = nullptr;
};
struct RequestAdapterOptions {
  Chained* next = nullptr;
  FeatureLevel feature_level = FeatureLevel::core;
  PowerPreference power_preference = PowerPreference::high_performance;
  Bool force_fallback = 0;
  BackendType backend = BackendType::undefined;
  void* surface = nullptr;
};
struct AdapterInfo {
  Chained* next = nullptr;
  StringView vendor, architecture, device, description;
  BackendType backend = BackendType::undefined;
  AdapterType type = AdapterType::unknown;
  std::uint32_t vendor_id = 0, device_id = 0, subgroup_min = 0, subgroup_max = 0;
};
/// In the order of the specification; all zero is not a valid request, start from an adapter's.
struct Limits {
  Chained* next = nullptr;
  std::uint32_t texture_1d = 0, texture_2d = 0, texture_3d = 0, texture_layers = 0;
  std::uint32_t bind_groups = 0, bind_groups_plus_vertex_buffers = 0, bindings_per_group = 0;
  std::uint32_t dynamic_uniform_buffers = 0, dynamic_storage_buffers = 0, sampled_textures = 0,
                samplers = 0;
  std::uint32_t storage_buffers = 0;  ///< maxStorageBuffersPerShaderStage
  std::uint32_t storage_textures = 0, uniform_buffers = 0;
  std::uint64_t uniform_binding_bytes = 0;
  std::uint64_t storage_binding_bytes = 0;  ///< maxStorageBufferBindingSize
  std::uint32_t uniform_alignment = 0;
  std::uint32_t storage_alignment = 0;  ///< minStorageBufferOffsetAlignment
  std::uint32_t vertex_buffers = 0;
  std::uint64_t buffer_bytes = 0;  ///< maxBufferSize
  std::uint32_t vertex_attributes = 0, vertex_stride = 0, inter_stage_variables = 0,
                color_attachments = 0, color_attachment_bytes = 0;
  std::uint32_t workgroup_bytes = 0;  ///< maxComputeWorkgroupStorageSize
  std::uint32_t invocations = 0;      ///< maxComputeInvocationsPerWorkgroup
  std::uint32_t workgroup_size_x = 0, workgroup_size_y = 0, workgroup_size_z = 0;
  std::uint32_t groups = 0;  ///< maxComputeWorkgroupsPerDimension
  std::uint32_t immediate_bytes = 0;
};
struct SupportedFeatures {
  std::size_t count = 0;
  const Feature* features = nullptr;
};
struct Descriptor {
  Chained* next = nullptr;
  StringView label;
};
struct DeviceDescriptor {
  Chained* next = nullptr;
  StringView label;
  std::size_t feature_count = 0;
  const Feature* features = nullptr;
  const Limits* limits = nullptr;
  Descriptor queue;
  CallbackInfo<LostCallback> lost;
  ErrorCallbackInfo<ErrorCallback> error;
};
struct BufferDescriptor {
  Chained* next = nullptr;
  StringView label;
  Flags usage = 0;
  std::uint64_t bytes = 0;
  Bool mapped_at_creation = 0;
};
struct WgslSource {
  Chained chain{nullptr, ChainType::wgsl_source};
  StringView code;
};
struct ConstantEntry {
  Chained* next = nullptr;
  StringView key;
  double value = 0;
};
struct ComputePipelineDescriptor {
  Chained* next = nullptr;
  StringView label;
  PipelineLayout layout = nullptr;
  struct {
    Chained* next = nullptr;
    ShaderModule module = nullptr;
    StringView entry_point;
    std::size_t constant_count = 0;
    const ConstantEntry* constants = nullptr;
  } compute;
};
struct BindGroupEntry {
  Chained* next = nullptr;
  std::uint32_t binding = 0;
  Buffer buffer = nullptr;
  std::uint64_t offset = 0, bytes = whole_size;
  void* sampler = nullptr;
  void* texture_view = nullptr;
};
struct BindGroupDescriptor {
  Chained* next = nullptr;
  StringView label;
  BindGroupLayout layout = nullptr;
  std::size_t entry_count = 0;
  const BindGroupEntry* entries = nullptr;
};
struct BindGroupLayoutEntry {
  Chained* next = nullptr;
  std::uint32_t binding = 0;
  Flags visibility = stage_compute;
  std::uint32_t array_size = 0;
  struct {
    Chained* next = nullptr;
    BindingType type = BindingType::not_used;
    Bool dynamic_offset = 0;
    std::uint64_t min_bytes = 0;
  } buffer;
  struct {
    Chained* next = nullptr;
    std::uint32_t type = 0;
  } sampler;
  struct {
    Chained* next = nullptr;
    std::uint32_t sample_type = 0, dimension = 0;
    Bool multisampled = 0;
  } texture;
  struct {
    Chained* next = nullptr;
    std::uint32_t access = 0, format = 0, dimension = 0;
  } storage_texture;
};
struct BindGroupLayoutDescriptor {
  Chained* next = nullptr;
  StringView label;
  std::size_t entry_count = 0;
  const BindGroupLayoutEntry* entries = nullptr;
};
struct PipelineLayoutDescriptor {
  Chained* next = nullptr;
  StringView label;
  std::size_t layout_count = 0;
  const BindGroupLayout* layouts = nullptr;
  std::uint32_t immediate_bytes = 0;
};
struct PassTimestampWrites {
  Chained* next = nullptr;
  QuerySet query_set = nullptr;
  std::uint32_t begin = UINT32_MAX, end = UINT32_MAX;
};
struct ComputePassDescriptor {
  Chained* next = nullptr;
  StringView label;
  const PassTimestampWrites* timestamps = nullptr;
};
struct QuerySetDescriptor {
  Chained* next = nullptr;
  StringView label;
  QueryType type = QueryType::timestamp;
  std::uint32_t count = 0;
};

// ---- functions -----------------------------------------------------------------------------------

/// The functions of the library. Null until they are loaded.
struct Api {
  Instance (*create_instance)(const InstanceDescriptor*) = nullptr;
  Future (*instance_request_adapter)(Instance, const RequestAdapterOptions*,
                                     CallbackInfo<AdapterCallback>) = nullptr;
  WaitStatus (*instance_wait_any)(Instance, std::size_t, FutureWaitInfo*,
                                  std::uint64_t timeout_ns) = nullptr;
  void (*instance_process_events)(Instance) = nullptr;
  void (*instance_release)(Instance) = nullptr;
  Status (*adapter_get_info)(Adapter, AdapterInfo*) = nullptr;
  void (*adapter_info_free_members)(AdapterInfo) = nullptr;
  Status (*adapter_get_limits)(Adapter, Limits*) = nullptr;
  void (*adapter_get_features)(Adapter, SupportedFeatures*) = nullptr;
  void (*supported_features_free_members)(SupportedFeatures) = nullptr;
  Future (*adapter_request_device)(Adapter, const DeviceDescriptor*,
                                   CallbackInfo<DeviceCallback>) = nullptr;
  void (*adapter_release)(Adapter) = nullptr;
  Queue (*device_get_queue)(Device) = nullptr;
  void (*device_tick)(Device) = nullptr;
  void (*device_destroy)(Device) = nullptr;
  void (*device_release)(Device) = nullptr;
  void (*device_force_loss)(Device, LostReason, StringView) = nullptr;
  void (*device_push_error_scope)(Device, ErrorFilter) = nullptr;
  Future (*device_pop_error_scope)(Device, CallbackInfo<PopErrorCallback>) = nullptr;
  Buffer (*device_create_buffer)(Device, const BufferDescriptor*) = nullptr;
  ShaderModule (*device_create_shader_module)(Device, const Descriptor*) = nullptr;
  Future (*device_create_compute_pipeline_async)(Device, const ComputePipelineDescriptor*,
                                                 CallbackInfo<PipelineCallback>) = nullptr;
  BindGroup (*device_create_bind_group)(Device, const BindGroupDescriptor*) = nullptr;
  BindGroupLayout (*device_create_bind_group_layout)(Device,
                                                     const BindGroupLayoutDescriptor*) = nullptr;
  PipelineLayout (*device_create_pipeline_layout)(Device,
                                                  const PipelineLayoutDescriptor*) = nullptr;
  QuerySet (*device_create_query_set)(Device, const QuerySetDescriptor*) = nullptr;
  CommandEncoder (*device_create_command_encoder)(Device, const Descriptor*) = nullptr;
  Future (*shader_module_get_compilation_info)(ShaderModule,
                                               CallbackInfo<CompilationCallback>) = nullptr;
  void (*shader_module_release)(ShaderModule) = nullptr;
  void (*compute_pipeline_release)(ComputePipeline) = nullptr;
  ComputePassEncoder (*command_encoder_begin_compute_pass)(CommandEncoder,
                                                           const ComputePassDescriptor*) = nullptr;
  void (*command_encoder_copy_buffer_to_buffer)(CommandEncoder, Buffer, std::uint64_t, Buffer,
                                                std::uint64_t, std::uint64_t) = nullptr;
  void (*command_encoder_resolve_query_set)(CommandEncoder, QuerySet, std::uint32_t, std::uint32_t,
                                            Buffer, std::uint64_t) = nullptr;
  CommandBuffer (*command_encoder_finish)(CommandEncoder, const Descriptor*) = nullptr;
  void (*command_encoder_release)(CommandEncoder) = nullptr;
  void (*command_buffer_release)(CommandBuffer) = nullptr;
  void (*compute_pass_encoder_set_pipeline)(ComputePassEncoder, ComputePipeline) = nullptr;
  void (*compute_pass_encoder_set_bind_group)(ComputePassEncoder, std::uint32_t, BindGroup,
                                              std::size_t, const std::uint32_t*) = nullptr;
  void (*compute_pass_encoder_dispatch_workgroups)(ComputePassEncoder, std::uint32_t, std::uint32_t,
                                                   std::uint32_t) = nullptr;
  void (*compute_pass_encoder_end)(ComputePassEncoder) = nullptr;
  void (*compute_pass_encoder_release)(ComputePassEncoder) = nullptr;
  void (*queue_submit)(Queue, std::size_t, const CommandBuffer*) = nullptr;
  void (*queue_write_buffer)(Queue, Buffer, std::uint64_t, const void*, std::size_t) = nullptr;
  Future (*queue_on_submitted_work_done)(Queue, CallbackInfo<WorkDoneCallback>) = nullptr;
  void (*queue_release)(Queue) = nullptr;
  Future (*buffer_map_async)(Buffer, Flags mode, std::size_t offset, std::size_t bytes,
                             CallbackInfo<MapCallback>) = nullptr;
  const void* (*buffer_get_const_mapped_range)(Buffer, std::size_t, std::size_t) = nullptr;
  void (*buffer_unmap)(Buffer) = nullptr;
  void (*buffer_destroy)(Buffer) = nullptr;
  void (*buffer_release)(Buffer) = nullptr;
  void (*bind_group_release)(BindGroup) = nullptr;
  void (*bind_group_layout_release)(BindGroupLayout) = nullptr;
  void (*pipeline_layout_release)(PipelineLayout) = nullptr;
  void (*query_set_release)(QuerySet) = nullptr;
};

/// Calls `f(name, function)` for each function of `api`, with the name that the library exports.
template <class F>
void for_each_function(Api& api, const F& f) {
  f("wgpuCreateInstance", api.create_instance);
  f("wgpuInstanceRequestAdapter", api.instance_request_adapter);
  f("wgpuInstanceWaitAny", api.instance_wait_any);
  f("wgpuInstanceProcessEvents", api.instance_process_events);
  f("wgpuInstanceRelease", api.instance_release);
  f("wgpuAdapterGetInfo", api.adapter_get_info);
  f("wgpuAdapterInfoFreeMembers", api.adapter_info_free_members);
  f("wgpuAdapterGetLimits", api.adapter_get_limits);
  f("wgpuAdapterGetFeatures", api.adapter_get_features);
  f("wgpuSupportedFeaturesFreeMembers", api.supported_features_free_members);
  f("wgpuAdapterRequestDevice", api.adapter_request_device);
  f("wgpuAdapterRelease", api.adapter_release);
  f("wgpuDeviceGetQueue", api.device_get_queue);
  f("wgpuDeviceTick", api.device_tick);
  f("wgpuDeviceDestroy", api.device_destroy);
  f("wgpuDeviceRelease", api.device_release);
  f("wgpuDeviceForceLoss", api.device_force_loss);
  f("wgpuDevicePushErrorScope", api.device_push_error_scope);
  f("wgpuDevicePopErrorScope", api.device_pop_error_scope);
  f("wgpuDeviceCreateBuffer", api.device_create_buffer);
  f("wgpuDeviceCreateShaderModule", api.device_create_shader_module);
  f("wgpuDeviceCreateComputePipelineAsync", api.device_create_compute_pipeline_async);
  f("wgpuDeviceCreateBindGroup", api.device_create_bind_group);
  f("wgpuDeviceCreateBindGroupLayout", api.device_create_bind_group_layout);
  f("wgpuDeviceCreatePipelineLayout", api.device_create_pipeline_layout);
  f("wgpuDeviceCreateQuerySet", api.device_create_query_set);
  f("wgpuDeviceCreateCommandEncoder", api.device_create_command_encoder);
  f("wgpuShaderModuleGetCompilationInfo", api.shader_module_get_compilation_info);
  f("wgpuShaderModuleRelease", api.shader_module_release);
  f("wgpuComputePipelineRelease", api.compute_pipeline_release);
  f("wgpuCommandEncoderBeginComputePass", api.command_encoder_begin_compute_pass);
  f("wgpuCommandEncoderCopyBufferToBuffer", api.command_encoder_copy_buffer_to_buffer);
  f("wgpuCommandEncoderResolveQuerySet", api.command_encoder_resolve_query_set);
  f("wgpuCommandEncoderFinish", api.command_encoder_finish);
  f("wgpuCommandEncoderRelease", api.command_encoder_release);
  f("wgpuCommandBufferRelease", api.command_buffer_release);
  f("wgpuComputePassEncoderSetPipeline", api.compute_pass_encoder_set_pipeline);
  f("wgpuComputePassEncoderSetBindGroup", api.compute_pass_encoder_set_bind_group);
  f("wgpuComputePassEncoderDispatchWorkgroups", api.compute_pass_encoder_dispatch_workgroups);
  f("wgpuComputePassEncoderEnd", api.compute_pass_encoder_end);
  f("wgpuComputePassEncoderRelease", api.compute_pass_encoder_release);
  f("wgpuQueueSubmit", api.queue_submit);
  f("wgpuQueueWriteBuffer", api.queue_write_buffer);
  f("wgpuQueueOnSubmittedWorkDone", api.queue_on_submitted_work_done);
  f("wgpuQueueRelease", api.queue_release);
  f("wgpuBufferMapAsync", api.buffer_map_async);
  f("wgpuBufferGetConstMappedRange", api.buffer_get_const_mapped_range);
  f("wgpuBufferUnmap", api.buffer_unmap);
  f("wgpuBufferDestroy", api.buffer_destroy);
  f("wgpuBufferRelease", api.buffer_release);
  f("wgpuBindGroupRelease", api.bind_group_release);
  f("wgpuBindGroupLayoutRelease", api.bind_group_layout_release);
  f("wgpuPipelineLayoutRelease", api.pipeline_layout_release);
  f("wgpuQuerySetRelease", api.query_set_release);
}

}  // namespace tensorgrad::webgpu::dawn
