// The rules of the kernel IR, checked.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <variant>
#include <vector>

#include "kernel/checked.h"
#include "kernel/kernel.h"
#include "kernel/visit.h"
#include "tensorgrad/error.h"

namespace tensorgrad::kernel {
namespace {

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel) : kernel_(kernel) {}

  void run() {
    for (std::size_t i = 0; i < kernel_.args.size(); ++i) {
      require(kernel_.args[i].elements >= 0, "b{} has {} elements", i, kernel_.args[i].elements);
    }
    for (std::size_t i = 0; i < kernel_.loops.size(); ++i) {
      require(kernel_.loops[i].extent >= 0, "loop i{} has extent {}", i, kernel_.loops[i].extent);
    }
    if (kernel_.contraction) std::visit([&](const auto& c) { check(c); }, *kernel_.contraction);
    if (kernel_.sort) check(*kernel_.sort);
    for (std::size_t i = 0; i < kernel_.nest.stages.size(); ++i) check_stage(i);
  }

 private:
  template <class... Args>
  void require(bool holds, fmt::format_string<Args...> message, Args&&... args) const {
    if (holds) return;
    throw GraphError(fmt::format("kernel \"{}\" is malformed: {}", kernel_.name,
                                 fmt::format(message, std::forward<Args>(args)...)));
  }

  const BufferArg& buffer(int number) const {
    require(number >= 0 && static_cast<std::size_t>(number) < kernel_.args.size(),
            "buffer b{} is not among its {} arguments", number, kernel_.args.size());
    return kernel_.args[static_cast<std::size_t>(number)];
  }

  // Contractions.

  void check_operand(const char* what, const Access& access, std::int64_t last, bool is_result,
                     bool is_empty) const {
    const BufferArg& arg = buffer(access.buffer);
    const bool may_be_half = !is_result && !std::holds_alternative<Attention>(*kernel_.contraction);
    require(arg.dtype == DType::f32 || (may_be_half && arg.dtype == DType::f16),
            "{} of the contraction is b{} of {}, not of f32", what, access.buffer,
            tensorgrad::name(arg.dtype));
    require(is_result ? arg.written : arg.read, "{} of the contraction is b{}, which is not {}",
            what, access.buffer, is_result ? "written" : "read");
    require(is_empty || (access.offset >= 0 && last < arg.elements),
            "{} of the contraction reaches from element {} to {} of b{}, which has {}", what,
            access.offset, last, access.buffer, arg.elements);
  }

  using Extents = std::vector<std::int64_t>;

  /// `dense` lists the dimensions of which one must have stride 1; where it lists none, none must.
  void check_strided(const char* what, const char* kind, const Access& access,
                     const Extents& extents, std::vector<std::size_t> dense, bool is_result) const {
    require(access.strides.size() == extents.size(), "{} of the {} has {} strides, not {}", what,
            kind, access.strides.size(), extents.size());
    std::int64_t last = access.offset;
    bool is_empty = false;
    for (std::size_t i = 0; i < extents.size(); ++i) {
      require(extents[i] >= 0, "{} of the {} has extent {}", what, kind, extents[i]);
      require(access.strides[i] >= 0, "{} of the {} has stride {}", what, kind, access.strides[i]);
      is_empty = is_empty || extents[i] == 0;
      last = checked_add(last, checked_mul(access.strides[i], extents[i] - 1));
    }
    const bool is_dense =
        dense.empty() || std::any_of(dense.begin(), dense.end(), [&](std::size_t i) {
          return extents[i] <= 1 || access.strides[i] == 1;
        });
    require(is_dense, "{} of the {} has strides ({}), of which none in a row or a column is 1",
            what, kind, fmt::join(access.strides, ", "));
    if (is_result) {
      for (std::size_t i = 0; i < extents.size(); ++i) {
        require(extents[i] <= 1 || access.strides[i] != 0,
                "the result of the {} has a stride of 0 over an extent of {}", kind, extents[i]);
      }
    }
    check_operand(what, access, last, is_result, is_empty);
  }

  static Extents join(std::initializer_list<Extents> lists) {
    Extents result;
    for (const Extents& list : lists) result.insert(result.end(), list.begin(), list.end());
    return result;
  }

  void check(const Matmul& c) const {
    const std::size_t m = c.batch.size();
    const std::size_t deepest = m + c.k.size();
    // Without a k dimension the operands are a column and a row, whose other direction has one
    // element: any stride will do.
    using Dimensions = std::vector<std::size_t>;
    check_strided("lhs", "matmul", c.lhs, join({c.batch, {c.m}, c.k}),
                  c.k.empty() ? Dimensions{} : Dimensions{m, deepest}, false);
    check_strided("rhs", "matmul", c.rhs, join({c.batch, c.k, {c.n}}),
                  c.k.empty() ? Dimensions{} : Dimensions{deepest - 1, deepest}, false);
    check_strided("out", "matmul", c.out, join({c.batch, {c.m, c.n}}), {m, m + 1}, true);
  }

  void check(const Attention& c) const {
    require(kernel_.nest.stages.empty(), "an attention has an epilogue of {} stages",
            kernel_.nest.stages.size());
    const bool forward = c.mode == Attention::Mode::forward;
    const auto check_one = [&](const char* what, const Access& access, const Extents& last,
                               bool is_result, bool is_optional) {
      if (is_optional && access.buffer < 0) return;
      const Extents extents = join({c.batch, last});
      check_strided(what, "attention", access, extents, {extents.size() - 1}, is_result);
    };
    check_one("q", c.q, {c.queries, c.depth}, false, false);
    check_one("k", c.k, {c.keys, c.depth}, false, false);
    check_one("v", c.v, {c.keys, c.value_depth}, false, false);
    check_one("mask", c.mask, {c.queries, c.keys}, false, true);
    check_one("out", c.out, {c.queries, c.value_depth}, forward, forward);
    check_one("lse", c.lse, {c.queries}, forward, forward);
    if (forward) {
      require(c.dout.buffer < 0 && c.dq.buffer < 0 && c.dk.buffer < 0 && c.dv.buffer < 0,
              "an attention that runs forward has gradients");
      return;
    }
    check_one("dout", c.dout, {c.queries, c.value_depth}, false, false);
    check_one("dq", c.dq, {c.queries, c.depth}, true, true);
    check_one("dk", c.dk, {c.keys, c.depth}, true, true);
    check_one("dv", c.dv, {c.keys, c.value_depth}, true, true);
  }

  void check(const Conv& c) const {
    const std::size_t rank = c.input.size();
    for (const auto* extents :
         {&c.kernel, &c.output, &c.stride, &c.pad_low, &c.pad_high, &c.dilation}) {
      require(extents->size() == rank, "a convolution over {} dimensions has a list of {}", rank,
              extents->size());
    }
    for (const std::int64_t extent : {c.batch, c.groups, c.in_channels, c.out_channels}) {
      require(extent >= 0, "the convolution has an extent of {}", extent);
    }
    for (std::size_t i = 0; i < rank; ++i) {
      require(c.input[i] >= 0 && c.output[i] >= 0 && c.kernel[i] >= 1 && c.stride[i] >= 1 &&
                  c.dilation[i] >= 1,
              "the convolution has input {}, kernel {}, output {}, stride {}, dilation {}",
              c.input[i], c.kernel[i], c.output[i], c.stride[i], c.dilation[i]);
      const std::int64_t room =
          c.input[i] + c.pad_low[i] + c.pad_high[i] - c.dilation[i] * (c.kernel[i] - 1) - 1;
      const std::int64_t fitting = std::max<std::int64_t>(0, floor_div(room, c.stride[i]) + 1);
      require(c.output[i] == fitting,
              "the convolution has output {} in dimension {}, but {} windows fit", c.output[i], i,
              fitting);
    }
    using Mode = Conv::Mode;
    check_dense("x", c.x, {c.batch, c.groups, c.in_channels}, c.input, c.mode == Mode::input_grad);
    check_dense("w", c.w, {c.groups, c.out_channels, c.in_channels}, c.kernel,
                c.mode == Mode::weight_grad);
    check_dense("y", c.y, {c.batch, c.groups, c.out_channels}, c.output, c.mode == Mode::forward);
  }

  void check_dense(const char* what, const Access& access, std::vector<std::int64_t> extents,
                   const std::vector<std::int64_t>& spatial, bool is_result) const {
    require(access.strides.empty(), "{} of the convolution has strides", what);
    extents.insert(extents.end(), spatial.begin(), spatial.end());
    std::int64_t elements = 1;
    for (const std::int64_t extent : extents) elements = checked_mul(elements, extent);
    check_operand(what, access, checked_add(access.offset, elements - 1), is_result, elements == 0);
  }

  // Sorts.

  void check(const Sort& s) const {
    require(!kernel_.contraction && kernel_.nest.stages.empty(),
            "it sorts, and has a contraction or a loop nest as well");
    require(s.outer >= 0 && s.length >= 0 && s.inner >= 0, "the sort has extents {} x {} x {}",
            s.outer, s.length, s.inner);
    require(s.length <= INT32_MAX,
            "the sort has rows of {} elements, whose positions i32 does not "
            "hold",
            s.length);
    require(s.values.buffer >= 0 || s.indices.buffer >= 0, "the sort has no result");
    check_row_access("input", s, s.in, false);
    const DType dtype = buffer(s.in.buffer).dtype;
    require(dtype != DType::bool_ && dtype != DType::f16, "it sorts {}", tensorgrad::name(dtype));
    if (s.values.buffer >= 0) {
      check_row_access("values", s, s.values, true);
      require(buffer(s.values.buffer).dtype == dtype, "it sorts {} into values of {}",
              tensorgrad::name(dtype), tensorgrad::name(buffer(s.values.buffer).dtype));
    }
    if (s.indices.buffer >= 0) {
      check_row_access("indices", s, s.indices, true);
      require(buffer(s.indices.buffer).dtype == DType::i32, "it sorts with indices of {}, not i32",
              tensorgrad::name(buffer(s.indices.buffer).dtype));
    }
  }

  void check_row_access(const char* what, const Sort& s, const Access& access,
                        bool is_result) const {
    const BufferArg& arg = buffer(access.buffer);
    require(is_result ? arg.written : arg.read, "the {} of the sort is b{}, which is not {}", what,
            access.buffer, is_result ? "written" : "read");
    require(access.strides.size() == 3, "the {} of the sort has {} strides, not 3", what,
            access.strides.size());
    const std::int64_t extents[] = {s.outer, s.length, s.inner};
    const bool is_empty = s.outer == 0 || s.length == 0 || s.inner == 0;
    std::int64_t last = access.offset;
    for (std::size_t i = 0; i < 3; ++i) {
      require(access.strides[i] >= 0, "the {} of the sort has stride {}", what, access.strides[i]);
      require(!is_result || is_empty || extents[i] <= 1 || access.strides[i] != 0,
              "the {} of the sort has a stride of 0 over an extent of {}", what, extents[i]);
      last = checked_add(last, checked_mul(access.strides[i], extents[i] - 1));
    }
    require(is_empty || (access.offset >= 0 && last < arg.elements),
            "the {} of the sort reaches from element {} to {} of b{}, which has {}", what,
            access.offset, last, access.buffer, arg.elements);
  }

  // The loop nest.

  void check_stage(std::size_t number) const {
    const Stage& stage = kernel_.nest.stages[number];
    require(!stage.accumulators.empty() || !stage.stores.empty(),
            "stage {} has neither accumulators nor stores", number);
    std::vector<int> scope = kernel_.nest.outer;
    scope.insert(scope.end(), stage.loops.begin(), stage.loops.end());
    bool is_empty = false;
    for (std::size_t i = 0; i < scope.size(); ++i) {
      require(scope[i] >= 0 && static_cast<std::size_t>(scope[i]) < kernel_.loops.size(),
              "stage {} runs over loop i{} of {} loops", number, scope[i], kernel_.loops.size());
      require(std::find(scope.begin(), scope.begin() + static_cast<std::ptrdiff_t>(i), scope[i]) ==
                  scope.begin() + static_cast<std::ptrdiff_t>(i),
              "stage {} runs over loop i{} twice", number, scope[i]);
      is_empty = is_empty || kernel_.loops[static_cast<std::size_t>(scope[i])].extent == 0;
    }
    for (const Accumulator& a : stage.accumulators) check_accumulator(a, number);
    for (const Store& s : stage.stores) check_store(s, number, is_empty);
    for_each_part(
        kernel_.pool, roots(stage),
        [&](const IndexNode& n) {
          if (n.kind != IndexNode::Kind::loop) return;
          require(std::find(scope.begin(), scope.end(), n.var) != scope.end(),
                  "stage {} reads loop variable i{}, which is not in scope", number, n.var);
          const std::int64_t extent = kernel_.loops[static_cast<std::size_t>(n.var)].extent;
          require(is_empty || n.hi + 1 == extent,
                  "stage {} takes loop i{} to have extent {}, but it has {}", number, n.var,
                  n.hi + 1, extent);
        },
        [&](const ExprNode& n) {
          if (n.fn == Fn::load) check_load(n, number, is_empty);
        });
    // The stores of a scan read its own running values, what it accumulates does not.
    const Stage reduces{stage.loops, stage.accumulators, {}};
    const Stage stores{stage.loops, {}, stage.stores};
    for (const auto& [part, first_unknown] :
         {std::pair{&reduces, number},
          {&stores, stage.accumulators.empty() ? number : number + 1}}) {
      for_each_part(
          kernel_.pool, roots(*part), [](const IndexNode&) {},
          [&, limit = first_unknown](const ExprNode& n) {
            if (n.fn == Fn::acc) check_result(n, number, limit);
          });
    }
  }

  void check_accumulator(const Accumulator& a, std::size_t stage) const {
    require(a.value.defined(), "an accumulator of stage {} has no value", stage);
    const DType dtype = kernel_.pool.node(a.value).dtype;
    require(dtype == a.dtype, "an accumulator of stage {} combines {} as {}", stage,
            tensorgrad::name(dtype), tensorgrad::name(a.dtype));
    const bool is_arg = a.combiner == Combiner::argmax || a.combiner == Combiner::argmin;
    require(!is_arg || a.position.id >= 0, "the {} of stage {} has no position", name(a.combiner),
            stage);
    const bool is_arithmetic = a.combiner == Combiner::sum || a.combiner == Combiner::prod;
    require(!is_arithmetic || a.dtype != DType::bool_, "stage {} has a {} of bool", stage,
            name(a.combiner));
  }

  void check_store(const Store& s, std::size_t stage, bool is_empty) const {
    const BufferArg& arg = buffer(s.buffer);
    require(arg.written, "stage {} stores to b{}, which is not written", stage, s.buffer);
    require(s.value.defined() && s.index.id >= 0, "a store of stage {} has no value or no index",
            stage);
    const DType dtype = kernel_.pool.node(s.value).dtype;
    require(dtype == arg.dtype, "stage {} stores {} to b{} of {}", stage, tensorgrad::name(dtype),
            s.buffer, tensorgrad::name(arg.dtype));
    require(!s.accumulate || dtype != DType::bool_, "stage {} adds bools to b{}", stage, s.buffer);
    require(!s.cond.defined() || kernel_.pool.node(s.cond).dtype == DType::bool_,
            "a store of stage {} has a condition that is not a bool", stage);
    if (!s.cond.defined() && !is_empty) check_bounds(s.buffer, s.index, stage);
  }

  void check_load(const ExprNode& n, std::size_t stage, bool is_empty) const {
    const BufferArg& arg = buffer(n.buffer);
    require(arg.read, "stage {} loads from b{}, which is not read", stage, n.buffer);
    require(n.dtype == arg.dtype, "stage {} loads {} from b{} of {}", stage,
            tensorgrad::name(n.dtype), n.buffer, tensorgrad::name(arg.dtype));
    if (n.args[0] < 0 && !is_empty) check_bounds(n.buffer, n.index, stage);
  }

  void check_bounds(int number, Index index, std::size_t stage) const {
    bool is_gathered = false;
    for_each_part(
        kernel_.pool, index,
        [&](const IndexNode& n) { is_gathered = is_gathered || n.kind == IndexNode::Kind::value; },
        [](const ExprNode&) {});
    if (is_gathered) return;
    const IndexNode& n = kernel_.pool.node(index);
    const std::int64_t elements = buffer(number).elements;
    require(n.lo >= 0 && n.hi < elements,
            "stage {} accesses b{}[{}] from element {} to {}, but it has {}", stage, number,
            to_string(kernel_.pool, index), n.lo, n.hi, elements);
  }

  void check_result(const ExprNode& n, std::size_t stage, std::size_t first_unknown) const {
    if (n.stage < 0) {
      require(kernel_.contraction.has_value(),
              "stage {} reads the result of a contraction, but there is none", stage);
      require(n.dtype == DType::f32, "stage {} reads the result of the contraction as {}", stage,
              tensorgrad::name(n.dtype));
      return;
    }
    const auto source = static_cast<std::size_t>(n.stage);
    require(source < first_unknown, "stage {} reads a result of stage {}, which is not before it",
            stage, n.stage);
    const auto& accumulators = kernel_.nest.stages[source].accumulators;
    require(static_cast<std::size_t>(n.slot) < accumulators.size(),
            "stage {} reads result {} of stage {}, which has {}", stage, n.slot, n.stage,
            accumulators.size());
    const Accumulator& a = accumulators[static_cast<std::size_t>(n.slot)];
    const bool is_arg = a.combiner == Combiner::argmax || a.combiner == Combiner::argmin;
    const DType dtype = is_arg ? DType::i32 : a.dtype;
    require(n.dtype == dtype, "stage {} reads result {} of stage {} as {}, but it is {}", stage,
            n.slot, n.stage, tensorgrad::name(n.dtype), tensorgrad::name(dtype));
  }

  const Kernel& kernel_;
};

}  // namespace

void verify(const Kernel& kernel) { Verifier(kernel).run(); }

}  // namespace tensorgrad::kernel
