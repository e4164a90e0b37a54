// What random graphs found, made small.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fuzz/compare.h"
#include "tensorgrad/ops.h"

namespace tensorgrad::fuzz {
namespace {

/// Compares on every usable device, with all passes and without `off`.
void expect_agreement(const Program& program, const std::vector<std::string>& off = {}) {
  for (const Backend& backend : backends()) {
    if (!backend.unavailable().empty()) continue;
    const auto device = open_device(backend.name);
    for (const auto& passes : {std::vector<std::string>{}, off}) {
      const auto difference = compare(program, {device, device->target(), passes});
      EXPECT_FALSE(difference) << backend.name << ": " << difference->what;
    }
  }
}

void expect_agreement(const std::vector<Tensor>& outputs,
                      const std::vector<std::string>& off = {}) {
  Program program;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    program.graph.outputs.push_back({fmt::format("y{}", i), outputs[i]});
  }
  testing::Rng rng(7);
  for (const Node* n : topological(outputs)) {
    if (!std::holds_alternative<InputAttr>(n->attrs)) continue;
    program.graph.inputs.push_back(handle_of(*n));
    program.inputs.push_back(testing::draw(n->type, -2, 2, rng));
  }
  expect_agreement(program, off);
}

Tensor input(const std::string& name, const Shape& shape, DType dtype = DType::f32) {
  return prim::input(InputRole::input, name, {shape, dtype});
}

TEST(FoundByRandomGraphs, AnInputIsAnOutputBesideAnotherUse) {
  const Tensor x = input("x", {2, 3}), y = input("y", {2, 3});
  expect_agreement({prim::mul(x, y), x});
}

TEST(FoundByRandomGraphs, NumbersThatAreMadeAreSortedAndConvolved) {
  const Tensor ramp = prim::iota({7, 3}, 0, DType::u32);
  const ConvAttr plain{{1}, {0}, {0}, {1}, 1, {}, {}};
  expect_agreement(
      {prim::argsort(ramp, 0), prim::sort(prim::iota({5}, 0, DType::f32), 0, true),
       prim::conv(input("x", {1, 1, 4}), prim::full({1, 1, 2}, 0.5, DType::f32), plain),
       prim::conv(prim::iota({1, 1, 4}, 2, DType::f32), input("w", {1, 1, 2}), plain)},
      {"simplify"});
}

TEST(FoundByRandomGraphs, AnOperandOfAContractionRunsBackwards) {
  const Tensor a = input("a", {5, 8}), b = input("b", {8, 1}), c = input("c", {8, 20});
  const DotAttr product{{}, {}, {1}, {0}};
  expect_agreement({prim::dot_general(a, prim::flip(b, {0}), product),
                    prim::dot_general(prim::flip(a, {0}), c, product),
                    prim::dot_general(prim::flip(a, {1}), prim::flip(c, {0, 1}), product)},
                   {"thin_products"});
}

TEST(FoundByRandomGraphs, ABatchRepeatsBothOperandsOfAProduct) {
  const auto repeated = [](const Tensor& x) {
    return prim::broadcast(x, {3, x.dim(0), x.dim(1)}, {1, 2});
  };
  const DotAttr product{{0}, {0}, {2}, {1}};
  expect_agreement(
      {prim::dot_general(repeated(input("a", {1, 1})), repeated(input("b", {1, 1})), product),
       prim::dot_general(repeated(input("c", {4, 5})), repeated(input("d", {5, 6})), product)},
      {"thin_products", "simplify"});
}

TEST(FoundByRandomGraphs, AnOperandIsReachedPastAViewThatIsStored) {
  const Tensor stored = prim::broadcast(input("x", {1, 1}), {3, 1, 1}, {1, 2});
  const Tensor row = prim::reshape(prim::permute(stored, {2, 1, 0}), {3});
  const Tensor flat = prim::reshape(prim::broadcast(row, {3, 3}, {1}), {9});
  const Tensor seen = prim::reshape(prim::slice(flat, {1}, {9}, {1}), {1, 2, 4});
  expect_agreement(
      {stored, prim::dot_general(input("a", {1, 2, 4}), seen, DotAttr{{1, 2}, {1, 2}, {0}, {0}})});
}

TEST(FoundByRandomGraphs, ASumIsPaddedOrCutBesideItsRows) {
  const Tensor total = prim::sum(input("x", {2, 3}), {1});
  const Tensor wide = prim::broadcast(total, {2, 2, 1, 2}, {3});
  expect_agreement({prim::pad(wide, {0, 0, 0, 0}, {0, 2, 1, 1}, {0, 0, 0, 0}),
                    prim::pad(total, {0}, {2}, {0}), prim::slice(total, {0}, {1}, {1})});
}

TEST(FoundByRandomGraphs, PaddingAroundNothing) {
  const Tensor nothing =
      prim::reduce(kernel::Combiner::argmin, input("x", {0, 1}, DType::u32), {1});
  expect_agreement({prim::pad(prim::cast(nothing, DType::f32), {0}, {4}, {0})});
}

TEST(FoundByRandomGraphs, AConcatenationOfAConcatenationTwice) {
  const Tensor a = input("a", {5}), b = input("b", {5});
  const Tensor ab[] = {a, b};
  const Tensor once = prim::concat(ab, 0);
  const Tensor twice[] = {once, once};
  expect_agreement({prim::map(kernel::Fn::exp, {prim::concat(twice, 0)})}, {"fuse_maps"});
}

TEST(FoundByRandomGraphs, AProductWithoutDepth) {
  expect_agreement({prim::dot_general(input("a", {2, 0}), input("b", {0, 1}), {{}, {}, {1}, {0}}),
                    prim::dot_general(input("c", {3, 0}), input("d", {0, 4}), {{}, {}, {1}, {0}})},
                   {"thin_products"});
}

TEST(FoundByRandomGraphs, ASumOverNothingOfNumbersThatAreMade) {
  const Tensor made = prim::iota({2, 4, 5, 0}, 2, DType::f32);
  const DotAttr product{{0}, {0}, {2, 3}, {2, 3}};
  expect_agreement({prim::dot_general(made, input("x", {2, 3, 5, 0}), product)});
}

TEST(FoundByRandomGraphs, AttentionOfNoFeatures) {
  const Tensor q = input("q", {1, 2, 0}), v = input("v", {1, 3, 2});
  const Tensor k = input("k", {1, 3, 0});
  using Result = LowerAttention::Result;
  expect_agreement({prim::attention(Result::out, q, k, v, {}, {0.25, true}),
                    prim::attention(Result::lse, q, k, v, {}, {0.25, false})});
}

TEST(FoundByRandomGraphs, AnOperandIsNotOverwrittenByTheEpilogue) {
  const Tensor w = prim::input(InputRole::state, "w", {{16, 16}, DType::f32});
  const Tensor s = prim::input(InputRole::state, "s", {{}, DType::f32});
  Program program;
  program.graph.inputs = {input("x", {16, 16})};
  program.graph.states = {w, s};
  program.graph.updates = {
      prim::sub(w, prim::dot_general(program.graph.inputs[0], w, {{}, {}, {1}, {0}})),
      prim::neg(prim::reshape(
          prim::conv(prim::reshape(s, {1, 1, 1}), prim::full({1, 1, 1}, 2, DType::f32),
                     ConvAttr{{1}, {0}, {0}, {1}, 1, {}, {}}),
          {}))};
  testing::Rng rng(7);
  program.inputs = {testing::draw(program.graph.inputs[0].node().type, -2, 2, rng)};
  program.states = {testing::draw(w.node().type, -2, 2, rng),
                    testing::draw(s.node().type, 1, 2, rng)};
  expect_agreement(program);
}

TEST(FoundByRandomGraphs, AStateBecomesTheSameValuesTwice) {
  const Tensor s = prim::input(InputRole::state, "s", {{6}, DType::u32});
  Program program;
  program.graph.inputs = {input("x", {3})};
  program.graph.states = {s};
  const Tensor part = prim::cast(program.graph.inputs[0], DType::u32);
  const Tensor parts[] = {part, part};
  program.graph.updates = {prim::concat(parts, 0)};
  testing::Rng rng(7);
  program.inputs = {testing::draw(program.graph.inputs[0].node().type, 3, 9, rng)};
  program.states = {testing::draw(s.node().type, 0, 2, rng)};
  expect_agreement(program);
}

TEST(FoundByRandomGraphs, TheLargestProductLessTheLargestIsZero) {
  Program program;
  program.graph.inputs = {input("x", {4, 5}), input("y", {4, 5})};
  const Tensor product = prim::mul(program.graph.inputs[0], program.graph.inputs[1]);
  const Tensor largest =
      prim::broadcast(prim::reduce(kernel::Combiner::max, product, {1}), {4, 5}, {0});
  program.graph.outputs = {
      {"less", prim::map(kernel::Fn::exp, {prim::sub(product, largest)})},
      {"plus", prim::map(kernel::Fn::exp, {prim::add(product, prim::neg(largest))})}};
  testing::Rng rng(7);
  program.inputs = {testing::draw({{4, 5}, DType::f32}, 1e9, 1e10, rng),
                    testing::draw({{4, 5}, DType::f32}, 0.5, 1, rng)};
  expect_agreement(program);
}

TEST(FoundByRandomGraphs, AStateIsWrittenOverThroughAnotherShape) {
  const Tensor s = prim::input(InputRole::state, "s", {{2, 3, 3}, DType::f32});
  Program program;
  program.graph.inputs = {input("x", {3, 6})};
  program.graph.states = {s};
  program.graph.updates = {
      prim::reshape(prim::add(prim::reshape(s, {3, 6}), program.graph.inputs[0]), {2, 3, 3})};
  testing::Rng rng(7);
  program.inputs = {testing::draw(program.graph.inputs[0].node().type, -2, 2, rng)};
  program.states = {testing::draw(s.node().type, -2, 2, rng)};
  expect_agreement(program);
}

TEST(FoundByRandomGraphs, APartOfAConcatenationReadsAnotherBehindACondition) {
  const Tensor a = prim::neg(input("x", {3}));
  const Tensor joined[] = {input("y", {3}), a};
  const Tensor some = prim::slice(prim::concat(joined, 0), {2}, {5}, {1});
  const Tensor parts[] = {prim::broadcast(some, {2, 3}, {1}), prim::reshape(a, {1, 3})};
  expect_agreement(
      {prim::dot_general(prim::concat(parts, 0), input("w", {3, 4}), {{}, {}, {1}, {0}})});
}

TEST(FoundByRandomGraphs, AnEpilogueReadsAProductInPlaceAndTransposed) {
  const Tensor product =
      prim::dot_general(input("a", {2, 9}), input("b", {9, 2}), {{}, {}, {1}, {0}});
  const Tensor scaled = prim::mul(product, input("c", {2, 2}));
  expect_agreement({prim::permute(prim::cast(product, DType::f16), {1, 0}),
                    prim::dot_general(scaled, input("d", {2, 5}), {{}, {}, {1}, {0}})});
}

TEST(FoundByRandomGraphs, ZeroTimesInfinityIsNoNumber) {
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor x = input("x", {6}), zero = prim::full({6}, 0, DType::f32);
  const Tensor less = prim::full({6}, -0.0, DType::f32);
  const std::vector<double> values{infinity, -infinity, std::nan(""), 0.0, -2, 1};
  Program program;
  program.graph.inputs = {x};
  program.inputs = {{x.node().type, values}};
  for (const Tensor& y :
       {prim::mul(zero, x), prim::mul(x, less), prim::div(zero, x), prim::div(less, x)}) {
    program.graph.outputs.push_back({fmt::format("y{}", program.graph.outputs.size()), y});
    program.graph.outputs.push_back({fmt::format("y{}", program.graph.outputs.size()),
                                     prim::div(prim::full({6}, 1, DType::f32), y)});
  }
  expect_agreement(program);
}

TEST(FoundByRandomGraphs, WhatHoldsNothingIsNoneOfWhatIsWritten) {
  const Tensor x = prim::add(input("a", {0, 1, 7}), input("b", {0, 1, 7}));
  const ConvAttr windows{{1}, {0}, {0}, {1}, 1, {9}, {3}};
  const Tensor gradient =
      make(find_op("conv_weight_grad"), {input("c", {0, 3, 9}), x}, windows, Site::current());
  expect_agreement({prim::sum(gradient, {0, 1, 2})});
}

TEST(FoundByRandomGraphs, AnOperandOfAttentionRunsBackwards) {
  const Tensor q = input("q", {2, 3, 1}), v = input("v", {2, 3, 1}), k = input("k", {2, 3, 1});
  using Result = LowerAttention::Result;
  for (const int axis : {0, 1, 2}) {
    expect_agreement({prim::attention(Result::out, q, prim::flip(k, {axis}), v, {}, {0.25, true})});
  }
}

TEST(FoundByRandomGraphs, AStateIsNotOverwrittenByAPartThatReadsElsewhereInIt) {
  const Tensor s = prim::input(InputRole::state, "s", {{24}, DType::f32});
  const Tensor part = make(find_op("cummax"), {prim::slice(s, {0}, {23}, {2})}, ScanAttr{0, false},
                           Site::current());
  const Tensor parts[] = {part, part};
  Program program;
  program.graph.states = {s};
  program.graph.updates = {prim::concat(parts, 0)};
  testing::Rng rng(7);
  program.states = {testing::draw(s.node().type, -2, 2, rng)};
  expect_agreement(program);
}

TEST(FoundByRandomGraphs, NumbersBeyondThoseOfF32AreRoundedToTheNearest) {
  Program program;
  for (const DType dtype : {DType::u32, DType::i32}) {
    const Tensor x = input(std::string(name(dtype)), {4}, dtype);
    program.graph.inputs.push_back(x);
    const double sign = dtype == DType::i32 ? -1 : 1;
    program.inputs.push_back({x.node().type, {sign * 2147483646, sign * 1073741887, 33554435, 5}});
    const Tensor y = prim::bitcast(prim::cast(x, DType::f32), DType::i32);
    program.graph.outputs.push_back({fmt::format("{}_bits", name(dtype)), y});
  }
  program.inputs[0].data[0] = 3219572094;
  expect_agreement(program);
}

TEST(FoundByRandomGraphs, WhatIsRoundedToF16StaysRounded) {
  const Tensor x = input("x", {34});
  const Tensor rounded = prim::cast(prim::cast(x, DType::f16), DType::f32);
  expect_agreement({prim::slice(rounded, {18}, {30}, {1}), prim::sub(rounded, x)});
}

// The largest of parts of parts: SwiftShader's compiler took all memory for the branches in it.
TEST(FoundByRandomGraphs, MaximaInALoopDoNotBranch) {
  Tensor x = maximum(input("x", {6}), prim::full({6}, 0.25, DType::f32));
  x = abs(minimum(x, prim::full({6}, 2, DType::f32)));
  for (int i = 0; i < 2; ++i) {
    const Tensor twice[] = {x, x};
    x = prim::concat(twice, 0);
  }
  for (int i = 0; i < 2; ++i) {
    const Tensor there_and_back[] = {x, prim::flip(x, {0})};
    x = prim::concat(there_and_back, 0);
    if (i == 0) x = prim::pad(x, {0}, {0}, {1});
  }
  x = prim::reshape(prim::slice(x, {4}, {179}, {1}), {7, 1, 5, 5});
  expect_agreement({make(find_op("cummax"), {x}, ScanAttr{3, false}, Site::current())});
}

TEST(FoundByRandomGraphs, AViewThatAProductReadsIsAnOutputToo) {
  const DotAttr product{{}, {}, {1}, {0}};
  const Tensor x = input("x", {20, 40}), w = input("w", {20, 6});
  const Tensor back = prim::flip(x, {0, 1});
  const Tensor twice = prim::slice(prim::flip(back, {0, 1}), {2, 20}, {20, 40}, {1, 1});
  const Tensor across = prim::permute(x, {1, 0});
  const Tensor every_second = prim::slice(across, {0, 0}, {40, 20}, {1, 2});
  const Tensor v = input("v", {10, 3});
  expect_agreement({back, prim::dot_general(twice, w, product), across,
                    prim::dot_general(every_second, v, product)},
                   {"simplify"});
}

TEST(FoundByRandomGraphs, AColumnOfAProductWithoutDepthIsStrided) {
  const DotAttr product{{}, {}, {1}, {0}};
  const auto third = [](const Tensor& x, const Shape& shape) {
    return prim::reshape(prim::slice(x, {0}, {7}, {3}), shape);
  };
  const Tensor x = input("x", {7}), w = input("w", {1, 1}), v = input("v", {2, 1});
  expect_agreement({prim::dot_general(third(x, {3, 1}), w, product),
                    prim::dot_general(v, third(x, {1, 3}), product)},
                   {"thin_products"});
}

}  // namespace
}  // namespace tensorgrad::fuzz
