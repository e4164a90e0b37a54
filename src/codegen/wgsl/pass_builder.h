// One pass while it is built: bindings, workgroup memory, helpers, body.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/wgsl/expressions.h"
#include "codegen/wgsl/render.h"

namespace tensorgrad::wgsl {

/// A grid of `groups` workgroups, in two dimensions where one is not enough. Throws GraphError
/// naming the kernel where two are not.
std::array<std::uint32_t, 3> grid(const kernel::Kernel& kernel, const Target& target,
                                  std::int64_t groups);

/// Gives a pass one more binding and returns its declaration: b<argument> or s<scratch> of a type.
std::string bind(RenderedPass& pass, const PassBinding& binding, std::string_view type);

/// Builds a pass around expressions of a kernel. In the body, `group` is the number of the
/// workgroup, `local` that of the invocation within it, and b0, b1, ... are the arguments.
class PassBuilder {
 public:
  /// `invocations` is the size of the workgroup, `groups` their number. The kernel must outlive the
  /// builder; its arguments are those that `writable` speaks of.
  PassBuilder(const kernel::Kernel& kernel, const Target& target, const std::vector<bool>& writable,
              std::int64_t invocations, std::int64_t groups);
  PassBuilder(const PassBuilder&) = delete;
  PassBuilder& operator=(const PassBuilder&) = delete;

  Writer& writer() { return writer_; }
  Helpers& helpers() { return helpers_; }
  ExpressionRenderer& expressions() { return expressions_; }
  std::int64_t invocations() const { return invocations_; }
  DType dtype(int arg) const { return kernel_.args[static_cast<std::size_t>(arg)].dtype; }

  /// Declares an array in workgroup memory and returns its name.
  std::string workgroup_array(std::string_view type, std::int64_t elements);
  /// Bytes of workgroup memory declared so far.
  std::int64_t workgroup_bytes() const { return workgroup_bytes_; }
  /// Binds scratch buffer `index` as array<u32> and returns its name.
  std::string scratch(int index);
  /// Declares an argument's elements to be vectors of four.
  void use_vectors(int arg);
  void enable_subgroups() { subgroups_ = true; }
  /// A function that stands before main.
  void add_function(std::string_view text) { functions_ += text; }

  /// The pass: binds the arguments that the body names. Throws GraphError where those are more than
  /// the target allows.
  RenderedPass finish();

 private:
  const kernel::Kernel& kernel_;
  const Target& target_;
  const std::vector<bool>& writable_;
  std::int64_t invocations_;
  std::array<std::uint32_t, 3> groups_;
  Helpers helpers_;
  Writer writer_;
  ExpressionRenderer expressions_;
  std::vector<std::string> workgroup_;
  std::int64_t workgroup_bytes_ = 0;
  std::vector<int> scratch_;
  std::vector<bool> vectors_;
  std::string functions_;
  bool subgroups_ = false;
};

}  // namespace tensorgrad::wgsl
