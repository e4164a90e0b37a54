#include "runtime/cpu/two_stages.h"

#include <algorithm>

namespace tensorgrad::cpu {
namespace {

using kernel::Accumulator;
using kernel::Combiner;
using kernel::Expr;
using kernel::ExprNode;
using kernel::Fn;
using kernel::Index;
using kernel::Kernel;
using kernel::Pool;
using kernel::Stage;

std::int64_t extent_of(const Kernel& kernel, int loop) {
  return kernel.loops[static_cast<std::size_t>(loop)].extent;
}

int add_loop(Kernel& kernel, std::int64_t extent) {
  kernel.loops.push_back({extent});
  return static_cast<int>(kernel.loops.size()) - 1;
}

/// The first of the stage's loops that is long enough, or its longest.
int loop_to_cut(const Kernel& kernel, const Stage& stage, std::int64_t parts) {
  int best = stage.loops.front();
  for (const int loop : stage.loops) {
    if (extent_of(kernel, best) >= parts) break;
    if (extent_of(kernel, loop) > extent_of(kernel, best)) best = loop;
  }
  return best;
}

/// The number of parts near `wanted` that divides `extent`, or one that leaves a shorter last part.
std::int64_t part_length(std::int64_t extent, std::int64_t wanted) {
  for (std::int64_t count = std::min(extent, 2 * wanted); 2 * count >= wanted && count > 1;
       --count) {
    if (extent % count == 0) return extent / count;
  }
  return (extent + wanted - 1) / wanted;
}

/// Element `part` * (points of the outer loops) + their position.
Index partial_index(Kernel& kernel, int part) {
  Pool& pool = kernel.pool;
  Index index = pool.loop(part, extent_of(kernel, part));
  for (const int loop : kernel.nest.outer) {
    if (loop == part) continue;
    index = pool.add(pool.mul(index, extent_of(kernel, loop)),
                     pool.loop(loop, extent_of(kernel, loop)));
  }
  return index;
}

}  // namespace

std::optional<TwoStages> in_two_stages(const Kernel& kernel, std::int64_t parts) {
  if (kernel.nest.stages.size() < 2) return std::nullopt;
  const Stage& first = kernel.nest.stages.front();
  if (first.accumulators.empty() || first.loops.empty() || !first.stores.empty()) {
    return std::nullopt;
  }
  for (const Accumulator& accumulator : first.accumulators) {
    if (accumulator.combiner == Combiner::argmax || accumulator.combiner == Combiner::argmin) {
      return std::nullopt;
    }
  }
  std::int64_t points = 1;
  for (const int loop : kernel.nest.outer) points *= extent_of(kernel, loop);
  const int cut = loop_to_cut(kernel, first, parts);
  const std::int64_t extent = extent_of(kernel, cut);
  const std::int64_t length = part_length(extent, parts);
  const std::int64_t count = length == 0 ? 0 : (extent + length - 1) / length;
  if (count < 2 || points == 0) return std::nullopt;

  TwoStages result;
  result.count = count;

  Kernel& partial = result.parts;
  partial.name = kernel.name + " (parts)";
  partial.args = kernel.args;
  for (auto& arg : partial.args) arg.written = false;
  partial.loops = kernel.loops;
  const int part = add_loop(partial, count);
  const int within = add_loop(partial, length);
  partial.nest.outer.push_back(part);
  partial.nest.outer.insert(partial.nest.outer.end(), kernel.nest.outer.begin(),
                            kernel.nest.outer.end());
  Pool& pool = partial.pool;
  const Index position =
      pool.add(pool.mul(pool.loop(part, count), length), pool.loop(within, length));
  // Undefined where all parts are of one length.
  const Expr valid = count * length == extent ? Expr{} : pool.in_range(position, 0, extent);
  const Pool::Mapping mapping{
      .loop = [&](int var,
                  std::int64_t size) { return var == cut ? position : pool.loop(var, size); },
      .load =
          [&](const ExprNode& load, Index index, Expr cond) {
            return pool.load(load.buffer, index, pool.both(cond, valid), load.dtype);
          },
      .acc = nullptr};
  Stage reduce;
  for (const int loop : first.loops) reduce.loops.push_back(loop == cut ? within : loop);
  Stage store;
  for (const Accumulator& accumulator : first.accumulators) {
    Expr value = pool.import(kernel.pool, accumulator.value, mapping);
    if (valid.defined()) {
      const Expr neutral = pool.constant(kernel::neutral(accumulator.combiner, accumulator.dtype),
                                         accumulator.dtype);
      value = pool.apply(Fn::select, {valid, value, neutral});
    }
    const int slot = static_cast<int>(reduce.accumulators.size());
    reduce.accumulators.push_back({accumulator.combiner, value, accumulator.dtype, {}});
    const int buffer = static_cast<int>(partial.args.size());
    partial.args.push_back({accumulator.dtype, count * points, false, true});
    store.stores.push_back({buffer, partial_index(partial, part),
                            pool.acc(0, slot, accumulator.dtype), Expr{}, false});
    result.bytes.push_back(count * points *
                           static_cast<std::int64_t>(info(accumulator.dtype).bytes));
  }
  partial.nest.stages.push_back(std::move(reduce));
  partial.nest.stages.push_back(std::move(store));

  Kernel& rest = result.rest;
  rest = kernel;
  const int over_parts = add_loop(rest, count);
  Stage& combine = rest.nest.stages.front();
  combine.loops = {over_parts};
  for (Accumulator& accumulator : combine.accumulators) {
    const int buffer = static_cast<int>(rest.args.size());
    rest.args.push_back({accumulator.dtype, count * points, true, false});
    accumulator.value =
        rest.pool.load(buffer, partial_index(rest, over_parts), Expr{}, accumulator.dtype);
  }
  return result;
}

}  // namespace tensorgrad::cpu
