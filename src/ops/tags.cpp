// Tags: ops that pass a value through and say something about it.
#include "ops/rules.h"

namespace tensorgrad {
namespace {

std::vector<Sample> tag_samples() {
  return {{{{{3, 4}, DType::f32}}, NameAttr{"tag"}}, {{{{}, DType::f32}}, NameAttr{"tag"}}};
}

Op capture_row() {
  return {.name = "capture",
          .doc = "Passes a value through and makes it readable under a name.",
          .infer = infer_same,
          .jvp = JvpRule{[](const Tensor&, Tangents t) { return t[0]; }},
          .transpose = TransposeRule{[](const Tensor&, const Tensor& ct, Batched) {
            return Cotangents{ct};
          }},
          .vmap = vmap_elementwise,
          .lowering = LowerView{lower_identity, true},
          .reference = reference_identity,
          .samples = tag_samples,
          .ulp = 0};
}
Op named_row() {
  Op row = capture_row();
  row.name = "named";
  row.doc = "Passes a value through under the name that messages give it: a parameter.";
  return row;
}
Op stop_gradient_row() {
  return {.name = "stop_gradient",
          .doc = "Passes a value through with a zero derivative.",
          .infer = infer_same,
          .jvp = JvpRule{[](const Tensor&, Tangents) { return Tensor(); }},
          .transpose = NotLinear{},
          .vmap = vmap_elementwise,
          .lowering = LowerView{lower_identity, true},
          .reference = reference_identity,
          .samples = [] { return std::vector<Sample>{}; },
          .ulp = 0,
          .carries = [](const Node&, std::size_t) { return false; }};
}

bool first_carries(const Node&, std::size_t i) { return i == 0; }
Op barrier_row() {
  return {.name = "barrier",
          .doc = "Passes its first operand once the second is there: a value to compute from anew.",
          .infer = infer_same,
          .jvp = JvpRule{[](const Tensor&, Tangents t) { return t[0]; }},
          .transpose = TransposeRule{[](const Tensor&, const Tensor& ct, Batched) {
            return Cotangents{ct, Tensor()};
          }},
          .vmap = vmap_elementwise,
          .lowering = LowerView{lower_identity, true},
          .reference = reference_identity,
          .samples = [] { return std::vector<Sample>{}; },
          .ulp = 0,
          .carries = first_carries};
}

Op assign_row() {
  Op row = barrier_row();
  row.name = "assign";
  row.doc = "Passes its first operand; the buffer named is the second from the next step on.";
  row.vmap = [](const Tensor& y, Operands x, Batched batched, std::int64_t size) -> Tensor {
    if (batched[1]) {
      throw GraphError(fmt::format("assign: the elements of a batch have different values for "
                                   "buffer `{}`; assign it outside of vmap.",
                                   y.node().attr<BufferAttr>().name),
                       y.node().site);
    }
    return remake(y.node(), {batched[0] ? x[0] : prim::add_leading(x[0], size), x[1]});
  };
  return row;
}

enum Row : std::size_t { capture, named, stop, barrier_tag, assign_tag };

std::span<const Op> rows() {
  static const Op table[] = {capture_row(), named_row(), stop_gradient_row(), barrier_row(),
                             assign_row()};
  return table;
}

}  // namespace

std::span<const Op> tag_ops() { return rows(); }

namespace prim {

Tensor capture(const std::string& name, const Tensor& x, const Site& site) {
  return make(rows()[Row::capture], {x}, NameAttr{name}, site);
}
Tensor named(const std::string& name, const Tensor& x, const Site& site) {
  return make(rows()[Row::named], {x}, NameAttr{name}, site);
}
Tensor stop_gradient(const Tensor& x, const Site& site) {
  return make(rows()[Row::stop], {x}, std::monostate{}, site);
}
Tensor assign(const std::string& buffer, const Tensor& x, const Tensor& value, const Site& site) {
  return make(rows()[Row::assign_tag], {x, value}, BufferAttr{buffer}, site);
}
Tensor barrier(const Tensor& x, const Tensor& after, const Site& site) {
  return make(rows()[Row::barrier_tag], {x, after}, std::monostate{}, site);
}

}  // namespace prim
}  // namespace tensorgrad
