#include "runtime/webgpu/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "runtime/webgpu/device.h"
#include "tensorgrad/error.h"

namespace tensorgrad::webgpu {
namespace {

constexpr const char* format_version = "1";

/// A plan that runs one kernel on memory of its own.
Plan plan_of(const kernel::Kernel& kernel) {
  Plan plan;
  plan.kernels = {kernel};
  Dispatch dispatch{0, {}, kernel.name};
  for (const kernel::BufferArg& arg : kernel.args) {
    dispatch.buffers.push_back(static_cast<int>(plan.buffers.size()));
    PlanBuffer buffer;
    buffer.kind = BufferKind::state;
    buffer.name = fmt::format("argument {}", plan.buffers.size());
    buffer.dtype = arg.dtype;
    buffer.shape = {arg.elements};
    buffer.elements = arg.elements;
    plan.buffers.push_back(std::move(buffer));
  }
  plan.dispatches = {std::move(dispatch)};
  return plan;
}

/// Memory for a kernel's arguments: numbers in [-1, 1), and zeros for what may be an index.
class Memory {
 public:
  Memory(Device& device, const kernel::Kernel& kernel) : kernel_(kernel) {
    std::uint32_t random = 1;
    for (const kernel::BufferArg& arg : kernel.args) {
      buffers_.push_back(device.allocate(arg.dtype, arg.elements));
      bound_.push_back(buffers_.back().get());
      if (arg.dtype != DType::f32) continue;
      std::vector<float> values(static_cast<std::size_t>(arg.elements));
      for (float& v : values) {
        random = random * 1664525U + 1013904223U;
        v = static_cast<float>(static_cast<double>(random) / 2147483648.0 - 1);
      }
      buffers_.back()->write(0, std::as_bytes(std::span(values)));
    }
  }

  std::span<DeviceBuffer* const> bound() const { return bound_; }

  /// What the kernel leaves in the arguments that it only writes.
  std::vector<std::vector<float>> results() const {
    std::vector<std::vector<float>> out;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      const kernel::BufferArg& arg = kernel_.args[i];
      if (!arg.written || arg.read || arg.dtype != DType::f32) continue;
      out.emplace_back(static_cast<std::size_t>(arg.elements));
      buffers_[i]->read(0, std::as_writable_bytes(std::span(out.back())));
    }
    return out;
  }

 private:
  const kernel::Kernel& kernel_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  std::vector<DeviceBuffer*> bound_;
};

/// "" if two results agree but for rounding, else how they differ.
std::string difference(const std::vector<std::vector<float>>& a,
                       const std::vector<std::vector<float>>& b) {
  constexpr double tolerance = 1e-3;
  for (std::size_t i = 0; i < a.size(); ++i) {
    double scale = 0;
    for (const float x : a[i]) {
      if (std::isfinite(x)) scale = std::max(scale, std::fabs(static_cast<double>(x)));
    }
    for (std::size_t j = 0; j < a[i].size(); ++j) {
      const double x = a[i][j];
      const double y = b[i][j];
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      if (std::fabs(x - y) <= tolerance * std::max(scale, 1e-30)) continue;
      return fmt::format("element {} of a result is {}, not {}", j, y, x);
    }
  }
  return "";
}

/// A variant that is ready to run.
struct Ready {
  std::size_t candidate = 0;
  std::unique_ptr<Executable> program;
  int repeats = 1;  ///< of one measurement
};

/// Seconds of one run of each, the least of a few measurements that take turns.
void measure(std::vector<Ready>& ready, std::span<DeviceBuffer* const> states, bool software,
             std::vector<TunedKernel::Candidate>& candidates) {
  using clock = std::chrono::steady_clock;
  constexpr double enough = 2e-3;  // seconds of one measurement
  constexpr int most = 64;
  constexpr int rounds = 3;
  // A GPU that had nothing to do runs slowly at first.
  constexpr auto warm_up = std::chrono::milliseconds(80);
  const auto start = clock::now();
  while (!software && clock::now() - start < warm_up) {
    static_cast<void>(ready.front().program->seconds({}, states, 1));
  }
  for (Ready& r : ready) {
    const double once = r.program->seconds({}, states, 1);
    r.repeats = std::clamp(static_cast<int>(enough / std::max(once, 1e-6)), 1, most);
    candidates[r.candidate].seconds = std::numeric_limits<double>::infinity();
  }
  for (int round = 0; round < rounds; ++round) {
    for (Ready& r : ready) {
      double& best = candidates[r.candidate].seconds;
      best = std::min(best, r.program->seconds({}, states, r.repeats) / r.repeats);
    }
  }
}

}  // namespace

TunedKernel time_variants(const std::shared_ptr<Context>& context, const wgsl::Target& target,
                          Device& device, const kernel::Kernel& kernel,
                          const std::vector<wgsl::Variant>& variants) {
  TunedKernel result;
  result.name = kernel.name;
  const Plan plan = plan_of(kernel);
  const Memory memory(device, kernel);
  std::vector<std::vector<float>> expected;
  std::vector<Ready> ready;
  for (const wgsl::Variant& variant : variants) {
    TunedKernel::Candidate candidate{variant.name, 0, ""};
    try {
      auto program =
          load(context, target, plan,
               [&](const kernel::Kernel&, const wgsl::Target&, const std::vector<bool>& writable) {
                 return variant.render(writable);
               });
      static_cast<void>(program->seconds({}, memory.bound(), 1));
      if (result.candidates.empty()) {
        expected = memory.results();
      } else {
        candidate.error = difference(expected, memory.results());
      }
      if (candidate.error.empty()) {
        ready.push_back({result.candidates.size(), std::move(program), 1});
      }
    } catch (const DeviceLost&) {
      throw;
    } catch (const DeviceError& error) {
      candidate.error = error.what();
    } catch (const GraphError& error) {
      candidate.error = error.what();
    }
    result.candidates.push_back(std::move(candidate));
  }
  if (ready.empty()) return result;
  measure(ready, memory.bound(), context->adapter().software(), result.candidates);
  // Another one than the default must win by more than measurements differ.
  constexpr double margin = 0.97;
  const auto& all = result.candidates;
  double best =
      all[0].error.empty() ? all[0].seconds * margin : std::numeric_limits<double>::infinity();
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (!all[i].error.empty() || all[i].seconds >= best) continue;
    best = all[i].seconds;
    result.winner = i;
  }
  return result;
}

std::string Winners::key_of(const kernel::Kernel& kernel) const {
  kernel::Kernel nameless = kernel;
  nameless.name.clear();
  const Adapter& adapter = context_->adapter();
  std::string key = fmt::format("tuning {}\n{}\n{}\n", format_version, adapter.description(),
                                adapter.target().key());
  for (const auto& [what, value] : adapter.details()) {
    if (what == "driver") key += value + "\n";
  }
  return key + to_string(nameless);
}

std::optional<std::string> Winners::find(const kernel::Kernel& kernel) const {
  const std::string key = key_of(kernel);
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = known_.try_emplace(key);
  if (is_new) {
    if (const auto bytes = context_->cache().get(key)) {
      at->second = std::string(bytes->size(), ' ');
      std::memcpy(at->second->data(), bytes->data(), bytes->size());
    }
  }
  return at->second;
}

void Winners::keep(const kernel::Kernel& kernel, const std::string& variant) {
  const std::string key = key_of(kernel);
  const std::lock_guard lock(mutex_);
  known_[key] = variant;
  context_->cache().put(key, std::as_bytes(std::span(variant)));
}

wgsl::Renderer tuned_renderer(const Winners& winners) {
  return [&winners](const kernel::Kernel& kernel, const wgsl::Target& target,
                    const std::vector<bool>& writable) {
    if (const auto winner = winners.find(kernel)) {
      for (const wgsl::Variant& variant : wgsl::variants(kernel, target)) {
        if (variant.name == *winner) return variant.render(writable);
      }
    }
    return wgsl::render(kernel, target, writable);
  };
}

std::vector<TunedKernel> tune(const std::shared_ptr<Context>& context, const wgsl::Target& target,
                              Winners& winners, Device& device, const Plan& plan, bool again,
                              const std::function<void(const TunedKernel&)>& report) {
  std::vector<TunedKernel> out;
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) {
    const kernel::Kernel& kernel = plan.kernels[i];
    const std::vector<wgsl::Variant> variants = wgsl::variants(kernel, target);
    if (variants.size() < 2) continue;
    const auto known = again ? std::nullopt : winners.find(kernel);
    const auto is_known = [&](const wgsl::Variant& v) { return known && v.name == *known; };
    const auto found = std::find_if(variants.begin(), variants.end(), is_known);
    TunedKernel result;
    if (found != variants.end()) {
      result.name = kernel.name;
      result.known = true;
      for (const wgsl::Variant& v : variants) result.candidates.push_back({v.name, 0, ""});
      result.winner = static_cast<std::size_t>(found - variants.begin());
    } else {
      result = time_variants(context, target, device, kernel, variants);
      if (result.candidates[result.winner].error.empty()) {
        winners.keep(kernel, result.candidates[result.winner].name);
      }
    }
    result.dispatches = static_cast<int>(
        std::count_if(plan.dispatches.begin(), plan.dispatches.end(),
                      [&](const Dispatch& d) { return d.kernel == static_cast<int>(i); }));
    if (report) report(result);
    out.push_back(std::move(result));
  }
  return out;
}

}  // namespace tensorgrad::webgpu
