// The op registry: everything that is known about a primitive op, in one row.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/node.h"
#include "kernel/kernel.h"

namespace tensorgrad {

/// A field that a row must give: it has no default, so a row that forgets it does not compile.
template <class T>
struct Required {
  // NOLINTNEXTLINE(google-explicit-constructor): rows read better without wrapping
  template <class U>
    requires std::is_convertible_v<U, T>
  constexpr Required(U&& v) : value(std::forward<U>(v)) {}  // NOLINT
  Required() = delete;
  constexpr const T& operator*() const { return value; }
  constexpr const T* operator->() const { return &value; }
  T value;
};

/// A required field that serves the tests and the reference interpreter. A build without these, as
/// a page's, does not hold its value, so that nothing reaches the code behind it.
#ifdef TENSORGRAD_WITHOUT_REFERENCE
template <class T>
struct ForReference {
  template <class U>
    requires std::is_convertible_v<U, T>
  constexpr ForReference(U&& /*value*/) {}  // NOLINT: rows read better without wrapping
  ForReference() = delete;
};
#else
template <class T>
using ForReference = Required<T>;
#endif

/// A value in the reference interpreter: every dtype in double (integers and bools exact).
struct RefArray {
  Type type;
  std::vector<double> data;
};

// ---- lowerings: how the schedule sees an op ------------------------------------------------------

/// Where an output element of a view comes from: operand, element index (one Index a dimension of
/// the operand) and validity (undefined: always; where false the element is `fill`).
struct Source {
  int operand = 0;
  std::vector<kernel::Index> index;
  kernel::Expr valid = {};
  double fill = 0;  ///< 0 for every view; a gather may fill with NaN
};
/// Reads element `index` of operand `operand`, as the lowering of an indirect view needs.
using ReadOperand = std::function<kernel::Expr(int operand, std::span<const kernel::Index> index)>;

/// Supplied by the caller of the graph: inputs, states, literal arrays.
struct LowerLeaf {};
/// A scalar computed from the element's index alone: constant, iota.
struct LowerGenerate {
  kernel::Expr (*fn)(kernel::Pool&, const Node&, std::span<const kernel::Index> index);
};
/// An elementwise function of operands of equal shape.
struct LowerMap {
  kernel::Expr (*fn)(kernel::Pool&, const Node&, std::span<const kernel::Expr> operands);
};
/// Index arithmetic: reshape, permute, broadcast, slice, pad, capture. Direct views of one operand.
struct LowerView {
  Source (*fn)(kernel::Pool&, const Node&, std::span<const kernel::Index> index);
  bool keeps_order = false;  ///< the same elements in the same row-major order (reshape, tags)
};
/// Joins operands along `axis` (AxisAttr).
struct LowerConcat {};
/// A view whose index is read from operand 1 (gather).
struct LowerIndirect {
  Source (*fn)(kernel::Pool&, const Node&, std::span<const kernel::Index> index,
               const ReadOperand& read);
};
/// A reduction over AxesAttr of operand 0; the reduced dimensions vanish.
struct LowerReduce {
  kernel::Combiner combiner;
};
/// A running combination along an axis (ScanAttr); argmax and argmin give positions along the axis.
struct LowerScan {
  kernel::Combiner combiner;
};
/// A stable sort along an axis (SortAttr): the elements, or with `indices` the positions that they
/// come from.
struct LowerSort {
  bool indices = false;
};
/// dot_general (DotAttr).
struct LowerDot {};
/// Convolution or one of its gradients (ConvAttr).
struct LowerConv {
  kernel::Conv::Mode mode;
};
/// Attention, or one of its gradients (AttentionAttr): a result of kernel::Attention. Operands are
/// q, k, v and for gradients out, lse, dout; then the mask, if there is one.
struct LowerAttention {
  enum class Result : std::uint8_t { out, lse, dq, dk, dv } result;
};
/// out = zeros; for every element of `updates` in order: out[index] += update (scatter_add).
/// `fn` gives the output index of element `index` of the updates, operand 1; where it is not valid
/// the element is dropped. Indices are operand 0.
struct LowerScatter {
  Source (*fn)(kernel::Pool&, const Node&, std::span<const kernel::Index> index,
               const ReadOperand& read);
};

using Lowering = std::variant<LowerLeaf, LowerGenerate, LowerMap, LowerView, LowerConcat,
                              LowerIndirect, LowerReduce, LowerScan, LowerSort, LowerDot, LowerConv,
                              LowerAttention, LowerScatter>;

// ---- rules ---------------------------------------------------------------------------------------

/// Infers the result's type, or throws ShapeError or DTypeError naming `site`.
using InferRule = Type (*)(const Op& op, std::span<const Tensor> operands, const Attrs& attrs,
                           const Site& site);
/// Tangent of the output `y`, given the operands' tangents (empty handles are zero; at least one is
/// not). An empty result is a zero tangent.
using JvpRule = Tensor (*)(const Tensor& y, std::span<const Tensor> tangents);
/// Cotangents of the operands for which `linear[i]`, given the output's cotangent; `y` is linear in
/// those operands. An empty handle is zero.
using TransposeRule = std::vector<Tensor> (*)(const Tensor& y, const Tensor& cotangent,
                                              const std::vector<bool>& linear);
/// The op applied to a batch: operand i has a new leading dimension of extent `size` where
/// `batched[i]` (at least one); the result must have it.
using VmapRule = Tensor (*)(const Tensor& y, std::span<const Tensor> operands,
                            const std::vector<bool>& batched, std::int64_t size);
/// The op in double precision, written to be obviously right.
using ReferenceRule = RefArray (*)(const Node& node, std::span<const RefArray* const> operands);

/// Why an op has no derivative: a row says so instead of giving a rule.
struct NotDifferentiable {
  std::string_view why;
};
/// The op is not linear in any operand.
struct NotLinear {};

/// One application of an op for the generated tests.
struct Sample {
  std::vector<Type> operands;
  Attrs attrs;
  double low = -2, high = 2;  ///< floats are drawn from here (derivatives must exist inside)
  std::vector<std::pair<double, double>> ranges = {};  ///< per operand, where they differ
  bool special_values = true;  ///< also run on NaN, infinities, zeros, largest and smallest values
};

/// A row of the registry.
struct Op {
  Required<std::string_view> name;
  Required<std::string_view> doc;  ///< one line
  Required<InferRule> infer;
  Required<std::variant<NotDifferentiable, JvpRule>> jvp;
  Required<std::variant<NotLinear, TransposeRule>> transpose;
  Required<VmapRule> vmap;
  Required<Lowering> lowering;
  ForReference<ReferenceRule> reference;
  /// Applications that cover ranks 0-5, size-1 and empty axes, odd sizes and every dtype taken.
  ForReference<std::vector<Sample> (*)()> samples;
  /// Relative tolerance, in ULP of f32, of a backend against the reference (0: exact).
  Required<double> ulp;
  /// Whether the derivative travels from operand `i` to the result; all operands where not given.
  bool (*carries)(const Node& node, std::size_t i) = nullptr;
};

/// All rows, in the order of the docs.
std::span<const Op* const> registry();
/// The row of that name. Throws GraphError if there is none.
const Op& find_op(std::string_view name);

/// Calls `visit(lowering)`.
template <class V>
decltype(auto) visit_lowering(const Node& node, V&& visit) {
  return std::visit(std::forward<V>(visit), *node.op->lowering);
}
template <class L>
const L* lowering_as(const Node& node) {
  return std::get_if<L>(&*node.op->lowering);
}

}  // namespace tensorgrad
