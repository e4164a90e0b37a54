// Temporaries computed over others that are read for the last time.
#include "kernel/overwrite.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <vector>

#include "schedule/state.h"

namespace tensorgrad::schedule {
namespace {

using kernel::ExprNode;
using kernel::Index;
using kernel::Kernel;
using kernel::Pool;
using kernel::Stage;

bool scans(const Stage& stage) { return !stage.accumulators.empty() && !stage.stores.empty(); }

bool reduces(const Stage& stage) { return !stage.accumulators.empty(); }

/// Whether stages of a kernel stand in the order in which each point of the outer loops runs them.
/// Those of a map may run one after the other over all points, which would take another pass where
/// one must wait for the other.
bool runs_by_rows(const Kernel& kernel) {
  const auto& stages = kernel.nest.stages;
  return stages.size() == 1 || std::any_of(stages.begin(), stages.end(), reduces);
}

class Overwriter {
 public:
  Overwriter(const std::vector<PlanBuffer>& buffers, std::vector<Lowered>& kernels)
      : buffers_(buffers),
        kernels_(kernels),
        first_(buffers.size(), -1),
        last_(buffers.size(), -1) {
    for (std::size_t d = 0; d < kernels.size(); ++d) {
      for (const int b : kernels[d].buffers) {
        int& first = first_[static_cast<std::size_t>(b)];
        if (first < 0) first = static_cast<int>(d);
        last_[static_cast<std::size_t>(b)] = static_cast<int>(d);
      }
    }
  }

  void run() {
    std::vector<int> stands_for(buffers_.size());
    std::iota(stands_for.begin(), stands_for.end(), 0);
    for (std::size_t d = 0; d < kernels_.size(); ++d) {
      Lowered& l = kernels_[d];
      for (int& b : l.buffers) b = stands_for[static_cast<std::size_t>(b)];
      if (l.kernel.contraction || l.kernel.sort || !runs_by_rows(l.kernel) ||
          std::any_of(l.kernel.nest.stages.begin(), l.kernel.nest.stages.end(), scans)) {
        continue;
      }
      while (const auto found = find(static_cast<int>(d), l)) {
        const auto [from, to] = *found;
        const auto old = static_cast<std::size_t>(l.buffers[static_cast<std::size_t>(from)]);
        const auto made = static_cast<std::size_t>(l.buffers[static_cast<std::size_t>(to)]);
        stands_for[made] = static_cast<int>(old);
        last_[old] = last_[made];
        join(l, from, to);
      }
    }
  }

 private:
  /// The arguments of the largest temporary that the kernel reads last, and of one that may be
  /// written over it.
  std::optional<std::pair<int, int>> find(int d, const Lowered& l) const {
    std::optional<Kernel> shared;
    std::optional<std::pair<int, int>> best;
    std::int64_t most = 0;
    const auto& args = l.kernel.args;
    for (std::size_t to = 0; to < args.size(); ++to) {
      const auto made = static_cast<std::size_t>(l.buffers[to]);
      const PlanBuffer& b = buffers_[made];
      if (b.kind != BufferKind::temp || args[to].read || first_[made] != d) continue;
      for (std::size_t from = 0; from < args.size(); ++from) {
        const auto old = static_cast<std::size_t>(l.buffers[from]);
        const PlanBuffer& a = buffers_[old];
        if (a.kind != BufferKind::temp || args[from].written || last_[old] != d) continue;
        if (a.dtype != b.dtype || a.elements != b.elements || b.bytes() <= most) continue;
        if (!shared) shared = kernel::share_loops(l.kernel);
        const auto [from_arg, to_arg] = std::pair(static_cast<int>(from), static_cast<int>(to));
        if (!kernel::stores_once(*shared, to_arg) ||
            !kernel::reads_before_writing(*shared, from_arg, to_arg)) {
          continue;
        }
        best = {from_arg, to_arg};
        most = b.bytes();
      }
    }
    return best;
  }

  /// Makes argument `to` the same as `from`.
  static void join(Lowered& l, int from, int to) {
    Kernel& k = l.kernel;
    k.args[static_cast<std::size_t>(from)].written = true;
    k.args.erase(k.args.begin() + to);
    l.buffers.erase(l.buffers.begin() + to);
    const auto moved = [&](int arg) {
      const int target = arg == to ? from : arg;
      return target > to ? target - 1 : target;
    };
    Pool& pool = k.pool;
    Pool::Mapping mapping;
    mapping.load = [&](const ExprNode& load, Index index, kernel::Expr cond) {
      return pool.load(moved(load.buffer), index, cond, load.dtype);
    };
    for (Stage& stage : k.nest.stages) {
      map_stage(pool, stage, mapping);
      for (kernel::Store& store : stage.stores) store.buffer = moved(store.buffer);
    }
  }

  const std::vector<PlanBuffer>& buffers_;
  std::vector<Lowered>& kernels_;
  std::vector<int> first_, last_;  ///< kernels that touch a buffer
};

}  // namespace

void overwrite_temporaries(const std::vector<PlanBuffer>& buffers, std::vector<Lowered>& kernels) {
  Overwriter(buffers, kernels).run();
}

}  // namespace tensorgrad::schedule
