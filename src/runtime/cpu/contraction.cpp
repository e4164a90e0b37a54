#include "runtime/cpu/contraction.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/cpu/memory.h"
#include "tensorgrad/error.h"

namespace tensorgrad::cpu {
namespace {

using dnnl::memory;
using kernel::Access;
using kernel::Conv;
using kernel::Matmul;

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

/// Sets the number of threads that oneDNN sees on this thread, for a scope. oneDNN decides on it
/// when a primitive is made and asks again when it runs, so both happen under a guard.
class ThreadCount {
 public:
  explicit ThreadCount(int threads) {
    const OpenMp& runtime = OpenMp::instance();
    if (runtime.max_threads == nullptr || runtime.set_threads == nullptr) return;
    before_ = runtime.max_threads();
    if (threads != before_) runtime.set_threads(threads);
  }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;
  ~ThreadCount() {
    if (before_ > 0) OpenMp::instance().set_threads(before_);
  }

 private:
  int before_ = 0;  ///< 0: there is no OpenMP
};

constexpr auto f32 = memory::data_type::f32;

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

/// A memory object whose address is set before each run.
memory unbound(const memory::desc& desc, const dnnl::engine& engine) {
  return memory(desc, engine, nullptr);
}

/// Primitives in order, over user buffers and scratch memory.
class Runner final : public ContractionRunner {
 public:
  explicit Runner(int threads)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), threads_(threads) {}

  const dnnl::engine& engine() const { return engine_; }

  /// The user's buffer of an access, seen as `desc`.
  memory bind(const Access& access, const memory::desc& desc) {
    memory result = unbound(desc, engine_);
    bound_.push_back(
        {result, access.buffer, access.offset * static_cast<std::int64_t>(sizeof(float))});
    return result;
  }
  /// Working memory for `desc`.
  memory scratch(const memory::desc& desc) {
    memory result = unbound(desc, engine_);
    const std::size_t offset = scratch_bytes_;
    const std::size_t rounded =
        (desc.get_size() + Memory::alignment - 1) / Memory::alignment * Memory::alignment;
    scratch_bytes_ += rounded;
    if (desc.get_size() > 0) scratch_.emplace_back(result, offset);
    return result;
  }
  void add(dnnl::primitive primitive, std::unordered_map<int, memory> args) {
    steps_.push_back({std::move(primitive), std::move(args)});
  }
  /// Copies between layouts where they differ; `user` itself where they do not.
  memory as_input(const memory& user, const memory::desc& wanted) {
    if (user.get_desc() == wanted) return user;
    memory copy = scratch(wanted);
    add_reorder(user, copy);
    return copy;
  }
  void add_reorder(const memory& from, const memory& to) {
    const dnnl::reorder::primitive_desc pd(engine_, from.get_desc(), engine_, to.get_desc(),
                                           attributes());
    add(dnnl::reorder(pd), {{DNNL_ARG_FROM, from},
                            {DNNL_ARG_TO, to},
                            {DNNL_ARG_SCRATCHPAD, scratch(pd.scratchpad_desc())}});
    description_ += " + reorder";
  }
  void describe(const std::string& implementation) { description_ += implementation; }

  void run(void* const* args, std::byte* scratch) override {
    for (const Bound& item : bound_) {
      item.view.set_data_handle(static_cast<std::byte*>(args[item.buffer]) + item.offset);
    }
    for (const auto& [item, offset] : scratch_) item.set_data_handle(scratch + offset);
    const ThreadCount guard(threads_);
    try {
      for (const Step& step : steps_) step.primitive.execute(stream_, step.args);
      stream_.wait();
    } catch (const dnnl::error& error) {
      throw DeviceError(fmt::format("oneDNN fails to run {}: {}", description_, error.message));
    }
  }
  std::string description() const override { return description_; }
  std::size_t scratch_bytes() const override { return scratch_bytes_; }

 private:
  struct Bound {
    memory view;
    int buffer;
    std::int64_t offset;
  };
  struct Step {
    dnnl::primitive primitive;
    std::unordered_map<int, memory> args;
  };
  dnnl::engine engine_;
  dnnl::stream stream_;
  int threads_;
  std::vector<Bound> bound_;
  std::vector<std::pair<memory, std::size_t>> scratch_;
  std::vector<Step> steps_;
  std::string description_;
  std::size_t scratch_bytes_ = 0;
};

/// A contraction over nothing: its result, if it has elements, is zero.
class Zero final : public ContractionRunner {
 public:
  Zero(Access out, memory::dims extents) : out_(std::move(out)), extents_(std::move(extents)) {}
  void run(void* const* args, std::byte*) override {
    auto* data = static_cast<float*>(args[out_.buffer]) + out_.offset;
    clear(data, 0);
  }
  std::string description() const override { return "zero"; }
  std::size_t scratch_bytes() const override { return 0; }

 private:
  void clear(float* data, std::size_t axis) const {
    if (axis == extents_.size()) {
      *data = 0;
      return;
    }
    for (std::int64_t i = 0; i < extents_[axis]; ++i) {
      clear(data + i * out_.strides[axis], axis + 1);
    }
  }
  Access out_;
  memory::dims extents_;
};

// Matrix products

/// One operand as a batch of matrices.
struct Matrix {
  Access access;
  std::int64_t batch, rows, columns;

  std::int64_t& batch_stride() { return access.strides[0]; }
  std::int64_t& row_stride() { return access.strides[1]; }
  std::int64_t& column_stride() { return access.strides[2]; }

  void transpose() {
    std::swap(rows, columns);
    std::swap(access.strides[1], access.strides[2]);
  }
  /// Strides of axes with one element are free; these keep the matrix dense in one direction.
  void normalise() {
    if (columns == 1 && rows == 1) row_stride() = column_stride() = 1;
    if (columns == 1) column_stride() = 1;
    if (rows == 1 && columns > 1) row_stride() = column_stride() == 1 ? columns : 1;
  }
  memory::desc desc() const {
    const auto& s = access.strides;
    if (batch == 1) return {{rows, columns}, f32, {s[1], s[2]}};
    // A batch that repeats one matrix has one element, which oneDNN broadcasts.
    if (s[0] == 0) {
      return {{1, rows, columns}, f32, {std::max(rows * s[1], columns * s[2]), s[1], s[2]}};
    }
    return {{batch, rows, columns}, f32, {s[0], s[1], s[2]}};
  }
};

std::unique_ptr<ContractionRunner> make_matmul(const Matmul& matmul, int threads) {
  if (matmul.batch * matmul.m * matmul.n == 0 || matmul.k == 0) {
    return std::make_unique<Zero>(matmul.out, memory::dims{matmul.batch, matmul.m, matmul.n});
  }
  Matrix lhs{matmul.lhs, matmul.batch, matmul.m, matmul.k};
  Matrix rhs{matmul.rhs, matmul.batch, matmul.k, matmul.n};
  Matrix out{matmul.out, matmul.batch, matmul.m, matmul.n};
  for (Matrix* matrix : {&lhs, &rhs, &out}) matrix->normalise();
  if (out.column_stride() != 1) {
    // oneDNN writes rows: the transposed product has them.
    std::swap(lhs, rhs);
    for (Matrix* matrix : {&lhs, &rhs, &out}) matrix->transpose();
  }
  if (out.batch > 1 && rhs.batch_stride() == 0 &&
      lhs.batch_stride() == lhs.rows * lhs.row_stride() &&
      out.batch_stride() == out.rows * out.row_stride()) {
    // Rows of all batches meet the same matrix: one larger product.
    for (Matrix* matrix : {&lhs, &out}) {
      matrix->rows *= matrix->batch;
      matrix->batch = 1;
    }
    rhs.batch = 1;
  }
  const ThreadCount guard(threads);
  auto runner = std::make_unique<Runner>(threads);
  const memory::desc a = lhs.desc();
  const memory::desc b = rhs.desc();
  const memory::desc c = out.desc();
  const dnnl::matmul::primitive_desc pd(dnnl::matmul::desc(a, b, c), attributes(),
                                        runner->engine());
  runner->describe(pd.impl_info_str());
  runner->add(dnnl::matmul(pd), {{DNNL_ARG_SRC, runner->bind(lhs.access, a)},
                                 {DNNL_ARG_WEIGHTS, runner->bind(rhs.access, b)},
                                 {DNNL_ARG_DST, runner->bind(out.access, c)},
                                 {DNNL_ARG_SCRATCHPAD, runner->scratch(pd.scratchpad_desc())}});
  return runner;
}

// Convolutions

/// Dense row-major strides.
memory::dims dense(const memory::dims& extents) {
  memory::dims strides(extents.size(), 1);
  for (std::size_t i = extents.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * extents[i];
  return strides;
}

struct ConvShapes {
  memory::dims x, w, y, stride, dilation, low, high;
};

ConvShapes shapes_of(const Conv& conv) {
  ConvShapes result{{conv.batch, conv.groups * conv.in_channels},
                    {},
                    {conv.batch, conv.groups * conv.out_channels},
                    conv.stride,
                    conv.dilation,
                    conv.pad_low,
                    conv.pad_high};
  if (conv.groups > 1) {
    result.w = {conv.groups, conv.out_channels, conv.in_channels};
  } else {
    result.w = {conv.out_channels, conv.in_channels};
  }
  result.x.insert(result.x.end(), conv.input.begin(), conv.input.end());
  result.w.insert(result.w.end(), conv.kernel.begin(), conv.kernel.end());
  result.y.insert(result.y.end(), conv.output.begin(), conv.output.end());
  for (auto& dilation : result.dilation) dilation -= 1;  // oneDNN counts the skipped elements
  return result;
}

/// Whether oneDNN's own layouts beat dense ones, copies included. They do but for two cases: a 1x1
/// kernel is a matrix product as it is, and with few input channels their gradient would be padded
/// to a whole vector of channels.
bool prefers_own_layouts(const Conv& conv) {
  const auto is_one = [](std::int64_t extent) { return extent == 1; };
  const bool pointwise = std::all_of(conv.kernel.begin(), conv.kernel.end(), is_one) &&
                         std::all_of(conv.stride.begin(), conv.stride.end(), is_one);
  if (pointwise) return false;
  constexpr std::int64_t few = 8;
  const bool depthwise = conv.groups > 1 && conv.in_channels == 1 && conv.out_channels == 1;
  return depthwise || conv.mode != Conv::Mode::input_grad || conv.in_channels >= few;
}

bool is_reference(const std::string& implementation) {
  return implementation.find("ref") != std::string::npos;
}

std::unique_ptr<Runner> build_conv(const Conv& conv, bool own_layouts, int threads) {
  auto runner = std::make_unique<Runner>(threads);
  const ConvShapes shapes = shapes_of(conv);
  const memory::desc user_x(shapes.x, f32, dense(shapes.x));
  const memory::desc user_w(shapes.w, f32, dense(shapes.w));
  const memory::desc user_y(shapes.y, f32, dense(shapes.y));
  const auto wanted = [&](const memory::desc& user, const memory::dims& extents) {
    return own_layouts ? memory::desc(extents, f32, memory::format_tag::any) : user;
  };
  const memory::desc x = wanted(user_x, shapes.x);
  const memory::desc w = wanted(user_w, shapes.w);
  const memory::desc y = wanted(user_y, shapes.y);
  const auto direct = dnnl::algorithm::convolution_direct;
  const bool forward = conv.mode == Conv::Mode::forward;
  const dnnl::convolution_forward::desc forward_desc(
      forward ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training, direct, x,
      w, y, shapes.stride, shapes.dilation, shapes.low, shapes.high);
  const dnnl::convolution_forward::primitive_desc hint(forward_desc, attributes(),
                                                       runner->engine());
  const memory bound_x = runner->bind(conv.x, user_x);
  const memory bound_w = runner->bind(conv.w, user_w);
  const memory bound_y = runner->bind(conv.y, user_y);

  // Runs the primitive between the copies that its layouts ask for.
  const auto schedule = [&](const dnnl::primitive_desc_base& pd, auto primitive,
                            std::pair<int, memory> first, const memory::desc& first_desc,
                            std::pair<int, memory> second, const memory::desc& second_desc,
                            std::pair<int, memory> result, const memory::desc& result_desc) {
    runner->describe(pd.impl_info_str());
    const memory a = runner->as_input(first.second, first_desc);
    const memory b = runner->as_input(second.second, second_desc);
    const bool direct_result = result.second.get_desc() == result_desc;
    const memory c = direct_result ? result.second : runner->scratch(result_desc);
    runner->add(std::move(primitive),
                {{first.first, a},
                 {second.first, b},
                 {result.first, c},
                 {DNNL_ARG_SCRATCHPAD, runner->scratch(pd.scratchpad_desc())}});
    if (!direct_result) runner->add_reorder(c, result.second);
  };

  switch (conv.mode) {
    case Conv::Mode::forward:
      schedule(hint, dnnl::convolution_forward(hint), {DNNL_ARG_SRC, bound_x}, hint.src_desc(),
               {DNNL_ARG_WEIGHTS, bound_w}, hint.weights_desc(), {DNNL_ARG_DST, bound_y},
               hint.dst_desc());
      break;
    case Conv::Mode::input_grad: {
      const dnnl::convolution_backward_data::primitive_desc pd(
          dnnl::convolution_backward_data::desc(direct, x, w, y, shapes.stride, shapes.dilation,
                                                shapes.low, shapes.high),
          attributes(), runner->engine(), hint);
      schedule(pd, dnnl::convolution_backward_data(pd), {DNNL_ARG_DIFF_DST, bound_y},
               pd.diff_dst_desc(), {DNNL_ARG_WEIGHTS, bound_w}, pd.weights_desc(),
               {DNNL_ARG_DIFF_SRC, bound_x}, pd.diff_src_desc());
      break;
    }
    case Conv::Mode::weight_grad: {
      const dnnl::convolution_backward_weights::primitive_desc pd(
          dnnl::convolution_backward_weights::desc(direct, x, w, y, shapes.stride, shapes.dilation,
                                                   shapes.low, shapes.high),
          attributes(), runner->engine(), hint);
      schedule(pd, dnnl::convolution_backward_weights(pd), {DNNL_ARG_SRC, bound_x}, pd.src_desc(),
               {DNNL_ARG_DIFF_DST, bound_y}, pd.diff_dst_desc(), {DNNL_ARG_DIFF_WEIGHTS, bound_w},
               pd.diff_weights_desc());
      break;
    }
  }
  return runner;
}

std::unique_ptr<ContractionRunner> make_conv(const Conv& conv, int threads) {
  const ConvShapes shapes = shapes_of(conv);
  const auto empty = [](const memory::dims& extents) {
    return std::any_of(extents.begin(), extents.end(), [](std::int64_t n) { return n == 0; });
  };
  if (empty(shapes.x) || empty(shapes.w) || empty(shapes.y)) {
    const bool forward = conv.mode == Conv::Mode::forward;
    const bool to_input = conv.mode == Conv::Mode::input_grad;
    const memory::dims& extents = forward ? shapes.y : to_input ? shapes.x : shapes.w;
    Access out = forward ? conv.y : to_input ? conv.x : conv.w;
    out.strides = dense(extents);
    return std::make_unique<Zero>(out, extents);
  }
  const ThreadCount guard(threads);
  const bool own = prefers_own_layouts(conv);
  std::unique_ptr<Runner> runner = build_conv(conv, own, threads);
  if (is_reference(runner->description())) {
    std::unique_ptr<Runner> other = build_conv(conv, !own, threads);
    if (!is_reference(other->description())) runner = std::move(other);
  }
  return runner;
}

}  // namespace

std::unique_ptr<ContractionRunner> make_contraction(const kernel::Kernel& kernel, int threads) {
  try {
    if (const auto* matmul = std::get_if<Matmul>(&*kernel.contraction)) {
      return make_matmul(*matmul, threads);
    }
    const Conv& conv = std::get<Conv>(*kernel.contraction);
    constexpr std::size_t most_dimensions = 3;  // that oneDNN convolves over
    if (conv.input.size() > most_dimensions) {
      throw DeviceError(
          fmt::format("The convolution of kernel \"{}\" has {} spatial dimensions, and the cpu "
                      "device convolves "
                      "over at most {}",
                      kernel.name, conv.input.size(), most_dimensions));
    }
    return make_conv(conv, threads);
  } catch (const dnnl::error& error) {
    throw DeviceError(fmt::format("oneDNN refuses the contraction of kernel \"{}\": {}",
                                  kernel.name, error.message));
  }
}

std::string contraction_library_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace tensorgrad::cpu
