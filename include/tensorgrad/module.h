// Models: plain structs of parameters and layers whose members are listed once. The path of a
// parameter through the struct is its name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorgrad/tensor.h"

// Lists the members of a model struct, for `visit_params`:
//   struct Mlp { nn::Linear l1{1, 64}, l2{64, 1}; TENSORGRAD_FIELDS(l1, l2) };
// It defines `fields(visitor)`, const and not, which calls visitor("l1", l1) and so on, in order.
// Members are parameters, buffers, structs with fields, std::vector, std::array and std::optional
// of them, and numbers, which are skipped. Up to 256 members.
#define TENSORGRAD_FIELDS(...)                                         \
  template <class TensorgradVisitor>                                   \
  void fields(TensorgradVisitor&& tensorgrad_visitor) {                \
    TENSORGRAD_DETAIL_EXPAND(TENSORGRAD_DETAIL_VISIT_ALL(__VA_ARGS__)) \
  }                                                                    \
  template <class TensorgradVisitor>                                   \
  void fields(TensorgradVisitor&& tensorgrad_visitor) const {          \
    TENSORGRAD_DETAIL_EXPAND(TENSORGRAD_DETAIL_VISIT_ALL(__VA_ARGS__)) \
  }

#define TENSORGRAD_DETAIL_VISIT_ALL(member, ...) \
  tensorgrad_visitor(#member, member);           \
  __VA_OPT__(TENSORGRAD_DETAIL_AGAIN TENSORGRAD_DETAIL_PARENS(__VA_ARGS__))
// A macro does not expand inside itself: it names itself through this one, and each round of
// TENSORGRAD_DETAIL_EXPAND scans the rest once more.
#define TENSORGRAD_DETAIL_AGAIN() TENSORGRAD_DETAIL_VISIT_ALL
#define TENSORGRAD_DETAIL_PARENS ()
#define TENSORGRAD_DETAIL_EXPAND(...)                  \
  TENSORGRAD_DETAIL_EXPAND3(TENSORGRAD_DETAIL_EXPAND3( \
      TENSORGRAD_DETAIL_EXPAND3(TENSORGRAD_DETAIL_EXPAND3(__VA_ARGS__))))
#define TENSORGRAD_DETAIL_EXPAND3(...)                 \
  TENSORGRAD_DETAIL_EXPAND2(TENSORGRAD_DETAIL_EXPAND2( \
      TENSORGRAD_DETAIL_EXPAND2(TENSORGRAD_DETAIL_EXPAND2(__VA_ARGS__))))
#define TENSORGRAD_DETAIL_EXPAND2(...)                 \
  TENSORGRAD_DETAIL_EXPAND1(TENSORGRAD_DETAIL_EXPAND1( \
      TENSORGRAD_DETAIL_EXPAND1(TENSORGRAD_DETAIL_EXPAND1(__VA_ARGS__))))
#define TENSORGRAD_DETAIL_EXPAND1(...)                 \
  TENSORGRAD_DETAIL_EXPAND0(TENSORGRAD_DETAIL_EXPAND0( \
      TENSORGRAD_DETAIL_EXPAND0(TENSORGRAD_DETAIL_EXPAND0(__VA_ARGS__))))
#define TENSORGRAD_DETAIL_EXPAND0(...) __VA_ARGS__

namespace tensorgrad {

/// How a parameter starts: a value that makes f32 tensors, lazily and on whatever device first
/// needs them.
struct Init {
  enum class Kind : std::uint8_t { constant, uniform, normal, literal };
  Kind kind = Kind::constant;
  double value = 0;  ///< the constant, the bound or the standard deviation
  std::shared_ptr<const std::vector<float>> values = {};  ///< of a literal

  static Init zeros() { return constant(0); }
  static Init ones() { return constant(1); }
  /// Throws ValueError if `value` is NaN.
  static Init constant(double value, Site site = Site::current());
  /// Uniform in [-bound, bound). Throws ValueError unless bound is finite and at least 0; so do the
  /// functions below for their numbers.
  static Init uniform(double bound, Site site = Site::current());
  /// Normal with mean 0 and standard deviation `std`.
  static Init normal(double std, Site site = Site::current());
  /// He et al.: uniform with bound gain * sqrt(3 / fan), normal with std gain / sqrt(fan); the
  /// default gain is that of relu. A fan of 0 gives zeros.
  static Init kaiming_uniform(std::int64_t fan, double gain = 1.4142135623730951,
                              Site site = Site::current());
  static Init kaiming_normal(std::int64_t fan, double gain = 1.4142135623730951,
                             Site site = Site::current());
  /// Glorot and Bengio: the same with the mean of both fans.
  static Init xavier_uniform(std::int64_t fan_in, std::int64_t fan_out, double gain = 1,
                             Site site = Site::current());
  static Init xavier_normal(std::int64_t fan_in, std::int64_t fan_out, double gain = 1,
                            Site site = Site::current());
  /// These elements, row-major.
  static Init literal(std::vector<float> values);

  /// The initial tensor, f32. `key` (u32 [2]) decides the random ones. Throws ShapeError if a
  /// literal does not fill the shape.
  Tensor make(const Shape& shape, const Tensor& key, Site site = Site::current()) const;
  /// Whether both make the same tensors.
  bool operator==(const Init& other) const;
};

/// The 32-bit FNV-1a hash of a name: the same everywhere, since initial values depend on it.
constexpr std::uint32_t hash32(std::string_view name) {
  std::uint32_t hash = 2166136261U;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

/// A trainable f32 array of a model. It stands for a tensor: the one that is bound to it (by
/// `initialise`, or while a program is traced), else its initial value under its name and seed 0.
/// Copies are independent parameters.
struct Param {
  Shape shape = {};
  Init init = {};
  bool decay = true;      ///< whether weight decay applies to it
  std::string name = {};  ///< its path in a model; set when it is bound
  Tensor bound = {};      ///< what it stands for now; empty before it is bound

  /// Makes the parameter stand for `value` from now on, under a name. Throws ShapeError or
  /// DTypeError if it is not f32 of this shape; then nothing changes.
  void bind(const Tensor& value, std::string as = {}, Site site = Site::current());
  /// The initial value under a seed and a name, as a lazy tensor: init.make(shape,
  /// fold_in(key(seed), hash32(name))).
  Tensor initial_value(std::uint64_t seed, std::string_view as, Site site = Site::current()) const;
  /// The tensor it stands for.
  Tensor tensor() const;
  operator Tensor() const { return tensor(); }  // NOLINT(google-explicit-constructor): see above
};

/// An f32 array of a model that is kept from step to step but not trained, such as a running mean:
/// `assign` says what it becomes. Like a parameter it stands for a tensor: the one bound to it,
/// else its initial value.
struct Buffer {
  Shape shape = {};
  Init init = {};
  std::string name = {};  ///< its path in a model; set when it is bound
  Tensor bound = {};      ///< what it stands for now; empty before it is bound

  /// Makes the buffer stand for `value` from now on, under a name. Throws ShapeError or DTypeError
  /// if it is not f32 of this shape; then nothing changes.
  void bind(const Tensor& value, std::string as = {}, Site site = Site::current());
  /// The initial value under a seed and a name: see Param::initial_value.
  Tensor initial_value(std::uint64_t seed, std::string_view as, Site site = Site::current()) const;
  /// The tensor it stands for.
  Tensor tensor() const;
  operator Tensor() const { return tensor(); }  // NOLINT(google-explicit-constructor): see above
};

/// Returns `result`; in a compiled training whose loss is computed from the returned tensor, the
/// buffer is `value` from the next step on (once a step: a second assignment is a GraphError when
/// the training is compiled). Elsewhere it changes nothing. `value` has no derivative. Throws
/// ShapeError or DTypeError if it is not f32 of the buffer's shape.
Tensor assign(const Buffer& buffer, const Tensor& value, const Tensor& result,
              Site site = Site::current());

namespace detail {

struct AnyVisitor {
  template <class T>
  void operator()(const char*, T&) const {}
};
template <class T>
concept HasFields = requires(T& t) { t.fields(AnyVisitor{}); };

template <class T>
struct Members : std::false_type {};
template <class T, class A>
struct Members<std::vector<T, A>> : std::true_type {
  using Element = T;
};
template <class T, std::size_t n>
struct Members<std::array<T, n>> : std::true_type {
  using Element = T;
};
template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
constexpr bool is_number = std::is_arithmetic_v<T> || std::is_enum_v<T>;

inline std::string joined(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : path + "." + std::string(name);
}

/// `member` may be const. Calls f(name, x) for every Kind (Param or Buffer) in it, in order.
template <class Kind, class Member, class F>
void visit_member(Member& member, F& f, const std::string& path) {
  using T = std::remove_cv_t<Member>;
  if constexpr (std::is_same_v<T, Param> || std::is_same_v<T, Buffer>) {
    if constexpr (std::is_same_v<T, Kind>) f(path, member);
  } else if constexpr (HasFields<Member>) {
    member.fields(
        [&](const char* name, auto& inner) { visit_member<Kind>(inner, f, joined(path, name)); });
  } else if constexpr (IsOptional<T>::value) {
    if (member) visit_member<Kind>(*member, f, path);
  } else if constexpr (Members<T>::value) {
    if constexpr (!is_number<typename Members<T>::Element>) {
      std::size_t i = 0;
      for (auto& inner : member) visit_member<Kind>(inner, f, joined(path, std::to_string(i++)));
    }
  } else {
    static_assert(
        is_number<T>,
        "A member listed in TENSORGRAD_FIELDS is neither a tensorgrad::Param or Buffer, a "
        "struct with TENSORGRAD_FIELDS, a std::vector, std::array or std::optional of them, nor "
        "a number. Leave it out of the list.");
  }
}

}  // namespace detail

/// Calls f(const std::string& dotted_name, Param&) for every parameter of a model, in the order of
/// its fields; elements of a std::vector or std::array are named by their position
/// ("layers.0.q.W"). With a const model f gets const Param&.
template <class M, class F>
void visit_params(M& model, F f, const std::string& prefix = "") {
  static_assert(detail::HasFields<M>,
                "A model is a struct with TENSORGRAD_FIELDS(...): list its members in it.");
  detail::visit_member<Param>(model, f, prefix);
}

/// The same for every buffer: f(const std::string& dotted_name, Buffer&).
template <class M, class F>
void visit_buffers(M& model, F f, const std::string& prefix = "") {
  static_assert(detail::HasFields<M>,
                "A model is a struct with TENSORGRAD_FIELDS(...): list its members in it.");
  detail::visit_member<Buffer>(model, f, prefix);
}

/// The number of trainable elements.
template <class M>
std::int64_t parameter_count(const M& model) {
  std::int64_t count = 0;
  visit_params(model, [&](const std::string&, const Param& p) { count += numel(p.shape); });
  return count;
}

/// Gives every parameter and buffer of a model its name and its initial value under a seed, for use
/// outside of compiled training. Nothing is computed yet.
template <class M>
void initialise(M& model, std::uint64_t seed, Site site = Site::current()) {
  visit_params(model, [&](const std::string& name, Param& p) {
    p.bind(p.initial_value(seed, name, site), name, site);
  });
  visit_buffers(model, [&](const std::string& name, Buffer& b) {
    b.bind(b.initial_value(seed, name, site), name, site);
  });
}

}  // namespace tensorgrad
