// What views of tensors are views of.
#pragma once

#include <cstdint>
#include <optional>

#include "graph/node.h"

namespace tensorgrad {

/// The node behind views, and which of its elements (row-major) the view's are: offset + strides *
/// index.
struct ViewSource {
  const Node* node = nullptr;
  std::int64_t offset = 0;
  Shape strides;  ///< one for each dimension of the view
};

/// Follows views that only rearrange; nothing where elements do not lie at such places. A tensor
/// that is no view is its own source.
std::optional<ViewSource> behind_views(const Node& view);

/// The value of a tensor whose elements are all one constant.
std::optional<double> uniform_value(const Tensor& t);

}  // namespace tensorgrad
