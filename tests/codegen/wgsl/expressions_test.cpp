// Expressions as WGSL text.
#include "codegen/wgsl/expressions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tensorgrad/error.h"

namespace tensorgrad {
namespace {

using kernel::Expr;
using kernel::Fn;
using kernel::Index;
using kernel::Kernel;

/// A kernel with one loop of 64 and two buffers, and what it takes to render parts of it.
struct Fixture {
  Fixture() {
    kernel.name = "test";
    kernel.args = {{DType::f32, 4096, true, false}, {DType::i32, 4096, true, true}};
    kernel.loops = {{64}, {64}};
    i = kernel.pool.loop(0, 64);
    j = kernel.pool.loop(1, 64);
    renderer.bind_loop(0, wgsl::named("i"));
  }
  std::string text(Expr e) {
    renderer.count(e);
    return renderer.render(e).text;
  }
  std::string text(Index index) { return renderer.render(index).text; }

  Kernel kernel;
  wgsl::Writer writer;
  wgsl::Helpers helpers;
  wgsl::ExpressionRenderer renderer{kernel, writer, helpers};
  Index i, j;
};

TEST(WgslExpressions, SingleUsesAreRenderedInPlace) {
  Fixture f;
  kernel::Pool& p = f.kernel.pool;
  const Expr x = p.load(0, p.add(p.mul(f.i, 64), p.number(3)), {}, DType::f32);
  const Expr y = p.apply(Fn::mul, {p.apply(Fn::add, {x, p.constant(1.5, DType::f32)}), x});
  EXPECT_EQ(f.text(y), "(t0 + 1.5f) * t0");
  EXPECT_EQ(f.writer.text(), "  let t0 = b0[i * 64u + 3u];\n");
}

TEST(WgslExpressions, WhatAnInnerLoopDoesNotChangeIsComputedBeforeIt) {
  Fixture f;
  kernel::Pool& p = f.kernel.pool;
  f.writer.open("for (var j = 0u; j < 64u; j++)");
  f.renderer.bind_loop(1, wgsl::named("j", 1));
  const Expr x = p.load(0, p.add(p.mul(f.i, 64), f.j), {}, DType::f32);
  EXPECT_EQ(f.text(x), "b0[t0 + j]");
  f.writer.close();
  EXPECT_EQ(f.writer.text(),
            "  let t0 = i * 64u;\n"
            "  for (var j = 0u; j < 64u; j++) {\n"
            "  }\n");
}

TEST(WgslExpressions, ConditionalLoadsDoNotTouchMemory) {
  Fixture f;
  kernel::Pool& p = f.kernel.pool;
  const Expr inside = p.in_range(f.i, 0, 60);
  const Expr x = p.load(0, p.add(f.i, p.number(4092 - 59)), inside, DType::f32);
  EXPECT_EQ(f.text(x), "t0");
  EXPECT_EQ(f.writer.text(),
            "  var t0 = 0f;\n"
            "  if (i < 60u) { t0 = b0[i + 4033u]; }\n");
}

TEST(WgslExpressions, IndicesWrapBelowZero) {
  Fixture f;
  kernel::Pool& p = f.kernel.pool;
  EXPECT_EQ(f.text(p.sub(p.number(63), f.i)), "63u - i");
  EXPECT_EQ(f.text(p.in_range(p.sub(f.i, p.number(2)), 0, 10)), "i - 2u < 10u");
  EXPECT_EQ(f.text(p.div(f.i, 4)), "i / 4u");
  EXPECT_EQ(f.text(p.from_index(p.sub(f.i, p.number(2)), DType::f32)), "tg_from_i32(i32(i - 2u))");
}

TEST(WgslExpressions, IndicesBeyond32BitsAreRejected) {
  Fixture f;
  kernel::Pool& p = f.kernel.pool;
  f.kernel.args[0].elements = std::int64_t{1} << 40;
  const Expr x = p.load(0, p.mul(f.i, std::int64_t{1} << 30), {}, DType::f32);
  EXPECT_THROW(f.renderer.render(x), GraphError);
}

TEST(WgslExpressions, NumbersThatAreNoConstantsOfWgsl) {
  Fixture f;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(f.renderer.literal(DType::f32, infinity), "tg_bits(0x7f800000u)");
  EXPECT_EQ(f.renderer.literal(DType::f32, -infinity), "tg_bits(0xff800000u)");
  EXPECT_EQ(f.renderer.literal(DType::f32, std::nan("")), "tg_bits(0x7fc00000u)");
  EXPECT_EQ(f.renderer.literal(DType::f32, 1e-40), "bitcast<f32>(0x000116c2u)");
  EXPECT_EQ(f.renderer.literal(DType::f32, -0.0), "bitcast<f32>(0x80000000u)");
  EXPECT_EQ(f.renderer.literal(DType::i32, -2147483648.0), "i32(-2147483648)");
  EXPECT_EQ(f.renderer.literal(DType::u32, 4294967295.0), "4294967295u");
}

TEST(WgslExpressions, WrittenBuffersAreReadBeforeTheStore) {
  Fixture f;
  kernel::Pool& p = f.kernel.pool;
  const Expr x = p.load(1, f.i, {}, DType::i32);
  const Expr y = p.apply(Fn::add, {x, p.constant(1, DType::i32)});
  EXPECT_EQ(f.text(y), "t0 + 1i");
  EXPECT_EQ(f.writer.text(), "  let t0 = b1[i];\n");
}

TEST(WgslHelpers, AreDefinedOnceAndCalleesFirst) {
  wgsl::Helpers helpers;
  helpers.use("tg_erfc");
  helpers.use("tg_exp");
  helpers.use("tg_erfc");
  const std::string text = helpers.definitions();
  EXPECT_EQ(text.find("fn tg_exp("), text.rfind("fn tg_exp("));
  EXPECT_LT(text.find("fn tg_exp("), text.find("fn tg_erf("));
  EXPECT_LT(text.find("fn tg_erf("), text.find("fn tg_erfc("));
  EXPECT_THROW(helpers.use("tg_nothing"), GraphError);
}

TEST(WgslHelpers, ThoseOfOneExpressionDoNotBranch) {
  wgsl::Helpers helpers;
  for (const char* name :
       {"tg_max", "tg_min", "tg_relu", "tg_sign", "tg_ne", "tg_above", "tg_below", "tg_to_i32",
        "tg_to_u32", "tg_div_i32", "tg_rem_i32", "tg_sqrt"}) {
    helpers.use(name);
  }
  const std::string text = helpers.definitions();
  for (const char* branch : {"&&", "||", "if ("}) EXPECT_EQ(text.find(branch), text.npos) << text;
}

}  // namespace
}  // namespace tensorgrad
