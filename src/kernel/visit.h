// Walks over the parts of expressions.
#pragma once

#include <functional>
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

/// The buffer of a contraction's result; -1 for the gradients of attention, which are several.
int result_buffer(const Contraction& contraction);

}  // namespace tensorgrad::kernel
