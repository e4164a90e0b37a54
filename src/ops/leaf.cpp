// Leaves: constants, iota, literal arrays, placeholders.
#include <bit>
#include <cstring>

#include "ops/rules.h"

namespace tensorgrad {
namespace {

using kernel::Expr;
using kernel::Index;
using kernel::Pool;

// A leaf's type is not a function of operands: builders set it through this attribute-free path.
Tensor leaf(const Op& op, Attrs attrs, const Type& type, const Site& site) {
  auto node = std::make_shared<Node>();
  node->op = &op;
  node->attrs = std::move(attrs);
  node->type = type;
  node->site = SiteScope::resolve(site);
  return Tensor(std::move(node));
}

Type infer_leaf(const Op& op, std::span<const Tensor>, const Attrs&, const Site& site) {
  throw GraphError(fmt::format("{}: a leaf cannot be rebuilt from operands.", *op.name), site);
}

Tensor no_tangent(const Tensor&, std::span<const Tensor>) { return {}; }

Tensor vmap_leaf(const Tensor& y, std::span<const Tensor>, const std::vector<bool>&,
                 std::int64_t size) {
  return prim::add_leading(y, size);
}

RefArray no_reference(const Node& node, std::span<const RefArray* const>) {
  throw GraphError(
      fmt::format("{}: {} is not bound to a value here.", *node.op->name, to_string(node.attrs)),
      node.site);
}

std::vector<Sample> no_samples() { return {}; }

Op leaf_row(std::string_view name, std::string_view doc, Lowering lowering,
            ReferenceRule reference) {
  return {.name = name,
          .doc = doc,
          .infer = infer_leaf,
          .jvp = JvpRule{no_tangent},
          .transpose = NotLinear{},
          .vmap = vmap_leaf,
          .lowering = std::move(lowering),
          .reference = reference,
          .samples = no_samples,
          .ulp = 0};
}

RefArray reference_constant(const Node& n, std::span<const RefArray* const>) {
  return {n.type, {n.attr<ConstantAttr>().value}};
}

RefArray reference_iota(const Node& n, std::span<const RefArray* const>) {
  RefArray out{n.type, std::vector<double>(static_cast<std::size_t>(numel(n.type.shape)))};
  const auto axis = static_cast<std::size_t>(n.attr<AxisAttr>().axis);
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    out.data[i] = static_cast<double>(unravel(static_cast<std::int64_t>(i), n.type.shape)[axis]);
  }
  return out;
}

RefArray reference_data(const Node& n, std::span<const RefArray* const>) {
  const auto& bytes = n.attr<DataAttr>().data->bytes;
  RefArray out{n.type, {}};
  const std::size_t size = info(n.type.dtype).bytes;
  for (std::size_t i = 0; i < bytes.size(); i += size) {
    const auto read = [&]<class T>(T v) {
      std::memcpy(&v, &bytes[i], sizeof v);
      out.data.push_back(static_cast<double>(v));
    };
    switch (n.type.dtype) {
      case DType::bool_:
        read(std::uint8_t{});
        break;
      case DType::i32:
        read(std::int32_t{});
        break;
      case DType::u32:
        read(std::uint32_t{});
        break;
      case DType::f32:
        read(float{});
        break;
      case DType::f16:
        read(Half{});
        break;
    }
  }
  return out;
}

Expr lower_constant(Pool& pool, const Node& n, std::span<const Index>) {
  return pool.constant(n.attr<ConstantAttr>().value, n.type.dtype);
}
Expr lower_iota(Pool& pool, const Node& n, std::span<const Index> index) {
  return pool.from_index(index[static_cast<std::size_t>(n.attr<AxisAttr>().axis)], n.type.dtype);
}

enum Row : std::size_t { constant, iota, data, input, training_flag, step_key, row_count };

std::span<const Op> rows() {
  static const Op table[row_count] = {
      leaf_row("constant", "A number as a rank-0 tensor.", LowerGenerate{lower_constant},
               reference_constant),
      leaf_row("iota", "0, 1, 2, … along one axis.", LowerGenerate{lower_iota}, reference_iota),
      leaf_row("data", "A literal array from host memory.", LowerLeaf{}, reference_data),
      leaf_row("input", "A placeholder for a fed array, a parameter or another state.", LowerLeaf{},
               no_reference),
      leaf_row("training_flag",
               "A bool: whether the program trains. Bound when a program is compiled.", LowerLeaf{},
               no_reference),
      leaf_row("step_key",
               "The random key of one stochastic call. Bound when a program is compiled.",
               LowerLeaf{}, no_reference),
  };
  return table;
}

}  // namespace

std::span<const Op> leaf_ops() { return rows(); }

namespace prim {

Tensor constant(double value, DType dtype, const Site& site) {
  return leaf(rows()[Row::constant], ConstantAttr{kernel::round_to(dtype, value)}, {{}, dtype},
              site);
}
Tensor full(const Shape& shape, double value, DType dtype, const Site& site) {
  const Tensor c = constant(value, dtype, site);
  return shape.empty() ? c : broadcast(c, shape, {}, site);
}
Tensor zeros_like(const Tensor& t) { return full(t.shape(), 0, t.dtype()); }
Tensor iota(const Shape& shape, int axis, DType dtype, const Site& site) {
  return leaf(rows()[Row::iota], AxisAttr{axis, 0}, {shape, dtype}, site);
}
Tensor data(const Type& type, std::vector<std::byte> bytes, const Site& site) {
  return data(type, std::make_shared<const HostData>(HostData{std::move(bytes)}), site);
}
Tensor data(const Type& type, std::shared_ptr<const HostData> value, const Site& site) {
  return leaf(rows()[Row::data], DataAttr{std::move(value)}, type, site);
}
Tensor input(InputRole role, const std::string& name, const Type& type, const Site& site) {
  return leaf(rows()[Row::input], InputAttr{role, name}, type, site);
}
Tensor training_flag(const Site& site) {
  return leaf(rows()[Row::training_flag], std::monostate{}, {{}, DType::bool_}, site);
}
Tensor step_key(const Site& site) {
  return leaf(rows()[Row::step_key], std::monostate{}, {{2}, DType::u32}, site);
}

}  // namespace prim
}  // namespace tensorgrad
