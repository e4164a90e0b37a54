#include "train/update.h"

#include <fmt/format.h>

#include <cmath>

#include "tensorgrad/ops.h"
#include "train/optim_fields.h"

namespace tensorgrad {
namespace {

/// What every formula reads. Numbers that depend on the step come from the uploaded values; the
/// rest are constants of the program.
struct Operands {
  const Tensor& params;
  const Tensor& grads;
  std::span<const Tensor> slots;
  const Tensor& hyper_values;
  const Tensor& decays;
  const Tensor& scales;

  Tensor value(std::int64_t i) const { return take(hyper_values, 0, i); }
  /// A learning rate for each element.
  Tensor rate(std::int64_t i) const { return scales.defined() ? value(i) * scales : value(i); }
  /// The gradient with L2 weight decay.
  Tensor decayed_gradient(double weight_decay) const {
    return weight_decay == 0 ? grads : grads + where(decays, params, 0) * weight_decay;
  }
  /// `step` with decoupled weight decay: what is taken from the parameters.
  Tensor with_decay(const Tensor& step, double weight_decay, std::int64_t i) const {
    return weight_decay == 0 ? step : step + where(decays, params, 0) * rate(i);
  }
};

Tensor running(const Tensor& average, const Tensor& now, double rate) {
  return average * rate + now * (1 - rate);
}

double power(double base, std::int64_t step) { return std::pow(base, static_cast<double>(step)); }

// ---- each optimizer: names of its slots, its numbers, its formula --------------------------------

std::vector<std::string> slots_of(const SGD& o) {
  return o.momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum"};
}
std::vector<double> numbers(const SGD& o, std::int64_t step, double lr) {
  return {lr, step == 1 ? 1 : 1 - o.dampening};
}
Updated apply(const SGD& o, const Operands& in) {
  const Tensor g = in.decayed_gradient(o.weight_decay);
  if (o.momentum == 0) return {in.params - g * in.rate(0), {}};
  const Tensor b = in.slots[0] * o.momentum + (o.dampening == 0 ? g : g * in.value(1));
  return {in.params - (o.nesterov ? g + b * o.momentum : b) * in.rate(0), {b}};
}

template <class A>
std::vector<double> adam_numbers(const A& o, std::int64_t step, double lr) {
  const double correction1 = 1 - power(o.beta1, step);
  const double correction2 = 1 - power(o.beta2, step);
  if (o.eps_on_uncorrected) return {lr * std::sqrt(correction2) / correction1, 1};
  return {lr / correction1, 1 / std::sqrt(correction2)};
}
/// The new moments, and what Adam takes from the parameters.
template <class A>
std::pair<Tensor, std::vector<Tensor>> adam_step(const A& o, const Operands& in, const Tensor& g) {
  const Tensor m = running(in.slots[0], g, o.beta1);
  const Tensor v = running(in.slots[1], square(g), o.beta2);
  const Tensor root = o.eps_on_uncorrected ? sqrt(v) : sqrt(v) * in.value(1);
  return {m / (root + o.eps) * in.rate(0), {m, v}};
}

std::vector<std::string> slots_of(const Adam&) { return {"m", "v"}; }
std::vector<double> numbers(const Adam& o, std::int64_t step, double lr) {
  return adam_numbers(o, step, lr);
}
Updated apply(const Adam& o, const Operands& in) {
  auto [step, moments] = adam_step(o, in, in.decayed_gradient(o.weight_decay));
  return {in.params - step, std::move(moments)};
}

std::vector<std::string> slots_of(const AdamW&) { return {"m", "v"}; }
std::vector<double> numbers(const AdamW& o, std::int64_t step, double lr) {
  std::vector<double> out = adam_numbers(o, step, lr);
  out.push_back(lr * o.weight_decay);
  return out;
}
Updated apply(const AdamW& o, const Operands& in) {
  auto [step, moments] = adam_step(o, in, in.grads);
  return {in.params - in.with_decay(step, o.weight_decay, 2), std::move(moments)};
}

std::vector<std::string> slots_of(const RMSprop& o) {
  std::vector<std::string> out{"square"};
  if (o.centered) out.emplace_back("mean");
  if (o.momentum != 0) out.emplace_back("momentum");
  return out;
}
std::vector<double> numbers(const RMSprop&, std::int64_t, double lr) { return {lr}; }
Updated apply(const RMSprop& o, const Operands& in) {
  const Tensor g = in.decayed_gradient(o.weight_decay);
  std::vector<Tensor> slots{running(in.slots[0], square(g), o.alpha)};
  Tensor v = slots[0];
  if (o.centered) {
    slots.push_back(running(in.slots[1], g, o.alpha));
    v = maximum(v - square(slots[1]), 0);  // rounding may leave it below 0
  }
  Tensor step = g / (sqrt(v) + o.eps);
  if (o.momentum != 0) {
    step = in.slots.back() * o.momentum + step;
    slots.push_back(step);
  }
  return {in.params - step * in.rate(0), std::move(slots)};
}

std::vector<std::string> slots_of(const Adagrad&) { return {"square_sum"}; }
std::vector<double> numbers(const Adagrad& o, std::int64_t step, double lr) {
  return {lr / (1 + static_cast<double>(step - 1) * o.lr_decay)};
}
Updated apply(const Adagrad& o, const Operands& in) {
  const Tensor g = in.decayed_gradient(o.weight_decay);
  const Tensor s = in.slots[0] + square(g);
  return {in.params - g / (sqrt(s) + o.eps) * in.rate(0), {s}};
}

std::vector<std::string> slots_of(const Lion&) { return {"m"}; }
std::vector<double> numbers(const Lion& o, std::int64_t, double lr) {
  return {lr, lr * o.weight_decay};
}
Updated apply(const Lion& o, const Operands& in) {
  const Tensor& m = in.slots[0];
  const Tensor step = sign(running(m, in.grads, o.beta1)) * in.rate(0);
  return {in.params - in.with_decay(step, o.weight_decay, 1), {running(m, in.grads, o.beta2)}};
}

void check(const char* what, const Tensor& t, DType dtype, const Shape& shape) {
  if (t.dtype() != dtype) {
    throw DTypeError(
        fmt::format("update: the {} are {}, not {}.", what, name(t.dtype()), name(dtype)));
  }
  if (t.shape() != shape) {
    throw ShapeError(fmt::format("update: the {} have shape {}, not {}.", what,
                                 to_string(t.shape()), to_string(shape)));
  }
}

}  // namespace

std::vector<std::string> slot_names(const Optimizer& optimizer) {
  return std::visit([](const auto& o) { return slots_of(o); }, optimizer);
}

double learning_rate_of(const Optimizer& optimizer, std::int64_t step) {
  return schedule_of(optimizer).at(step);
}

std::vector<float> hyper(const Optimizer& optimizer, std::int64_t step, double lr) {
  const std::string who = optimizer_name(optimizer);
  if (step < 1) throw ValueError(fmt::format("{}: the step is {}, not at least 1.", who, step));
  if (!(std::isfinite(lr) && lr >= 0)) {
    throw ValueError(
        fmt::format("{}: the learning rate is {}, not a finite number of at least 0.", who, lr));
  }
  const std::vector<double> values =
      std::visit([&](const auto& o) { return numbers(o, step, lr); }, optimizer);
  std::vector<float> out;
  for (double v : values) out.push_back(static_cast<float>(v));
  return out;
}

Updated update(const Optimizer& optimizer, const Tensor& params, const Tensor& grads,
               std::span<const Tensor> slots, const Tensor& hyper_values, const Tensor& decays,
               const Tensor& scales) {
  validate(optimizer);
  check("parameters", params, DType::f32, {params.size()});
  check("gradients", grads, DType::f32, params.shape());
  check("decay flags", decays, DType::bool_, params.shape());
  if (scales.defined()) check("factors of the learning rate", scales, DType::f32, params.shape());
  check("uploaded values", hyper_values, DType::f32,
        {static_cast<std::int64_t>(hyper(optimizer, 1, 0).size())});
  const std::size_t expected = slot_names(optimizer).size();
  if (slots.size() != expected) {
    throw GraphError(fmt::format("update: {} takes {} slots, not {}.", optimizer_name(optimizer),
                                 expected, slots.size()));
  }
  for (const Tensor& s : slots) check("slots", s, DType::f32, params.shape());
  const Operands in{params, grads, slots, hyper_values, decays, scales};
  return std::visit([&](const auto& o) { return apply(o, in); }, optimizer);
}

Tensor clip_by_global_norm(const Tensor& grads, double max_norm) {
  if (!(std::isfinite(max_norm) && max_norm > 0)) {
    throw ValueError(
        fmt::format("clip_by_global_norm: the norm is {}, not a finite number above 0.", max_norm));
  }
  const Tensor norm = sqrt(sum(square(grads)));
  return grads * minimum(1.0, max_norm / (norm + 1e-6));
}

}  // namespace tensorgrad
