// Elementwise ops: one row for each scalar function, cast and bitcast.
#include <array>
#include <map>

#include "ops/rules.h"
#include "tensorgrad/ops.h"

namespace tensorgrad {
namespace {

using kernel::Expr;
using kernel::Fn;
using kernel::Pool;

// ---- rules shared by all rows --------------------------------------------------------------------

template <Fn F>
constexpr std::size_t arity() {
  if (F == Fn::select) return 3;
  return F >= Fn::add && F <= Fn::ge ? 2 : 1;
}

template <Fn F>
std::span<const DType> allowed() {
  switch (F) {
    case Fn::neg:
    case Fn::abs:
    case Fn::sign:
      return signed_numbers;
    case Fn::bit_not:
    case Fn::bit_and:
    case Fn::bit_or:
    case Fn::bit_xor:
      return bits_dtypes;
    case Fn::shl:
    case Fn::shr:
      return integers;
    case Fn::add:
    case Fn::sub:
    case Fn::mul:
    case Fn::div:
    case Fn::rem:
    case Fn::min:
    case Fn::max:
      return numbers;
    case Fn::eq:
    case Fn::ne:
    case Fn::lt:
    case Fn::le:
    case Fn::gt:
    case Fn::ge:
    case Fn::select:
      return any_dtype;
    default:
      return floats;
  }
}

template <Fn F>
Type infer(const Op& op, std::span<const Tensor> x, const Attrs&, const Site& site) {
  const std::size_t first = F == Fn::select ? 1 : 0;
  if (F == Fn::select && x[0].dtype() != DType::bool_) {
    throw DTypeError(fmt::format("select: the condition is {}, not bool.", name(x[0].dtype())),
                     site);
  }
  for (std::size_t i = 1; i < x.size(); ++i) {
    if (x[i].shape() != x[0].shape()) {
      throw ShapeError(fmt::format("{}: shapes differ: {} and {}.", *op.name,
                                   to_string(x[0].shape()), to_string(x[i].shape())),
                       site);
    }
    if (i > first) check_same(op, x[first].dtype(), x[i].dtype(), site);
  }
  check_dtype(op, x[first].dtype(), allowed<F>(), site);
  return {x[0].shape(), kernel::result_dtype(F, x[first].dtype())};
}

template <Fn F>
Expr lower(Pool& pool, const Node&, std::span<const Expr> x) {
  return pool.apply(F, x);
}

template <Fn F>
RefArray reference(const Node& n, std::span<const RefArray* const> x) {
  RefArray out{n.type, std::vector<double>(x[0]->data.size())};
  const DType operand = x.back()->type.dtype;
  std::array<double, 3> a{};
  for (std::size_t i = 0; i < out.data.size(); ++i) {
    for (std::size_t k = 0; k < x.size(); ++k) a[k] = x[k]->data[i];
    out.data[i] = kernel::evaluate(F, operand, n.type.dtype, std::span(a.data(), x.size()));
  }
  return out;
}

std::vector<Sample> samples_over(std::span<const DType> dtypes, std::size_t count, double low,
                                 double high, const std::vector<std::pair<double, double>>& ranges,
                                 bool condition_first) {
  std::vector<Sample> out;
  for (DType d : dtypes) {
    for (const Shape& s : sample_shapes()) {
      std::vector<Type> types(count, Type{s, d});
      if (condition_first) types[0].dtype = DType::bool_;
      out.push_back({std::move(types), std::monostate{}, low, high, ranges});
    }
  }
  return out;
}

// The table entry's numbers travel as template arguments, since a row holds plain functions.
struct Domain {
  double low = -2, high = 2, low2 = 0, high2 = 0;  // low2 < high2: a range for the second operand
};

template <Fn F, Domain D>
std::vector<Sample> samples() {
  std::vector<std::pair<double, double>> ranges;
  if (D.low2 < D.high2) ranges = {{D.low, D.high}, {D.low2, D.high2}};
  return samples_over(allowed<F>(), arity<F>(), D.low, D.high, ranges, F == Fn::select);
}

template <Fn F, Domain D = Domain{}>
Op row(std::string_view doc, double ulp, std::variant<NotDifferentiable, JvpRule> jvp,
       std::variant<NotLinear, TransposeRule> transpose = NotLinear{}) {
  return {.name = prim::op_name(F),
          .doc = doc,
          .infer = infer<F>,
          .jvp = std::move(jvp),
          .transpose = std::move(transpose),
          .vmap = vmap_elementwise,
          .lowering = LowerMap{lower<F>},
          .reference = reference<F>,
          .samples = samples<F, D>,
          .ulp = ulp};
}

/// A unary row from its derivative as a function of operand and result.
template <Fn F, Domain D = Domain{}, class Derivative>
Op unary(std::string_view doc, double ulp, Derivative) {
  static_assert(std::is_empty_v<Derivative>, "the derivative must not capture");
  return row<F, D>(doc, ulp, JvpRule{[](const Tensor& y, Tangents t) -> Tensor {
                     return t[0] * Derivative{}(in(y, 0), y);
                   }});
}

/// A function whose derivative is zero wherever it exists.
template <Fn F, Domain D = Domain{}>
Op flat(std::string_view doc) {
  return row<F, D>(doc, 0, JvpRule{[](const Tensor&, Tangents) { return Tensor(); }});
}

template <Fn F>
Op not_differentiable(std::string_view doc, std::string_view why) {
  return row<F>(doc, 0, NotDifferentiable{why});
}

constexpr double two_over_sqrt_pi = 1.1283791670955126;

// ---- the rows ------------------------------------------------------------------------------------

Tensor scaled(const Tensor& t, const Tensor& by) { return t.defined() ? t * by : t; }

std::vector<Op> unary_rows() {
  using X = const Tensor&;
  std::vector<Op> r;
  r.push_back(row<Fn::neg>(
      "-x", 0, JvpRule{[](X, Tangents t) { return prim::neg(t[0]); }},
      TransposeRule{[](X, X ct, const std::vector<bool>&) { return Cotangents{prim::neg(ct)}; }}));
  r.push_back(
      unary<Fn::abs, Domain{0.2, 2}>("|x|; derivative sign(x)", 0, [](X x, X) { return sign(x); }));
  r.push_back(flat<Fn::sign, Domain{0.2, 2}>("-1, 0 or 1; NaN stays NaN"));
  r.push_back(unary<Fn::exp>("e^x", 4, [](X, X y) { return y; }));
  r.push_back(unary<Fn::expm1>("e^x - 1, accurate near 0", 4, [](X, X y) { return y + 1; }));
  r.push_back(unary<Fn::log, Domain{0.2, 3}>("natural logarithm", 4, [](X x, X) { return 1 / x; }));
  r.push_back(unary<Fn::log1p, Domain{-0.7, 3}>("log(1 + x), accurate near 0", 4,
                                                [](X x, X) { return 1 / (x + 1); }));
  r.push_back(unary<Fn::sqrt, Domain{0.2, 3}>("square root", 1, [](X, X y) { return 0.5 / y; }));
  r.push_back(
      unary<Fn::rsqrt, Domain{0.2, 3}>("1 / sqrt(x)", 4, [](X x, X y) { return -0.5 * y / x; }));
  r.push_back(unary<Fn::reciprocal, Domain{0.3, 3}>("1 / x", 2, [](X, X y) { return -(y * y); }));
  r.push_back(unary<Fn::sin>("sine", 4, [](X x, X) { return cos(x); }));
  r.push_back(unary<Fn::cos>("cosine", 4, [](X x, X) { return -sin(x); }));
  r.push_back(unary<Fn::tan, Domain{-1.2, 1.2}>("tangent", 5, [](X, X y) { return y * y + 1; }));
  r.push_back(unary<Fn::asin, Domain{-0.8, 0.8}>("inverse sine", 5,
                                                 [](X x, X) { return rsqrt(1 - x * x); }));
  r.push_back(unary<Fn::acos, Domain{-0.8, 0.8}>("inverse cosine", 5,
                                                 [](X x, X) { return -rsqrt(1 - x * x); }));
  r.push_back(unary<Fn::atan>("inverse tangent", 5, [](X x, X) { return 1 / (x * x + 1); }));
  r.push_back(unary<Fn::tanh>("hyperbolic tangent", 5, [](X, X y) { return 1 - y * y; }));
  r.push_back(unary<Fn::logistic>("1 / (1 + e^-x)", 5, [](X, X y) { return y * (1 - y); }));
  r.push_back(
      unary<Fn::erf>("error function", 5, [](X x, X) { return two_over_sqrt_pi * exp(-(x * x)); }));
  r.push_back(unary<Fn::erfc>("1 - erf(x), accurate for large x", 8,
                              [](X x, X) { return -two_over_sqrt_pi * exp(-(x * x)); }));
  r.push_back(flat<Fn::floor, Domain{0.1, 0.9}>("largest integer <= x"));
  r.push_back(flat<Fn::ceil, Domain{0.1, 0.9}>("smallest integer >= x"));
  r.push_back(flat<Fn::round, Domain{0.6, 1.4}>("nearest integer, ties to even"));
  r.push_back(row<Fn::relu, Domain{0.2, 2}>(
      "max(x, 0); derivative 1 where x > 0, else 0", 0,
      JvpRule{[](X y, Tangents t) { return prim::select(y > 0, t[0], prim::zeros_like(t[0])); }}));
  r.push_back(not_differentiable<Fn::bit_not>("complement of every bit, or logical not",
                                              "its operand is not a real number"));
  return r;
}

// The tangent of max and min: the larger (smaller) operand's, half of each where they are equal.
template <Fn Compare>
Tensor extremum_tangent(const Tensor& y, Tangents t) {
  const Tensor& a = in(y, 0);
  const Tensor& b = in(y, 1);
  const Tensor zero = prim::zeros_like(y);
  const Tensor ta = t[0].defined() ? t[0] : zero;
  const Tensor tb = t[1].defined() ? t[1] : zero;
  return prim::select(prim::map(Compare, {a, b}), ta,
                      prim::select(prim::map(Fn::eq, {a, b}), (ta + tb) * 0.5, tb));
}

std::vector<Op> binary_rows() {
  using X = const Tensor&;
  using Linear = const std::vector<bool>&;
  std::vector<Op> r;
  r.push_back(row<Fn::add>("a + b", 1,
                           JvpRule{[](X, Tangents t) { return prim::add_any(t[0], t[1]); }},
                           TransposeRule{[](X, X ct, Linear) { return Cotangents{ct, ct}; }}));
  r.push_back(row<Fn::sub>("a - b", 1, JvpRule{[](X, Tangents t) -> Tensor {
                             if (!t[1].defined()) return t[0];
                             return t[0].defined() ? prim::sub(t[0], t[1]) : prim::neg(t[1]);
                           }},
                           TransposeRule{[](X, X ct, Linear l) {
                             return Cotangents{l[0] ? ct : Tensor(),
                                               l[1] ? prim::neg(ct) : Tensor()};
                           }}));
  r.push_back(row<Fn::mul>("a * b", 1, JvpRule{[](X y, Tangents t) {
                             return prim::add_any(scaled(t[0], in(y, 1)), scaled(t[1], in(y, 0)));
                           }},
                           TransposeRule{[](X y, X ct, Linear l) {
                             return l[0] ? Cotangents{prim::mul(ct, in(y, 1)), Tensor()}
                                         : Cotangents{Tensor(), prim::mul(ct, in(y, 0))};
                           }}));
  r.push_back(row<Fn::div, Domain{-2, 2, 0.4, 2}>(
      "a / b; integers truncate toward 0, and by 0 give 0", 2, JvpRule{[](X y, Tangents t) {
        const Tensor ta = t[0].defined() ? t[0] / in(y, 1) : Tensor();
        const Tensor tb = t[1].defined() ? -(t[1] * (y / in(y, 1))) : Tensor();
        return prim::add_any(ta, tb);
      }},
      TransposeRule{
          [](X y, X ct, Linear) { return Cotangents{prim::div(ct, in(y, 1)), Tensor()}; }}));
  r.push_back(row<Fn::rem, Domain{1.1, 1.9, 2.1, 3}>(
      "a - b * trunc(a / b), with the sign of a; integers by 0 give 0", 0,
      JvpRule{[](X y, Tangents t) {
        const Tensor& a = in(y, 0);
        const Tensor& b = in(y, 1);
        const Tensor q = (a - y) / b;
        return prim::add_any(t[0], t[1].defined() ? -(t[1] * prim::map(Fn::round, {q})) : Tensor());
      }}));
  r.push_back(row<Fn::pow, Domain{0.3, 2, -2, 2}>(
      "a^b", 16, JvpRule{[](X y, Tangents t) {
        const Tensor& a = in(y, 0);
        const Tensor& b = in(y, 1);
        const Tensor ta = t[0].defined() ? t[0] * (b * prim::map(Fn::pow, {a, b - 1})) : Tensor();
        // 0^b has the limit 0 for the derivative by b, not 0 * log(0).
        const Tensor safe = prim::select(a > 0, a, prim::full(a.shape(), 1, a.dtype()));
        const Tensor tb = t[1].defined() ? t[1] * (log(safe) * y) : Tensor();
        return prim::add_any(ta, tb);
      }}));
  r.push_back(row<Fn::min>("the smaller; NaN if either is; equal operands share the derivative", 0,
                           JvpRule{extremum_tangent<Fn::lt>}));
  r.push_back(row<Fn::max>("the larger; NaN if either is; equal operands share the derivative", 0,
                           JvpRule{extremum_tangent<Fn::gt>}));
  r.push_back(row<Fn::atan2, Domain{0.3, 2, 0.3, 2}>(
      "the angle of the point (b, a)", 5, JvpRule{[](X y, Tangents t) {
        const Tensor& a = in(y, 0);
        const Tensor& b = in(y, 1);
        const Tensor d = a * a + b * b;
        return prim::add_any(scaled(t[0], b / d), scaled(t[1], -a / d));
      }}));
  constexpr std::string_view not_real = "its operands are not real numbers";
  r.push_back(not_differentiable<Fn::bit_and>("and of every bit, or logical and", not_real));
  r.push_back(not_differentiable<Fn::bit_or>("or of every bit, or logical or", not_real));
  r.push_back(not_differentiable<Fn::bit_xor>("exclusive or of every bit", not_real));
  r.push_back(not_differentiable<Fn::shl>("a << b; 0 if b is 32 or more, or negative", not_real));
  r.push_back(not_differentiable<Fn::shr>(
      "a >> b; arithmetic for i32; the sign (or 0) if b is 32 or more, or negative", not_real));
  // A comparison is piecewise constant: its tangent is zero, not an error, so that masks of
  // differentiated values can be used.
  r.push_back(flat<Fn::eq>("a == b; false with NaN"));
  r.push_back(flat<Fn::ne>("a != b; true with NaN"));
  r.push_back(flat<Fn::lt>("a < b"));
  r.push_back(flat<Fn::le>("a <= b"));
  r.push_back(flat<Fn::gt>("a > b"));
  r.push_back(flat<Fn::ge>("a >= b"));
  r.push_back(row<Fn::select>(
      "a where the condition holds, else b", 0, JvpRule{[](X y, Tangents t) {
        const Tensor zero = prim::zeros_like(y);
        return prim::select(in(y, 0), t[1].defined() ? t[1] : zero, t[2].defined() ? t[2] : zero);
      }},
      TransposeRule{[](X y, X ct, Linear l) {
        const Tensor zero = prim::zeros_like(ct);
        return Cotangents{Tensor(), l[1] ? prim::select(in(y, 0), ct, zero) : Tensor(),
                          l[2] ? prim::select(in(y, 0), zero, ct) : Tensor()};
      }}));
  return r;
}

Type infer_cast(const Op&, std::span<const Tensor> x, const Attrs& attrs, const Site&) {
  return {x[0].shape(), std::get<DTypeAttr>(attrs).dtype};
}
Type infer_bitcast(const Op&, std::span<const Tensor> x, const Attrs& attrs, const Site& site) {
  const DType to = std::get<DTypeAttr>(attrs).dtype;
  if (info(to).bytes != info(x[0].dtype()).bytes || to == DType::bool_) {
    throw DTypeError(fmt::format("bitcast: {} and {} do not have the same number of bits.",
                                 name(x[0].dtype()), name(to)),
                     site);
  }
  return {x[0].shape(), to};
}
template <Fn F>
Expr lower_cast(Pool& pool, const Node& n, std::span<const Expr> x) {
  return F == Fn::cast ? pool.cast(x[0], n.type.dtype) : pool.bitcast(x[0], n.type.dtype);
}
template <Fn F>
std::vector<Sample> cast_samples() {
  std::vector<Sample> out;
  for (DType from : any_dtype) {
    for (DType to : any_dtype) {
      if (F == Fn::bitcast && (info(from).bytes != info(to).bytes || to == DType::bool_)) continue;
      for (const Shape& s : {Shape{}, Shape{0, 2}, Shape{3, 7}}) {
        out.push_back({{{s, from}}, DTypeAttr{to}, -100, 100});
      }
    }
  }
  return out;
}

std::vector<Op> cast_rows() {
  std::vector<Op> r;
  r.push_back(
      {.name = "cast",
       .doc = "Another dtype; float to integer truncates and saturates, NaN gives 0.",
       .infer = infer_cast,
       .jvp = JvpRule{[](const Tensor& y, Tangents t) {
         return is_floating(y.dtype()) ? prim::cast(t[0], y.dtype()) : Tensor();
       }},
       .transpose = TransposeRule{[](const Tensor& y, const Tensor& ct, const std::vector<bool>&) {
         return Cotangents{prim::cast(ct, in(y, 0).dtype())};
       }},
       .vmap = vmap_elementwise,
       .lowering = LowerMap{lower_cast<Fn::cast>},
       .reference = reference<Fn::cast>,
       .samples = cast_samples<Fn::cast>,
       .ulp = 0});
  r.push_back({.name = "bitcast",
               .doc = "The same bits as another dtype of the same size.",
               .infer = infer_bitcast,
               .jvp = NotDifferentiable{"bits are not real numbers"},
               .transpose = NotLinear{},
               .vmap = vmap_elementwise,
               .lowering = LowerMap{lower_cast<Fn::bitcast>},
               .reference = reference<Fn::bitcast>,
               .samples = cast_samples<Fn::bitcast>,
               .ulp = 0});
  return r;
}

const std::vector<Op>& rows() {
  static const std::vector<Op> table = [] {
    std::vector<Op> all = unary_rows();
    for (auto part : {binary_rows(), cast_rows()}) {
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }();
  return table;
}

const Op& row_of(Fn fn) {
  static const std::map<std::string_view, const Op*> by_name = [] {
    std::map<std::string_view, const Op*> m;
    for (const Op& op : rows()) m[*op.name] = &op;
    return m;
  }();
  return *by_name.at(prim::op_name(fn));
}

}  // namespace

std::span<const Op> elementwise_ops() { return rows(); }

namespace prim {

std::string_view op_name(Fn fn) {
  if (fn == Fn::max) return "maximum";
  if (fn == Fn::min) return "minimum";
  return kernel::name(fn);
}
Tensor map(Fn fn, std::vector<Tensor> operands, const Site& site) {
  return make(row_of(fn), std::move(operands), std::monostate{}, site);
}
Tensor cast(const Tensor& x, DType dtype, const Site& site) {
  if (x.dtype() == dtype) return x;
  return make(row_of(Fn::cast), {x}, DTypeAttr{dtype}, site);
}
Tensor bitcast(const Tensor& x, DType dtype, const Site& site) {
  if (x.dtype() == dtype) return x;
  return make(row_of(Fn::bitcast), {x}, DTypeAttr{dtype}, site);
}
Tensor add_any(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? add(a, b) : a;
}

}  // namespace prim
}  // namespace tensorgrad
