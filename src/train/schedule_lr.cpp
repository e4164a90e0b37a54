// Learning-rate schedules.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tensorgrad/optim.h"

namespace tensorgrad {
namespace {

double rate(const char* schedule, const char* what, double value, const Site& site) {
  if (!(std::isfinite(value) && value >= 0)) {
    throw ValueError(
        fmt::format("{}: the {} is {}, not a finite number of at least 0.", schedule, what, value),
        site);
  }
  return value;
}

std::int64_t count(const char* schedule, const char* what, std::int64_t value, const Site& site) {
  if (value < 1) {
    throw ValueError(fmt::format("{}: the {} is {}, not at least 1.", schedule, what, value), site);
  }
  return value;
}

}  // namespace

Schedule::Schedule(double value, Site site) : first_(rate("learning rate", "value", value, site)) {}

Schedule Schedule::linear(double start, double final, std::int64_t steps, Site site) {
  Schedule s(rate("linear", "start", start, site));
  s.kind_ = Kind::linear;
  s.second_ = rate("linear", "final value", final, site);
  s.steps_ = count("linear", "number of steps", steps, site);
  return s;
}

Schedule Schedule::cosine(double peak, double final, std::int64_t steps, Site site) {
  Schedule s(rate("cosine", "peak", peak, site));
  s.kind_ = Kind::cosine;
  s.second_ = rate("cosine", "final value", final, site);
  s.steps_ = count("cosine", "number of steps", steps, site);
  return s;
}

Schedule Schedule::warmup(std::int64_t steps, Schedule after, Site site) {
  Schedule s(0);
  s.kind_ = Kind::warmup;
  s.steps_ = count("warmup", "number of steps", steps, site);
  s.after_.push_back(std::move(after));
  return s;
}

Schedule Schedule::staircase(double lr, double factor, std::int64_t every, Site site) {
  Schedule s(rate("staircase", "rate", lr, site));
  s.kind_ = Kind::staircase;
  s.second_ = rate("staircase", "factor", factor, site);
  s.steps_ = count("staircase", "number of steps", every, site);
  return s;
}

Schedule Schedule::multi_step(double lr, std::vector<std::int64_t> milestones, double factor,
                              Site site) {
  Schedule s(rate("multi_step", "rate", lr, site));
  s.kind_ = Kind::multi_step;
  s.second_ = rate("multi_step", "factor", factor, site);
  std::int64_t last = 0;
  for (std::int64_t m : milestones) {
    count("multi_step", "milestone", m, site);
    if (m <= last) {
      throw ValueError(
          fmt::format("multi_step: milestone {} comes after {}; they must ascend.", m, last), site);
    }
    last = m;
  }
  s.milestones_ = std::move(milestones);
  return s;
}

Schedule Schedule::from_step(std::int64_t first, Schedule after, Site site) {
  Schedule s(0);
  s.kind_ = Kind::from_step;
  s.steps_ = count("from_step", "first step", first, site);
  s.after_.push_back(std::move(after));
  return s;
}

double Schedule::at(std::int64_t step, Site site) const {
  if (step < 0) throw ValueError(fmt::format("learning rate: the step is {}.", step), site);
  const auto done = static_cast<double>(std::min(step, steps_)) / static_cast<double>(steps_);
  switch (kind_) {
    case Kind::constant:
      return first_;
    case Kind::linear:
      return first_ + (second_ - first_) * done;
    case Kind::cosine:
      return second_ + 0.5 * (first_ - second_) * (1 + std::cos(std::numbers::pi * done));
    case Kind::warmup:
      return step <= steps_ ? after_[0].at(0, site) * done : after_[0].at(step - steps_, site);
    case Kind::staircase: {
      const std::int64_t stairs = std::max<std::int64_t>(step - 1, 0) / steps_;
      return first_ * std::pow(second_, static_cast<double>(stairs));
    }
    case Kind::multi_step: {
      const auto passed = std::count_if(milestones_.begin(), milestones_.end(),
                                        [&](std::int64_t m) { return m < step; });
      return first_ * std::pow(second_, static_cast<double>(passed));
    }
    case Kind::from_step:
      return step < steps_ ? 0 : after_[0].at(step - steps_ + 1, site);
  }
  throw ValueError("learning rate: the kind of schedule is unknown.", site);
}

}  // namespace tensorgrad
