#include "schedule/lower_base.h"

#include <algorithm>
#include <set>

#include "kernel/overwrite.h"
#include "kernel/visit.h"
#include "ops/rules.h"

namespace tensorgrad::schedule {

using kernel::Expr;
using kernel::Index;
using kernel::IndexNode;
using kernel::Kernel;

LoweringBase::LoweringBase(const State& s, const std::vector<int>& ids) : s_(s), ids_(ids) {
  // Who reads what a copy copies reads the original.
  for (int i : ids_) {
    if (!is_copy(i)) member_[&item(i).value.node()] = i;
  }
}

bool LoweringBase::has(ItemKind kind) const {
  return std::any_of(ids_.begin(), ids_.end(), [&](int i) { return item(i).kind == kind; });
}

std::optional<Location> LoweringBase::located(const Node& n) const {
  const auto at = s_.locations.find(&n);
  return at == s_.locations.end() ? std::nullopt : std::optional(at->second);
}

int LoweringBase::argument(int buffer, bool written) {
  const auto [it, inserted] = arguments_.try_emplace(buffer, static_cast<int>(out_.buffers.size()));
  if (inserted) {
    out_.buffers.push_back(buffer);
    const PlanBuffer& b = s_.buffers[static_cast<std::size_t>(buffer)];
    out_.kernel.args.push_back({b.dtype, b.elements, false, false});
  }
  auto& arg = out_.kernel.args[static_cast<std::size_t>(it->second)];
  (written ? arg.written : arg.read) = true;
  return it->second;
}

int LoweringBase::read_argument(const Location& at, const Shape& shape) {
  Range range{argument(at.buffer), at.offset, at.offset};
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t reach = at.strides[d] * (shape[d] - 1);
    (reach < 0 ? range.first : range.last) += reach;
  }
  read_.push_back(range);
  return range.arg;
}

int LoweringBase::add_loop(std::int64_t extent) {
  out_.kernel.loops.push_back({extent});
  return static_cast<int>(out_.kernel.loops.size()) - 1;
}

Expr LoweringBase::pull_map(Puller& puller, int i, const std::vector<Index>& index) const {
  const Node& n = item(i).value.node();
  if (is_copy(i)) {
    // What it held before would be read: a kernel's loads run before its stores.
    if (member_.contains(&n)) throw Unfit{"a copy of what the same kernel computes"};
    return puller.load(s_.locations.at(&n), n, index, {});
  }
  return puller.compute(n, index, {});
}

void LoweringBase::check_overwrites() const {
  check_operands_survive();
  const Kernel& k = out_.kernel;
  std::set<int> stored;
  for (const kernel::Stage& stage : k.nest.stages) {
    for (const kernel::Store& store : stage.stores) stored.insert(store.buffer);
  }
  std::optional<Kernel> shared;
  for (const int arg : stored) {
    if (!k.args[static_cast<std::size_t>(arg)].read) continue;
    if (!shared) shared = kernel::share_loops(k);
    const bool own_acc = arg == contraction_arg_;
    const int buffer = out_.buffers[static_cast<std::size_t>(arg)];
    const bool has_contents =
        own_acc || s_.buffers[static_cast<std::size_t>(buffer)].kind == BufferKind::state;
    if (has_contents ? kernel::reads_before_writing(*shared, arg, arg)
                     : kernel::reads_elsewhere(*shared, arg) || reads_other_parts(arg)) {
      continue;
    }
    throw Unfit{own_acc ? "the epilogue reads elsewhere than it writes"
                        : "a buffer is read after it is overwritten"};
  }
}

// An index says where it leads whether or not a condition lets it be read: where the nodes lie that
// are read tells parts of a concatenation apart.
bool LoweringBase::reads_other_parts(int arg) const {
  const Kernel& k = out_.kernel;
  for (const kernel::Stage& stage : k.nest.stages) {
    for (const kernel::Store& store : stage.stores) {
      if (store.buffer != arg) continue;
      const IndexNode& written = k.pool.node(store.index);
      for (const Range& read : read_) {
        if (read.arg == arg && written.lo <= read.last && read.first <= written.hi) return false;
      }
    }
  }
  return true;
}

// Blocks of a contraction run in any order: none may overwrite what another still multiplies.
void LoweringBase::check_operands_survive() const {
  const Kernel& k = out_.kernel;
  for_each_access(k, [&](const auto& access, const auto& extents, bool is_written) {
    const auto range = kernel::reach(access, extents);
    if (is_written || !range) return;
    for (const kernel::Stage& stage : k.nest.stages) {
      for (const kernel::Store& store : stage.stores) {
        if (store.buffer != access.buffer) continue;
        const IndexNode& written = k.pool.node(store.index);
        if (written.hi < range->first || range->second < written.lo) continue;
        throw Unfit{"an operand is overwritten while it is read"};
      }
    }
  });
}

}  // namespace tensorgrad::schedule
