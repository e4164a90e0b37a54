// Transforms of functions of tensors: derivatives, batching, recomputation. They compose, to any
// order. Functions take and return trees (tree.h): tensors, structs with TENSORGRAD_FIELDS,
// vectors, arrays and tuples of them. Arguments that hold no tensors are passed along as they are,
// and a parameter that is an argument itself counts as its tensor.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorgrad/ops.h"
#include "tensorgrad/tensor.h"
#include "tensorgrad/tree.h"

namespace tensorgrad {

// ---- of graphs: what the transforms of functions are made of -------------------------------------

/// Tangents of `outputs` for the tangents of `inputs` (J t, one each, of the inputs' types). Throws
/// GraphError, naming the op and its line, where a path has no derivative, and where an output is
/// computed from the inputs only through integers or bools that became numbers again.
std::vector<Tensor> jvp(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                        std::span<const Tensor> tangents);
/// Cotangents of `inputs` for the cotangents of `outputs` (t^T J): the outputs are linearised and
/// the linear program is transposed. An input that no output depends on gets zeros. Throws
/// GraphError as jvp does, and DTypeError for an input that is not f32.
std::vector<Tensor> vjp(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                        std::span<const Tensor> cotangents);
/// Which of `inputs` the outputs depend on differentiably.
std::vector<bool> reaches(std::span<const Tensor> outputs, std::span<const Tensor> inputs);
/// `outputs`, a function of `inputs`, for a batch: inputs are replaced by `batched`, which have a
/// leading dimension of extent `size`; so do the results.
std::vector<Tensor> vmap(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                         std::span<const Tensor> batched, std::int64_t size);

// ---- options -------------------------------------------------------------------------------------

/// Says that a function returns a std::pair: what is transformed, and a tree that is handed back
/// beside the result as it is.
struct HasAux {};
inline constexpr HasAux has_aux{};

/// An axis of vmap, or that there is none: nullopt.
using Axis = std::optional<int>;
inline constexpr std::nullopt_t unmapped = std::nullopt;

struct VmapOptions {
  /// The axis of each argument that is mapped over (negative ones count from the end), for all its
  /// tensors; `unmapped` arguments are the same for every element. One entry stands for all.
  std::vector<Axis> in_axes = {0};
  /// Where the results have the new axis, for each tensor of the result in order; one entry stands
  /// for all. An `unmapped` result must not depend on a mapped argument.
  std::vector<Axis> out_axes = {0};
};

namespace detail {

/// A fresh node with the value of `x`, to differentiate by.
Tensor variable(const Tensor& x);
/// Throws GraphError unless `y` is a float scalar.
void check_scalar_loss(const char* transform, const Tensor& y, const Site& site);
Tensor seed_of(const Tensor& y);

/// The type that an argument has inside of a transformed function.
template <class T>
using Plain = std::conditional_t<std::convertible_to<T, Tensor>, Tensor, std::remove_cvref_t<T>>;

/// The tree without its tensors.
template <class T>
T skeleton(const T& x) {
  return with_leaves<Leaves::all>(x, std::vector<Tensor>(leaves_of<Leaves::all>(x).size()));
}
/// The tree with fresh nodes of the same values.
template <class T>
void make_variable(T& x) {
  x = map_leaves<Leaves::differentiable>(variable, x);
}

/// The numbers of the arguments to differentiate by: those given, else the first or all of `count`.
template <class Given, class Otherwise>
struct Chosen {
  using Type = Given;
};
template <class Otherwise>
struct Chosen<std::index_sequence<>, Otherwise> {
  using Type = Otherwise;
};

template <class Raw, bool aux>
struct ResultOf {
  using Type = Plain<Raw>;
};
template <class Raw>
struct ResultOf<Raw, true> {
  using Type = Plain<typename Raw::first_type>;
};

/// A call of a function with some arguments made variables.
template <class Argnums, bool aux, class F, class... Args>
class Traced;

template <std::size_t... I, bool aux, class F, class... Args>
class Traced<std::index_sequence<I...>, aux, F, Args...> {
  static_assert(((I < sizeof...(Args)) && ...),
                "The function is called with too few arguments for the numbers of the arguments to "
                "differentiate by.");
  using Arguments = std::tuple<Plain<Args>...>;
  using Raw = std::decay_t<std::invoke_result_t<const F&, const Plain<Args>&...>>;
  using Result = typename ResultOf<Raw, aux>::Type;
  static_assert((Tree<std::tuple_element_t<I, Arguments>> && ...),
                "An argument to differentiate by holds no tensors.");

 public:
  explicit Traced(const F& f, const Args&... args)
      : arguments(args...), raw(call(f)), result(value()), outputs(tree_leaves(result)) {
    (append(tree_leaves(std::get<I>(arguments))), ...);
  }

  /// Tensors in the place of the arguments differentiated by: one, or a tuple of more.
  auto arrange(std::span<const Tensor> leaves) const {
    const auto chosen = std::tuple(std::get<I>(arguments)...);
    const auto all = tree_with(chosen, leaves);
    if constexpr (sizeof...(I) == 1) {
      return std::get<0>(all);
    } else {
      return all;
    }
  }
  auto auxiliary() const { return raw.second; }

 private:
  Raw call(const F& f) {
    (make_variable(std::get<I>(arguments)), ...);
    return std::apply(f, std::as_const(arguments));
  }
  Result value() const {
    if constexpr (aux) {
      return raw.first;
    } else {
      return raw;
    }
  }
  void append(const std::vector<Tensor>& leaves) {
    inputs.insert(inputs.end(), leaves.begin(), leaves.end());
  }

 public:
  Arguments arguments;
  Raw raw;
  Result result;
  std::vector<Tensor> outputs;
  std::vector<Tensor> inputs;
};

/// derivatives[o][i] of output o by input i, with the output's dimensions before the input's.
using Jacobian = std::vector<std::vector<Tensor>>;
/// By columns (jvp of every direction) and by rows (vjp of every element of the outputs).
Jacobian jacobian_forward(std::span<const Tensor> outputs, std::span<const Tensor> inputs);
Jacobian jacobian_reverse(std::span<const Tensor> outputs, std::span<const Tensor> inputs);

template <class Y, class Call>
auto arrange_jacobian(const Y& y, const Call& call, const Jacobian& j) {
  using X = decltype(call.arrange(call.inputs));
  if constexpr (std::is_same_v<Y, Tensor>) {
    return call.arrange(j[0]);
  } else if constexpr (std::is_same_v<X, Tensor>) {
    std::vector<Tensor> column;
    for (const auto& row : j) column.push_back(row[0]);
    return tree_with(y, column);
  } else {
    std::vector<X> rows;
    for (const auto& row : j) rows.push_back(call.arrange(row));
    return rows;
  }
}

template <class Argnums, bool aux, class F, class... Args>
auto trace(const F& f, const Args&... args) {
  return Traced<Argnums, aux, F, Args...>(f, args...);
}

template <class Argnums, bool aux, class F, class... Args>
auto value_and_grad(const F& f, const Site& site, const char* name, const Args&... args) {
  const auto call = trace<Argnums, aux>(f, args...);
  static_assert(std::is_same_v<std::remove_const_t<decltype(call.result)>, Tensor>,
                "The function must return a tensor, or with has_aux a pair of a tensor and more.");
  check_scalar_loss(name, call.result, site);
  const Tensor seed = seed_of(call.result);
  auto gradient = call.arrange(vjp(call.outputs, call.inputs, std::span(&seed, 1)));
  if constexpr (aux) {
    return std::pair(std::pair(call.result, call.auxiliary()), std::move(gradient));
  } else {
    return std::pair(call.result, std::move(gradient));
  }
}

template <class Argnums, bool aux, bool forward, class F, class... Args>
auto jacobian(const F& f, const Args&... args) {
  const auto call = trace<Argnums, aux>(f, args...);
  const Jacobian j = forward ? jacobian_forward(call.outputs, call.inputs)
                             : jacobian_reverse(call.outputs, call.inputs);
  auto out = arrange_jacobian(call.result, call, j);
  if constexpr (aux) {
    return std::pair(std::move(out), call.auxiliary());
  } else {
    return out;
  }
}

template <std::size_t... argnums>
using FirstUnless = typename Chosen<std::index_sequence<argnums...>, std::index_sequence<0>>::Type;

template <class F>
concept Function = !std::convertible_to<F, std::span<const Tensor>>;

}  // namespace detail

// ---- derivatives ---------------------------------------------------------------------------------

/// The function that returns f(args...) and its gradient, as a std::pair. f must return an f32
/// scalar, else the call throws ShapeError. `argnums` are the positions of the arguments to
/// differentiate by, the first if none is given; by several of them the gradient is a std::tuple.
/// A gradient is a tree of the argument's type. The call throws DTypeError for an argument with
/// integers, and GraphError, naming the op and its line, where no derivative exists.
template <std::size_t... argnums, class F>
auto value_and_grad(F f, Site site = Site::current()) {
  return [f, site](const auto&... args) {
    return detail::value_and_grad<detail::FirstUnless<argnums...>, false>(f, site, "value_and_grad",
                                                                          args...);
  };
}
/// The same for f that returns {loss, aux}: {{loss, aux}, gradient}.
template <std::size_t... argnums, class F>
auto value_and_grad(F f, HasAux, Site site = Site::current()) {
  return [f, site](const auto&... args) {
    return detail::value_and_grad<detail::FirstUnless<argnums...>, true>(f, site, "value_and_grad",
                                                                         args...);
  };
}

/// The function that returns the gradient of f: see value_and_grad.
template <std::size_t... argnums, class F>
auto grad(F f, Site site = Site::current()) {
  return [f, site](const auto&... args) {
    return detail::value_and_grad<detail::FirstUnless<argnums...>, false>(f, site, "grad", args...)
        .second;
  };
}
/// The same for f that returns {loss, aux}: {gradient, aux}.
template <std::size_t... argnums, class F>
auto grad(F f, HasAux, Site site = Site::current()) {
  return [f, site](const auto&... args) {
    auto out =
        detail::value_and_grad<detail::FirstUnless<argnums...>, true>(f, site, "grad", args...);
    return std::pair(std::move(out.second), std::move(out.first.second));
  };
}

namespace detail {

template <std::size_t... I, bool aux, class F, class... Args, class... Tangents>
auto jvp_of(std::index_sequence<I...>, std::bool_constant<aux>, const F& f,
            const std::tuple<Args...>& args, const std::tuple<Tangents...>& tangents) {
  const auto call = std::apply(
      [&](const auto&... a) { return trace<std::index_sequence<I...>, aux>(f, a...); }, args);
  auto t = tree_with(call.result, tensorgrad::jvp(call.outputs, call.inputs,
                                                  leaves_of<Leaves::differentiable>(tangents)));
  if constexpr (aux) {
    return std::tuple(call.result, std::move(t), call.auxiliary());
  } else {
    return std::pair(call.result, std::move(t));
  }
}
template <class T>
auto as_tuple(const T& x) {
  return std::tuple<Plain<T>>(x);
}
template <class... T>
auto as_tuple(const std::tuple<T...>& x) {
  return x;
}

template <std::size_t... I, bool aux, class F, class... Args>
auto vjp_of(std::index_sequence<I...>, std::bool_constant<aux>, const F& f, const Args&... args) {
  const auto call = trace<std::index_sequence<I...>, aux>(f, args...);
  using Y = std::remove_const_t<decltype(call.result)>;
  using X = decltype(call.arrange(call.inputs));
  std::function<X(const Y&)> pull = [call](const Y& ct) {
    return call.arrange(tensorgrad::vjp(call.outputs, call.inputs, tree_leaves(ct)));
  };
  if constexpr (aux) {
    return std::tuple(call.result, std::move(pull), call.auxiliary());
  } else {
    return std::pair(call.result, std::move(pull));
  }
}

}  // namespace detail

/// f(x) and its derivative along `tangent`: J tangent, both of f's type. For a function of several
/// arguments x is a std::tuple of them, and `tangent` one of their tangents; with `argnums`, of the
/// tangents of those arguments only, while the others are constants. Throws ShapeError for a
/// tangent of another type than its tensor, else what value_and_grad throws.
template <std::size_t... argnums, detail::Function F, class X, class T>
auto jvp(F f, const X& x, const T& tangent) {
  const auto args = detail::as_tuple(x);
  using All = std::make_index_sequence<std::tuple_size_v<std::remove_const_t<decltype(args)>>>;
  return detail::jvp_of(typename detail::Chosen<std::index_sequence<argnums...>, All>::Type{},
                        std::false_type{}, f, args, detail::as_tuple(tangent));
}
/// The same for f that returns {y, aux}: {y, tangent of y, aux}, a std::tuple.
template <std::size_t... argnums, detail::Function F, class X, class T>
auto jvp(F f, HasAux, const X& x, const T& tangent) {
  const auto args = detail::as_tuple(x);
  using All = std::make_index_sequence<std::tuple_size_v<std::remove_const_t<decltype(args)>>>;
  return detail::jvp_of(typename detail::Chosen<std::index_sequence<argnums...>, All>::Type{},
                        std::true_type{}, f, args, detail::as_tuple(tangent));
}

/// f(args...) and the function that maps a cotangent of it to those of the arguments: of the only
/// one, or a std::tuple of several; with `argnums`, of those arguments only.
template <std::size_t... argnums, detail::Function F, class... Args>
  requires(sizeof...(Args) > 0)
auto vjp(F f, const Args&... args) {
  using All = std::make_index_sequence<sizeof...(Args)>;
  return detail::vjp_of(typename detail::Chosen<std::index_sequence<argnums...>, All>::Type{},
                        std::false_type{}, f, args...);
}
/// The same for f that returns {y, aux}: {y, function, aux}, a std::tuple.
template <std::size_t... argnums, detail::Function F, class... Args>
  requires(sizeof...(Args) > 0)
auto vjp(F f, HasAux, const Args&... args) {
  using All = std::make_index_sequence<sizeof...(Args)>;
  return detail::vjp_of(typename detail::Chosen<std::index_sequence<argnums...>, All>::Type{},
                        std::true_type{}, f, args...);
}

/// The function that returns the Jacobian of f by its first argument (or those of `argnums`): each
/// tensor has the dimensions of a result, then those of an argument. A tensor y gives a tree like
/// x; a tree y by a tensor x gives a tree like y; of a tree by a tree there is a std::vector with a
/// tree like x for every tensor of y. jacfwd makes a column at a time (cheaper where x is smaller),
/// jacrev a row at a time. Throws what value_and_grad throws.
template <std::size_t... argnums, class F>
auto jacfwd(F f) {
  return [f](const auto&... args) {
    return detail::jacobian<detail::FirstUnless<argnums...>, false, true>(f, args...);
  };
}
template <std::size_t... argnums, class F>
auto jacrev(F f) {
  return [f](const auto&... args) {
    return detail::jacobian<detail::FirstUnless<argnums...>, false, false>(f, args...);
  };
}
/// The same for f that returns {y, aux}: {Jacobian, aux}.
template <std::size_t... argnums, class F>
auto jacfwd(F f, HasAux) {
  return [f](const auto&... args) {
    return detail::jacobian<detail::FirstUnless<argnums...>, true, true>(f, args...);
  };
}
template <std::size_t... argnums, class F>
auto jacrev(F f, HasAux) {
  return [f](const auto&... args) {
    return detail::jacobian<detail::FirstUnless<argnums...>, true, false>(f, args...);
  };
}
/// The function that returns the second derivatives of f by its first argument (or those of
/// `argnums`): jacfwd(jacrev(f)). By a tensor x that gives a tensor with the dimensions of f's
/// result, of x and of x again.
template <std::size_t... argnums, class F>
auto hessian(F f) {
  return jacfwd<argnums...>(jacrev<argnums...>(std::move(f)));
}

/// A copy of a tree whose tensors have zero derivatives.
template <Tree T>
  requires(!std::convertible_to<T, Tensor>)
T stop_gradient(const T& tree, Site site = Site::current()) {
  return tree_map([&](const Tensor& t) { return stop_gradient(t, site); }, tree);
}

// ---- batching ------------------------------------------------------------------------------------

namespace detail {

/// The arguments of a batch, seen as one element of it each.
class BatchedArguments {
 public:
  BatchedArguments(std::vector<Axis> in_axes, std::size_t count, const Site& site);
  /// The next argument as one element sees it.
  template <class T>
  T element(const T& argument) {
    const Axis axis = next_axis();
    if (!axis) return argument;
    return map_leaves<Leaves::all>([&](const Tensor& t) { return add(t, *axis); }, argument);
  }
  /// Results of the elements for the whole batch.
  std::vector<Tensor> batch(std::span<const Tensor> results, std::span<const Axis> out_axes) const;

 private:
  Axis next_axis();
  Tensor add(const Tensor& argument, int axis);

  std::vector<Axis> axes_;
  std::size_t next_ = 0;
  Site site_;
  std::optional<std::int64_t> size_;
  std::vector<Tensor> elements_, batched_;
};

}  // namespace detail

/// The function that applies f to every element of a batch: arguments have one more dimension, and
/// so do the results. f is called once, on tensors that stand for one element. Random operations
/// that take no key draw the same numbers for every element; map over keys to draw others. The call
/// throws ShapeError for axes that do not exist or differ in extent, and GraphError if their number
/// is not that of the arguments or results.
template <class F>
auto vmap(F f, VmapOptions options = {}, Site site = Site::current()) {
  return [f, options, site](const auto&... args) {
    detail::BatchedArguments batch(options.in_axes, sizeof...(args), site);
    // Braces: from left to right.
    const std::tuple<detail::Plain<decltype(args)>...> elements{
        batch.element(static_cast<const detail::Plain<decltype(args)>&>(args))...};
    const auto y = std::apply(f, elements);
    using Y = detail::Plain<decltype(y)>;
    const Y result = y;
    constexpr auto all = detail::Leaves::all;
    return detail::with_leaves<all>(result,
                                    batch.batch(detail::leaves_of<all>(result), options.out_axes));
  };
}
/// The same with dimension `axis` of every argument mapped.
template <class F>
auto vmap(F f, int axis, Site site = Site::current()) {
  return vmap(std::move(f), VmapOptions{.in_axes = {axis}}, site);
}

// ---- derivatives of one's own, and recomputation -------------------------------------------------

namespace detail {

/// Cotangents of the inputs from the residuals and the cotangents of the outputs.
using PullBack = std::function<std::vector<Tensor>(std::span<const Tensor> residuals,
                                                   std::span<const Tensor> cotangents)>;
/// The outputs with the given derivative.
std::vector<Tensor> custom_vjp(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                               std::span<const Tensor> residuals, PullBack pull_back,
                               const Site& site);
/// The outputs, a function of `inputs`, computed again where their derivative needs what is
/// between.
std::vector<Tensor> checkpoint(std::span<const Tensor> outputs, std::span<const Tensor> inputs,
                               const Site& site);

}  // namespace detail

/// A function with a derivative of one's own. `forward(args...)` returns a std::pair: the value,
/// and whatever `backward` needs (a tree, or anything without tensors). `backward(residuals,
/// cotangent of the value)` returns the cotangent of the argument, or a std::tuple of those of
/// several; an empty Tensor is zero, and so it must be for integers. It need not be linear in the
/// cotangent, but forward-mode derivatives (jvp, jacfwd, hessian) throw GraphError if it is not.
/// Only the arguments have derivatives: what the functions capture counts as constant. Higher
/// derivatives are those of `backward`. Throws GraphError or ShapeError, when it is differentiated,
/// if the cotangents do not fit the arguments.
template <class Forward, class Backward>
auto custom_vjp(Forward forward, Backward backward, Site site = Site::current()) {
  return [forward, backward, site](const auto&... args) {
    const std::tuple<detail::Plain<decltype(args)>...> inputs{args...};
    const auto made = std::apply(forward, inputs);
    const detail::Plain<decltype(made.first)> y = made.first;
    using detail::Leaves;
    // The rule outlives the call: it must not keep the graph alive.
    detail::PullBack pull_back =
        [backward, y_like = detail::skeleton(y), r_like = detail::skeleton(made.second)](
            std::span<const Tensor> residuals, std::span<const Tensor> cotangents) {
          return tree_leaves(backward(detail::with_leaves<Leaves::all>(r_like, residuals),
                                      tree_with(y_like, cotangents)));
        };
    return tree_with(
        y, detail::custom_vjp(tree_leaves(y), detail::leaves_of<Leaves::differentiable>(inputs),
                              detail::leaves_of<Leaves::all>(made.second), std::move(pull_back),
                              site));
  };
}

/// f, whose intermediate values are not kept for its derivative but computed again when it is: less
/// memory for more time. What f captures (a model's parameters) is differentiated as always.
template <class F>
auto checkpoint(F f, Site site = Site::current()) {
  return [f, site](const auto&... args) {
    std::tuple<detail::Plain<decltype(args)>...> inputs{args...};
    detail::make_variable(inputs);
    const auto made = std::apply(f, std::as_const(inputs));
    const detail::Plain<decltype(made)> y = made;
    return tree_with(
        y, detail::checkpoint(tree_leaves(y),
                              detail::leaves_of<detail::Leaves::differentiable>(inputs), site));
  };
}

}  // namespace tensorgrad
