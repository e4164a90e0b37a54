// Arguments bound as tightly as a kernel uses them.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernel/visit.h"
#include "schedule/state.h"

namespace tensorgrad::schedule {
namespace {

using kernel::Access;
using kernel::ExprNode;
using kernel::Fn;
using kernel::Index;
using kernel::IndexNode;
using kernel::Kernel;
using kernel::Pool;
using kernel::Stage;

/// The elements of each argument that a kernel may touch.
class Ranges {
 public:
  explicit Ranges(const Kernel& kernel) : kernel_(kernel), ranges_(kernel.args.size()) {
    kernel::for_each_access(
        kernel, [&](const Access& access, const auto& extents, bool) { add(access, extents); });
    for (const Stage& stage : kernel.nest.stages) {
      for (const kernel::Store& store : stage.stores) add(store.buffer, store.index);
      for_each_part(
          kernel.pool, roots(stage), [](const IndexNode&) {},
          [&](const ExprNode& n) {
            if (n.fn == Fn::load) add(n.buffer, n.index);
          });
    }
  }

  /// The first element of an argument, and one past the last; both 0 where it is not touched.
  std::pair<std::int64_t, std::int64_t> operator[](std::size_t argument) const {
    const Range& r = ranges_[argument];
    if (r.from >= r.to) return {0, 0};
    return {r.from, r.to};
  }

 private:
  struct Range {
    std::int64_t from = std::numeric_limits<std::int64_t>::max(), to = 0;
  };

  // An access that is guarded may have a range that leaves its buffer; what it touches does not.
  void add(int buffer, std::int64_t first, std::int64_t last) {
    const auto at = static_cast<std::size_t>(buffer);
    Range& r = ranges_[at];
    r.from = std::min(r.from, std::max<std::int64_t>(first, 0));
    r.to = std::max(r.to, std::min(last + 1, kernel_.args[at].elements));
  }
  void add(int buffer, Index index) {
    const IndexNode& n = kernel_.pool.node(index);
    add(buffer, n.lo, n.hi);
  }
  void add(const Access& access, const std::vector<std::int64_t>& extents) {
    if (const auto range = kernel::reach(access, extents)) {
      add(access.buffer, range->first, range->second);
    }
  }

  const Kernel& kernel_;
  std::vector<Range> ranges_;
};

}  // namespace

std::vector<std::int64_t> rebase_arguments(Kernel& k, const Target& target) {
  const Ranges ranges(k);
  std::vector<std::int64_t> bases(k.args.size(), 0);
  bool any = false;
  for (std::size_t i = 0; i < k.args.size(); ++i) {
    kernel::BufferArg& arg = k.args[i];
    const auto [from, to] = ranges[i];
    const std::int64_t unit = std::max<std::int64_t>(1, target.alignment / target.bytes(arg.dtype));
    bases[i] = from / unit * unit;
    // Up to a whole vector of four where the buffer has one, for kernels that load such vectors.
    arg.elements = std::min(arg.elements, (to + 3) / 4 * 4) - bases[i];
    any = any || bases[i] > 0;
  }
  if (!any) return bases;
  const auto base = [&](int buffer) { return bases[static_cast<std::size_t>(buffer)]; };
  kernel::for_each_access(
      k, [&](Access& access, const auto&, bool) { access.offset -= base(access.buffer); });
  Pool& pool = k.pool;
  const auto moved = [&](int buffer, Index index) {
    return pool.sub(index, pool.number(base(buffer)));
  };
  Pool::Mapping mapping;
  mapping.load = [&](const ExprNode& load, Index index, kernel::Expr cond) {
    return pool.load(load.buffer, moved(load.buffer, index), cond, load.dtype);
  };
  for (Stage& stage : k.nest.stages) {
    map_stage(pool, stage, mapping);
    for (kernel::Store& store : stage.stores) store.index = moved(store.buffer, store.index);
  }
  return bases;
}

}  // namespace tensorgrad::schedule
