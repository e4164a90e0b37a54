// Functions of tensors compiled once and called often, outside of `compile`.
#pragma once

#include <any>
#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <typeinfo>
#include <utility>
#include <vector>

#include "tensorgrad/transforms.h"

namespace tensorgrad {

namespace detail {

std::vector<Tensor> materialise(std::span<const Tensor> tensors, const Site& site);

}  // namespace detail

/// The values of a tree's tensors, all computed now on the default device, as tensors that remember
/// nothing of how they were made. A loop that goes on from its last values does not grow:
/// `w = materialise(w - 0.1 * grad(loss)(w))`. Throws what Tensor::to_vector throws.
template <Tree T>
auto materialise(const T& tree, Site site = Site::current()) {
  const detail::Plain<T> plain = tree;
  constexpr auto all = detail::Leaves::all;
  return detail::with_leaves<all>(plain, detail::materialise(detail::leaves_of<all>(plain), site));
}

namespace detail {

/// What distinguishes one compiled form of a function from another: types of tensors, and the
/// numbers beside them.
class Signature {
 public:
  template <class T>
  void add(const T& x) {
    text_ += typeid(T).name();
    add_value(x);
  }
  const std::string& text() const { return text_; }

 private:
  void add_type(const Tensor& t);
  void add_number(double v);
  template <class T>
  void add_value(const T& x) {
    text_ += ' ';
    if constexpr (std::is_same_v<T, Tensor>) {
      add_type(x);
    } else if constexpr (std::is_same_v<T, Param> || std::is_same_v<T, Buffer>) {
      add_type(x.tensor());
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      add_number(static_cast<double>(x));
    } else if constexpr (HasFields<const T>) {
      x.fields([&](const char*, const auto& member) { add_value(member); });
    } else if constexpr (IsOptional<T>::value) {
      add_number(x ? 1 : 0);
      if (x) add_value(*x);
    } else if constexpr (IsTuple<T>::value) {
      std::apply([&](const auto&... member) { (add_value(member), ...); }, x);
    } else if constexpr (Members<T>::value) {
      add_number(static_cast<double>(x.size()));
      for (const auto& member : x) add_value(member);
    } else if constexpr (std::convertible_to<T, std::string>) {
      text_ += std::string(x);
    } else {
      static_assert(std::is_empty_v<T>,
                    "An argument of a compiled function is neither a tree of tensors, a number, a "
                    "string nor an empty struct.");
    }
  }
  std::string text_;
};

/// One compiled form of a function.
struct JitEntry;
/// The forms that were used last.
class JitCache {
 public:
  JitCache();
  ~JitCache();
  std::shared_ptr<JitEntry> find(const std::string& signature);
  void add(const std::string& signature, std::shared_ptr<JitEntry> entry);
  std::size_t size() const;

 private:
  struct Entries;
  std::unique_ptr<Entries> entries_;
};
/// Stands for the arguments while a function is traced.
std::vector<Tensor> jit_placeholders(std::span<const Tensor> arguments, const Site& site);
std::shared_ptr<JitEntry> jit_entry(std::vector<Tensor> placeholders, std::vector<Tensor> outputs,
                                    std::any result);
const std::any& jit_result(const JitEntry& entry);
std::vector<Tensor> jit_call(JitEntry& entry, std::span<const Tensor> arguments, const Site& site);

/// A function with its compiled forms; copies share them.
template <class F>
class Jitted {
 public:
  Jitted(F f, const Site& site)
      : f_(std::move(f)), cache_(std::make_shared<JitCache>()), site_(site) {}

  template <class... Args>
  auto operator()(const Args&... args) const {
    using Arguments = std::tuple<Plain<Args>...>;
    const Arguments arguments{args...};
    using Y = Plain<decltype(std::apply(f_, arguments))>;
    static_assert(Tree<Y>, "A compiled function must return tensors.");
    Signature signature;
    signature.add(arguments);
    const std::vector<Tensor> leaves = leaves_of<Leaves::all>(arguments);
    std::shared_ptr<JitEntry> entry = cache_->find(signature.text());
    if (!entry) {
      std::vector<Tensor> placeholders = jit_placeholders(leaves, site_);
      const Arguments traced = with_leaves<Leaves::all>(arguments, placeholders);
      const Y y = std::apply(f_, traced);
      entry = jit_entry(std::move(placeholders), leaves_of<Leaves::all>(y), skeleton(y));
      cache_->add(signature.text(), entry);
    }
    return with_leaves<Leaves::all>(std::any_cast<const Y&>(jit_result(*entry)),
                                    jit_call(*entry, leaves, site_));
  }
  /// How many forms are held.
  std::size_t compiled() const { return cache_->size(); }

 private:
  F f_;
  std::shared_ptr<JitCache> cache_;
  Site site_;
};

}  // namespace detail

/// The function f, traced and compiled once for each signature: types of the tensors in its
/// arguments, and numbers beside them (the forms of the last 32 are kept). A call on values runs
/// the program at once and returns values, as `materialise` does. A call inside of a transform or
/// of `compile`, whose arguments stand for values that are not known yet, is part of what is traced
/// there. What f captures, and members of structs that are not listed, are as they were when it was
/// traced. Copies share the programs. Throws what f throws, and what Tensor::to_vector throws.
template <class F>
detail::Jitted<F> jit(F f, Site site = Site::current()) {
  return detail::Jitted<F>(std::move(f), site);
}

}  // namespace tensorgrad
