// Elements of tensors as expressions of stored data: what is not stored is inlined.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "schedule/state.h"

namespace tensorgrad::schedule {

/// Builds expressions of tensors' elements in one pool, inlining what is not stored.
class Puller {
 public:
  /// What the group computes itself: elements of reductions are accumulators, stored maps are
  /// inlined. Called with the element's index; an undefined result means: inline, or load.
  using Override = std::function<kernel::Expr(const Node&, std::span<const kernel::Index>)>;
  /// The kernel argument in which elements of a stored node are read.
  using Argument = std::function<int(const Location&, const Shape&)>;

  /// `inlined` are nodes that are computed here although they are stored.
  Puller(const State& s, kernel::Pool& pool, Argument argument, std::set<const Node*> inlined,
         Override on_member);

  /// The element of `t` at `index`; memory is not touched where `cond` is defined and false.
  kernel::Expr element(const Tensor& t, const std::vector<kernel::Index>& index, kernel::Expr cond);
  /// The same, for a node that is stored but must be computed here.
  kernel::Expr compute(const Node& n, const std::vector<kernel::Index>& index, kernel::Expr cond);
  /// A load of the element of `n` at `index` from where it is stored.
  kernel::Expr load(const Location& at, const Node& n, std::span<const kernel::Index> index,
                    kernel::Expr cond);
  /// The position in the buffer of the element at `index`.
  kernel::Index flat(const Location& at, std::span<const kernel::Index> index);

 private:
  struct Lower;
  kernel::Expr build(const Node& n, const std::vector<kernel::Index>& index, kernel::Expr cond);
  kernel::Expr through(const Node& n, Source s, kernel::Expr cond);

  const State& s_;
  kernel::Pool& pool_;
  Argument argument_;
  std::set<const Node*> inlined_;
  Override override_;
  std::map<std::pair<const Node*, std::vector<std::int32_t>>, kernel::Expr> memo_;
};

}  // namespace tensorgrad::schedule
