// Trees: values that hold tensors, such as structs with TENSORGRAD_FIELDS. Transforms take and
// return them; the functions here reach their tensors.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorgrad/module.h"
#include "tensorgrad/tensor.h"

namespace tensorgrad {

namespace detail {

template <class T>
struct IsTuple : std::false_type {};
template <class... T>
struct IsTuple<std::tuple<T...>> : std::true_type {};
template <class A, class B>
struct IsTuple<std::pair<A, B>> : std::true_type {};

template <class T>
struct HoldsTensors : std::bool_constant<std::is_same_v<T, Tensor> || std::is_same_v<T, Param> ||
                                         std::is_same_v<T, Buffer> || HasFields<T>> {};
template <class T>
struct HoldsTensors<std::optional<T>> : HoldsTensors<T> {};
template <class T, class A>
struct HoldsTensors<std::vector<T, A>> : HoldsTensors<T> {};
template <class T, std::size_t n>
struct HoldsTensors<std::array<T, n>> : HoldsTensors<T> {};
template <class... T>
struct HoldsTensors<std::tuple<T...>> : std::bool_constant<(HoldsTensors<T>::value || ...)> {};
template <class A, class B>
struct HoldsTensors<std::pair<A, B>>
    : std::bool_constant<HoldsTensors<A>::value || HoldsTensors<B>::value> {};

/// Whether buffers count as tensors: where a tree is computed or batched as a whole they do, where
/// it is differentiated they are constants.
enum class Leaves : bool { differentiable, all };

/// Calls f for every tensor of a tree, in order: with its value where `tree` is const, else with a
/// handle to assign to (whose value is not read: a parameter may be unbound).
template <Leaves kind, class T, class F>
void visit_leaves(T& tree, F& f) {
  using Plain = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<Plain, Tensor>) {
    f(tree);
  } else if constexpr (std::is_same_v<Plain, Param> || std::is_same_v<Plain, Buffer>) {
    if constexpr (std::is_same_v<Plain, Buffer> && kind == Leaves::differentiable) return;
    if constexpr (std::is_const_v<T>) {
      f(tree.tensor());
    } else {
      f(tree.bound);
      if (tree.bound.defined()) tree.shape = tree.bound.shape();
    }
  } else if constexpr (!HoldsTensors<Plain>::value) {
    // Numbers, options and the like go along as they are.
  } else if constexpr (HasFields<T>) {
    tree.fields([&](const char*, auto& member) { visit_leaves<kind>(member, f); });
  } else if constexpr (IsOptional<Plain>::value) {
    if (tree) visit_leaves<kind>(*tree, f);
  } else if constexpr (IsTuple<Plain>::value) {
    std::apply([&](auto&... member) { (visit_leaves<kind>(member, f), ...); }, tree);
  } else {
    for (auto& member : tree) visit_leaves<kind>(member, f);
  }
}

template <Leaves kind, class T>
std::vector<Tensor> leaves_of(const T& tree) {
  std::vector<Tensor> out;
  const auto add = [&](const Tensor& t) { out.push_back(t); };
  visit_leaves<kind>(tree, add);
  return out;
}
template <Leaves kind, class T>
T with_leaves(T like, std::span<const Tensor> leaves) {
  std::size_t next = 0;
  const auto replace = [&](Tensor& t) {
    if (next == leaves.size()) throw GraphError("tree_with: there are too few tensors.");
    t = leaves[next++];
  };
  visit_leaves<kind>(like, replace);
  return like;
}
template <Leaves kind, class F, class T>
T map_leaves(F f, const T& tree) {
  std::vector<Tensor> leaves = leaves_of<kind>(tree);
  for (Tensor& t : leaves) t = f(std::as_const(t));
  return with_leaves<kind>(tree, leaves);
}

}  // namespace detail

/// A type whose values hold tensors: Tensor, Param, a struct with TENSORGRAD_FIELDS, and
/// std::vector, std::array, std::optional, std::tuple and std::pair of them. Members of any other
/// type are carried along unchanged.
template <class T>
concept Tree = detail::HoldsTensors<std::remove_cvref_t<T>>::value;

/// The tensors of a tree, in the order of its fields. A parameter counts as what it stands for;
/// buffers are carried along like anything else.
template <Tree T>
std::vector<Tensor> tree_leaves(const T& tree) {
  return detail::leaves_of<detail::Leaves::differentiable>(tree);
}

/// A copy of the tree that holds the first of `leaves`, in the order of tree_leaves; a parameter
/// stands for its new tensor, of whatever shape. Throws GraphError if there are fewer than it has
/// tensors.
template <Tree T>
T tree_with(const T& like, std::span<const Tensor> leaves) {
  return detail::with_leaves<detail::Leaves::differentiable>(like, leaves);
}

/// A copy of the tree with f(tensor) in place of every tensor.
template <class F, Tree T>
  requires std::is_invocable_r_v<Tensor, F, const Tensor&>
T tree_map(F f, const T& tree) {
  return detail::map_leaves<detail::Leaves::differentiable>(std::move(f), tree);
}

}  // namespace tensorgrad
