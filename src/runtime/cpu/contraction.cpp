#include "runtime/cpu/contraction.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/cpu/attention.h"
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

bool is_reference(const std::string& implementation) {
  return implementation.find("ref") != std::string::npos;
}

/// One operand as matrices over batch dimensions. Strides are {batch..., row, column}.
struct Matrix {
  Access access;
  memory::dims batch;
  std::int64_t rows, columns;

  std::int64_t& row_stride() { return access.strides[batch.size()]; }
  std::int64_t& column_stride() { return access.strides[batch.size() + 1]; }

  void transpose() {
    std::swap(rows, columns);
    std::swap(row_stride(), column_stride());
  }
  /// Strides of axes with one element are free; these keep the matrix dense in one direction.
  void normalise() {
    if (columns == 1 && rows == 1) row_stride() = column_stride() = 1;
    if (columns == 1) column_stride() = 1;
    if (rows == 1 && columns > 1) row_stride() = column_stride() == 1 ? columns : 1;
  }
  /// Takes the innermost batch dimension into the rows.
  void stack() {
    rows *= batch.back();
    drop_batch(batch.size() - 1);
  }
  void drop_batch(std::size_t dimension) {
    batch.erase(batch.begin() + static_cast<std::ptrdiff_t>(dimension));
    access.strides.erase(access.strides.begin() + static_cast<std::ptrdiff_t>(dimension));
  }
  memory::desc desc() const {
    memory::dims extents = batch;
    memory::dims strides = access.strides;
    extents.insert(extents.end(), {rows, columns});
    const std::size_t last = batch.size();
    // A batch that repeats one matrix has one element, which oneDNN broadcasts.
    for (std::size_t i = 0; i < last; ++i) {
      if (strides[i] != 0) continue;
      extents[i] = 1;
      strides[i] = std::max(rows * strides[last], columns * strides[last + 1]);
    }
    return {extents, f32, strides};
  }
};

/// Calls f(point) for every point of the extents, the last running fastest.
template <class F>
void for_each_point(const memory::dims& extents, F f) {
  memory::dims point(extents.size(), 0);
  while (true) {
    f(point);
    std::size_t axis = extents.size();
    while (axis > 0 && ++point[axis - 1] == extents[axis - 1]) point[--axis] = 0;
    if (axis == 0) return;
  }
}

std::int64_t shift(const memory::dims& point, const memory::dims& strides) {
  return std::inner_product(point.begin(), point.end(), strides.begin(), std::int64_t{0});
}

/// A matrix product in oneDNN calls: one for each point of `loops`, whose strides in the operands
/// are given, and of the outer k dimensions, over which results add up.
struct MatmulCalls {
  Matrix lhs, rhs, out;
  memory::dims loops, lhs_loops, rhs_loops, out_loops;
  memory::dims segments, lhs_segments, rhs_segments;

  /// Runs a call for each point of the batch's first dimension.
  void unbatch() {
    loops.push_back(out.batch[0]);
    lhs_loops.push_back(lhs.access.strides[0]);
    rhs_loops.push_back(rhs.access.strides[0]);
    out_loops.push_back(out.access.strides[0]);
    for (Matrix* matrix : {&lhs, &rhs, &out}) matrix->drop_batch(0);
  }
};

MatmulCalls calls_of(const Matmul& matmul) {
  MatmulCalls c{{matmul.lhs, matmul.batch, matmul.m, 1},
                {matmul.rhs, matmul.batch, 1, matmul.n},
                {matmul.out, matmul.batch, matmul.m, matmul.n},
                {},
                {},
                {},
                {},
                {},
                {},
                {}};
  // lhs is {batch..., m, k...} and rhs {batch..., k..., n}: of k the last dimension stays.
  const auto batches = static_cast<std::ptrdiff_t>(matmul.batch.size());
  memory::dims& ls = c.lhs.access.strides;
  memory::dims& rs = c.rhs.access.strides;
  if (matmul.k.empty()) {
    ls.push_back(1);
    rs.insert(rs.begin() + batches, 1);
  } else {
    const auto outer = static_cast<std::ptrdiff_t>(matmul.k.size()) - 1;
    c.lhs.columns = c.rhs.rows = matmul.k.back();
    c.segments.assign(matmul.k.begin(), matmul.k.end() - 1);
    c.lhs_segments.assign(ls.begin() + batches + 1, ls.begin() + batches + 1 + outer);
    ls.erase(ls.begin() + batches + 1, ls.begin() + batches + 1 + outer);
    c.rhs_segments.assign(rs.begin() + batches, rs.begin() + batches + outer);
    rs.erase(rs.begin() + batches, rs.begin() + batches + outer);
  }
  for (Matrix* matrix : {&c.lhs, &c.rhs, &c.out}) matrix->normalise();
  if (c.out.column_stride() != 1) {
    // oneDNN writes rows: the transposed product has them.
    std::swap(c.lhs, c.rhs);
    std::swap(c.lhs_segments, c.rhs_segments);
    for (Matrix* matrix : {&c.lhs, &c.rhs, &c.out}) matrix->transpose();
  }
  while (!c.out.batch.empty()) {
    // Rows of a batch that meet the same matrix make one larger product.
    const std::size_t last = c.out.batch.size() - 1;
    const bool stacks = c.rhs.access.strides[last] == 0 &&
                        c.lhs.access.strides[last] == c.lhs.rows * c.lhs.row_stride() &&
                        c.out.access.strides[last] == c.out.rows * c.out.row_stride();
    if (!stacks) break;
    c.lhs.stack();
    c.out.stack();
    c.rhs.drop_batch(last);
  }
  return c;
}

dnnl::matmul::primitive_desc matmul_primitive(const MatmulCalls& c, const dnnl::engine& engine,
                                              bool accumulates) {
  dnnl::primitive_attr attr = attributes();
  if (accumulates) {
    dnnl::post_ops post;
    post.append_sum(1);
    attr.set_post_ops(post);
  }
  return {dnnl::matmul::desc(c.lhs.desc(), c.rhs.desc(), c.out.desc()), attr, engine};
}

std::unique_ptr<ContractionRunner> make_matmul(const Matmul& matmul, int threads) {
  if (matmul.batches() * matmul.m * matmul.n == 0 || matmul.depth() == 0) {
    memory::dims extents = matmul.batch;
    extents.insert(extents.end(), {matmul.m, matmul.n});
    return std::make_unique<Zero>(matmul.out, extents);
  }
  MatmulCalls c = calls_of(matmul);
  // oneDNN packs an operand again for each matrix of a batch, so large ones are called one by one.
  constexpr std::int64_t large = std::int64_t{1} << 20;
  if (c.out.rows * c.out.columns * c.lhs.columns >= large) {
    while (!c.out.batch.empty()) c.unbatch();
  }
  const ThreadCount guard(threads);
  auto runner = std::make_unique<Runner>(threads);
  auto pd = matmul_primitive(c, runner->engine(), false);
  while (is_reference(pd.impl_info_str()) && !c.out.batch.empty()) {
    c.unbatch();
    pd = matmul_primitive(c, runner->engine(), false);
  }
  runner->describe(pd.impl_info_str());
  const dnnl::matmul first(pd);
  dnnl::matmul next;
  const memory scratch = runner->scratch(pd.scratchpad_desc());
  memory next_scratch = scratch;
  if (!c.segments.empty()) {
    const auto next_pd = matmul_primitive(c, runner->engine(), true);
    next = dnnl::matmul(next_pd);
    next_scratch = runner->scratch(next_pd.scratchpad_desc());
  }
  const auto bind = [&](Access access, std::int64_t by, const Matrix& matrix) {
    access.offset += by;
    return runner->bind(access, matrix.desc());
  };
  for_each_point(c.loops, [&](const memory::dims& loop) {
    bool accumulates = false;
    const memory out = bind(c.out.access, shift(loop, c.out_loops), c.out);
    for_each_point(c.segments, [&](const memory::dims& segment) {
      const memory lhs =
          bind(c.lhs.access, shift(loop, c.lhs_loops) + shift(segment, c.lhs_segments), c.lhs);
      const memory rhs =
          bind(c.rhs.access, shift(loop, c.rhs_loops) + shift(segment, c.rhs_segments), c.rhs);
      runner->add(accumulates ? next : first,
                  {{DNNL_ARG_SRC, lhs},
                   {DNNL_ARG_WEIGHTS, rhs},
                   {DNNL_ARG_DST, out},
                   {DNNL_ARG_SCRATCHPAD, accumulates ? next_scratch : scratch}});
      accumulates = true;
    });
  });
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

// Attention

class AttentionRunner final : public ContractionRunner {
 public:
  explicit AttentionRunner(kernel::Attention attention) : attention_(std::move(attention)) {}
  void run(void* const* args, std::byte* scratch) override {
    const ThreadCount guard(1);
    run_attention(attention_, args, scratch, 0, attention_batches(attention_));
  }
  std::string description() const override { return "attention in tiles"; }
  std::size_t scratch_bytes() const override { return attention_scratch_bytes(attention_); }

 private:
  kernel::Attention attention_;
};

}  // namespace

std::unique_ptr<ContractionRunner> make_contraction(const kernel::Kernel& kernel, int threads) {
  try {
    if (const auto* matmul = std::get_if<Matmul>(&*kernel.contraction)) {
      return make_matmul(*matmul, threads);
    }
    if (const auto* attention = std::get_if<kernel::Attention>(&*kernel.contraction)) {
      return std::make_unique<AttentionRunner>(*attention);
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
