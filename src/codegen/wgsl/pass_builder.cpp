#include "codegen/wgsl/pass_builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/order.h"
#include "tensorgrad/error.h"

namespace tensorgrad::wgsl {

std::array<std::uint32_t, 3> grid(const kernel::Kernel& kernel, const Target& target,
                                  std::int64_t groups) {
  const std::int64_t rows = (groups + target.groups - 1) / target.groups;
  if (rows > target.groups) {
    throw GraphError(fmt::format("kernel {} needs {} workgroups, more than a grid of {} by {} has",
                                 kernel.name, groups, target.groups, target.groups));
  }
  const std::int64_t columns = (groups + rows - 1) / rows;
  return {static_cast<std::uint32_t>(columns), static_cast<std::uint32_t>(rows), 1};
}

PassBuilder::PassBuilder(const kernel::Kernel& kernel, const Target& target,
                         const std::vector<bool>& writable, std::int64_t invocations,
                         std::int64_t groups)
    : kernel_(kernel),
      target_(target),
      writable_(writable),
      invocations_(invocations),
      groups_(grid(kernel, target, groups)),
      expressions_(kernel, writer_, helpers_),
      vectors_(kernel.args.size()) {
  if (groups_[1] > 1) {
    writer_.line(fmt::format("let group = groups.x + groups.y * {}u;", groups_[0]));
    if (std::int64_t{groups_[0]} * groups_[1] > groups) {
      writer_.line(fmt::format("if (group >= {}u) {{ return; }}", groups));
    }
  } else {
    writer_.line("let group = groups.x;");
  }
}

std::string PassBuilder::workgroup_array(std::string_view type, std::int64_t elements) {
  std::string name = fmt::format("w{}", workgroup_.size());
  workgroup_.push_back(fmt::format("var<workgroup> {}: array<{}, {}>;\n", name, type, elements));
  workgroup_bytes_ += elements * 4;
  return name;
}

std::string PassBuilder::scratch(int index) {
  if (std::find(scratch_.begin(), scratch_.end(), index) == scratch_.end()) {
    scratch_.push_back(index);
    sort_values(scratch_);
  }
  return fmt::format("s{}", index);
}

void PassBuilder::use_vectors(int arg) { vectors_[static_cast<std::size_t>(arg)] = true; }

std::string bind(RenderedPass& pass, const PassBinding& binding, std::string_view type) {
  const std::size_t number = pass.bindings.size();
  pass.bindings.push_back(binding);
  const bool is_scratch = binding.scratch >= 0;
  return fmt::format("@group(0) @binding({}) var<storage, {}> {}{}: {};\n", number,
                     binding.writable ? "read_write" : "read", is_scratch ? "s" : "b",
                     is_scratch ? binding.scratch : binding.arg, type);
}

RenderedPass PassBuilder::finish() {
  RenderedPass pass;
  pass.groups = groups_;
  const std::string body = writer_.text();
  std::string declarations;
  for (std::size_t i = 0; i < kernel_.args.size(); ++i) {
    const std::string access = fmt::format("b{}[", i);
    const auto names = [&](const std::string& text) {
      for (std::size_t at = text.find(access); at != std::string::npos;
           at = text.find(access, at + 1)) {
        const char before = at == 0 ? ' ' : text[at - 1];
        if (std::isalnum(static_cast<unsigned char>(before)) == 0 && before != '_') return true;
      }
      return false;
    };
    if (!names(body) && !names(functions_)) continue;
    const kernel::BufferArg& arg = kernel_.args[i];
    const bool writes = arg.written || (i < writable_.size() && writable_[i]);
    declarations += bind(pass, {.arg = static_cast<int>(i), .scratch = -1, .writable = writes},
                         array_type(arg.dtype, arg.elements, vectors_[i] ? 4 : 1, target_));
  }
  for (const int index : scratch_) {
    declarations += bind(pass, {.arg = -1, .scratch = index, .writable = true}, "array<u32>");
  }
  if (static_cast<int>(pass.bindings.size()) > target_.storage_buffers) {
    throw GraphError(fmt::format("kernel {} binds {} buffers, but the adapter allows {}",
                                 kernel_.name, pass.bindings.size(), target_.storage_buffers));
  }
  if (subgroups_) pass.text += "enable subgroups;\n";
  pass.text += declarations;
  for (const std::string& text : workgroup_) pass.text += text;
  pass.text += "\n" + helpers_.definitions();
  pass.text += functions_;
  pass.text += fmt::format(
      "@compute @workgroup_size({})\n"
      "fn main(@builtin(workgroup_id) groups: vec3<u32>,\n"
      "        @builtin(local_invocation_index) local: u32) {{\n{}}}\n",
      invocations_, body);
  return pass;
}

}  // namespace tensorgrad::wgsl
