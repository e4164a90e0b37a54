// Walks over the parts of expressions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "kernel/kernel.h"

namespace tensorgrad::kernel {

/// Expressions and indices to walk from.
struct Roots {
  std::vector<Expr> exprs;
  std::vector<Index> indices;
};

/// Everything that a stage computes: accumulator values and positions, store indices, values and
/// conditions, as far as defined.
Roots roots(const Stage& stage);

/// Calls the visitors for each part below the roots, once each, operands of a part in no order.
void for_each_part(const Pool& pool, const Roots& roots,
                   const std::function<void(const IndexNode&)>& visit_index,
                   const std::function<void(const ExprNode&)>& visit_expr);
void for_each_part(const Pool& pool, Index root,
                   const std::function<void(const IndexNode&)>& visit_index,
                   const std::function<void(const ExprNode&)>& visit_expr);
void for_each_part(const Pool& pool, Expr root,
                   const std::function<void(const IndexNode&)>& visit_index,
                   const std::function<void(const ExprNode&)>& visit_expr);

/// Calls f(access, extents, is_written) for each access of a contraction or a sort of `kernel`
/// (const or not): `extents` are those of the dimensions that its strides are for. An access
/// without strides is dense over its extents.
template <class K, class F>
void for_each_access(K& kernel, const F& f) {
  using Extents = std::vector<std::int64_t>;
  const auto visit = [&](auto& access, Extents extents, Extents last, bool is_written) {
    if (access.buffer < 0) return;
    extents.insert(extents.end(), last.begin(), last.end());
    f(access, extents, is_written);
  };
  const auto visit_one = [&](auto& c) {
    using C = std::remove_cvref_t<decltype(c)>;
    if constexpr (std::is_same_v<C, Matmul>) {
      Extents left = c.batch;
      left.push_back(c.m);
      Extents right = c.k;
      right.push_back(c.n);
      visit(c.lhs, std::move(left), c.k, false);
      visit(c.rhs, c.batch, std::move(right), false);
      visit(c.out, c.batch, {c.m, c.n}, true);
    } else if constexpr (std::is_same_v<C, Conv>) {
      visit(c.x, {c.batch, c.groups, c.in_channels}, c.input, c.mode == Conv::Mode::input_grad);
      visit(c.w, {c.groups, c.out_channels, c.in_channels}, c.kernel,
            c.mode == Conv::Mode::weight_grad);
      visit(c.y, {c.batch, c.groups, c.out_channels}, c.output, c.mode == Conv::Mode::forward);
    } else {
      const bool forward = c.mode == Attention::Mode::forward;
      visit(c.q, c.batch, {c.queries, c.depth}, false);
      visit(c.k, c.batch, {c.keys, c.depth}, false);
      visit(c.v, c.batch, {c.keys, c.value_depth}, false);
      visit(c.mask, c.batch, {c.queries, c.keys}, false);
      visit(c.out, c.batch, {c.queries, c.value_depth}, forward);
      visit(c.lse, c.batch, {c.queries}, forward);
      visit(c.dout, c.batch, {c.queries, c.value_depth}, false);
      visit(c.dq, c.batch, {c.queries, c.depth}, true);
      visit(c.dk, c.batch, {c.keys, c.depth}, true);
      visit(c.dv, c.batch, {c.keys, c.value_depth}, true);
    }
  };
  if (kernel.contraction) std::visit(visit_one, *kernel.contraction);
  if (kernel.sort) {
    auto& s = *kernel.sort;
    visit(s.in, {s.outer}, {s.length, s.inner}, false);
    visit(s.values, {s.outer}, {s.length, s.inner}, true);
    visit(s.indices, {s.outer}, {s.length, s.inner}, true);
  }
}

/// The first and the last element that an access over `extents` reaches; none without elements.
std::optional<std::pair<std::int64_t, std::int64_t>> reach(
    const Access& access, const std::vector<std::int64_t>& extents);

/// The buffer of a contraction's result; -1 for the gradients of attention, which are several.
int result_buffer(const Contraction& contraction);

}  // namespace tensorgrad::kernel
