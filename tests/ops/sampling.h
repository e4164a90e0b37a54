// Deterministic random operands for the samples of the op registry, for the tests that are
// generated from it.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "graph/node.h"
#include "ops/primitives.h"
#include "ops/registry.h"
#include "runtime/reference/interpreter.h"

namespace tensorgrad::testing {

using Rng = std::mt19937_64;

/// A generator that depends on the op's name and the sample's number alone.
inline Rng rng_for(const Op& op, std::size_t sample, std::uint64_t purpose = 0) {
  std::uint64_t h = 1469598103934665603U;
  for (char c : *op.name) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return Rng(h + 1000003 * sample + purpose);
}

/// Uniform in [0, 1), the same on every standard library.
inline double unit(Rng& rng) { return static_cast<double>(rng() >> 11) * 0x1.0p-53; }

/// Floats of [low, high] that f32 holds, integers of [low, high] that the dtype holds, or bools.
inline RefArray draw(const Type& type, double low, double high, Rng& rng) {
  RefArray out{type, {}};
  for (std::int64_t i = 0; i < numel(type.shape); ++i) {
    const double u = unit(rng);
    double v = 0;
    switch (type.dtype) {
      case DType::bool_:
        v = u < 0.5 ? 0 : 1;
        break;
      case DType::f32:
      case DType::f16:
        v = low + u * (high - low);
        break;
      case DType::u32:
        v = std::floor(std::max(low, 0.0) + u * (high - std::max(low, 0.0) + 1));
        break;
      case DType::i32:
        v = std::floor(low + u * (high - low + 1));
        break;
    }
    out.data.push_back(kernel::round_to(type.dtype, v));
  }
  return out;
}

/// Operand `i` of a sample, from the range that the sample gives for it.
inline RefArray draw_operand(const Sample& sample, std::size_t i, Rng& rng) {
  const auto [low, high] =
      i < sample.ranges.size() ? sample.ranges[i] : std::pair(sample.low, sample.high);
  return draw(sample.operands[i], low, high, rng);
}
inline std::vector<RefArray> draw_operands(const Sample& sample, Rng& rng) {
  std::vector<RefArray> out;
  for (std::size_t i = 0; i < sample.operands.size(); ++i) {
    out.push_back(draw_operand(sample, i, rng));
  }
  return out;
}

/// Whether the op combines any number of elements by `combiner`.
inline bool reduces_by(const Op& op, kernel::Combiner combiner) {
  const auto* reduce = std::get_if<LowerReduce>(&*op.lowering);
  const auto* scan = std::get_if<LowerScan>(&*op.lowering);
  return (reduce != nullptr && reduce->combiner == combiner) ||
         (scan != nullptr && scan->combiner == combiner);
}
/// Whether the op adds any number of elements, in an order that is free.
inline bool sums(const Op& op) {
  const Lowering& l = *op.lowering;
  return std::holds_alternative<LowerDot>(l) || std::holds_alternative<LowerConv>(l) ||
         std::holds_alternative<LowerScatter>(l) || reduces_by(op, kernel::Combiner::sum);
}

/// NaN, infinities, zeros of both signs, the smallest and largest values of a dtype; without those
/// that make the result depend on the order of a sum or product.
inline std::vector<double> special_values(const Op& op, DType dtype) {
  switch (dtype) {
    case DType::bool_:
      return {0, 1};
    case DType::i32:
      return {0, 1, -1, 31, 32, 2147483647.0, -2147483648.0};
    case DType::u32:
      return {0, 1, 31, 32, 2147483648.0, 4294967295.0};
    case DType::f16:
      if (sums(op) || reduces_by(op, kernel::Combiner::prod))
        return {HUGE_VAL, -HUGE_VAL, NAN, 0.0};
      return {HUGE_VAL, -HUGE_VAL, NAN, 0.0, -0.0, 0x1p-14, 0x1p-24, 65504, -65504};
    case DType::f32:
      break;
  }
  using Limits = std::numeric_limits<float>;
  std::vector<double> v{Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity(), 0.0, -0.0};
  if (reduces_by(op, kernel::Combiner::prod)) return v;
  v.insert(v.end(), {Limits::min(), -Limits::min(), Limits::denorm_min()});
  // The trigonometric functions promise their accuracy below 2^51 (ops.h).
  const bool trigonometric = *op.name == "sin" || *op.name == "cos" || *op.name == "tan";
  if (!sums(op) && !trigonometric) v.insert(v.end(), {Limits::max(), -Limits::max()});
  if (trigonometric) v.insert(v.end(), {0x1p50, -0x1p50});
  return v;
}

/// Replaces elements of the operands, one in two, by special values, so that small samples meet
/// them in many combinations.
inline void sprinkle_special(const Op& op, std::vector<RefArray>& operands, Rng& rng) {
  for (RefArray& a : operands) {
    const std::vector<double> special = special_values(op, a.type.dtype);
    for (double& v : a.data) {
      if (rng() % 2 == 0) v = special[rng() % special.size()];
    }
  }
}

/// The array as bytes of its dtype, as devices hold it.
inline std::vector<std::byte> bytes_of(const RefArray& a) {
  std::vector<std::byte> bytes;
  const auto append = [&](const auto v) {
    const auto at = bytes.size();
    bytes.resize(at + sizeof v);
    std::memcpy(&bytes[at], &v, sizeof v);
  };
  for (double v : a.data) {
    switch (a.type.dtype) {
      case DType::bool_:
        append(static_cast<std::uint8_t>(v != 0));
        break;
      case DType::i32:
        append(static_cast<std::int32_t>(v));
        break;
      case DType::u32:
        append(static_cast<std::uint32_t>(v));
        break;
      case DType::f32:
        append(static_cast<float>(v));
        break;
      case DType::f16:
        append(Half(v));
        break;
    }
  }
  return bytes;
}
/// A literal tensor of the array.
inline Tensor tensor_of(const RefArray& a) { return prim::data(a.type, bytes_of(a)); }

/// Placeholders and the values bound to them, for the interpreter.
class Bindings {
 public:
  /// A new placeholder of the value's type, bound to it.
  Tensor add(const RefArray& value) {
    const Tensor t = prim::input(InputRole::argument, "x", value.type);
    values_[&t.node()] = value;
    keep_.push_back(t);
    return t;
  }
  std::vector<Tensor> add(std::span<const RefArray> values) {
    std::vector<Tensor> out;
    for (const RefArray& v : values) out.push_back(add(v));
    return out;
  }
  RefArray& operator[](const Tensor& placeholder) { return values_.at(&placeholder.node()); }
  RefArray evaluate(const Tensor& t) const {
    return interpret(t, [this](const Node& leaf) { return values_.at(&leaf); });
  }

 private:
  std::map<const Node*, RefArray> values_;
  std::vector<Tensor> keep_;
};

/// The sample's op on operands of its types.
inline Tensor apply(const Op& op, const Sample& sample, std::vector<Tensor> operands) {
  return make(op, std::move(operands), sample.attrs, Site::current());
}

/// "dot_general(f32[3, 4], f32[4, 5]) batch=[]x[], contract=[1]x[0]".
inline std::string describe(const Op& op, const Sample& sample) {
  std::string out = fmt::format("{}(", *op.name);
  for (std::size_t i = 0; i < sample.operands.size(); ++i) {
    out += (i > 0 ? ", " : "") + to_string(sample.operands[i]);
  }
  return out + ") " + to_string(sample.attrs);
}

/// Elements of all operands together.
inline std::int64_t total_elements(const Sample& sample) {
  std::int64_t n = 0;
  for (const Type& t : sample.operands) n += numel(t.shape);
  return n;
}

}  // namespace tensorgrad::testing
