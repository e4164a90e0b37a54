// What the rows of views share: index arithmetic of one operand.
#pragma once

#include <numeric>
#include <optional>
#include <vector>

#include "ops/rules.h"

namespace tensorgrad {

/// The reference of a view: `source` gives the operand's multi-index of an output's, or an empty
/// optional where the output is 0.
template <class F>
RefArray view_reference(const Node& n, std::span<const RefArray* const> x, F source) {
  RefArray out{n.type, std::vector<double>(static_cast<std::size_t>(numel(n.type.shape)))};
  const Shape& from = x[0]->type.shape;
  const Shape strides = strides_of(from);
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    const std::optional<Shape> index = source(unravel(static_cast<std::int64_t>(i), n.type.shape));
    if (!index) continue;
    out.data[i] = x[0]->data[static_cast<std::size_t>(
        std::inner_product(index->begin(), index->end(), strides.begin(), std::int64_t{0}))];
  }
  return out;
}

/// axes[i] + 1, behind an axis 0.
std::vector<int> shifted(const std::vector<int>& axes);
/// `first`, then the extents of `rest`.
Shape led_by(std::int64_t first, const Shape& rest);

/// A row of a linear view of one operand.
Op view_row(std::string_view name, std::string_view doc, InferRule infer, TransposeRule transpose,
            VmapRule vmap,
            Source (*lower)(kernel::Pool&, const Node&, std::span<const kernel::Index>),
            ReferenceRule reference, std::vector<Sample> (*samples)());

}  // namespace tensorgrad
