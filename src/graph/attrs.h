// Attributes of primitive ops: plain values that can be compared, hashed and printed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "tensorgrad/dtype.h"
#include "tensorgrad/tensor.h"

namespace tensorgrad {

class CustomRule;  // ops/custom.h

/// Immutable host memory behind a `data` node.
struct HostData {
  std::vector<std::byte> bytes;
};

/// Axes of a reduction (sorted, non-negative) or the permutation of `permute`.
struct AxesAttr {
  std::vector<int> axes;
  auto tie() const { return std::tie(axes); }
};
/// Target shape of `reshape` and `broadcast`. For `broadcast`, `axes[i]` is the output dimension of
/// operand dimension i (strictly increasing).
struct ShapeAttr {
  Shape shape;
  std::vector<int> axes;
  auto tie() const { return std::tie(shape, axes); }
};
/// Per dimension: out[i] = in[start + i * stride], ceil((limit - start) / stride) elements.
struct SliceAttr {
  Shape start, limit, stride;
  auto tie() const { return std::tie(start, limit, stride); }
};
/// Per dimension: `low` and `high` zeros (of the dtype) around the operand and `interior` zeros
/// between its elements; all >= 0.
struct PadAttr {
  Shape low, high, interior;
  auto tie() const { return std::tie(low, high, interior); }
};
/// One axis: `iota`, `concat`, `scatter_add`.
struct AxisAttr {
  int axis = 0;
  std::int64_t size = 0;  ///< where the op needs an extent (scatter_add: the output's)
  auto tie() const { return std::tie(axis, size); }
};
/// gather: the axis that is indexed, and what an index out of range reads (NaN equals NaN here).
struct GatherAttr {
  int axis = 0;
  double fill = 0;
  auto tie() const { return std::tie(axis, fill); }
};
/// A running combination along one axis, from its front or, with `reverse`, from its end.
struct ScanAttr {
  int axis = 0;
  bool reverse = false;
  auto tie() const { return std::tie(axis, reverse); }
};
/// sort, argsort: the axis, and whether the largest elements come first.
struct SortAttr {
  int axis = 0;
  bool descending = false;
  auto tie() const { return std::tie(axis, descending); }
};
/// dot_general: dimensions of each operand that are paired as batch or contracted. The output is
/// [batch..., lhs free..., rhs free...].
struct DotAttr {
  std::vector<int> lhs_batch, rhs_batch, lhs_contract, rhs_contract;
  auto tie() const { return std::tie(lhs_batch, rhs_batch, lhs_contract, rhs_contract); }
};
/// Convolution: x [N, groups * I, ...], w [groups * O, I, ...], y [N, groups * O, ...], one entry
/// of each list a spatial dimension. The gradients cannot infer the extents of x and w from
/// operands.
struct ConvAttr {
  Shape stride, pad_low, pad_high, dilation;
  std::int64_t groups = 1;
  Shape input_size, kernel_size;  ///< spatial extents of x and w
  auto tie() const {
    return std::tie(stride, pad_low, pad_high, dilation, groups, input_size, kernel_size);
  }
};
/// A rank-0 constant; every supported dtype's values are exact in double.
struct ConstantAttr {
  double value = 0;
  auto tie() const { return std::tie(value); }
};
/// Target dtype of `cast` and `bitcast`.
struct DTypeAttr {
  DType dtype = DType::f32;
  auto tie() const { return std::tie(dtype); }
};
/// A literal array.
struct DataAttr {
  std::shared_ptr<const HostData> data;
  auto tie() const { return std::tie(data); }
};
/// What an `input` node stands for.
enum class InputRole : std::uint8_t { input, state, argument };
/// A placeholder. `argument` placeholders are made by transforms and are known by node identity.
struct InputAttr {
  InputRole role = InputRole::input;
  std::string name;
  auto tie() const { return std::tie(role, name); }
};
/// A name (`capture`).
struct NameAttr {
  std::string name;
  auto tie() const { return std::tie(name); }
};
/// The buffer that `assign` replaces.
struct BufferAttr {
  std::string name;
  auto tie() const { return std::tie(name); }
};
/// A small number that selects a variant (`threefry`: which output word).
struct IndexAttr {
  int index = 0;
  auto tie() const { return std::tie(index); }
};

/// Attention: scores are `scale` times the products of queries and keys; where `causal`, a query
/// sees the keys up to its own position.
struct AttentionAttr {
  double scale = 1;
  bool causal = false;
  auto tie() const { return std::tie(scale, causal); }
};

/// The derivative of a `custom` node.
struct CustomAttr {
  std::shared_ptr<const CustomRule> rule;
  auto tie() const { return std::tie(rule); }
};

using Attrs =
    std::variant<std::monostate, AxesAttr, ShapeAttr, SliceAttr, PadAttr, AxisAttr, GatherAttr,
                 ScanAttr, SortAttr, DotAttr, ConvAttr, ConstantAttr, DTypeAttr, DataAttr,
                 InputAttr, NameAttr, IndexAttr, CustomAttr, BufferAttr, AttentionAttr>;

bool operator==(const Attrs& a, const Attrs& b);  // bitwise on doubles: -0 != 0, NaN == NaN
std::size_t hash(const Attrs& attrs);
/// "axes=[0, 1]": empty for no attributes.
std::string to_string(const Attrs& attrs);

}  // namespace tensorgrad
