#include "tensorgrad/module.h"

#include "nn/evaluate.h"
#include "tensorgrad/nn.h"
#include "tensorgrad/random.h"

namespace tensorgrad {
namespace {

using testing::evaluate;
using testing::message_of;

struct Inner {
  Param a{.shape = {2}}, b{.shape = {3, 2}, .init = Init::uniform(1)};
  int heads = 4;
  TENSORGRAD_FIELDS(heads, a, b)
};
struct Outer {
  Inner first;
  std::vector<Inner> layers{2};
  std::array<Param, 2> pair{Param{.shape = {1}}, Param{.shape = {}}};
  std::optional<Param> present = Param{.shape = {5}}, absent;
  std::vector<double> numbers{1, 2};
  std::vector<std::optional<Inner>> nested{std::nullopt, Inner{}};
  TENSORGRAD_FIELDS(first, layers, pair, present, absent, numbers, nested)
};

TEST(Module, ParametersAreNamedByTheirPath) {
  Outer model;
  std::vector<std::string> names;
  visit_params(model, [&](const std::string& name, Param&) { names.push_back(name); });
  EXPECT_EQ(names, (std::vector<std::string>{"first.a", "first.b", "layers.0.a", "layers.0.b",
                                             "layers.1.a", "layers.1.b", "pair.0", "pair.1",
                                             "present", "nested.1.a", "nested.1.b"}));
  const Outer& fixed = model;
  std::string first;
  visit_params(
      fixed, [&](const std::string& name, const Param&) { first = first.empty() ? name : first; },
      "model");
  EXPECT_EQ(first, "model.first.a");
  EXPECT_EQ(parameter_count(fixed), 4 * 8 + 1 + 1 + 5);
}

struct Many {
  Param a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t;
  TENSORGRAD_FIELDS(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t)
};

TEST(Module, ManyFields) {
  Many model;
  std::string names;
  visit_params(model, [&](const std::string& name, Param&) { names += name; });
  EXPECT_EQ(names, "abcdefghijklmnopqrst");
}

TEST(Module, InitialValuesDependOnSeedAndNameAlone) {
  Outer model;
  initialise(model, 7);
  const Tensor expected =
      random::uniform(random::fold_in(random::key(7), hash32("layers.1.b")), {3, 2}, -1, 1);
  EXPECT_EQ(evaluate(model.layers[1].b), evaluate(expected));
  EXPECT_NE(evaluate(model.layers[1].b), evaluate(model.layers[0].b));
  EXPECT_EQ(model.layers[1].b.name, "layers.1.b");

  Outer other;
  initialise(other, 8);
  EXPECT_NE(evaluate(model.first.b), evaluate(other.first.b));
  EXPECT_EQ(evaluate(model.first.b.initial_value(8, "first.b")), evaluate(other.first.b));
}

TEST(Module, AnUnboundParameterIsItsInitialValueUnderNoName) {
  const Param p{.shape = {4}, .init = Init::normal(2)};
  const Tensor expected = random::normal(random::fold_in(random::key(0), hash32("")), {4}) * 2;
  EXPECT_EQ(evaluate(p), evaluate(expected));
  EXPECT_EQ(evaluate(p + p), evaluate(expected * 2));
}

TEST(Module, TheHashIsFnv1a) {
  EXPECT_EQ(hash32(""), 0x811c9dc5U);
  EXPECT_EQ(hash32("a"), 0xe40c292cU);
  EXPECT_EQ(hash32("foobar"), 0xbf9cf968U);
}

TEST(Module, CopiesAreIndependent) {
  Inner a;
  Inner b = a;
  b.a.bind(array({1, 2}));
  EXPECT_FALSE(a.a.bound.defined());
  EXPECT_EQ(evaluate(b.a), (std::vector<double>{1, 2}));
}

TEST(Module, BindChecksTheTensor) {
  Inner m;
  EXPECT_EQ(message_of<ShapeError>([&] { m.b.bind(array({1}), "l1.b"); }),
            "bind: parameter `l1.b` has shape [3, 2], but the tensor has [1].");
  EXPECT_EQ(message_of<DTypeError>([&] { m.a.bind(arange(2)); }),
            "bind: a parameter is f32, but the tensor is i32.");
  EXPECT_FALSE(m.b.bound.defined());
  EXPECT_EQ(m.b.name, "");
}

TEST(Init, Makes) {
  const Tensor key = random::key(3);
  EXPECT_EQ(evaluate(Init::zeros().make({2}, key)), (std::vector<double>{0, 0}));
  EXPECT_EQ(evaluate(Init::ones().make({2}, key)), (std::vector<double>{1, 1}));
  EXPECT_EQ(evaluate(Init::constant(-0.5).make({}, key)), (std::vector<double>{-0.5}));
  EXPECT_EQ(evaluate(Init::literal({1, 2, 3, 4}).make({2, 2}, key)),
            (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(evaluate(Init::uniform(0.25).make({9}, key)),
            evaluate(random::uniform(key, {9}, -0.25, 0.25)));
  EXPECT_TRUE(evaluate(Init::normal(1).make({0, 3}, key)).empty());
}

TEST(Init, ScalesByFans) {
  EXPECT_EQ(Init::kaiming_uniform(6).kind, Init::Kind::uniform);
  EXPECT_NEAR(Init::kaiming_uniform(6).value, 1, 1e-12);
  EXPECT_NEAR(Init::kaiming_uniform(12, 1).value, 0.5, 1e-12);
  EXPECT_EQ(Init::kaiming_normal(8).kind, Init::Kind::normal);
  EXPECT_NEAR(Init::kaiming_normal(8).value, 0.5, 1e-12);
  EXPECT_NEAR(Init::xavier_uniform(4, 2).value, 1, 1e-12);
  EXPECT_NEAR(Init::xavier_normal(5, 3, 2).value, 1, 1e-12);
  EXPECT_EQ(Init::kaiming_normal(0).value, 0);
}

TEST(Init, Equality) {
  EXPECT_EQ(Init::literal({1, 2}), Init::literal({1, 2}));
  EXPECT_FALSE(Init::literal({1, 2}) == Init::literal({1, 3}));
  EXPECT_FALSE(Init::normal(1) == Init::uniform(1));
  EXPECT_FALSE(Init::zeros() == Init::ones());
}

TEST(Init, Errors) {
  EXPECT_EQ(message_of<ValueError>([] { Init::normal(-1); }),
            "normal: the standard deviation is -1, not a finite number of at least 0.");
  EXPECT_EQ(message_of<ValueError>([] { Init::kaiming_normal(-2); }),
            "kaiming_normal: the fan is -2.");
  EXPECT_EQ(message_of<ShapeError>([] { Init::literal({1, 2}).make({3}, random::key(0)); }),
            "array: 2 values do not fill shape [3] of 3 elements.");
}

}  // namespace
}  // namespace tensorgrad
