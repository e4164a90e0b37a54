// Optimizers and learning-rate schedules: plain values, with PyTorch's formulas.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tensorgrad/error.h"

namespace tensorgrad {

/// A number that depends on the step: a learning rate over a training. Steps count from 1. Every
/// function that makes one throws ValueError for a rate or factor that is NaN, infinite or
/// negative, and for a number of steps below 1.
class Schedule {
 public:
  enum class Kind : std::uint8_t {
    constant,
    linear,
    cosine,
    warmup,
    staircase,
    multi_step,
    from_step
  };

  /// The same rate at every step.
  Schedule(double value, Site site = Site::current());  // NOLINT(google-explicit-constructor)

  /// From `start` to `final` in equal differences: start + (final - start) * min(step / steps, 1).
  static Schedule linear(double start, double final, std::int64_t steps,
                         Site site = Site::current());
  /// Half a cosine: final + (peak - final) * (1 + cos(pi * min(step / steps, 1))) / 2.
  static Schedule cosine(double peak, double final, std::int64_t steps,
                         Site site = Site::current());
  /// Rises in equal differences from 0 to the value at which `after` starts, which it reaches at
  /// step `steps`; the next step is step 1 of `after`.
  static Schedule warmup(std::int64_t steps, Schedule after, Site site = Site::current());
  /// `lr` for the first `every` steps, and `factor` times less or more after every further `every`.
  static Schedule staircase(double lr, double factor, std::int64_t every,
                            Site site = Site::current());
  /// `lr`, multiplied by `factor` after each of the steps listed in ascending order.
  static Schedule multi_step(double lr, std::vector<std::int64_t> milestones, double factor,
                             Site site = Site::current());
  /// 0 before step `first`, which is step 1 of `after`.
  static Schedule from_step(std::int64_t first, Schedule after, Site site = Site::current());

  /// The value at a step. Throws ValueError for a negative step; step 0 is where the schedule
  /// starts from.
  double at(std::int64_t step, Site site = Site::current()) const;

  Kind kind() const { return kind_; }
  bool operator==(const Schedule&) const = default;

  /// The schedule that `to_string` printed. Throws FormatError for any other text, ValueError for
  /// values that a schedule cannot have.
  static Schedule parse(std::string_view json, Site site = Site::current());

 private:
  friend struct ScheduleJson;

  Kind kind_ = Kind::constant;
  double first_ = 0;   // the rate at the start
  double second_ = 0;  // the final rate, or a factor
  std::int64_t steps_ = 0;
  std::vector<std::int64_t> milestones_;
  std::vector<Schedule> after_;  // none or one
};

/// JSON: a number for a constant, else an object such as
/// {"kind": "cosine", "peak": 0.001, "final": 0.0, "steps": 5000}.
std::string to_string(const Schedule& schedule);

/// Stochastic gradient descent. g += weight_decay * p; momentum buffer b = momentum * b +
/// (1 - dampening) * g (b = g at the first step); p -= lr * b, or lr * (g + momentum * b) with
/// Nesterov's form.
struct SGD {
  Schedule lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  ///< L2: added to the gradient
  bool nesterov = false;
  bool operator==(const SGD&) const = default;
};

/// Adam: moments m and v of the gradient with bias correction;
/// p -= lr * m^ / (sqrt(v^) + eps). With `eps_on_uncorrected`, eps is added to the root of v before
/// its correction, as the paper's second form does: p -= lr * sqrt(1 - beta2^t) / (1 - beta1^t) *
/// m / (sqrt(v) + eps).
struct Adam {
  Schedule lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  ///< L2: added to the gradient
  bool eps_on_uncorrected = false;
  bool operator==(const Adam&) const = default;
};

/// Adam with decoupled weight decay: p -= lr * weight_decay * p beside Adam's step.
struct AdamW {
  Schedule lr = 1e-3;
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  bool eps_on_uncorrected = false;
  bool operator==(const AdamW&) const = default;
};

/// v = alpha * v + (1 - alpha) * g^2; p -= lr * g / (sqrt(v) + eps). `centered` subtracts the
/// square of the gradient's running mean from v; with momentum b = momentum * b + g / (sqrt(v) +
/// eps) and p -= lr * b.
struct RMSprop {
  Schedule lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;  ///< L2: added to the gradient
  double momentum = 0;
  bool centered = false;
  bool operator==(const RMSprop&) const = default;
};

/// s += g^2; p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps).
struct Adagrad {
  Schedule lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;  ///< L2: added to the gradient
  double eps = 1e-10;
  bool operator==(const Adagrad&) const = default;
};

/// p -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * p); m = beta2 * m + (1 - beta2) *
/// g.
struct Lion {
  Schedule lr = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;  ///< decoupled
  bool operator==(const Lion&) const = default;
};

/// How a training changes its parameters.
using Optimizer = std::variant<SGD, Adam, AdamW, RMSprop, Adagrad, Lion>;

/// Throws ValueError, naming the optimizer and the value, for numbers outside their range: a decay
/// rate of a moment outside [0, 1), a negative or infinite eps or weight decay, Nesterov's form
/// without momentum or with dampening.
void validate(const Optimizer& optimizer, Site site = Site::current());

/// The schedule of its learning rate.
const Schedule& schedule_of(const Optimizer& optimizer);
void set_schedule(Optimizer& optimizer, Schedule lr);

/// JSON: {"kind": "Adam", "lr": 0.001, "beta1": 0.9, ...}.
std::string to_string(const Optimizer& optimizer);
/// The optimizer that `to_string` printed; values that are absent have their defaults. Throws
/// FormatError for any other text, ValueError for values that it cannot have.
Optimizer parse_optimizer(std::string_view text, Site site = Site::current());

}  // namespace tensorgrad
