#include "runtime/webgpu/context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "tensorgrad/error.h"

namespace tensorgrad::webgpu {
namespace {

/// What an error scope caught.
struct Caught {
  dawn::ErrorType type = dawn::ErrorType::none;
  std::string message;
};

Caught pop_error(const Context& context) {
  Caught caught;
  dawn::CallbackInfo<dawn::PopErrorCallback> callback;
  callback.first = &caught;
  callback.callback = [](dawn::Status, dawn::ErrorType type, dawn::StringView message, void* user,
                         void*) { *static_cast<Caught*>(user) = {type, dawn::to_string(message)}; };
  context.wait(context.api().device_pop_error_scope(context.device(), callback));
  return caught;
}

std::string_view key_view(const void* key, std::size_t bytes) {
  return {static_cast<const char*>(key), bytes};
}

/// Before the keys that the library makes, which hold its version and the adapter's.
constexpr std::string_view cache_prefix = "webgpu ";

std::size_t load_cached(const void* key, std::size_t key_bytes, void* value,
                        std::size_t value_bytes, void* user) {
  const auto& cache = *static_cast<const DiskCache*>(user);
  const auto found = cache.get(std::string(cache_prefix).append(key_view(key, key_bytes)));
  if (!found) return 0;
  if (value != nullptr && value_bytes >= found->size()) {
    std::memcpy(value, found->data(), found->size());
  }
  return found->size();
}

void store_cached(const void* key, std::size_t key_bytes, const void* value,
                  std::size_t value_bytes, void* user) {
  static_cast<DiskCache*>(user)->put(std::string(cache_prefix).append(key_view(key, key_bytes)),
                                     {static_cast<const std::byte*>(value), value_bytes});
}

}  // namespace

// ---- memory --------------------------------------------------------------------------------------

GpuMemory::~GpuMemory() {
  if (context_) context_->forget(*this);
}

void Context::forget(GpuMemory& memory) noexcept {
  // Destroyed, not only released: a bind group may hold another reference.
  api().buffer_destroy(memory.buffer_.get());
  bytes_ -= memory.bytes_;
  --buffers_;
}

Usage Context::usage() const { return {buffers_, bytes_}; }

GpuMemory Context::allocate(std::uint64_t bytes, dawn::Flags usage, const std::string& what) {
  check();
  dawn::BufferDescriptor descriptor;
  descriptor.label = dawn::view(what);
  descriptor.usage = usage;
  descriptor.bytes = bytes;
  const std::lock_guard lock(create_mutex_);
  api().device_push_error_scope(device(), dawn::ErrorFilter::out_of_memory);
  api().device_push_error_scope(device(), dawn::ErrorFilter::validation);
  Owned<dawn::Buffer> buffer(api().device_create_buffer(device(), &descriptor),
                             api().buffer_release);
  const Caught invalid = pop_error(*this);
  const Caught memory = pop_error(*this);
  if (memory.type == dawn::ErrorType::out_of_memory || !buffer) {
    throw OutOfMemory(fmt::format("The device has no {} bytes for {}; {} bytes are in use", bytes,
                                  what, bytes_.load()));
  }
  check();
  if (invalid.type != dawn::ErrorType::none) {
    throw DeviceError(
        fmt::format("The device refuses {} bytes for {}: {}", bytes, what, invalid.message));
  }
  GpuMemory out;
  out.context_ = shared_from_this();
  out.buffer_ = std::move(buffer);
  out.bytes_ = bytes;
  bytes_ += bytes;
  ++buffers_;
  return out;
}

// ---- opening and closing -------------------------------------------------------------------------

ContextOptions ContextOptions::from_environment() {
  ContextOptions options;
  const char* validate = std::getenv("TENSORGRAD_WEBGPU_VALIDATE");
  options.validate = validate != nullptr && std::string_view(validate) == "1";
  const std::filesystem::path folder = DiskCache::folder_from_environment();
  if (!folder.empty()) options.cache_folder = folder / "webgpu";
  return options;
}

Context::Context(std::shared_ptr<const Adapter> adapter, const ContextOptions& options)
    : adapter_(std::move(adapter)), options_(options), cache_(options.cache_folder) {}

std::shared_ptr<Context> Context::open(std::shared_ptr<const Adapter> adapter,
                                       const ContextOptions& options) {
  const std::shared_ptr<Context> context(new Context(std::move(adapter), options));
  context->request_device();
  return context;
}

void Context::request_device() {
  std::vector<dawn::Feature> features;
  for (const dawn::Feature f :
       {dawn::Feature::timestamp_query, dawn::Feature::shader_f16, dawn::Feature::subgroups,
        dawn::Feature::implicit_device_synchronization}) {
    if (adapter_->has(f)) features.push_back(f);
  }
  if (!adapter_->has(dawn::Feature::implicit_device_synchronization)) {
    throw DeviceError("The WebGPU library is not safe to use from several threads");
  }
  // Kernels never leave their buffers, and programs never break a rule of the API: the compiler
  // checks both. Timestamps are rounded to 65 microseconds unless asked otherwise.
  const char* const trusting[] = {"skip_validation", "disable_robustness"};
  const char* const precise[] = {"timestamp_quantization"};
  dawn::Toggles toggles;
  toggles.enabled = trusting;
  toggles.enabled_count = options_.validate ? 0 : std::size(trusting);
  toggles.disabled = precise;
  toggles.disabled_count = std::size(precise);
  dawn::CacheDescriptor cache;
  cache.chain.next = &toggles.chain;
  cache.load = load_cached;
  cache.store = store_cached;
  cache.user = &cache_;

  dawn::DeviceDescriptor descriptor;
  descriptor.next = &cache.chain;
  descriptor.feature_count = features.size();
  descriptor.features = features.data();
  descriptor.limits = &adapter_->limits();
  descriptor.lost.mode = dawn::CallbackMode::allow_spontaneous;
  descriptor.lost.first = this;
  descriptor.lost.callback = [](const dawn::Device*, dawn::LostReason, dawn::StringView message,
                                void* user, void*) {
    auto& self = *static_cast<Context*>(user);
    const std::lock_guard lock(self.log_.mutex);
    self.log_.lost_message = dawn::to_string(message);
    self.lost_.store(true, std::memory_order_release);
  };
  descriptor.error.first = this;
  descriptor.error.callback = [](const dawn::Device*, dawn::ErrorType type,
                                 dawn::StringView message, void* user, void*) {
    auto& self = *static_cast<Context*>(user);
    const std::lock_guard lock(self.log_.mutex);
    if (!self.log_.error) self.log_.error = {type, dawn::to_string(message)};
    self.failed_.store(true, std::memory_order_release);
  };

  struct Reply {
    dawn::Device device = nullptr;
    std::string message;
  } reply;
  dawn::CallbackInfo<dawn::DeviceCallback> callback;
  callback.first = &reply;
  callback.callback = [](dawn::Status, dawn::Device device, dawn::StringView message, void* user,
                         void*) {
    *static_cast<Reply*>(user) = {device, dawn::to_string(message)};
  };
  wait(api().adapter_request_device(adapter_->handle(), &descriptor, callback));
  if (reply.device == nullptr) {
    throw DeviceError(
        fmt::format("The adapter {} gives no device: {}", adapter_->description(), reply.message));
  }
  device_ = {reply.device, api().device_release};
  queue_ = {api().device_get_queue(device()), api().queue_release};
}

Context::~Context() {
  if (device_) api().device_destroy(device());
}

// ---- errors --------------------------------------------------------------------------------------

void Context::check() {
  if (lost()) {
    const std::lock_guard lock(log_.mutex);
    throw DeviceLost(
        fmt::format("The WebGPU device is lost, and with it all that was in its memory: {}",
                    log_.lost_message));
  }
  if (!failed_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(log_.mutex);
  failed_ = false;
  const auto error = std::exchange(log_.error, std::nullopt);
  if (!error) return;
  if (error->first == dawn::ErrorType::out_of_memory) {
    throw OutOfMemory(
        fmt::format("The device ran out of memory in an earlier call: {}", error->second));
  }
  throw DeviceError(fmt::format("The device failed in an earlier call: {}", error->second));
}

// ---- work ----------------------------------------------------------------------------------------

void Context::write(dawn::Buffer buffer, std::uint64_t offset, std::span<const std::byte> data) {
  if (!data.empty()) {
    api().queue_write_buffer(queue(), buffer, offset, data.data(), data.size());
  }
}

Owned<dawn::CommandEncoder> Context::encoder() {
  return {api().device_create_command_encoder(device(), nullptr), api().command_encoder_release};
}

namespace {

dawn::Future work_done(const Context& context) {
  dawn::CallbackInfo<dawn::WorkDoneCallback> callback;
  callback.callback = [](dawn::Status, dawn::StringView, void*, void*) {};
  return context.api().queue_on_submitted_work_done(context.queue(), callback);
}

}  // namespace

void Context::wait_idle() const { wait(work_done(*this)); }

void Context::submit(Owned<dawn::CommandEncoder> encoder) {
  const Owned<dawn::CommandBuffer> commands(api().command_encoder_finish(encoder.get(), nullptr),
                                            api().command_buffer_release);
  const dawn::CommandBuffer handle = commands.get();
  api().queue_submit(queue(), 1, &handle);
  // A loop that reads no result would queue up without end, and memory with it.
  constexpr unsigned mark_every = 64;
  constexpr std::size_t marks = 4;
  dawn::Future oldest;
  {
    const std::lock_guard lock(backlog_mutex_);
    if (++submissions_ % mark_every != 0) return;
    backlog_.push_back(work_done(*this));
    if (backlog_.size() <= marks) return;
    oldest = backlog_.front();
    backlog_.erase(backlog_.begin());
  }
  wait(oldest);
}

void Context::map(dawn::Buffer staging, std::uint64_t bytes) {
  struct Reply {
    dawn::Status status{};
    std::string message;
  } reply;
  dawn::CallbackInfo<dawn::MapCallback> callback;
  callback.first = &reply;
  callback.callback = [](dawn::Status status, dawn::StringView message, void* user, void*) {
    *static_cast<Reply*>(user) = {status, dawn::to_string(message)};
  };
  wait(api().buffer_map_async(staging, dawn::map_mode_read, 0, bytes, callback));
  check();
  if (reply.status != dawn::Status::success) {
    throw DeviceError(fmt::format("A result cannot be read back: {}", reply.message));
  }
}

void Context::read_mapped(dawn::Buffer staging, std::uint64_t offset,
                          std::span<std::byte> data) const {
  if (data.empty()) return;
  const void* from = api().buffer_get_const_mapped_range(staging, offset, data.size());
  if (from == nullptr) throw DeviceError("A result is not in the memory it was read back to");
  std::memcpy(data.data(), from, data.size());
}

// ---- pipelines -----------------------------------------------------------------------------------

const Context::Layout& Context::layout(const std::vector<bool>& writable) {
  if (const auto found = layouts_.find(writable); found != layouts_.end()) return found->second;
  std::vector<dawn::BindGroupLayoutEntry> entries(writable.size());
  for (std::size_t i = 0; i < writable.size(); ++i) {
    entries[i].binding = static_cast<std::uint32_t>(i);
    entries[i].buffer.type =
        writable[i] ? dawn::BindingType::storage : dawn::BindingType::read_only_storage;
  }
  dawn::BindGroupLayoutDescriptor group;
  group.entry_count = entries.size();
  group.entries = entries.data();
  Layout out;
  out.group = {api().device_create_bind_group_layout(device(), &group),
               api().bind_group_layout_release};
  const dawn::BindGroupLayout handle = out.group.get();
  dawn::PipelineLayoutDescriptor pipeline;
  pipeline.layout_count = 1;
  pipeline.layouts = &handle;
  out.pipeline = {api().device_create_pipeline_layout(device(), &pipeline),
                  api().pipeline_layout_release};
  return layouts_.emplace(writable, std::move(out)).first->second;
}

namespace {

/// The text with its lines numbered.
std::string numbered(const std::string& text) {
  std::string out;
  std::size_t start = 0;
  for (int line = 1; start < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    out += fmt::format("{:4} | {}\n", line, std::string_view(text).substr(start, end - start));
    start = end + 1;
  }
  return out;
}

/// The errors of a module, each with its line and column.
std::string compilation_errors(const Context& context, dawn::ShaderModule module) {
  std::string errors;
  dawn::CallbackInfo<dawn::CompilationCallback> callback;
  callback.first = &errors;
  callback.callback = [](dawn::Status, const dawn::CompilationInfo* info, void* user, void*) {
    if (info == nullptr) return;
    for (std::size_t i = 0; i < info->count; ++i) {
      const dawn::CompilationMessage& m = info->messages[i];
      if (m.type != dawn::MessageType::error) continue;
      *static_cast<std::string*>(user) +=
          fmt::format("\n  line {}, column {}: {}", m.line, m.column, dawn::to_string(m.message));
    }
  };
  context.wait(context.api().shader_module_get_compilation_info(module, callback));
  return errors;
}

[[noreturn]] void refuse(const Shader& shader, const std::string& why) {
  throw DeviceError(fmt::format("The kernel `{}` does not compile:{}\n{}", shader.name, why,
                                numbered(shader.text)));
}

/// A pipeline that is being made.
struct Pending {
  dawn::Future future;
  dawn::ComputePipeline pipeline = nullptr;
  dawn::Status status{};
  std::string message;
};

}  // namespace

Owned<dawn::ShaderModule> Context::module(const Shader& shader) {
  dawn::WgslSource source;
  source.code = dawn::view(shader.text);
  dawn::Descriptor descriptor;
  descriptor.next = &source.chain;
  descriptor.label = dawn::view(shader.name);
  api().device_push_error_scope(device(), dawn::ErrorFilter::validation);
  Owned<dawn::ShaderModule> module(api().device_create_shader_module(device(), &descriptor),
                                   api().shader_module_release);
  const Caught caught = pop_error(*this);
  if (caught.type != dawn::ErrorType::none) {
    const std::string errors = compilation_errors(*this, module.get());
    refuse(shader, errors.empty() ? " " + caught.message : errors);
  }
  return module;
}

std::shared_ptr<const Pipeline> Context::find_pipeline(const std::string& text) {
  const auto found = pipelines_.find(text);
  if (found == pipelines_.end()) return nullptr;
  found->second.first = ++pipeline_uses_;
  return found->second.second;
}

std::vector<std::shared_ptr<const Pipeline>> Context::compile(std::span<const Shader> shaders) {
  check();
  const std::lock_guard lock(create_mutex_);
  std::vector<std::shared_ptr<const Pipeline>> out;
  std::map<std::size_t, Pending> pending;  // whose addresses the callbacks hold
  std::vector<std::shared_ptr<Pipeline>> made(shaders.size());
  std::string failure;
  const Shader* failed = nullptr;
  const auto finish = [&] {
    for (auto& [i, p] : pending) {
      wait(p.future);
      made[i]->pipeline = {p.pipeline, api().compute_pipeline_release};
      if (p.status != dawn::Status::success && failed == nullptr) {
        failed = &shaders[i];
        failure = p.message;
      }
    }
  };
  try {
    for (std::size_t i = 0; i < shaders.size(); ++i) {
      out.push_back(find_pipeline(shaders[i].text));
      if (out.back()) continue;
      const Owned<dawn::ShaderModule> code = module(shaders[i]);
      const Layout& l = layout(shaders[i].writable);
      dawn::ComputePipelineDescriptor descriptor;
      descriptor.label = dawn::view(shaders[i].name);
      descriptor.layout = l.pipeline.get();
      descriptor.compute.module = code.get();
      const std::string entry = "main";
      descriptor.compute.entry_point = dawn::view(entry);
      Pending& p = pending[i];
      made[i] = std::make_shared<Pipeline>();
      made[i]->layout = l.group.get();
      dawn::CallbackInfo<dawn::PipelineCallback> callback;
      callback.first = &p;
      callback.callback = [](dawn::Status status, dawn::ComputePipeline pipeline,
                             dawn::StringView message, void* user, void*) {
        auto& self = *static_cast<Pending*>(user);
        self.status = status;
        self.pipeline = pipeline;
        self.message = dawn::to_string(message);
      };
      p.future = api().device_create_compute_pipeline_async(device(), &descriptor, callback);
    }
  } catch (...) {
    finish();
    throw;
  }
  finish();
  check();
  if (failed != nullptr) refuse(*failed, " " + failure);
  for (const auto& [i, p] : pending) {
    out[i] = made[i];
    pipelines_[shaders[i].text] = {++pipeline_uses_, out[i]};
  }
  // Those not used for longest go; programs that use them hold them.
  constexpr std::size_t kept = 1024;
  while (pipelines_.size() > kept) {
    pipelines_.erase(std::min_element(
        pipelines_.begin(), pipelines_.end(),
        [](const auto& a, const auto& b) { return a.second.first < b.second.first; }));
  }
  return out;
}

Owned<dawn::BindGroup> Context::bind(dawn::BindGroupLayout layout,
                                     std::span<const dawn::BindGroupEntry> entries) {
  dawn::BindGroupDescriptor descriptor;
  descriptor.layout = layout;
  descriptor.entry_count = entries.size();
  descriptor.entries = entries.data();
  return {api().device_create_bind_group(device(), &descriptor), api().bind_group_release};
}

}  // namespace tensorgrad::webgpu
