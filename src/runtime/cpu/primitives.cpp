#include "runtime/cpu/primitives.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "runtime/cpu/memory.h"
#include "tensorgrad/error.h"

namespace tensorgrad::cpu {
namespace {

/// The OpenMP runtime that oneDNN was loaded with. Looked up, not linked: compilers link runtimes
/// of their own, which oneDNN would not see. Without one oneDNN has a single thread anyway.
struct OpenMp {
  int (*max_threads)() = find<int()>("omp_get_max_threads");
  void (*set_threads)(int) = find<void(int)>("omp_set_num_threads");

  static const OpenMp& instance() {
    static const OpenMp runtime;
    return runtime;
  }

 private:
  template <class F>
  static F* find(const char* name) {
    return reinterpret_cast<F*>(dlsym(RTLD_DEFAULT, name));
  }
};

}  // namespace

SingleThread::SingleThread() {
  const OpenMp& runtime = OpenMp::instance();
  if (runtime.max_threads == nullptr || runtime.set_threads == nullptr) return;
  const int now = runtime.max_threads();
  if (now == 1) return;
  runtime.set_threads(1);
  before_ = now;
}

SingleThread::~SingleThread() {
  if (before_ > 0) OpenMp::instance().set_threads(before_);
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

Primitives::Primitives(int slots)
    : engine_(dnnl::engine::kind::cpu, 0), slots_(static_cast<std::size_t>(slots)) {}

Primitives::Id Primitives::bind(const kernel::Access& access, const dnnl::memory::desc& desc) {
  views_.push_back({desc, true, static_cast<std::size_t>(access.offset) * sizeof(float)});
  return views_.size() - 1;
}

Primitives::Id Primitives::scratch(const dnnl::memory::desc& desc) {
  views_.push_back({desc, false, scratch_bytes_});
  scratch_bytes_ += aligned(desc.get_size());
  return views_.size() - 1;
}

void Primitives::add(dnnl::primitive primitive, std::vector<std::pair<int, Id>> args) {
  steps_.push_back({std::move(primitive), std::move(args)});
}

Primitives::Id Primitives::as_input(Id user, const dnnl::memory::desc& wanted) {
  if (desc(user) == wanted) return user;
  const Id copy = scratch(wanted);
  add_reorder(user, copy);
  return copy;
}

void Primitives::add_reorder(Id from, Id to) {
  const dnnl::reorder::primitive_desc pd(engine_, desc(from), engine_, desc(to), attributes());
  add(dnnl::reorder(pd), {{DNNL_ARG_FROM, from},
                          {DNNL_ARG_TO, to},
                          {DNNL_ARG_SCRATCHPAD, scratch(pd.scratchpad_desc())}});
  description_ += " + reorder";
}

Primitives::Objects Primitives::make_objects() const {
  Objects result{dnnl::stream(engine_), {}, {}};
  for (const View& view : views_) {
    result.memories.emplace_back(view.desc, engine_, nullptr);
  }
  for (const Step& step : steps_) {
    auto& args = result.args.emplace_back();
    for (const auto& [number, id] : step.args) args.emplace(number, result.memories[id]);
  }
  return result;
}

void Primitives::run(std::span<std::byte* const> bases, std::byte* scratch, int slot) {
  const SingleThread guard;
  try {
    auto& objects = slots_[static_cast<std::size_t>(slot)];
    if (!objects) objects = std::make_unique<Objects>(make_objects());
    std::size_t next = 0;
    for (Id id = 0; id < views_.size(); ++id) {
      const View& view = views_[id];
      if (view.bound) {
        objects->memories[id].set_data_handle(bases[next++] + view.offset);
      } else if (view.desc.get_size() > 0) {
        objects->memories[id].set_data_handle(scratch + view.offset);
      }
    }
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      steps_[i].primitive.execute(objects->stream, objects->args[i]);
    }
  } catch (const dnnl::error& error) {
    throw DeviceError(fmt::format("oneDNN fails to run {}: {}", description_, error.message));
  }
}

}  // namespace tensorgrad::cpu
