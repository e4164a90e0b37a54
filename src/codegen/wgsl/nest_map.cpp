// Maps, a thread a point.
#include <fmt/format.h>

#include <algorithm>

#include "codegen/wgsl/nest.h"
#include "codegen/wgsl/nest_parts.h"
#include "codegen/wgsl/pass_builder.h"

namespace tensorgrad::wgsl {

using kernel::Kernel;
using kernel::Stage;

void render_stores(PassBuilder& pass, const Stage& stage, const std::string& guard) {
  ExpressionRenderer& expressions = pass.expressions();
  Writer& writer = pass.writer();
  // All values are known before the first store, so a stage reads what was there before it.
  struct Ready {
    std::string value, index, condition;
  };
  std::vector<Ready> ready;
  for (const kernel::Store& store : stage.stores) {
    Ready& item = ready.emplace_back();
    item.value = stage.stores.size() > 1 ? expressions.render_named(store.value).text
                                         : expressions.render(store.value).text;
    item.index = store.cond.defined() ? expressions.render(store.index).text
                                      : expressions.render_access(store.index).text;
    item.condition = guard;
    if (!store.cond.defined()) continue;
    const std::string condition =
        expressions.render(store.cond).operand(guard.empty() ? Strength::other : Strength::primary);
    item.condition = guard.empty() ? condition : fmt::format("{} && {}", guard, condition);
  }
  for (std::size_t i = 0; i < ready.size(); ++i) {
    if (!ready[i].condition.empty()) writer.open(fmt::format("if ({})", ready[i].condition));
    const kernel::Store& store = stage.stores[i];
    if (store.accumulate) {
      const std::string place = writer.let(writer.depth(), ready[i].index);
      const DType dtype = pass.dtype(store.buffer);
      ready[i].index = place;
      ready[i].value = expressions
                           .combine(kernel::Combiner::sum, dtype,
                                    named(expressions.element(store.buffer, place), writer.depth()),
                                    named(fmt::format("({})", ready[i].value), writer.depth()))
                           .text;
    }
    expressions.store(writer.depth(), store.buffer, ready[i].index, ready[i].value);
    if (!ready[i].condition.empty()) writer.close();
  }
}

void render_maps(const Kernel& kernel, std::span<const std::size_t> stages, const Target& target,
                 const std::vector<bool>& writable, RenderedKernel& out) {
  const Kernel flat = flatten_points(kernel, stages);
#ifndef __wasm__
  // 3 kB of WebAssembly for 4 % of the time of the largest maps.
  if (render_quads(flat, target, writable, out)) return;
#endif
  std::int64_t count = 0;
  for (const kernel::Loop& loop : flat.loops) count = std::max(count, loop.extent);
  const std::int64_t invocations =
      std::min<std::int64_t>(target.cpu ? 64 : 256, target.invocations);
  const std::int64_t groups = (count + invocations - 1) / invocations;
  PassBuilder pass(flat, target, writable, invocations, groups);
  Writer& writer = pass.writer();
  writer.line(fmt::format("let i = group * {}u + local;", invocations));
  if (count % invocations != 0) writer.line(fmt::format("if (i >= {}u) {{ return; }}", count));
  pass.expressions().count_nest();
  for (std::size_t var = 0; var < flat.loops.size(); ++var) {
    // Stages of equally many points share what they compute.
    const std::int64_t size = flat.loops[var].extent;
    if (size < count) writer.open(fmt::format("if (i < {}u)", size));
    pass.expressions().bind_loop(static_cast<int>(var), named("i", writer.depth()));
    for (const Stage& stage : flat.nest.stages) {
      if (stage.loops.front() == static_cast<int>(var)) render_stores(pass, stage, "");
    }
    if (size < count) writer.close();
  }
  out.passes.push_back(pass.finish());
}

}  // namespace tensorgrad::wgsl
