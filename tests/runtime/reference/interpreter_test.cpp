#include "runtime/reference/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/primitives.h"
#include "tensorgrad/error.h"

namespace tensorgrad {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

const Type pair_type{{2}, DType::f32};

Tensor input(const std::string& name) { return prim::input(InputRole::input, name, pair_type); }

TEST(Interpreter, BindsLeavesAndReturnsOutputsInOrder) {
  const Tensor x = input("x");
  const Tensor twice = prim::add(x, x);
  const Tensor outputs[] = {prim::mul(twice, x), twice, x, twice};
  int calls = 0;
  const std::vector<RefArray> out = interpret(outputs, [&](const Node& leaf) {
    ++calls;
    EXPECT_EQ(leaf.attr<InputAttr>().name, "x");
    return RefArray{pair_type, {3, -4}};
  });
  ASSERT_EQ(out.size(), 4U);
  EXPECT_THAT(out[0].data, ElementsAre(18, 32));
  EXPECT_THAT(out[1].data, ElementsAre(6, -8));
  EXPECT_THAT(out[2].data, ElementsAre(3, -4));
  EXPECT_THAT(out[3].data, ElementsAre(6, -8));
  EXPECT_EQ(calls, 1);
}

TEST(Interpreter, RoundsResultsOnlyWhereAsked) {
  const Tensor third = prim::div(prim::constant(1, DType::f32), prim::constant(3, DType::f32));
  EXPECT_EQ(interpret(third).data[0], 1.0 / 3.0);
  EXPECT_EQ(interpret(third, nullptr, RefRounding::results).data[0],
            static_cast<double>(1.0F / 3.0F));
}

TEST(Interpreter, ConstantsEnterAsTheirDtypeHoldsThem) {
  EXPECT_EQ(interpret(prim::constant(0.1, DType::f32)).data[0], static_cast<double>(0.1F));
}

TEST(Interpreter, LongChainsNeedNoStack) {
  Tensor x = prim::constant(0, DType::i32);
  const Tensor one = prim::constant(1, DType::i32);
  for (int i = 0; i < 100000; ++i) x = prim::add(x, one);
  EXPECT_EQ(interpret(x).data[0], 100000);
}

TEST(Interpreter, UnboundAndWronglyBoundLeavesAreErrors) {
  const Tensor x = input("x");
  const auto message = [&](const BindLeaf& bind) -> std::string {
    try {
      interpret(x, bind);
    } catch (const GraphError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(message(nullptr), StartsWith("input `x` is not bound to a value.\n"));
  EXPECT_THAT(message([](const Node&) { return RefArray{{{3}, DType::f32}, {1, 2, 3}}; }),
              StartsWith("input `x` of type f32[2] is bound to 3 elements of type f32[3].\n"));
}

}  // namespace
}  // namespace tensorgrad
