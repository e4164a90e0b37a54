// What stands behind Training and Forward.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "schedule/schedule.h"
#include "tensorgrad/compile.h"
#include "train/engine.h"
#include "train/outcome.h"

namespace tensorgrad::detail {

/// Checks feeds against input declarations and works out open extents.
class FeedChecker {
 public:
  /// Throws ShapeError or GraphError for declarations that make no sense.
  FeedChecker(std::vector<InputSpec> specs, const Site& site);
  const std::vector<InputSpec>& specs() const { return specs_; }
  bool open() const;
  /// The shapes of the arrays fed, in the order of the declarations. Throws GraphError, DTypeError
  /// and ShapeError.
  std::vector<Shape> shapes(const Feed& feed, const Site& site) const;

 private:
  std::vector<InputSpec> specs_;
};

/// A program for one set of input shapes.
struct Compiled {
  std::vector<Shape> shapes;
  std::unique_ptr<Program> program;
  std::shared_ptr<const OutputList> outputs;
  bool uses_key = false;
  Graph graph;
  std::vector<PassReport> passes;
};

/// Programs by input shapes; the last ones are kept.
class CompiledCache {
 public:
  using Make = std::function<std::unique_ptr<Compiled>(const std::vector<Shape>&)>;
  Compiled& get(const std::vector<Shape>& shapes, const Make& make);
  Compiled* latest() { return entries_.empty() ? nullptr : entries_.front().get(); }

 private:
  static constexpr std::size_t capacity = 8;
  std::list<std::unique_ptr<Compiled>> entries_;
};

/// A parameter's place in the arena.
struct Slot {
  std::string name;
  Param param;
  std::int64_t offset = 0;
  std::int64_t size = 0;
  double lr_scale = 1;
  Tensor tensor = {};  ///< what the model computes with: a view of the arena
};
/// A buffer's place in the arena of buffers.
struct BufferSlot {
  std::string name;
  Buffer buffer;
  std::int64_t offset = 0;
  std::int64_t size = 0;
};
/// Parameters side by side in the arena to which the same options apply.
struct Range {
  std::int64_t from = 0, to = 0;
  bool decay = false;
  double lr_scale = 1;
};

class TrainingCore {
 public:
  TrainingCore(TrainOptions options, const Site& site);

  void declare(const std::string& name, const Param& param);
  void declare(const std::string& name, const Buffer& buffer);
  Tensor parameter(const std::string& name);
  Tensor buffer(const std::string& name);
  void finish(Trace loss, const Site& site);

  std::shared_ptr<Outcome> step(const Feed& feed, const Site& site);
  std::int64_t steps() const { return steps_; }
  std::vector<ParamValue> params() const;
  std::vector<ParamValue> buffers() const;
  void set_params(std::span<const ParamValue> values, const Site& site);
  void set_lr(Schedule lr) { set_schedule(options_.optimizer, std::move(lr)); }
  void reset();
  void save(const std::filesystem::path& path,
            const std::map<std::string, std::string>& metadata) const;
  void load(const std::filesystem::path& path);

  /// The graph that writes the initial values of the seed to the arena.
  Graph initial_graph() const;
  /// Parameters in the model's order, and the elements of the arena that they lie in.
  const std::vector<Slot>& slots() const { return slots_; }
  std::int64_t arena_size() const { return arena_size_; }
  /// The parameter arena (0), or an arena of the optimizer's state.
  std::vector<float> read_arena(std::size_t slot) const;
  const DeviceBuffer& buffer(std::size_t slot) const { return *buffers_.at(slot); }
  const FeedChecker& feeds() const { return feeds_; }
  /// The program for these input shapes, compiled if it is not there. Valid until the next call.
  Compiled& compiled_for(const std::vector<Shape>& shapes) {
    return cache_.get(shapes, [&](const auto& sh) { return compile(sh); });
  }

  Engine& engine() { return *engine_; }
  const TrainOptions& options() const { return options_; }
  /// What a program beside the training reads: the parameters, then the buffers if there are any.
  std::vector<Tensor> shared_states() const;
  std::vector<DeviceBuffer*> shared_memory();
  /// The program of the last step, or of the only input shapes; null before the first step of open
  /// inputs.
  Compiled* compiled() { return cache_.latest(); }

 private:
  void lay_out();
  std::vector<const Slot*> by_offset() const;
  /// Whether each element decays, and the factor of its learning rate (empty where all are 1).
  std::pair<Tensor, Tensor> element_options() const;
  /// The arena of buffers after the step; empty if the loss assigns none.
  Tensor updated_buffers(const Tensor& loss) const;
  bool has_buffers() const { return !buffer_slots_.empty(); }
  /// Position of the arena of buffers among the states.
  std::size_t buffer_index() const { return 1 + slot_arenas_.size(); }
  std::unique_ptr<Compiled> compile(const std::vector<Shape>& shapes);
  /// Of the parameters, then of the buffers if there are any.
  std::vector<Tensor> initial_values() const;
  void write_arena(std::size_t slot, std::span<const float> values);
  std::vector<std::string> arena_names() const;

  TrainOptions options_;
  Site site_;
  FeedChecker feeds_;
  std::shared_ptr<Engine> engine_;
  std::vector<Slot> slots_;  // in the model's order
  std::int64_t arena_size_ = 0;
  std::vector<Range> ranges_;
  std::vector<BufferSlot> buffer_slots_;
  std::int64_t buffer_size_ = 0;
  Tensor arena_;                     // placeholder of the parameters
  std::vector<Tensor> slot_arenas_;  // placeholders of the optimizer's state
  Tensor buffer_arena_;              // placeholder of the buffers, if there are any
  Trace loss_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;  // parameters, optimizer state, buffers
  CompiledCache cache_;
  std::int64_t steps_ = 0;
};

class ForwardCore {
 public:
  ForwardCore(std::shared_ptr<TrainingCore> training, Trace f, const ForwardOptions& options,
              const Site& site);
  std::shared_ptr<Outcome> run(const Feed& feed, const Site& site);
  const FeedChecker& feeds() const { return feeds_; }
  /// The program for these input shapes, compiled if it is not there. Valid until the next call.
  Compiled& compiled_for(const std::vector<Shape>& shapes) {
    return cache_.get(shapes, [&](const auto& sh) { return compile(sh); });
  }
  Compiled* compiled() { return cache_.latest(); }

 private:
  std::unique_ptr<Compiled> compile(const std::vector<Shape>& shapes);
  std::shared_ptr<TrainingCore> training_;
  Trace f_;
  FeedChecker feeds_;
  Site site_;
  CompiledCache cache_;
};

/// Placeholders of the inputs, and the inputs as the traced function sees them.
std::pair<std::vector<Tensor>, Inputs> make_inputs(const std::vector<InputSpec>& specs,
                                                   const std::vector<Shape>& shapes,
                                                   const Site& site);
/// The captured tensors that `root` is computed from. Throws GraphError for a name used twice.
std::vector<Named> find_captures(const Tensor& root);
/// The buffers that `root` assigns, by name. Throws GraphError for a buffer assigned twice.
std::vector<Named> find_assignments(const Tensor& root);
/// Bytes of a feed in the order of the declarations.
std::vector<std::span<const std::byte>> ordered(const std::vector<InputSpec>& specs,
                                                const Feed& feed);

}  // namespace tensorgrad::detail
