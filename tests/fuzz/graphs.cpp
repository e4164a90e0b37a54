#include "fuzz/graphs.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "tensorgrad/error.h"
#include "tensorgrad/nn.h"
#include "tensorgrad/ops.h"
#include "tensorgrad/transforms.h"
#include "transform/derivative.h"

namespace tensorgrad::fuzz {
namespace {

using testing::Rng;

constexpr std::int64_t most_elements = 3000;
constexpr int most_rank = 5;

class Generator {
 public:
  Generator(std::uint64_t seed, const GraphOptions& options)
      : options_(options),
        rng_(seed * 0x9E3779B97F4A7C15U + 12345),
        differentiable_(chance(options.gradients)),
        special_(!differentiable_ && chance(options.special_values)) {
    for (const Op* op : registry()) {
      if (!is_drawn(*op)) continue;
      if (differentiable_ && std::holds_alternative<NotDifferentiable>(*op->jvp)) continue;
      ops_.push_back(op);
    }
  }

  Program make_program() {
    const int leaves = 1 + below(3);
    for (int i = 0; i < leaves; ++i) leaf({random_shape(), random_dtype()});
    const int nodes = 1 + below(options_.max_nodes);
    for (int i = 0; i < nodes; ++i) {
      if (chance(0.08)) {
        leaf({random_shape(), random_dtype()});
      } else if (chance(0.1)) {
        pattern();
      } else {
        application();
      }
    }
    choose_outputs();
    if (differentiable_) add_gradients();
    return std::move(program_);
  }

 private:
  int below(int n) { return static_cast<int>(rng_() % static_cast<std::uint64_t>(n)); }
  std::int64_t below64(std::int64_t n) {
    return static_cast<std::int64_t>(rng_() % static_cast<std::uint64_t>(n));
  }
  bool chance(double p) { return testing::unit(rng_) < p; }
  template <class T>
  const T& any_of(const std::vector<T>& v) {
    return v[static_cast<std::size_t>(below(static_cast<int>(v.size())))];
  }
  /// Recent tensors more often, so that graphs get deep.
  const Tensor& any_tensor() {
    const int n = static_cast<int>(pool_.size());
    const int back = chance(0.5) ? below(std::min(n, 4)) : below(n);
    return pool_[static_cast<std::size_t>(n - 1 - back)];
  }

  DType random_dtype() {
    if (chance(0.6)) return DType::f32;
    constexpr DType all[] = {DType::i32, DType::u32, DType::bool_, DType::f16};
    return all[below(4)];
  }
  Shape random_shape() {
    const int rank = below(most_rank + 1);
    Shape shape;
    for (int i = 0; i < rank; ++i) {
      const int kind = below(20);
      shape.push_back(kind == 0               ? 0
                      : kind < 4              ? 1
                      : kind == 4 && rank < 3 ? 16 + below(24)
                                              : 2 + below(6));
    }
    while (numel(shape) > 600) shape.erase(shape.begin() + below(static_cast<int>(shape.size())));
    return shape;
  }

  // ---- data ----

  RefArray data_of(const Type& type, double low, double high) {
    // Dyadic numbers are added and multiplied without rounding, and are often equal.
    const bool coarse = chance(0.3);
    RefArray a = testing::draw(type, low, high, rng_);
    if (coarse && is_floating(type.dtype)) {
      for (double& v : a.data) {
        const double r = std::round(v * 4) / 4;
        if (r >= low && r <= high) v = r;
      }
    }
    if (special_) {
      static const std::vector<double> floats = {std::numeric_limits<float>::quiet_NaN(),
                                                 std::numeric_limits<float>::infinity(),
                                                 -std::numeric_limits<float>::infinity(),
                                                 0.0,
                                                 -0.0,
                                                 1e-3,
                                                 65536,
                                                 -1e6};
      static const std::vector<double> signed_ints = {
          0, 1, -1, 31, 32, 2147483647.0, -2147483648.0};
      static const std::vector<double> unsigned_ints = {0, 1, 31, 32, 2147483648.0, 4294967295.0};
      const std::vector<double>* values = is_floating(type.dtype)    ? &floats
                                          : type.dtype == DType::i32 ? &signed_ints
                                          : type.dtype == DType::u32 ? &unsigned_ints
                                                                     : nullptr;
      if (values) {
        for (double& v : a.data) {
          if (chance(0.15)) v = kernel::round_to(type.dtype, any_of(*values));
        }
      }
    }
    return a;
  }

  Tensor input(const Type& type, double low = -2, double high = 2) {
    RefArray value = data_of(type, low, high);
    const Tensor t =
        prim::input(InputRole::input, fmt::format("x{}", program_.graph.inputs.size()), type);
    program_.graph.inputs.push_back(t);
    program_.inputs.push_back(value);
    know(t, std::move(value));
    return t;
  }

  Tensor leaf(const Type& type) {
    const int kind = below(10);
    Tensor t;
    if (kind == 0) {
      t = prim::full(type.shape,
                     below(5) - (type.dtype == DType::u32 || type.dtype == DType::bool_ ? 0 : 2),
                     type.dtype);
      if (type.dtype == DType::bool_) t = prim::full(type.shape, below(2), type.dtype);
    } else if (kind == 1 && !type.shape.empty() && type.dtype != DType::bool_) {
      t = prim::iota(type.shape, below(static_cast<int>(type.shape.size())), type.dtype);
    } else if (kind == 2) {
      t = testing::tensor_of(data_of(type, -2, 2));
    } else {
      t = input(type);
    }
    evaluate(t);
    pool_.push_back(t);
    return t;
  }

  // ---- values, known as the graph grows ----

  void know(const Tensor& t, RefArray value) {
    values_.insert_or_assign(&t.node(), std::move(value));
    keep_.push_back(t);
  }
  const RefArray& evaluate(const Tensor& t) {
    if (const auto it = values_.find(&t.node()); it != values_.end()) return it->second;
    for (const Node* n : topological(std::span(&t, 1))) {
      if (values_.contains(n)) continue;
      std::vector<const RefArray*> operands;
      for (const Tensor& o : n->operands) operands.push_back(&values_.at(&o.node()));
      values_.emplace(n, (*n->op->reference)(*n, operands));
    }
    keep_.push_back(t);
    return values_.at(&t.node());
  }
  /// Whether most elements are ordinary numbers: graphs of NaN alone tell nothing.
  bool tame(const Tensor& t) {
    if (t.size() > most_elements) return false;
    if (!is_floating(t.dtype())) return true;
    std::size_t wild = 0;
    const RefArray& v = evaluate(t);
    for (double x : v.data) wild += !(std::fabs(x) < 1e5) ? 1 : 0;
    return wild * (special_ ? 2 : 10) <= v.data.size();
  }

  // ---- operands that fit ----

  Tensor to_dtype(const Tensor& x, DType dtype) {
    if (x.dtype() == dtype) return x;
    if (dtype == DType::bool_ && chance(0.5)) {
      return prim::map(chance(0.5) ? kernel::Fn::gt : kernel::Fn::ne, {x, prim::zeros_like(x)});
    }
    return prim::cast(x, dtype);
  }
  Tensor flat(const Tensor& x) { return x.rank() == 1 ? x : prim::reshape(x, {x.size()}); }

  Tensor to_shape(Tensor x, const Shape& shape) {
    if (x.shape() == shape && chance(0.9)) return x;
    const std::int64_t wanted = numel(shape);
    if (x.size() != wanted && wanted > 0) {
      // A broadcast where the extents allow it.
      if (x.rank() <= static_cast<int>(shape.size())) {
        bool fits = true;
        const std::size_t off = shape.size() - x.shape().size();
        for (std::size_t i = 0; i < x.shape().size(); ++i) {
          fits = fits && (x.shape()[i] == 1 || x.shape()[i] == shape[i + off]);
        }
        if (fits) return prim::broadcast_to(x, shape);
      }
    }
    if (x.rank() >= 2 && chance(0.3)) {
      std::vector<int> axes = prim::all_axes(x.rank());
      std::shuffle(axes.begin(), axes.end(), rng_);
      x = prim::permute(x, axes);
    }
    if (x.size() == wanted) {
      std::vector<std::int64_t> a = x.shape(), b = shape;
      std::sort(a.begin(), a.end());
      std::sort(b.begin(), b.end());
      if (a == b && x.shape() != shape && chance(0.7)) {
        std::vector<int> axes;
        for (std::int64_t extent : shape) {
          for (int i = 0; i < x.rank(); ++i) {
            if (x.shape()[static_cast<std::size_t>(i)] == extent &&
                std::find(axes.begin(), axes.end(), i) == axes.end()) {
              axes.push_back(i);
              break;
            }
          }
        }
        return prim::permute(x, axes);
      }
      return prim::reshape(x, shape);
    }
    x = flat(x);
    while (x.size() < wanted) {
      const std::int64_t missing = wanted - x.size();
      const int how = below(4);
      if (how == 0 || x.size() == 0) {
        const std::int64_t low = below64(missing + 1);
        x = prim::pad(x, {low}, {missing - low}, {0});
      } else if (how == 1 && x.size() > 1 && missing >= x.size() - 1) {
        x = prim::pad(x, {0}, {0}, {1});
      } else if (how == 2) {
        const std::int64_t times = (wanted + x.size() - 1) / x.size();
        x = prim::reshape(prim::add_leading(x, times), {times * x.size()});
      } else {
        const Tensor parts[] = {x, chance(0.5) ? prim::flip(x, {0}) : x};
        x = prim::concat(parts, 0);
      }
    }
    if (x.size() > wanted) {
      const std::int64_t most = wanted > 1 ? (x.size() - 1) / (wanted - 1) : 1;
      const std::int64_t stride = 1 + below64(std::min<std::int64_t>(most, 4));
      const std::int64_t span = wanted > 0 ? (wanted - 1) * stride + 1 : 0;
      const std::int64_t start = below64(x.size() - span + 1);
      x = prim::slice(x, {start}, {start + span}, {stride});
    }
    if (chance(0.2)) x = prim::flip(x, {0});
    return prim::reshape(x, shape);
  }

  Tensor operand(const Sample& sample, std::size_t i, const Type& type) {
    if (chance(0.1)) return fresh(sample, i, type);
    Tensor x = to_shape(to_dtype(any_tensor(), type.dtype), type.shape);
    const bool ranged = i < sample.ranges.size() || sample.low != -2 || sample.high != 2;
    if (!ranged || type.dtype == DType::bool_) return x;
    // Into the range where the op is defined, at least most of the time.
    const auto [low, high] =
        i < sample.ranges.size() ? sample.ranges[i] : std::pair(sample.low, sample.high);
    const bool outside =
        std::any_of(evaluate(x).data.begin(), evaluate(x).data.end(),
                    [low = low, high = high](double v) { return !(v >= low && v <= high); });
    if (!outside || chance(0.1)) return x;
    if (chance(0.4)) return fresh(sample, i, type);
    if (is_floating(type.dtype) && chance(0.5)) {
      const Tensor unit = prim::map(kernel::Fn::logistic, {x});
      return prim::add(prim::mul(unit, prim::full(type.shape, high - low, type.dtype)),
                       prim::full(type.shape, low, type.dtype));
    }
    const double least = type.dtype == DType::u32 ? std::max(low, 0.0) : low;
    const auto bound = [&](double v) {
      return prim::full(type.shape, kernel::round_to(type.dtype, v), type.dtype);
    };
    return prim::map(kernel::Fn::min,
                     {prim::map(kernel::Fn::max, {x, bound(std::ceil(least * 4) / 4)}),
                      bound(std::floor(high * 4) / 4)});
  }
  Tensor fresh(const Sample& sample, std::size_t i, const Type& type) {
    const auto [low, high] =
        i < sample.ranges.size() ? sample.ranges[i] : std::pair(sample.low, sample.high);
    const Tensor t = input(type, low, high);
    pool_.push_back(t);
    return t;
  }

  // ---- attributes of other shapes than the samples' ----

  std::vector<int> some_axes(int rank) {
    std::vector<int> axes;
    for (int i = 0; i < rank; ++i) {
      if (chance(0.5)) axes.push_back(i);
    }
    return axes;
  }
  /// Attributes of the same kind for an operand of shape `x`; the op's own rule says whether they
  /// are any.
  Attrs vary(const Attrs& attrs, const Shape& x) {
    const int rank = static_cast<int>(x.size());
    Attrs out = attrs;
    if (auto* a = std::get_if<AxesAttr>(&out)) {
      if (chance(0.5)) {
        a->axes = some_axes(rank);
      } else {
        a->axes = prim::all_axes(rank);
        std::shuffle(a->axes.begin(), a->axes.end(), rng_);
      }
    } else if (auto* s = std::get_if<SliceAttr>(&out)) {
      *s = {};
      for (std::int64_t extent : x) {
        const std::int64_t from = below64(extent + 1);
        s->start.push_back(from);
        s->limit.push_back(from + below64(extent - from + 1));
        s->stride.push_back(1 + below(3));
      }
    } else if (auto* p = std::get_if<PadAttr>(&out)) {
      *p = {};
      for (int i = 0; i < rank; ++i) {
        p->low.push_back(chance(0.5) ? 0 : below(3));
        p->high.push_back(chance(0.5) ? 0 : below(3));
        p->interior.push_back(chance(0.7) ? 0 : below(3));
      }
    } else if (auto* axis = std::get_if<AxisAttr>(&out)) {
      axis->axis = rank > 0 ? below(rank) : 0;
    } else if (auto* scan = std::get_if<ScanAttr>(&out)) {
      scan->axis = rank > 0 ? below(rank) : 0;
    } else if (auto* sort = std::get_if<SortAttr>(&out)) {
      sort->axis = rank > 0 ? below(rank) : 0;
    } else if (auto* gather = std::get_if<GatherAttr>(&out)) {
      gather->axis = rank > 0 ? below(rank) : 0;
    } else if (auto* dot = std::get_if<DotAttr>(&out)) {
      // Of operands of one shape: every axis is paired with itself, as batch or contracted, or
      // free.
      *dot = {};
      for (int i = 0; i < rank; ++i) {
        const int kind = below(3);
        if (kind == 0) {
          dot->lhs_batch.push_back(i);
          dot->rhs_batch.push_back(i);
        }
        if (kind == 1) {
          dot->lhs_contract.push_back(i);
          dot->rhs_contract.push_back(i);
        }
      }
    } else if (auto* shape = std::get_if<ShapeAttr>(&out)) {
      shape->axes.clear();
      shape->shape.clear();
      if (std::get<ShapeAttr>(attrs).axes.empty()) {  // other factors of the same number
        shape->shape = x;
        std::shuffle(shape->shape.begin(), shape->shape.end(), rng_);
        if (chance(0.5)) shape->shape.insert(shape->shape.begin() + below(rank + 1), 1);
        if (shape->shape.size() >= 2 && chance(0.5)) {
          const std::int64_t last = shape->shape.back();
          shape->shape.pop_back();
          shape->shape.back() *= last;
        }
      } else {
        for (std::int64_t extent : x) {
          if (chance(0.3)) shape->shape.push_back(1 + below(3));
          shape->axes.push_back(static_cast<int>(shape->shape.size()));
          shape->shape.push_back(extent == 1 && chance(0.7) ? 1 + below(4) : extent);
        }
      }
    }
    return out;
  }

  // ---- nodes ----

  void application() {
    const Op& op = *any_of(ops_);
    const std::vector<Sample> samples = (*op.samples)();
    constexpr int tries = 4;
    for (int i = 0; i < tries; ++i) {
      const Sample& sample = any_of(samples);
      // What an op multiplies by zeros, others may leave out.
      if (special_ && !sample.special_values) continue;
      Tensor y = chance(0.65) ? on_other_shapes(op, sample) : as_sampled(op, sample);
      if (!y.defined() || static_cast<int>(y.shape().size()) > most_rank ||
          !(tame(y) || chance(0.03)))
        continue;
      if (y.size() > most_elements) continue;
      evaluate(y);
      pool_.push_back(y);
      return;
    }
  }
  Tensor as_sampled(const Op& op, const Sample& sample) {
    std::vector<Tensor> operands;
    for (std::size_t i = 0; i < sample.operands.size(); ++i) {
      if (numel(sample.operands[i].shape) > most_elements) return {};
      operands.push_back(operand(sample, i, sample.operands[i]));
    }
    return testing::apply(op, sample, operands);
  }
  /// The op on a tensor as it is; operands that have one shape in the sample keep one shape. Empty
  /// where the op's rule refuses.
  Tensor on_other_shapes(const Op& op, const Sample& sample) {
    const Tensor& first = any_tensor();
    const Shape shape = first.shape();
    const Shape sampled = sample.operands[0].shape;
    const bool contraction = std::holds_alternative<DotAttr>(sample.attrs);
    std::vector<Tensor> operands;
    for (std::size_t i = 0; i < sample.operands.size(); ++i) {
      Type type = sample.operands[i];
      if (type.shape == sampled || contraction) type.shape = shape;
      if (numel(type.shape) > most_elements) return {};
      operands.push_back(operand(sample, i, type));
    }
    const Attrs attrs = vary(sample.attrs, shape);
    try {
      return make(op, operands, attrs, Site::current());
    } catch (const Error&) {
      return {};
    }
  }

  Tensor as_matrix(const Tensor& x, std::int64_t rows, std::int64_t columns) {
    return to_shape(to_dtype(x, DType::f32), {rows, columns});
  }
  /// What models are made of, for the passes that look for it.
  void pattern() {
    const std::int64_t n = 1 + below(6), d = 1 + below(9), m = 1 + below(9);
    const Tensor x = as_matrix(any_tensor(), n, d);
    Tensor y;
    switch (below(7)) {
      case 0:
        y = softmax(x, -1);
        break;
      case 1: {
        const Tensor centred = x - mean(x, Reduce(-1, true));
        y = centred * rsqrt(mean(centred * centred, Reduce(-1, true)) + 0.5);
        break;
      }
      case 2: {
        const Tensor w = as_matrix(any_tensor(), d, m), b = as_matrix(any_tensor(), 1, m);
        y = relu(matmul(x, w) + b);
        break;
      }
      case 3: {
        const Tensor q = to_shape(x, {1, n, d});
        const Tensor k = to_shape(to_dtype(any_tensor(), DType::f32), {1, m, d});
        const Tensor v = to_shape(to_dtype(any_tensor(), DType::f32), {1, m, d});
        y = attention(q, k, v, {});
        break;
      }
      case 4: {  // products of one operand with several
        const Tensor a = matmul(x, as_matrix(any_tensor(), d, m));
        const Tensor b = matmul(x, as_matrix(any_tensor(), d, m));
        y = chance(0.5) ? a + b : a * sigmoid(b);
        break;
      }
      case 5:
        y = logsumexp(x, -1);
        break;
      default: {
        const Tensor row = to_dtype(to_shape(any_tensor(), {n}), DType::i32);
        y = sum(where(unsqueeze(row, 1) == prim::iota({n, d}, 1, DType::i32), log(abs(x) + 1), 0.0),
                1);
        break;
      }
    }
    if (!tame(y)) return;
    pool_.push_back(y);
  }

  // ---- the program ----

  void choose_outputs() {
    std::vector<Tensor> outputs{pool_.back()};
    const int extra = below(4);
    for (int i = 0; i < extra; ++i) outputs.push_back(any_tensor());
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      program_.graph.outputs.push_back({fmt::format("y{}", i), outputs[i]});
    }
    if (!differentiable_ && chance(0.15)) become_state();
  }

  /// Makes the first input a state, with an update or without.
  void become_state() {
    if (program_.graph.inputs.empty()) return;
    const Tensor old = program_.graph.inputs[0];
    const Tensor state = prim::input(InputRole::state, "s0", old.node().type);
    Tensor update;
    if (chance(0.8)) update = to_shape(to_dtype(any_tensor(), old.dtype()), old.shape());
    std::unordered_map<const Node*, Tensor> map;
    std::vector<Tensor> roots = program_.graph.roots();
    if (update.defined()) roots.push_back(update);
    for (const Node* n : topological(roots)) {
      std::vector<Tensor> operands;
      for (const Tensor& o : n->operands) operands.push_back(map.at(&o.node()));
      map[n] = n == &old.node()      ? state
               : n->operands.empty() ? handle_of(*n)
                                     : remake(*n, operands);
    }
    for (Named& out : program_.graph.outputs) out.value = map.at(&out.value.node());
    program_.graph.states.push_back(state);
    program_.graph.updates.push_back(update.defined() ? map.at(&update.node()) : Tensor());
    program_.states.push_back(program_.inputs[0]);
    program_.graph.inputs.erase(program_.graph.inputs.begin());
    program_.inputs.erase(program_.inputs.begin());
  }

  void add_gradients() {
    std::vector<Tensor> outputs, cotangents, inputs;
    for (const Named& out : program_.graph.outputs) {
      if (!is_floating(out.value.dtype())) continue;
      outputs.push_back(out.value);
      cotangents.push_back(chance(0.5) ? prim::full(out.value.shape(), 1, out.value.dtype())
                                       : input(out.value.node().type));
    }
    for (const Tensor& t : program_.graph.inputs) {
      if (is_floating(t.dtype())) inputs.push_back(t);
    }
    if (outputs.empty() || inputs.empty()) return;
    std::vector<Tensor> gradients;
    try {
      gradients = vjp_or_zeros(outputs, inputs, cotangents);
    } catch (const GraphError&) {
      return;  // a path without a derivative
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined())
        program_.graph.outputs.push_back({fmt::format("d{}", i), gradients[i]});
    }
  }

  GraphOptions options_;
  Rng rng_;
  bool differentiable_, special_;
  std::vector<const Op*> ops_;
  std::vector<Tensor> pool_, keep_;
  std::unordered_map<const Node*, RefArray> values_;
  Program program_;
};

}  // namespace

BindLeaf bind(const Program& program) {
  std::unordered_map<const Node*, const RefArray*> values;
  for (std::size_t i = 0; i < program.inputs.size(); ++i) {
    values[&program.graph.inputs[i].node()] = &program.inputs[i];
  }
  for (std::size_t i = 0; i < program.states.size(); ++i) {
    values[&program.graph.states[i].node()] = &program.states[i];
  }
  return [values](const Node& leaf) { return *values.at(&leaf); };
}

bool is_drawn(const Op& op) {
  using Result = LowerAttention::Result;
  const auto* attention = std::get_if<LowerAttention>(&*op.lowering);
  const bool is_gradient =
      attention && attention->result != Result::out && attention->result != Result::lse;
  return !is_gradient && !(*op.samples)().empty();
}

Program random_program(std::uint64_t seed, const GraphOptions& options) {
  return Generator(seed, options).make_program();
}

}  // namespace tensorgrad::fuzz
