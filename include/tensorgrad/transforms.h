// Transforms of functions of tensors: derivatives and batching. They compose, to any order.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorgrad/tensor.h"

namespace tensorgrad {

/// Tangents of `outputs` for the tangents of `inputs` (J t, one each, of the inputs' types). Throws
/// GraphError, naming the op and its line, where a path has no derivative.
std::vector<Tensor> jvp(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                        std::span<const Tensor> tangents);
/// Cotangents of `inputs` for the cotangents of `outputs` (t^T J): the outputs are linearised and
/// the linear program is transposed. An input that no output depends on gets zeros. Throws
/// GraphError, naming the op and its line, where a path has no derivative.
std::vector<Tensor> vjp(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                        std::span<const Tensor> cotangents);
/// Which of `inputs` the outputs depend on differentiably.
std::vector<bool> reaches(std::span<const Tensor> outputs, std::span<const Tensor> inputs);
/// `outputs`, a function of `inputs`, for a batch: inputs are replaced by `batched`, which have a
/// leading dimension of extent `size`; so do the results.
std::vector<Tensor> vmap(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> batched, std::int64_t size);

namespace detail {
/// A fresh node with the value of `x`, to differentiate by.
Tensor variable(const Tensor& x);
/// A placeholder of the type of one element of the batch `x`.
Tensor element_of_batch(const Tensor& x, const Site& site);
/// Throws GraphError unless `y` is a float scalar.
void check_scalar_loss(const char* transform, const Tensor& y, const Site& site);
Tensor seed_of(const Tensor& y);
Tensor move_axis_to_front(const Tensor& x, int axis, const Site& site);
std::int64_t common_batch(std::span<const Tensor> batched, const Site& site);
}  // namespace detail

/// f(x, rest...) and its gradient by x. f must return a float scalar.
template <class F>
auto value_and_grad(F f, Site site = Site::current()) {
  return [f, site](const Tensor& x, const auto&... rest) -> std::pair<Tensor, Tensor> {
    const Tensor v = detail::variable(x);
    const Tensor y = f(v, rest...);
    detail::check_scalar_loss("value_and_grad", y, site);
    const Tensor seed = detail::seed_of(y);
    return {y, vjp(std::span(&y, 1), std::span(&v, 1), std::span(&seed, 1))[0]};
  };
}

/// The gradient of f by its first argument. f must return a float scalar.
template <class F>
auto grad(F f, Site site = Site::current()) {
  return [g = value_and_grad(std::move(f), site)](const Tensor& x, const auto&... rest) {
    return g(x, rest...).second;
  };
}

/// f(x) and its derivative along `tangent`, for a function of one tensor.
template <class F>
std::pair<Tensor, Tensor> jvp(F f, const Tensor& x, const Tensor& tangent) {
  const Tensor v = detail::variable(x);
  const Tensor y = f(v);
  return {y, jvp(std::span(&y, 1), std::span(&v, 1), std::span(&tangent, 1))[0]};
}

/// f(x) and the function that maps a cotangent of f(x) to one of x.
template <class F>
  requires std::is_invocable_v<F, const Tensor&>
std::pair<Tensor, std::function<Tensor(const Tensor&)>> vjp(F f, const Tensor& x) {
  const Tensor v = detail::variable(x);
  const Tensor y = f(v);
  return {y, [y, v](const Tensor& ct) {
            return vjp(std::span(&y, 1), std::span(&v, 1), std::span(&ct, 1))[0];
          }};
}

/// f applied to every element along dimension `axis` of each argument, results stacked in front.
template <class F>
auto vmap(F f, int axis = 0, Site site = Site::current()) {
  return [f, axis, site](const std::convertible_to<Tensor> auto&... args) -> Tensor {
    const std::vector<Tensor> batched{
        detail::move_axis_to_front(static_cast<Tensor>(args), axis, site)...};
    std::vector<Tensor> elements;
    for (const Tensor& b : batched) elements.push_back(detail::element_of_batch(b, site));
    const Tensor y = [&]<std::size_t... I>(std::index_sequence<I...>) {
      return f(elements[I]...);
    }(std::make_index_sequence<sizeof...(args)>{});
    return vmap(std::span(&y, 1), elements, batched, detail::common_batch(batched, site))[0];
  };
}

}  // namespace tensorgrad
