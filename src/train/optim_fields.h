// The values of each optimizer, listed once: for printing, reading and checking.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "tensorgrad/optim.h"

namespace tensorgrad {

/// "Adam".
std::string optimizer_name(const Optimizer& optimizer);
/// The optimizer of a name with its default values, if there is one.
std::optional<Optimizer> default_optimizer(std::string_view name);

namespace detail {

template <class O, class F>
void optimizer_fields(O& o, F&& f) {
  using T = std::remove_const_t<O>;
  f("lr", o.lr);
  if constexpr (std::is_same_v<T, SGD>) {
    f("momentum", o.momentum);
    f("dampening", o.dampening);
    f("weight_decay", o.weight_decay);
    f("nesterov", o.nesterov);
  } else if constexpr (std::is_same_v<T, Adam> || std::is_same_v<T, AdamW>) {
    f("beta1", o.beta1);
    f("beta2", o.beta2);
    f("eps", o.eps);
    f("weight_decay", o.weight_decay);
    f("eps_on_uncorrected", o.eps_on_uncorrected);
  } else if constexpr (std::is_same_v<T, RMSprop>) {
    f("alpha", o.alpha);
    f("eps", o.eps);
    f("weight_decay", o.weight_decay);
    f("momentum", o.momentum);
    f("centered", o.centered);
  } else if constexpr (std::is_same_v<T, Adagrad>) {
    f("lr_decay", o.lr_decay);
    f("weight_decay", o.weight_decay);
    f("eps", o.eps);
  } else {
    static_assert(std::is_same_v<T, Lion>);
    f("beta1", o.beta1);
    f("beta2", o.beta2);
    f("weight_decay", o.weight_decay);
  }
}

}  // namespace detail

/// Calls f(const char* name, value) for every value of the optimizer that is held; Opt may be
/// const.
template <class Opt, class F>
void visit_fields(Opt& optimizer, F f) {
  std::visit([&](auto& o) { detail::optimizer_fields(o, f); }, optimizer);
}

}  // namespace tensorgrad
