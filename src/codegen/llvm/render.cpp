#include "codegen/llvm/render.h"

#include <fmt/format.h>

#include <limits>

#include "codegen/llvm/math.h"
#include "codegen/llvm/nest.h"
#include "codegen/llvm/share.h"
#include "kernel/overwrite.h"

namespace tensorgrad::llvm_ir {
namespace {

/// Declarations of the intrinsics that helper functions call.
constexpr std::string_view helper_intrinsics[] = {
    "declare float @llvm.fabs.f32(float)\n",
    "declare double @llvm.fabs.f64(double)\n",
    "declare double @llvm.sqrt.f64(double)\n",
    "declare double @llvm.trunc.f64(double)\n",
    "declare float @llvm.copysign.f32(float, float)\n",
    "declare double @llvm.copysign.f64(double, double)\n",
    "declare float @llvm.fmuladd.f32(float, float, float)\n",
    "declare double @llvm.fmuladd.f64(double, double, double)\n",
};

std::string parameter(const kernel::BufferArg& arg, bool stored, std::size_t index) {
  std::string text = "ptr noalias";
  const auto bytes = arg.elements * static_cast<std::int64_t>(info(arg.dtype).bytes);
  if (bytes > 0) text += fmt::format(" dereferenceable({})", bytes);
  if (!stored) text += " readonly";
  return text + fmt::format(" %b{}", index);
}

}  // namespace

std::string render(const kernel::Kernel& kernel, std::string_view entry) {
  const kernel::Kernel shared = kernel::share_loops(kernel);
  NestRenderer nest(shared);
  nest.render(choose_order(shared));
  const std::vector<bool> stored = stored_buffers(kernel);

  std::string text;
  std::set<std::string> declarations = nest.expressions().declarations();
  if (!nest.expressions().helpers().empty()) {
    declarations.insert(std::begin(helper_intrinsics), std::end(helper_intrinsics));
  }
  for (const std::string& declaration : declarations) text += declaration;
  for (const auto& [fn, dtype] : nest.expressions().helpers()) {
    text += "\n" + helper_definition(fn, dtype);
  }

  std::string parameters;
  std::string arguments;
  std::string addresses;
  for (std::size_t i = 0; i < kernel.args.size(); ++i) {
    parameters += parameter(kernel.args[i], stored[i], i) + ", ";
    arguments += fmt::format("ptr %b{}, ", i);
    addresses += fmt::format(
        "  %slot{0} = getelementptr inbounds ptr, ptr %args, i64 {0}\n"
        "  %b{0} = load ptr, ptr %slot{0}\n",
        i);
  }
  // A function of its own, because only parameters can promise that buffers do not overlap.
  text += fmt::format(
      "\ndefine internal void @{}.nest({}i64 %begin, i64 %end) noinline nounwind {{\n{}  ret "
      "void\n}}\n",
      entry, parameters, nest.writer().text());
  text += fmt::format("\ndefine void @{}(ptr %args, i64 %begin, i64 %end) nounwind {{\nentry:\n{}",
                      entry, addresses);
  const std::string call =
      fmt::format("  call void @{}.nest({}i64 %begin, i64 %end)\n", entry, arguments);
  if (kernel.nest.outer.empty()) {
    text += call + "  ret void\n}\n";
  } else {
    text += fmt::format(
        "  %some = icmp slt i64 %begin, %end\n"
        "  br i1 %some, label %run, label %done\nrun:\n{}  br label %done\ndone:\n  ret void\n}}\n",
        call);
  }
  return text;
}

}  // namespace tensorgrad::llvm_ir
