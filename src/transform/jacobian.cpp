// Jacobians: derivatives along every direction at once, by batching.
#include "ops/primitives.h"
#include "tensorgrad/transforms.h"
#include "transform/derivative.h"

namespace tensorgrad::detail {
namespace {

// The n elements of the standard basis of a tensor's space: [n, shape...].
Tensor basis(const Tensor& t) {
  const std::int64_t n = t.size();
  const Tensor equal = prim::map(
      kernel::Fn::eq, {prim::iota({n, n}, 0, DType::i32), prim::iota({n, n}, 1, DType::i32)});
  Shape shape = t.shape();
  shape.insert(shape.begin(), n);
  return prim::reshape(prim::cast(equal, t.dtype()), shape);
}

Tensor direction(const Tensor& t) {
  return prim::input(InputRole::argument, "direction", t.node().type, t.node().site);
}

Shape joined(const Tensor& y, const Tensor& x) {
  Shape shape = y.shape();
  shape.insert(shape.end(), x.shape().begin(), x.shape().end());
  return shape;
}

Tensor zeros(const Tensor& y, const Tensor& x) {
  return prim::full(joined(y, x), 0, is_floating(y.dtype()) ? y.dtype() : x.dtype());
}

}  // namespace

Jacobian jacobian_forward(std::span<const Tensor> outputs, std::span<const Tensor> inputs) {
  Jacobian out(outputs.size());
  for (const Tensor& x : inputs) {
    const Tensor along = direction(x);
    const Tensor all = basis(x);
    const std::vector<Tensor> tangents =
        jvp_or_zeros(outputs, std::span(&x, 1), std::span(&along, 1));
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const Tensor& y = outputs[o];
      if (!tangents[o].defined()) {
        out[o].push_back(zeros(y, x));
        continue;
      }
      const Tensor columns =
          vmap(std::span(&tangents[o], 1), std::span(&along, 1), std::span(&all, 1), x.size())[0];
      std::vector<int> order;
      for (int d = 1; d < columns.rank(); ++d) order.push_back(d);
      order.push_back(0);
      out[o].push_back(prim::reshape(prim::permute(columns, order), joined(y, x)));
    }
  }
  return out;
}

Jacobian jacobian_reverse(std::span<const Tensor> outputs, std::span<const Tensor> inputs) {
  Jacobian out;
  for (const Tensor& y : outputs) {
    std::vector<Tensor>& row = out.emplace_back();
    std::vector<Tensor> cotangents(inputs.size());
    const Tensor along = direction(y);
    if (is_floating(y.dtype())) {
      cotangents = vjp_or_zeros(std::span(&y, 1), inputs, std::span(&along, 1));
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (!cotangents[i].defined()) {
        row.push_back(zeros(y, inputs[i]));
        continue;
      }
      const Tensor all = basis(y);
      const Tensor rows =
          vmap(std::span(&cotangents[i], 1), std::span(&along, 1), std::span(&all, 1), y.size())[0];
      row.push_back(prim::reshape(rows, joined(y, inputs[i])));
    }
  }
  return out;
}

}  // namespace tensorgrad::detail
