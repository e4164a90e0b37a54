// Attention and its gradients without the matrix of probabilities.
#include <cmath>
#include <limits>

#include "ops/rules.h"

namespace tensorgrad {
namespace {

using Result = LowerAttention::Result;

constexpr bool is_gradient(Result r) { return r != Result::out && r != Result::lse; }
constexpr std::size_t operand_count(Result r) { return is_gradient(r) ? 6 : 3; }

// [batch..., rows, columns], or [batch..., rows] where `columns` is negative.
Shape with_last(const Shape& batch, std::int64_t rows, std::int64_t columns) {
  Shape s = batch;
  s.push_back(rows);
  if (columns >= 0) s.push_back(columns);
  return s;
}

template <Result R>
Type infer(const Op& op, Operands x, const Attrs&, const Site& site) {
  if (x.size() != operand_count(R) && x.size() != operand_count(R) + 1) {
    throw ShapeError(fmt::format("{}: takes {} operands and perhaps a mask, not {}.", *op.name,
                                 operand_count(R), x.size()),
                     site);
  }
  for (const Tensor& t : x) check_dtype(op, t.dtype(), single, site);
  const Shape& q = x[0].shape();
  const Shape& k = x[1].shape();
  const Shape& v = x[2].shape();
  if (q.size() < 2 || k.size() != q.size() || v.size() != q.size()) {
    throw ShapeError(fmt::format("{}: takes q, k and v of one rank above 1, not of shapes {}, {} "
                                 "and {}.",
                                 *op.name, to_string(q), to_string(k), to_string(v)),
                     site);
  }
  const Shape batch(q.begin(), q.end() - 2);
  const std::int64_t queries = q[q.size() - 2];
  const std::int64_t keys = k[k.size() - 2];
  const std::int64_t depth = q.back();
  const std::int64_t value_depth = v.back();
  std::vector<Shape> expected{with_last(batch, queries, depth), with_last(batch, keys, depth),
                              with_last(batch, keys, value_depth)};
  if (is_gradient(R)) {
    expected.push_back(with_last(batch, queries, value_depth));
    expected.push_back(with_last(batch, queries, -1));
    expected.push_back(with_last(batch, queries, value_depth));
  }
  if (x.size() > operand_count(R)) expected.push_back(with_last(batch, queries, keys));
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i].shape() == expected[i]) continue;
    throw ShapeError(fmt::format("{}: operand {} has shape {}, but {} fits the others.", *op.name,
                                 i, to_string(x[i].shape()), to_string(expected[i])),
                     site);
  }
  switch (R) {
    case Result::out:
      return {with_last(batch, queries, value_depth), DType::f32};
    case Result::lse:
      return {with_last(batch, queries, -1), DType::f32};
    case Result::dq:
      return x[0].node().type;
    case Result::dk:
      return x[1].node().type;
    case Result::dv:
      break;
  }
  return x[2].node().type;
}

Tensor vmap(const Tensor& y, Operands x, Batched batched, std::int64_t size) {
  return vmap_elementwise(y, x, batched, size);
}

// One matrix of a batch, row-major.
struct Matrix {
  const RefArray* array = nullptr;
  std::size_t start = 0, columns = 1;
  double operator()(std::size_t row, std::size_t column) const {
    return array->data[start + row * columns + column];
  }
};

template <Result R>
RefArray reference(const Node& n, RefOperands x) {
  const auto& attr = n.attr<AttentionAttr>();
  RefArray result{n.type, std::vector<double>(static_cast<std::size_t>(numel(n.type.shape)))};
  const auto extent = [](const RefArray& a, std::size_t from_end) {
    return static_cast<std::size_t>(a.type.shape[a.type.shape.size() - from_end]);
  };
  const std::size_t queries = extent(*x[0], 2);
  const std::size_t keys = extent(*x[1], 2);
  const std::size_t depth = extent(*x[0], 1);
  const std::size_t value_depth = extent(*x[2], 1);
  std::size_t batches = 1;
  for (std::size_t i = 0; i + 2 < x[0]->type.shape.size(); ++i) {
    batches *= static_cast<std::size_t>(x[0]->type.shape[i]);
  }
  const bool masked = x.size() > operand_count(R);
  for (std::size_t b = 0; b < batches; ++b) {
    const Matrix q{x[0], b * queries * depth, depth};
    const Matrix k{x[1], b * keys * depth, depth};
    const Matrix v{x[2], b * keys * value_depth, value_depth};
    const Matrix mask{masked ? x.back() : nullptr, b * queries * keys, keys};
    for (std::size_t t = 0; t < queries; ++t) {
      const std::size_t seen = attr.causal ? std::min(keys, t + 1) : keys;
      std::vector<double> s(seen, 0);
      for (std::size_t u = 0; u < seen; ++u) {
        for (std::size_t d = 0; d < depth; ++d) s[u] += q(t, d) * k(u, d);
        s[u] = s[u] * attr.scale + (masked ? mask(t, u) : 0);
      }
      const std::size_t row = b * queries + t;
      double lse = 0;
      if constexpr (is_gradient(R)) {
        lse = x[4]->data[row];
      } else {
        double top = -std::numeric_limits<double>::infinity();
        for (const double e : s) top = std::max(top, e);
        for (const double e : s) lse += std::exp(e - top);
        lse = std::log(lse) + top;
      }
      if constexpr (R == Result::lse) result.data[row] = lse;
      if constexpr (is_gradient(R)) {
        const Matrix out{x[3], b * queries * value_depth, value_depth};
        const Matrix dout{x[5], b * queries * value_depth, value_depth};
        double delta = 0;
        for (std::size_t e = 0; e < value_depth; ++e) delta += dout(t, e) * out(t, e);
        for (std::size_t u = 0; u < seen; ++u) {
          const double p = std::exp(s[u] - lse);
          double dp = 0;
          for (std::size_t e = 0; e < value_depth; ++e) dp += dout(t, e) * v(u, e);
          const double ds = attr.scale * p * (dp - delta);
          if constexpr (R == Result::dv) {
            for (std::size_t e = 0; e < value_depth; ++e) {
              result.data[(b * keys + u) * value_depth + e] += p * dout(t, e);
            }
          } else {
            for (std::size_t d = 0; d < depth; ++d) {
              if constexpr (R == Result::dq) result.data[row * depth + d] += ds * k(u, d);
              if constexpr (R == Result::dk)
                result.data[(b * keys + u) * depth + d] += ds * q(t, d);
            }
          }
        }
      } else if constexpr (R == Result::out) {
        for (std::size_t u = 0; u < seen; ++u) {
          const double p = std::exp(s[u] - lse);
          for (std::size_t e = 0; e < value_depth; ++e) {
            result.data[row * value_depth + e] += p * v(u, e);
          }
        }
      }
    }
  }
  return result;
}

template <Result R>
std::vector<Sample> samples() {
  std::vector<Sample> out;
  struct Case {
    Shape batch;
    std::int64_t queries, keys, depth, value_depth;
    bool causal, masked;
  };
  for (const Case& c : std::initializer_list<Case>{
           {{}, 3, 3, 4, 4, false, false},
           {{}, 1, 1, 1, 1, true, false},
           {{2}, 5, 7, 4, 3, false, true},
           {{2, 3}, 9, 9, 8, 8, true, false},
           {{2, 2}, 70, 70, 16, 16, true, true},
           {{3}, 7, 5, 3, 6, true, false},
           {{1, 2}, 33, 130, 32, 32, false, false},
           {{0, 2}, 4, 4, 4, 4, true, false},
       }) {
    const auto type = [&](std::int64_t rows, std::int64_t columns) {
      return Type{with_last(c.batch, rows, columns), DType::f32};
    };
    Sample s;
    s.operands = {type(c.queries, c.depth), type(c.keys, c.depth), type(c.keys, c.value_depth)};
    s.ranges = {{-1, 1}, {-1, 1}, {-1, 1}};
    if (is_gradient(R)) {
      for (const Type& t :
           {type(c.queries, c.value_depth), type(c.queries, -1), type(c.queries, c.value_depth)}) {
        s.operands.push_back(t);
      }
      s.ranges.insert(s.ranges.end(), {{-1, 1}, {2, 3}, {-1, 1}});
    }
    if (c.masked) {
      s.operands.push_back(type(c.queries, c.keys));
      s.ranges.emplace_back(-2, 2);
    }
    s.attrs = AttentionAttr{0.25, c.causal};
    s.special_values = false;  // results are sums of products of all of them
    out.push_back(std::move(s));
  }
  return out;
}

template <Result R>
Op row(std::string_view name, std::string_view doc) {
  return {.name = name,
          .doc = doc,
          .infer = infer<R>,
          .jvp = NotDifferentiable{"the schedule makes it from steps that have derivatives"},
          .transpose = NotLinear{},
          .vmap = vmap,
          .lowering = LowerAttention{R},
          .reference = reference<R>,
          .samples = samples<R>,
          .ulp = 128};
}

std::span<const Op> rows() {
  // In the order of Result.
  static const Op table[] = {
      row<Result::out>("attention", "Attention of q to k and v, made from its steps; f32."),
      row<Result::lse>("attention_lse", "Log-sum-exp of each row of attention's scores; f32."),
      row<Result::dq>("attention_dq", "The queries' gradient of attention; f32."),
      row<Result::dk>("attention_dk", "The keys' gradient of attention; f32."),
      row<Result::dv>("attention_dv", "The values' gradient of attention; f32."),
  };
  return table;
}

Tensor build(Result result, std::vector<Tensor> operands, const Tensor& mask,
             const AttentionAttr& attr, const Site& site) {
  if (mask.defined()) operands.push_back(mask);
  return make(rows()[static_cast<std::size_t>(result)], std::move(operands), attr, site);
}

}  // namespace

std::span<const Op> attention_ops() { return rows(); }

namespace prim {

Tensor attention(LowerAttention::Result result, const Tensor& q, const Tensor& k, const Tensor& v,
                 const Tensor& mask, const AttentionAttr& attr, const Site& site) {
  return build(result, {q, k, v}, mask, attr, site);
}

Tensor attention_grad(LowerAttention::Result result, const Tensor& q, const Tensor& k,
                      const Tensor& v, const Tensor& out, const Tensor& lse, const Tensor& dout,
                      const Tensor& mask, const AttentionAttr& attr, const Site& site) {
  return build(result, {q, k, v, out, lse, dout}, mask, attr, site);
}

}  // namespace prim
}  // namespace tensorgrad
