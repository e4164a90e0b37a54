// Adapters: what there is to compute on, and what it can do.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codegen/wgsl/target.h"
#include "runtime/webgpu/library.h"
#include "runtime/webgpu/owned.h"

namespace tensorgrad::webgpu {

/// The library's entry object; adapters come from it, and it is where one waits.
class Instance {
 public:
  explicit Instance(std::shared_ptr<const Library> library);

  const dawn::Api& api() const { return library_->api(); }
  const Library& library() const { return *library_; }
  dawn::Instance handle() const { return handle_.get(); }
  /// Waits for a request made with CallbackMode::wait_any_only, whose callback runs within.
  /// Thread-safe. Throws DeviceError if the library refuses.
  void wait(dawn::Future future) const;

 private:
  std::shared_ptr<const Library> library_;
  Owned<dawn::Instance> handle_;
};

/// An adapter and what it says of itself.
class Adapter {
 public:
  /// The best adapter of that kind: a discrete GPU before others, a software adapter last. The
  /// backend `null` validates and executes nothing. Throws DeviceError if there is none.
  Adapter(std::shared_ptr<const Instance> instance, dawn::BackendType backend);

  const std::shared_ptr<const Instance>& instance() const { return instance_; }
  dawn::Adapter handle() const { return handle_.get(); }
  dawn::AdapterType type() const { return type_; }
  const dawn::Limits& limits() const { return limits_; }
  bool has(dawn::Feature feature) const;
  bool software() const { return type_ == dawn::AdapterType::cpu; }

  /// "NVIDIA H200, discrete GPU"
  std::string description() const;
  /// Driver, kind, features and limits, as `tensorgrad devices` lists them.
  std::vector<std::pair<std::string, std::string>> details() const;
  /// What the compiler must know.
  wgsl::Target target() const;

 private:
  std::shared_ptr<const Instance> instance_;
  Owned<dawn::Adapter> handle_;
  std::string name_, vendor_, architecture_, driver_;
  dawn::AdapterType type_ = dawn::AdapterType::unknown;
  unsigned subgroup_min_ = 0, subgroup_max_ = 0;
  dawn::Limits limits_;
  std::vector<dawn::Feature> features_;
};

}  // namespace tensorgrad::webgpu
