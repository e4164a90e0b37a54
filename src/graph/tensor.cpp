#include "tensorgrad/tensor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "graph/node.h"

namespace tensorgrad {

std::int64_t numel(const Shape& shape) {
  std::int64_t n = 1;
  for (std::int64_t d : shape) n *= d;
  return n;
}

std::string to_string(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

const Node& Tensor::node() const {
  if (!node_) throw GraphError("A tensor handle is empty: it has not been given a value.");
  return *node_;
}
const Shape& Tensor::shape() const { return node().type.shape; }
DType Tensor::dtype() const { return node().type.dtype; }
std::int64_t Tensor::dim(int axis, Site site) const {
  const int r = rank();
  if (axis < -r || axis >= r) {
    throw ShapeError(
        fmt::format("dim: axis {} is out of range for shape {}.", axis, to_string(shape())), site);
  }
  return shape()[static_cast<std::size_t>(axis < 0 ? axis + r : axis)];
}

}  // namespace tensorgrad
