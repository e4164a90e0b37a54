// Choosing among the ways to render a kernel by measuring them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "codegen/wgsl/program.h"
#include "runtime/device.h"
#include "runtime/webgpu/context.h"

namespace tensorgrad::webgpu {

/// Which variant of a kernel won on the device of a context: known from this process, or from the
/// cache on disk, where each stands under the adapter, its driver and limits, and the kernel's
/// text. What is damaged there, or names no variant, is as if it were not there. Thread-safe.
class Winners {
 public:
  explicit Winners(std::shared_ptr<Context> context) : context_(std::move(context)) {}
  /// The name of the variant that won, if the kernel was tuned.
  std::optional<std::string> find(const kernel::Kernel& kernel) const;
  void keep(const kernel::Kernel& kernel, const std::string& variant);

 private:
  std::string key_of(const kernel::Kernel& kernel) const;

  std::shared_ptr<Context> context_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::optional<std::string>> known_;
};

/// Renders each kernel as the variant that won, else as `wgsl::render`. `winners` must outlive it.
wgsl::Renderer tuned_renderer(const Winners& winners);

/// Times some variants of a kernel, of which the first is the default. One that cannot be rendered,
/// does not compile, fails or leaves other results than the default is dropped.
TunedKernel time_variants(const std::shared_ptr<Context>& context, const wgsl::Target& target,
                          Device& device, const kernel::Kernel& kernel,
                          const std::vector<wgsl::Variant>& variants);

/// Times the variants of each distinct kernel of `plan` that has several, and keeps the winners.
/// A kernel that was tuned before is not timed again unless `again` is set. `report` is called
/// with each result. Throws DeviceLost; what goes wrong with one variant is part of the result.
std::vector<TunedKernel> tune(const std::shared_ptr<Context>& context, const wgsl::Target& target,
                              Winners& winners, Device& device, const Plan& plan, bool again,
                              const std::function<void(const TunedKernel&)>& report);

}  // namespace tensorgrad::webgpu
