#include <fmt/format.h>

#include <array>
#include <cmath>

#include "tensorgrad/optim.h"
#include "train/optim_fields.h"

namespace tensorgrad {
namespace {

constexpr std::array<std::string_view, std::variant_size_v<Optimizer>> names{
    "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Lion"};

template <std::size_t i = 0>
std::optional<Optimizer> default_at(std::size_t index) {
  if constexpr (i < std::variant_size_v<Optimizer>) {
    return index == i ? Optimizer(std::in_place_index<i>) : default_at<i + 1>(index);
  } else {
    return std::nullopt;
  }
}

/// The rates at which moments forget: 1 would never learn.
bool is_moment_rate(std::string_view key) {
  return key == "beta1" || key == "beta2" || key == "alpha";
}

}  // namespace

std::string optimizer_name(const Optimizer& optimizer) {
  return std::string(names[optimizer.index()]);
}

std::optional<Optimizer> default_optimizer(std::string_view name) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return default_at(i);
  }
  return std::nullopt;
}

void validate(const Optimizer& optimizer, Site site) {
  visit_fields(optimizer, [&]<class T>(std::string_view key, const T& value) {
    if constexpr (std::is_same_v<T, double>) {
      const bool below_one = is_moment_rate(key);
      if (std::isfinite(value) && value >= 0 && (!below_one || value < 1)) return;
      throw ValueError(fmt::format("{}: {} is {}, not {}.", optimizer_name(optimizer), key, value,
                                   below_one ? "in [0, 1)" : "a finite number of at least 0"),
                       site);
    }
  });
  if (const auto* sgd = std::get_if<SGD>(&optimizer);
      sgd != nullptr && sgd->nesterov && (sgd->momentum == 0 || sgd->dampening != 0)) {
    throw ValueError(
        fmt::format("SGD: Nesterov's form needs momentum and no dampening, not {} and {}.",
                    sgd->momentum, sgd->dampening),
        site);
  }
}

const Schedule& schedule_of(const Optimizer& optimizer) {
  return std::visit([](const auto& o) -> const Schedule& { return o.lr; }, optimizer);
}

void set_schedule(Optimizer& optimizer, Schedule lr) {
  std::visit([&](auto& o) { o.lr = std::move(lr); }, optimizer);
}

}  // namespace tensorgrad
