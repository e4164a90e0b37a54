#include "graph/attrs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cstring>
#include <functional>

namespace tensorgrad {
namespace {

std::uint64_t bits(double v) { return std::bit_cast<std::uint64_t>(v); }

bool same(const double& a, const double& b) { return bits(a) == bits(b); }
template <class T>
bool same(const T& a, const T& b) {
  return a == b;
}

void mix(std::size_t& seed, std::size_t value) {
  seed ^= value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2);
}
template <class T>
std::size_t hash_one(const T& v) {
  if constexpr (std::is_enum_v<T>) {
    return static_cast<std::size_t>(v);
  } else if constexpr (std::is_same_v<T, double>) {
    return std::hash<std::uint64_t>{}(bits(v));
  } else {
    return std::hash<T>{}(v);
  }
}
template <class T>
std::size_t hash_one(const std::vector<T>& v) {
  std::size_t seed = v.size();
  for (const T& x : v) mix(seed, hash_one(x));
  return seed;
}

std::string bracketed(const auto& v) { return fmt::format("[{}]", fmt::join(v, ", ")); }

}  // namespace

bool operator==(const Attrs& a, const Attrs& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return true;
        } else {
          const auto tx = x.tie();
          const auto ty = std::get<T>(b).tie();
          return [&]<std::size_t... I>(std::index_sequence<I...>) {
            return (same(std::get<I>(tx), std::get<I>(ty)) && ...);
          }(std::make_index_sequence<std::tuple_size_v<std::decay_t<decltype(tx)>>>{});
        }
      },
      a);
}

std::size_t hash(const Attrs& attrs) {
  std::size_t seed = attrs.index();
  std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        if constexpr (!std::is_same_v<T, std::monostate>) {
          std::apply([&](const auto&... field) { (mix(seed, hash_one(field)), ...); }, x.tie());
        }
      },
      attrs);
  return seed;
}

std::string to_string(const Attrs& attrs) {
  struct Print {
    std::string operator()(std::monostate) const { return ""; }
    std::string operator()(const AxesAttr& a) const { return "axes=" + bracketed(a.axes); }
    std::string operator()(const ShapeAttr& a) const {
      return "shape=" + bracketed(a.shape) + (a.axes.empty() ? "" : ", axes=" + bracketed(a.axes));
    }
    std::string operator()(const SliceAttr& a) const {
      return fmt::format("start={}, limit={}, stride={}", bracketed(a.start), bracketed(a.limit),
                         bracketed(a.stride));
    }
    std::string operator()(const PadAttr& a) const {
      return fmt::format("low={}, high={}, interior={}", bracketed(a.low), bracketed(a.high),
                         bracketed(a.interior));
    }
    std::string operator()(const AxisAttr& a) const {
      return fmt::format("axis={}", a.axis) + (a.size ? fmt::format(", size={}", a.size) : "");
    }
    std::string operator()(const GatherAttr& a) const {
      return fmt::format("axis={}, fill={}", a.axis, a.fill);
    }
    std::string operator()(const ScanAttr& a) const {
      return fmt::format("axis={}", a.axis) + (a.reverse ? ", reverse" : "");
    }
    std::string operator()(const SortAttr& a) const {
      return fmt::format("axis={}", a.axis) + (a.descending ? ", descending" : "");
    }
    std::string operator()(const DotAttr& a) const {
      return fmt::format("batch={}x{}, contract={}x{}", bracketed(a.lhs_batch),
                         bracketed(a.rhs_batch), bracketed(a.lhs_contract),
                         bracketed(a.rhs_contract));
    }
    std::string operator()(const ConvAttr& a) const {
      return fmt::format("stride={}, pad={}/{}, dilation={}, groups={}", bracketed(a.stride),
                         bracketed(a.pad_low), bracketed(a.pad_high), bracketed(a.dilation),
                         a.groups);
    }
    std::string operator()(const ConstantAttr& a) const { return fmt::format("{}", a.value); }
    std::string operator()(const DTypeAttr& a) const { return std::string(name(a.dtype)); }
    std::string operator()(const DataAttr& a) const {
      return fmt::format("{} bytes", a.data->bytes.size());
    }
    std::string operator()(const InputAttr& a) const { return "`" + a.name + "`"; }
    std::string operator()(const NameAttr& a) const { return "`" + a.name + "`"; }
    std::string operator()(const IndexAttr& a) const { return fmt::format("{}", a.index); }
    std::string operator()(const AttentionAttr& a) const {
      return fmt::format("scale={}{}", a.scale, a.causal ? ", causal" : "");
    }
    std::string operator()(const BufferAttr& a) const { return "`" + a.name + "`"; }
    std::string operator()(const CustomAttr&) const { return ""; }
  };
  return std::visit(Print{}, attrs);
}

}  // namespace tensorgrad
