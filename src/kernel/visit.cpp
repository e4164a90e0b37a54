#include "kernel/visit.h"

#include <cstdint>
#include <optional>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

namespace tensorgrad::kernel {

Roots roots(const Stage& stage) {
  Roots result;
  const auto add_expr = [&](Expr e) {
    if (e.defined()) result.exprs.push_back(e);
  };
  const auto add_index = [&](Index i) {
    if (i.id >= 0) result.indices.push_back(i);
  };
  for (const Accumulator& accumulator : stage.accumulators) {
    add_expr(accumulator.value);
    add_index(accumulator.position);
  }
  for (const Store& store : stage.stores) {
    add_index(store.index);
    add_expr(store.value);
    add_expr(store.cond);
  }
  return result;
}

void for_each_part(const Pool& pool, const Roots& roots,
                   const std::function<void(const IndexNode&)>& visit_index,
                   const std::function<void(const ExprNode&)>& visit_expr) {
  std::unordered_set<std::int32_t> seen_exprs;
  std::unordered_set<std::int32_t> seen_indices;
  std::vector<Expr> exprs;
  std::vector<Index> indices;
  const auto push_expr = [&](Expr e) {
    if (e.defined() && seen_exprs.insert(e.id).second) exprs.push_back(e);
  };
  const auto push_index = [&](Index i) {
    if (i.id >= 0 && seen_indices.insert(i.id).second) indices.push_back(i);
  };
  for (const Expr e : roots.exprs) push_expr(e);
  for (const Index i : roots.indices) push_index(i);
  while (!exprs.empty() || !indices.empty()) {
    if (!exprs.empty()) {
      const ExprNode& n = pool.node(exprs.back());
      exprs.pop_back();
      for (const std::int32_t arg : n.args) push_expr(Expr{arg});
      push_index(n.index);
      visit_expr(n);
    } else {
      const IndexNode& n = pool.node(indices.back());
      indices.pop_back();
      for (const auto& term : n.terms) push_index(Index{term.first});
      push_index(Index{n.arg});
      push_expr(n.expr);
      visit_index(n);
    }
  }
}

void for_each_part(const Pool& pool, Index root,
                   const std::function<void(const IndexNode&)>& visit_index,
                   const std::function<void(const ExprNode&)>& visit_expr) {
  for_each_part(pool, Roots{{}, {root}}, visit_index, visit_expr);
}

void for_each_part(const Pool& pool, Expr root,
                   const std::function<void(const IndexNode&)>& visit_index,
                   const std::function<void(const ExprNode&)>& visit_expr) {
  for_each_part(pool, Roots{{root}, {}}, visit_index, visit_expr);
}

std::optional<std::pair<std::int64_t, std::int64_t>> reach(
    const Access& access, const std::vector<std::int64_t>& extents) {
  std::int64_t first = access.offset;
  std::int64_t last = access.offset;
  std::int64_t dense = 1;
  for (std::size_t i = extents.size(); i-- > 0;) {
    if (extents[i] == 0) return std::nullopt;
    const std::int64_t stride = access.strides.empty() ? dense : access.strides[i];
    (stride < 0 ? first : last) += (extents[i] - 1) * stride;
    dense *= extents[i];
  }
  return std::pair(first, last);
}

int result_buffer(const Contraction& contraction) {
  if (const auto* matmul = std::get_if<Matmul>(&contraction)) return matmul->out.buffer;
  if (const auto* attention = std::get_if<Attention>(&contraction)) {
    return attention->mode == Attention::Mode::forward ? attention->out.buffer : -1;
  }
  const Conv& conv = std::get<Conv>(contraction);
  switch (conv.mode) {
    case Conv::Mode::forward:
      return conv.y.buffer;
    case Conv::Mode::input_grad:
      return conv.x.buffer;
    case Conv::Mode::weight_grad:
      break;
  }
  return conv.w.buffer;
}

}  // namespace tensorgrad::kernel
