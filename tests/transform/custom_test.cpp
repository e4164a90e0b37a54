// custom_vjp and checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/graph.h"
#include "nn/evaluate.h"
#include "ops/registry.h"
#include "tensorgrad/nn.h"
#include "tensorgrad/transforms.h"
#include "transform/passes.h"

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

// log(1 + e^x) with its derivative written out.
auto safe_softplus() {
  return custom_vjp([](const Tensor& x) { return std::pair(log1p(exp(x)), x); },
                    [](const Tensor& x, const Tensor& ct) { return ct * sigmoid(x); });
}

TEST(CustomVjp, HasTheDerivativeGiven) {
  const auto doubled = custom_vjp([](const Tensor& x) { return std::pair(x * x, std::tuple<>()); },
                                  [](std::tuple<>, const Tensor& ct) { return ct * 100; });
  expect_near(evaluate(doubled(x3())), {0.25, 1.5625, 4});
  const auto loss = [&](const Tensor& x) { return sum(doubled(x) * 2); };
  EXPECT_EQ(evaluate(grad(loss)(x3())), (Doubles{200, 200, 200}));
  // Through what comes before it.
  const auto chained = [&](const Tensor& x) { return sum(doubled(x * 3)); };
  EXPECT_EQ(evaluate(grad(chained)(x3())), (Doubles{300, 300, 300}));
}

TEST(CustomVjp, NeedNotBeLinearAndNeverDifferentiatesTheForward) {
  const auto clipped = custom_vjp([](const Tensor& x) { return std::pair(x, 0); },
                                  [](int, const Tensor& ct) { return clamp(ct, -1, 1); });
  const auto loss = [&](const Tensor& x) { return sum(clipped(x) * literal({5, 0.5, -3}, {3})); };
  EXPECT_EQ(evaluate(grad(loss)(x3())), (Doubles{1, 0.5, -1}));
  EXPECT_THAT(message_of<GraphError>([&] { jvp(clipped, x3(), x3()); }),
              HasSubstr("backward is not linear in the cotangent"));
  // Rounding has no derivative of its own.
  const auto rounded = custom_vjp(
      [](const Tensor& x) { return std::pair(cast(cast(x, DType::i32), DType::f32), 0); },
      [](int, const Tensor& ct) { return ct; });
  EXPECT_EQ(evaluate(grad([&](const Tensor& x) { return sum(rounded(x)); })(x3())),
            (Doubles{1, 1, 1}));
}

TEST(CustomVjp, ComposesWithEveryTransform) {
  const auto f = safe_softplus();
  const auto plain = [](const Tensor& x) { return softplus(x); };
  const auto total = [](auto g) { return [g](const Tensor& x) { return sum(g(x) * x); }; };
  expect_near(evaluate(grad(total(f))(x3())), evaluate(grad(total(plain))(x3())));
  expect_near(evaluate(jvp(f, x3(), x3()).second), evaluate(jvp(plain, x3(), x3()).second));
  expect_near(evaluate(hessian(total(f))(x3())), evaluate(hessian(total(plain))(x3())));
  expect_near(evaluate(jacrev(jacrev(f))(x3())), evaluate(jacrev(jacrev(plain))(x3())));
  expect_near(evaluate(jacfwd(f)(x3())), evaluate(jacfwd(plain)(x3())));
  expect_near(evaluate(vmap(grad(total(f)))(x3())), evaluate(vmap(grad(total(plain)))(x3())));
  const auto batched = [&](const Tensor& x) { return sum(vmap(f)(x) * x); };
  expect_near(evaluate(grad(batched)(x3())), evaluate(grad(total(plain))(x3())));
  expect_near(evaluate(hessian(batched)(x3())), evaluate(hessian(total(plain))(x3())));
}

struct Two {
  Tensor a, b;
  TENSORGRAD_FIELDS(a, b)
};

TEST(CustomVjp, OfSeveralArgumentsAndResults) {
  const auto f = custom_vjp(
      [](const Two& t, const Tensor& w, const Tensor& index) {
        return std::pair(Two{t.a * w, sum(t.b)}, std::tuple(t, w, index));
      },
      [](const std::tuple<Two, Tensor, Tensor>& kept, const Two& ct) {
        const auto& [t, w, index] = kept;
        return std::tuple(Two{ct.a * w, ct.b * cast(index, DType::f32)}, sum(ct.a * t.a), Tensor());
      });
  const auto loss = [&](const Two& t, const Tensor& w) {
    const Two y = f(t, w, arange(2) + 5);
    return sum(y.a * literal({1, 2, 3}, {3})) + y.b * 10;
  };
  const auto [t, w] = grad<0, 1>(loss)(Two{x3(), literal({7, 8}, {2})}, literal({4}, {}));
  expect_near(evaluate(t.a), {4, 8, 12});
  expect_near(evaluate(t.b), {50, 60});
  expect_near(evaluate(w), {0.5 - 2.5 + 6});
}

TEST(CustomVjp, ChecksWhatBackwardReturns) {
  const auto wrong = custom_vjp([](const Tensor& x) { return std::pair(sum(x), 0); },
                                [](int, const Tensor& ct) { return ct; });
  EXPECT_EQ(message_of<ShapeError>([&] { grad(wrong)(x3()); }),
            "custom_vjp: backward returns f32[] for tensor 0 of the arguments, which is f32[3].");
  const auto few =
      custom_vjp([](const Tensor& x, const Tensor& y) { return std::pair(sum(x * y), 0); },
                 [](int, const Tensor&) { return zeros({3}); });
  EXPECT_EQ(message_of<GraphError>([&] { grad(few)(x3(), x3()); }),
            "custom_vjp: backward returns 1 tensors for arguments of 2.");
}

int count(const std::vector<Tensor>& results, std::string_view op) {
  Graph graph;
  for (const Tensor& t : results) graph.outputs.push_back({"y", t});
  graph = bind_context(graph, false, {});
  int n = 0;
  for (const Node* node : graph.order()) n += *node->op->name == op ? 1 : 0;
  return n;
}

Tensor block(const Tensor& x, const Tensor& w) { return tanh(matmul(tanh(matmul(x, w)), w)); }

TEST(Checkpoint, ComputesAgain) {
  const Tensor x = literal(testing::scattered(6), {2, 3});
  const Tensor w = literal(testing::scattered(9, 1, 3), {3, 3});
  const auto plain = [](const Tensor& a, const Tensor& b) { return sum(block(block(a, b), b)); };
  const auto saved = [](const Tensor& a, const Tensor& b) {
    // Parameters may be captured or passed.
    const Tensor h = checkpoint([&](const Tensor& t) { return block(t, b); })(a);
    return sum(checkpoint(block)(h, b));
  };
  const auto [px, pw] = grad<0, 1>(plain)(x, w);
  const auto [sx, sw] = grad<0, 1>(saved)(x, w);
  expect_near(evaluate(sx), evaluate(px), 1e-12);
  expect_near(evaluate(sw), evaluate(pw), 1e-12);
  EXPECT_EQ(count({plain(x, w), pw}, "tanh"), 4);
  EXPECT_EQ(count({saved(x, w), sw}, "tanh"), 8);
  EXPECT_GT(count({sw}, "barrier"), 0);
  EXPECT_EQ(count({saved(x, w)}, "tanh"), 4) << "without a derivative nothing is computed twice";
}

TEST(Checkpoint, ComposesWithEveryTransform) {
  const Tensor w = literal(testing::scattered(9, 1, 3), {3, 3});
  const auto plain = [&](const Tensor& v) { return sum(block(reshape(v, {1, 3}), w) * v); };
  const auto saved = [&](const Tensor& v) {
    return sum(checkpoint([&](const Tensor& t) { return block(t, w); })(reshape(v, {1, 3})) * v);
  };
  expect_near(evaluate(hessian(saved)(x3())), evaluate(hessian(plain)(x3())), 1e-12);
  expect_near(evaluate(jacrev(grad(saved))(x3())), evaluate(hessian(plain)(x3())), 1e-12);
  const Tensor batch = literal(testing::scattered(12), {4, 3});
  expect_near(evaluate(vmap(grad(saved))(batch)), evaluate(vmap(grad(plain))(batch)), 1e-12);
  expect_near(evaluate(grad([&](const Tensor& b) { return sum(vmap(saved)(b)); })(batch)),
              evaluate(vmap(grad(plain))(batch)), 1e-12);
  // One inside of another.
  const auto twice = checkpoint(saved);
  expect_near(evaluate(grad(twice)(x3())), evaluate(grad(plain)(x3())), 1e-12);
}

TEST(Checkpoint, OfStructsAndIntegers) {
  const auto f = [](const Two& t, const Tensor& index) {
    return Two{gather(t.a, index) * t.b, t.b * t.b};
  };
  const auto loss = [&](auto g) {
    return [g](const Two& t) {
      const Two y = g(t, arange(2));
      return sum(y.a) * 2 + sum(y.b);
    };
  };
  const Two at{x3(), literal({3, 4}, {2})};
  const Two expected = grad(loss(f))(at);
  const Two actual = grad(loss(checkpoint(f)))(at);
  expect_near(evaluate(actual.a), evaluate(expected.a));
  expect_near(evaluate(actual.b), evaluate(expected.b));
}

TEST(Checkpoint, DropoutDrawsTheSameMask) {
  const auto f = [](const Tensor& x) { return dropout(x * x, 0.5); };
  const Tensor x = literal(testing::scattered(64), {64});
  const auto saved = checkpoint(f);
  const auto [y, slope] = value_and_grad([&](const Tensor& t) { return sum(saved(t)); })(x);
  const Tensor same = saved(x);
  const Doubles values = evaluate(same);
  const Doubles g = evaluate(slope);
  int kept = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    EXPECT_EQ(g[i] == 0, values[i] == 0);
    kept += g[i] != 0 ? 1 : 0;
  }
  EXPECT_GT(kept, 0);
  EXPECT_LT(kept, 64);
}

}  // namespace
}  // namespace tensorgrad
