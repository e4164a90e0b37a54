// Derivatives of functions: arguments, results, structs, higher order, derivatives that are lost.
#include "tensorgrad/transforms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nn/evaluate.h"
#include "tensorgrad/nn.h"

namespace tensorgrad {
namespace {

using testing::Doubles;
using testing::evaluate;
using testing::expect_near;
using ::testing::HasSubstr;
using testing::message_of;

Tensor literal(const Doubles& values, const Shape& shape) {
  return testing::literal(values, shape);
}

const Doubles points{0.5, -1.25, 2};
Tensor x3() { return literal(points, {3}); }

template <class F>
Doubles mapped(F f) {
  Doubles out;
  for (double v : points) out.push_back(f(v));
  return out;
}

struct Pair {
  Tensor a, b;
  TENSORGRAD_FIELDS(a, b)
};
struct Nested {
  Pair pair;
  std::vector<Tensor> more;
  std::optional<Tensor> none;
  int number = 3;
  TENSORGRAD_FIELDS(pair, more, none, number)
};

TEST(Grad, OfOneArgument) {
  const auto f = [](const Tensor& x) { return sum(sin(x) * x); };
  expect_near(evaluate(grad(f)(x3())),
              mapped([](double v) { return std::sin(v) + v * std::cos(v); }));
  const auto [value, slope] = value_and_grad(f)(x3());
  EXPECT_EQ(value.shape(), Shape{});
  EXPECT_EQ(evaluate(slope), evaluate(grad(f)(x3())));
}

TEST(Grad, ByChosenArguments) {
  const auto f = [](const Tensor& x, double factor, const Tensor& y) {
    return sum(x * x * y) * factor;
  };
  const Tensor y = literal({1, 2, 3}, {3});
  expect_near(evaluate(grad(f)(x3(), 2.0, y)), {2 * 2 * 0.5, 2 * 2 * -1.25 * 2, 2 * 2 * 2 * 3});
  expect_near(evaluate(grad<2>(f)(x3(), 2.0, y)), mapped([](double v) { return 2 * v * v; }));
  const auto [by_y, by_x] = grad<2, 0>(f)(x3(), 2.0, y);
  EXPECT_EQ(evaluate(by_y), evaluate(grad<2>(f)(x3(), 2.0, y)));
  EXPECT_EQ(evaluate(by_x), evaluate(grad<0>(f)(x3(), 2.0, y)));
  const auto [value, both] = value_and_grad<0, 2>(f)(x3(), 2.0, y);
  static_assert(std::is_same_v<decltype(both), const std::tuple<Tensor, Tensor>>);
  expect_near(evaluate(value), {2 * (0.25 + 1.5625 * 2 + 4 * 3)});
}

TEST(Grad, HandsAuxOn) {
  const auto f = [](const Tensor& x) { return std::pair(sum(x * x), Pair{x * 10, x + 1}); };
  const auto [gradient, aux] = grad(f, has_aux)(x3());
  expect_near(evaluate(gradient), mapped([](double v) { return 2 * v; }));
  expect_near(evaluate(aux.a), mapped([](double v) { return 10 * v; }));
  const auto [made, same] = value_and_grad(f, has_aux)(x3());
  expect_near(evaluate(made.first), {0.25 + 1.5625 + 4});
  expect_near(evaluate(made.second.b), mapped([](double v) { return v + 1; }));
  EXPECT_EQ(evaluate(same), evaluate(gradient));
}

TEST(Grad, OfStructs) {
  const Nested at{{x3(), literal({2}, {})}, {x3(), x3() * 2}, {}, 7};
  const auto f = [](const Nested& n) {
    EXPECT_EQ(n.number, 7);
    EXPECT_FALSE(n.none);
    return sum(n.pair.a * n.pair.b + n.more[0] * n.more[1]);
  };
  const Nested g = grad(f)(at);
  EXPECT_EQ(g.number, 7);
  expect_near(evaluate(g.pair.a), {2, 2, 2});
  expect_near(evaluate(g.pair.b), {0.5 - 1.25 + 2});
  expect_near(evaluate(g.more[0]), mapped([](double v) { return 2 * v; }));
  expect_near(evaluate(g.more[1]), points);
}

TEST(Grad, OfModels) {
  nn::Linear layer(3, 2);
  initialise(layer, 5);
  const auto loss = [](const nn::Linear& l, const Tensor& x) { return sum(l(x)); };
  const nn::Linear g = grad(loss)(layer, x3());
  EXPECT_EQ(g.W.shape, (Shape{3, 2}));
  expect_near(evaluate(g.W.tensor()), {0.5, 0.5, -1.25, -1.25, 2, 2});
  expect_near(evaluate(g.b->tensor()), {1, 1});
  // A parameter as an argument counts as its tensor.
  const auto by_weight = grad([](const Tensor& w) { return sum(w * w); });
  static_assert(std::is_same_v<decltype(by_weight(layer.W)), Tensor>);
  EXPECT_EQ(by_weight(layer.W).shape(), (Shape{3, 2}));
}

TEST(Grad, OfGrad) {
  const auto cube = [](const Tensor& x) { return x * x * x; };
  const Tensor x = literal({1.5}, {});
  expect_near(evaluate(grad(grad(cube))(x)), {6 * 1.5});
  expect_near(evaluate(grad(grad(grad(cube)))(x)), {6});
  // A gradient inside of a function that is differentiated by something else.
  const auto outer = [](const Tensor& y) {
    const Tensor inner = grad([&](const Tensor& z) { return z * z * y; })(y);
    return inner;  // 2 y^2
  };
  expect_near(evaluate(grad(outer)(x)), {4 * 1.5});
}

TEST(Jvp, PushesTangents) {
  const auto f = [](const Tensor& x) { return x * x; };
  const auto [y, t] = jvp(f, x3(), literal({1, 10, 100}, {3}));
  expect_near(evaluate(y), mapped([](double v) { return v * v; }));
  expect_near(evaluate(t), {1, -25, 400});
}

TEST(Jvp, OfSeveralArguments) {
  const auto f = [](const Tensor& x, const Tensor& y) { return Pair{x * y, x + y}; };
  const Tensor y = literal({3, 4, 5}, {3});
  const Tensor one = full({3}, 1);
  const auto [v, t] = jvp(f, std::tuple(x3(), y), std::tuple(one, one * 2));
  expect_near(evaluate(v.b), {3.5, 2.75, 7});
  expect_near(evaluate(t.a), {3 + 2 * 0.5, 4 - 2 * 1.25, 5 + 2 * 2});
  const auto [v1, t1] = jvp<1>(f, std::tuple(x3(), y), one);
  expect_near(evaluate(t1.a), points);
  const auto with = [&](const Tensor& x) { return std::pair(x * 2, x); };
  const auto [v2, t2, aux] = jvp(with, has_aux, x3(), one);
  expect_near(evaluate(t2), {2, 2, 2});
  expect_near(evaluate(aux), points);
}

TEST(Vjp, PullsCotangents) {
  const auto f = [](const Tensor& x, const Tensor& y) { return Pair{x * y, sum(x)}; };
  const Tensor y = literal({3, 4, 5}, {3});
  const auto [v, pull] = vjp(f, x3(), y);
  const auto [cx, cy] = pull(Pair{full({3}, 1), full({}, 10)});
  expect_near(evaluate(v.b), {1.25});
  expect_near(evaluate(cx), {13, 14, 15});
  expect_near(evaluate(cy), points);
  const auto [v1, by_y] = vjp<1>(f, x3(), y);
  expect_near(evaluate(by_y(Pair{full({3}, 2), full({}, 10)})), {1, -2.5, 4});
  const auto [v2, pull2, aux] =
      vjp([](const Tensor& x) { return std::pair(x * x, x + 1); }, has_aux, x3());
  expect_near(evaluate(pull2(full({3}, 1))), {1, -2.5, 4});
  expect_near(evaluate(aux), {1.5, -0.25, 3});
}

TEST(Jacobian, BothWaysAreEqual) {
  const auto f = [](const Tensor& x) { return stack({x * x, sin(x) * sum(x)}); };
  const Tensor forward = jacfwd(f)(x3());
  const Tensor reverse = jacrev(f)(x3());
  EXPECT_EQ(forward.shape(), (Shape{2, 3, 3}));
  expect_near(evaluate(forward), evaluate(reverse));
  Doubles expected;
  const double total = 1.25;
  for (int row = 0; row < 2; ++row) {
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t j = 0; j < 3; ++j) {
        const double diagonal = row == 0 ? 2 * points[i] : std::cos(points[i]) * total;
        expected.push_back((i == j ? diagonal : 0) + (row == 1 ? std::sin(points[i]) : 0));
      }
    }
  }
  expect_near(evaluate(forward), expected);
}

TEST(Jacobian, OfStructs) {
  const auto f = [](const Pair& p) { return p.a * p.b; };
  const Pair at{x3(), literal({2}, {})};
  const Pair j = jacrev(f)(at);
  EXPECT_EQ(j.a.shape(), (Shape{3, 3}));
  expect_near(evaluate(j.a), {2, 0, 0, 0, 2, 0, 0, 0, 2});
  expect_near(evaluate(j.b), points);
  const Pair k = jacfwd(f)(at);
  expect_near(evaluate(k.a), evaluate(j.a));
  // A struct by a tensor, and a struct by a struct.
  const auto g = [](const Tensor& x) { return Pair{x * 3, sum(x)}; };
  const Pair column = jacfwd(g)(x3());
  expect_near(evaluate(column.b), {1, 1, 1});
  const std::vector<Pair> rows = jacrev([](const Pair& p) { return Pair{p.a * 2, p.b * p.b}; })(at);
  ASSERT_EQ(rows.size(), 2U);
  expect_near(evaluate(rows[1].b), {4});
  expect_near(evaluate(rows[1].a), {0, 0, 0});
  // By the second argument, with more beside.
  const auto [by_second, aux] =
      jacrev<1>([](const Tensor& a, const Tensor& b) { return std::pair(a * b, sum(a)); }, has_aux)(
          x3(), x3());
  expect_near(evaluate(by_second), {0.5, 0, 0, 0, -1.25, 0, 0, 0, 2});
  expect_near(evaluate(aux), {1.25});
}

TEST(Hessian, OfTensorsAndStructs) {
  const auto f = [](const Tensor& x) { return sum(x * x * x) + prod(x); };
  const Tensor h = hessian(f)(x3());
  expect_near(evaluate(h), {6 * 0.5, 2, -1.25, 2, 6 * -1.25, 0.5, -1.25, 0.5, 12});
  const auto g = [](const Pair& p) { return sum(p.a * p.a * p.b); };
  const std::vector<Pair> blocks = hessian(g)(Pair{x3(), literal({2}, {})});
  ASSERT_EQ(blocks.size(), 2U);
  expect_near(evaluate(blocks[0].a), {4, 0, 0, 0, 4, 0, 0, 0, 4});
  expect_near(evaluate(blocks[0].b), {1, -2.5, 4});
  expect_near(evaluate(blocks[1].a), {1, -2.5, 4});
  expect_near(evaluate(blocks[1].b), {0});
  // Second derivatives that are zero everywhere they exist.
  for (const Tensor& zero : {hessian([](const Tensor& x) { return sum(relu(x)); })(x3()),
                             hessian([](const Tensor& x) { return max(x); })(x3()),
                             hessian([](const Tensor& x) { return sum(floor(x)); })(x3())}) {
    EXPECT_EQ(evaluate(zero), Doubles(9, 0.0));
  }
}

TEST(Vmap, AlongAxes) {
  const auto outer = [](const Tensor& a, const Tensor& b) { return a * sum(b); };
  const Tensor m = literal({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor v = literal({10, 20}, {2});
  // Rows of m with v as a whole; columns of m with v.
  expect_near(evaluate(vmap(outer, {.in_axes = {0, unmapped}})(m, v)), {30, 60, 90, 120, 150, 180});
  const Tensor columns = vmap(outer, {.in_axes = {-1, unmapped}})(m, v);
  EXPECT_EQ(columns.shape(), (Shape{3, 2}));
  expect_near(evaluate(columns), {30, 120, 60, 150, 90, 180});
  const Tensor back = vmap(outer, {.in_axes = {1, unmapped}, .out_axes = {1}})(m, v);
  expect_near(evaluate(back), {30, 60, 90, 120, 150, 180});
  EXPECT_EQ(vmap(outer, 0)(m, m).shape(), (Shape{2, 3}));
  // A number is passed along.
  const auto scaled = [](const Tensor& a, double by) { return a * by; };
  expect_near(evaluate(vmap(scaled)(v, 3.0)), {30, 60});
}

TEST(Vmap, OfStructs) {
  const auto f = [](const Pair& p, const Tensor& w) {
    return Pair{p.a * w, sum(p.b) + 0 * sum(w)};
  };
  const Pair p{literal({1, 2, 3, 4}, {2, 2}), literal({1, 2, 3, 4, 5, 6}, {2, 3})};
  const Pair y = vmap(f, {.in_axes = {0, unmapped}, .out_axes = {1, 0}})(p, literal({10, 20}, {2}));
  EXPECT_EQ(y.a.shape(), (Shape{2, 2}));
  expect_near(evaluate(y.a), {10, 30, 40, 80});
  expect_near(evaluate(y.b), {6, 15});
  // A result that does not depend on the batch.
  const auto g = [](const Tensor& a, const Tensor& w) { return std::tuple(a + w, w * 2); };
  const auto [sums, same] = vmap(g, {.in_axes = {0, unmapped}, .out_axes = {0, unmapped}})(
      literal({1, 2}, {2}), literal({5}, {}));
  expect_near(evaluate(sums), {6, 7});
  EXPECT_EQ(same.shape(), Shape{});
  expect_near(evaluate(std::get<1>(
                  vmap(g, {.in_axes = {0, unmapped}})(literal({1, 2}, {2}), literal({5}, {})))),
              {10, 10});
}

TEST(Vmap, ComposesWithDerivatives) {
  const auto f = [](const Tensor& x, const Tensor& w) { return sum(tanh(x * w)); };
  const Tensor xs = literal(testing::scattered(6), {2, 3});
  const Tensor w = literal({0.5, -1, 2}, {3});
  const Tensor per_example = vmap(grad<1>(f), {.in_axes = {0, unmapped}})(xs, w);
  Doubles loop;
  for (std::int64_t i = 0; i < 2; ++i) {
    const Doubles one = evaluate(grad<1>(f)(take(xs, 0, i), w));
    loop.insert(loop.end(), one.begin(), one.end());
  }
  expect_near(evaluate(per_example), loop);
  // The gradient of a batched function is the sum over the batch.
  const auto total = [&](const Tensor& v) {
    return sum(vmap(f, {.in_axes = {0, unmapped}})(xs, v));
  };
  expect_near(evaluate(grad(total)(w)), evaluate(sum(per_example, 0)));
  // A batch of batches.
  const auto rows =
      vmap([](const Tensor& r) { return vmap([](const Tensor& e) { return e * e; })(r); });
  expect_near(evaluate(rows(xs)), evaluate(xs * xs));
}

TEST(Vmap, Errors) {
  const auto f = [](const Tensor& a, const Tensor& b) { return a + b; };
  EXPECT_EQ(message_of<ShapeError>([&] { vmap(f)(zeros({2}), zeros({3})); }),
            "vmap: arguments have 2 and 3 elements along the mapped axis.");
  EXPECT_EQ(message_of<ShapeError>([&] { vmap(f, 1)(zeros({2}), zeros({2})); }),
            "vmap: axis 1 is out of range for shape [2].");
  EXPECT_EQ(
      message_of<GraphError>([&] { vmap(f, {.in_axes = {0, 0, 0}})(zeros({2}), zeros({2})); }),
      "vmap: in_axes has 3 entries, but there are 2 arguments.");
  EXPECT_EQ(
      message_of<GraphError>([&] { vmap(f, {.in_axes = {unmapped}})(zeros({2}), zeros({2})); }),
      "vmap: no argument is mapped.");
  EXPECT_EQ(
      message_of<GraphError>([&] { vmap(f, {.out_axes = {unmapped}})(zeros({2}), zeros({2})); }),
      "vmap: result 0 is unmapped in out_axes, but depends on a mapped argument.");
  EXPECT_EQ(message_of<GraphError>([&] { vmap(f, {.out_axes = {0, 1}})(zeros({2}), zeros({2})); }),
            "vmap: out_axes has 2 entries, but there are 1 results.");
}

TEST(StopGradient, OfTensorsAndTrees) {
  const auto f = [](const Tensor& x) { return sum(x * stop_gradient(x * x)); };
  expect_near(evaluate(grad(f)(x3())), mapped([](double v) { return v * v; }));
  const auto g = [](const Pair& p) {
    const Pair q = stop_gradient(p);
    return sum(p.a * q.b + q.a * p.b);
  };
  const Pair s = grad(g)(Pair{x3(), literal({2}, {})});
  expect_near(evaluate(s.a), {2, 2, 2});
  expect_near(evaluate(s.b), {1.25});
  // What is behind it needs no derivative.
  const auto straight_through = [](const Tensor& x) {
    return sum(x + stop_gradient(cast(cast(x, DType::i32), DType::f32) - x));
  };
  expect_near(evaluate(grad(straight_through)(x3())), {1, 1, 1});
}

TEST(LostDerivatives, AreErrorsThatNameTheOp) {
  const auto accuracy = [](const Tensor& x) { return mean(cast(argmax(x, -1) == 1, DType::f32)); };
  EXPECT_EQ(message_of<GraphError>([&] { grad(accuracy)(zeros({2, 3})); }),
            "argmax: has no derivative: its result is i32. Put stop_gradient before it if none is "
            "wanted.");
  const auto mask = [](const Tensor& x) { return sum(cast(x > 0, DType::f32)); };
  EXPECT_THAT(message_of<GraphError>([&] { grad(mask)(x3()); }),
              HasSubstr("gt: has no derivative: its result is bool."));
  const auto rounded = [](const Tensor& x) { return sum(cast(cast(x, DType::i32), DType::f32)); };
  EXPECT_THAT(message_of<GraphError>([&] { jvp(rounded, x3(), x3()); }),
              HasSubstr("cast: has no derivative: its result is i32."));
  // Where a derivative exists beside it, or zero is the convention, there is none.
  EXPECT_NO_THROW(grad([&](const Tensor& x) { return sum(x) + mask(x); })(x3()));
  EXPECT_EQ(evaluate(grad([](const Tensor& x) { return sum(sign(x) + floor(x)); })(x3())),
            (Doubles{0, 0, 0}));
  EXPECT_EQ(evaluate(grad([](const Tensor& x) { return sum(where(x > 0, 1, 2)); })(x3())),
            (Doubles{0, 0, 0}));
  const auto by_index = [](const Tensor& x) { return sum(gather(full({3}, 1), argmax(x))); };
  EXPECT_EQ(evaluate(grad(by_index)(x3())), (Doubles{0, 0, 0}));
}

TEST(LostDerivatives, IntegersHaveNone) {
  EXPECT_THAT(message_of<DTypeError>([] {
                grad([](const Tensor& x) { return sum(cast(x, DType::f32)); })(arange(3));
              }),
              HasSubstr("derivatives are by f32 and f16 tensors, not by i32"));
  EXPECT_EQ(message_of<ShapeError>([] { grad([](const Tensor& x) { return x * x; })(x3()); }),
            "grad: the function returns f32[3], not a scalar of f32 or f16; reduce it, for example "
            "with mean.");
}

}  // namespace
}  // namespace tensorgrad
