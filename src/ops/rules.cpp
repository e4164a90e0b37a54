#include "ops/rules.h"

namespace tensorgrad {

void check_dtype(const Op& op, DType dtype, std::span<const DType> allowed, const Site& site) {
  std::string list;
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    if (dtype == allowed[i]) return;
    if (i > 0) list += i + 1 == allowed.size() ? " or " : ", ";
    list += name(allowed[i]);
  }
  throw DTypeError(fmt::format("{}: takes {}, not {}.", *op.name, list, name(dtype)), site);
}

void check_same(const Op& op, DType a, DType b, const Site& site) {
  if (a == b) return;
  throw DTypeError(fmt::format("{}: dtypes differ: {} and {}.", *op.name, name(a), name(b)), site);
}

std::vector<Tensor> batch_all(Operands operands, Batched batched, std::int64_t size) {
  std::vector<Tensor> out;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    out.push_back(batched[i] ? operands[i] : prim::add_leading(operands[i], size));
  }
  return out;
}

Tensor vmap_elementwise(const Tensor& y, Operands operands, Batched batched, std::int64_t size) {
  return remake(y.node(), batch_all(operands, batched, size));
}

Type infer_same(const Op&, Operands operands, const Attrs&, const Site&) {
  return {operands[0].shape(), operands[0].dtype()};
}
Source lower_identity(kernel::Pool&, const Node&, std::span<const kernel::Index> index) {
  return {0, {index.begin(), index.end()}, {}};
}
RefArray reference_identity(const Node& node, RefOperands operands) {
  return {node.type, operands[0]->data};
}

Shape strides_of(const Shape& shape) {
  Shape s(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) s[i - 1] = s[i] * shape[i];
  return s;
}

Shape unravel(std::int64_t flat, const Shape& shape) {
  Shape index(shape.size(), 0);
  for (std::size_t i = shape.size(); i-- > 0;) {
    index[i] = flat % shape[i];
    flat /= shape[i];
  }
  return index;
}

Shape without(const Shape& shape, const std::vector<int>& axes) {
  Shape out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (next < axes.size() && axes[next] == static_cast<int>(i)) {
      ++next;
    } else {
      out.push_back(shape[i]);
    }
  }
  return out;
}

std::vector<Shape> sample_shapes() {
  return {{}, {1}, {7}, {0}, {3, 5}, {4, 1}, {2, 0, 3}, {2, 3, 17}, {1, 2, 3, 2}, {2, 1, 3, 1, 2}};
}

}  // namespace tensorgrad
