// Compiled training and inference: a model and a loss become one program.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensorgrad/module.h"
#include "tensorgrad/optim.h"
#include "tensorgrad/tensor.h"

namespace tensorgrad {

/// An extent of an input that is known only when it is fed. A program is compiled for every size
/// that occurs, and the last ones are kept.
inline constexpr std::int64_t dyn = -1;

/// An array that a program is fed with. At most one extent may be `dyn`.
struct InputSpec {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
};

/// The inputs of a function that is being traced, by name.
class Inputs {
 public:
  explicit Inputs(std::map<std::string, Tensor, std::less<>> tensors)
      : tensors_(std::move(tensors)) {}
  /// Throws GraphError, listing the declared names, if there is no such input.
  const Tensor& operator[](std::string_view name) const;

 private:
  std::map<std::string, Tensor, std::less<>> tensors_;
};

/// A view of host memory that is fed: read before the call that takes it returns.
class HostView {
 public:
  // NOLINTBEGIN(google-explicit-constructor): feeds read as {{"x", values}}
  template <class T>
    requires requires { dtype_of<T>::value; }
  HostView(const std::vector<T>& v) : HostView(std::span<const T>(v)) {}
  template <class T>
    requires requires { dtype_of<T>::value; }
  HostView(std::span<const T> v) : bytes_(std::as_bytes(v)), dtype_(dtype_of<T>::value) {}
  // NOLINTEND(google-explicit-constructor)
  std::span<const std::byte> bytes() const { return bytes_; }
  DType dtype() const { return dtype_; }

 private:
  std::span<const std::byte> bytes_;
  DType dtype_;
};
using Feed = std::map<std::string, HostView, std::less<>>;

/// What some parameters have of their own.
struct ParamGroup {
  /// Which parameters: by the name in the model and the shape. The first group that applies counts.
  std::function<bool(const std::string& name, const Shape& shape)> applies;
  double lr_scale = 1;             ///< times the learning rate; 0 freezes them
  std::optional<bool> decay = {};  ///< whether weight decay applies; as the layer says if not given
};

struct TrainOptions {
  std::vector<InputSpec> inputs = {};
  Optimizer optimizer = Adam{};
  std::optional<double> clip_norm = {};  ///< gradients are scaled down to this global norm
  std::string device = "auto";
  std::uint64_t seed = 0;  ///< of initial values and of random operations
  std::vector<ParamGroup> groups = {};
  /// Reading a loss that is NaN throws NotFiniteError.
  bool check_nan = true;
  /// Times the ways to run each kernel on the device before the first step, where the device knows
  /// several, and keeps the fastest for later programs too.
  bool tune = false;
  /// Receives warnings, such as a parameter that the loss never uses; by default they go to stderr.
  std::function<void(const std::string&)> warn = {};
};
struct ForwardOptions {
  std::vector<InputSpec> inputs = {};
};

/// A parameter with its values.
struct ParamValue {
  std::string name;
  Shape shape;
  std::vector<float> values;
};

namespace detail {
class TrainingCore;
class ForwardCore;
class Outcome;
using Trace = std::function<Tensor(const Inputs&)>;
}  // namespace detail

/// What a run made. Reading waits for the run; values stay valid when later runs start.
class RunResult {
 public:
  explicit RunResult(std::shared_ptr<detail::Outcome> outcome) : outcome_(std::move(outcome)) {}
  /// The elements of the result. Throws DTypeError if T does not hold its dtype.
  template <class T = float>
  std::vector<T> value(Site site = Site::current()) const;
  const Shape& shape() const;
  /// The elements of a tensor marked by `capture`. Throws GraphError, listing the names there are.
  template <class T = float>
  std::vector<T> captured(std::string_view name, Site site = Site::current()) const;

 protected:
  std::shared_ptr<detail::Outcome> outcome_;
};

/// What a training step made.
class StepResult : public RunResult {
 public:
  using RunResult::RunResult;
  /// The loss before the update. Throws NotFiniteError if it is NaN (unless
  /// TrainOptions::check_nan is off), naming the step and the first captured tensor that is not
  /// finite.
  float loss(Site site = Site::current()) const;
};

/// A function of the model that runs on a training's parameters.
class Forward {
 public:
  explicit Forward(std::shared_ptr<detail::ForwardCore> core) : core_(std::move(core)) {}
  /// Runs with the current parameters. Throws GraphError for unknown or missing names, DTypeError
  /// and ShapeError for arrays that do not fit; then nothing runs.
  RunResult run(const Feed& feed, Site site = Site::current());
  /// For tools and tests.
  detail::ForwardCore& core() { return *core_; }

 private:
  std::shared_ptr<detail::ForwardCore> core_;
};

/// A compiled training, apart from the model's type.
class AnyTraining {
 public:
  explicit AnyTraining(std::shared_ptr<detail::TrainingCore> core) : core_(std::move(core)) {}
  /// One step: forward, backward, clipping, update. Does not wait. Throws as Forward::run does;
  /// then nothing changes.
  StepResult step(const Feed& feed, Site site = Site::current());
  /// Steps done so far.
  std::int64_t steps() const;
  /// The current parameters, in the model's order.
  std::vector<ParamValue> params() const;
  /// The current buffers (running statistics and the like), in the model's order.
  std::vector<ParamValue> buffers() const;
  /// Replaces parameters and buffers by name; others stay. Throws GraphError for unknown names and
  /// ShapeError for wrong sizes; then nothing changes.
  void set_params(std::span<const ParamValue> values, Site site = Site::current());
  /// Replaces the learning rate (or its schedule) from the next step on; nothing is recompiled.
  void set_lr(Schedule lr);
  /// Back to initial values and an empty optimizer, step 0.
  void reset();
  /// Writes parameters, buffers, optimizer state, step, seed and configuration as safetensors, with
  /// `metadata` beside them. The file is replaced at once, or left as it was. Throws FormatError.
  void save(const std::filesystem::path& path,
            const std::map<std::string, std::string>& metadata = {}) const;
  /// Reads what `save` wrote and goes on from there, bit for bit; a file without optimizer state
  /// starts it anew. Throws FormatError if the file is damaged or is of another model; then nothing
  /// changes.
  void load(const std::filesystem::path& path);
  /// For tools and tests.
  detail::TrainingCore& core() { return *core_; }

 protected:
  std::shared_ptr<detail::TrainingCore> core_;
};

namespace detail {
std::shared_ptr<TrainingCore> start_training(const TrainOptions& options, const Site& site);
void declare(TrainingCore& core, const std::string& name, const Param& param);
void declare(TrainingCore& core, const std::string& name, const Buffer& buffer);
Tensor parameter(TrainingCore& core, const std::string& name);
Tensor buffer(TrainingCore& core, const std::string& name);
void finish_training(TrainingCore& core, Trace loss, const Site& site);
std::shared_ptr<ForwardCore> attach(const std::shared_ptr<TrainingCore>& core, Trace f,
                                    const ForwardOptions& options, const Site& site);
}  // namespace detail

/// A compiled training of a model.
template <class Model>
class Training : public AnyTraining {
 public:
  Training(std::shared_ptr<detail::TrainingCore> core, std::shared_ptr<const Model> model)
      : AnyTraining(std::move(core)), model_(std::move(model)) {}

  /// Compiles f(model, inputs) on the same parameters and buffers, for evaluation: dropout is off,
  /// and batch norm uses its running statistics. Its result is a tensor of any shape.
  template <class F>
    requires std::is_invocable_r_v<Tensor, F, const Model&, const Inputs&>
  Forward attach(F f, const ForwardOptions& options, Site site = Site::current()) {
    return Forward(detail::attach(
        core_, [m = model_, f = std::move(f)](const Inputs& in) -> Tensor { return f(*m, in); },
        options, site));
  }

 private:
  std::shared_ptr<const Model> model_;
};

/// Compiles the training of a model: loss(model, inputs) is traced, differentiated, fused and
/// placed in memory once. The loss is a scalar of f32, or of f16, which is read as f32. Throws the
/// errors of the operations, GraphError if the loss does not depend on any parameter, DeviceError
/// if the device is not usable.
template <class Model, class Loss>
  requires std::is_invocable_r_v<Tensor, Loss, const Model&, const Inputs&>
Training<Model> compile(Model model, Loss loss, const TrainOptions& options,
                        Site site = Site::current()) {
  const auto core = detail::start_training(options, site);
  const auto shared = std::make_shared<Model>(std::move(model));
  visit_params(*shared,
               [&](const std::string& name, Param& p) { detail::declare(*core, name, p); });
  visit_buffers(*shared,
                [&](const std::string& name, Buffer& b) { detail::declare(*core, name, b); });
  visit_params(*shared, [&](const std::string& name, Param& p) {
    p.bind(detail::parameter(*core, name), name, site);
  });
  visit_buffers(*shared, [&](const std::string& name, Buffer& b) {
    b.bind(detail::buffer(*core, name), name, site);
  });
  detail::finish_training(
      *core,
      [m = std::shared_ptr<const Model>(shared),
       loss = std::move(loss)](const Inputs& in) -> Tensor { return loss(*m, in); },
      site);
  return Training<Model>(core, shared);
}

}  // namespace tensorgrad
