// Text, cost and verification of kernels.
#include "kernel/kernel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "tensorgrad/error.h"

namespace tensorgrad::kernel {
namespace {

using testing::HasSubstr;

/// out[i] = relu(x[i, :] summed) over 8 rows of 16, with the row's argmax.
Kernel row_kernel() {
  Kernel k;
  k.name = "row";
  k.args = {
      {DType::f32, 128, true, false}, {DType::f32, 8, false, true}, {DType::i32, 8, false, true}};
  k.loops = {{8}, {16}};
  Pool& pool = k.pool;
  const Index i = pool.loop(0, 8);
  const Index j = pool.loop(1, 16);
  const Expr x = pool.load(0, pool.add(pool.mul(i, 16), j), Expr{}, DType::f32);
  Stage reduce;
  reduce.loops = {1};
  reduce.accumulators = {{Combiner::sum, pool.apply(Fn::exp, {x}), DType::f32, Index{}},
                         {Combiner::argmax, x, DType::f32, j}};
  Stage store;
  const Expr sum = pool.acc(0, 0, DType::f32);
  store.stores = {{1, i, pool.apply(Fn::log, {sum}), Expr{}, false},
                  {2, i, pool.acc(0, 1, DType::i32), Expr{}, false}};
  k.nest.outer = {0};
  k.nest.stages = {reduce, store};
  return k;
}

/// out = lhs [4, 8] x rhs [8, 2], then relu in place.
Kernel matmul_kernel() {
  Kernel k;
  k.name = "contract 4x2x8 + relu";
  k.args = {
      {DType::f32, 32, true, false}, {DType::f32, 16, true, false}, {DType::f32, 8, true, true}};
  k.loops = {{8}};
  Matmul c;
  c.m = 4;
  c.n = 2;
  c.k = {8};
  c.lhs = {0, 0, {8, 1}};
  c.rhs = {1, 0, {2, 1}};
  c.out = {2, 0, {2, 1}};
  k.contraction = c;
  const Index i = k.pool.loop(0, 8);
  Stage store;
  store.stores = {
      {2, i, k.pool.apply(Fn::relu, {k.pool.load(2, i, Expr{}, DType::f32)}), Expr{}, false}};
  k.nest.outer = {0};
  k.nest.stages = {store};
  return k;
}

/// Causal attention over two batches of four heads; rows of q, k and v lie side by side.
Kernel attention_kernel() {
  Kernel k;
  k.name = "attention";
  k.args = {{DType::f32, 1536, true, false},
            {DType::f32, 512, false, true},
            {DType::f32, 64, false, true}};
  Attention c;
  c.batch = {2, 4};
  c.queries = c.keys = c.depth = c.value_depth = 8;
  c.scale = 0.5;
  c.causal = true;
  c.q = {0, 0, {768, 8, 96, 1}};
  c.k = {0, 32, {768, 8, 96, 1}};
  c.v = {0, 64, {768, 8, 96, 1}};
  c.out = {1, 0, {256, 8, 32, 1}};
  c.lse = {2, 0, {32, 8, 1}};
  k.contraction = c;
  return k;
}

/// y [2, 6, 5, 5] from x [2, 4, 7, 7] and w [6, 2, 3, 3] in two groups.
Kernel conv_kernel() {
  Kernel k;
  k.name = "conv";
  k.args = {{DType::f32, 2 * 4 * 49, true, false},
            {DType::f32, 6 * 2 * 9, true, false},
            {DType::f32, 2 * 6 * 25, false, true}};
  Conv c;
  c.batch = 2;
  c.groups = 2;
  c.in_channels = 2;
  c.out_channels = 3;
  c.input = {7, 7};
  c.kernel = {3, 3};
  c.output = {5, 5};
  c.stride = {1, 1};
  c.pad_low = {0, 0};
  c.pad_high = {0, 0};
  c.dilation = {1, 1};
  c.x.buffer = 0;
  c.w.buffer = 1;
  c.y.buffer = 2;
  k.contraction = c;
  return k;
}

/// y[i, j] = x[i, 0] + ... + x[i, j], with the running argmax and the total of each row.
Kernel scan_kernel() {
  Kernel k;
  k.name = "scan";
  k.args = {{DType::f32, 128, true, false},
            {DType::f32, 128, false, true},
            {DType::i32, 128, false, true},
            {DType::f32, 8, false, true}};
  k.loops = {{8}, {16}};
  Pool& pool = k.pool;
  const Index i = pool.loop(0, 8);
  const Index j = pool.loop(1, 16);
  const Index at = pool.add(pool.mul(i, 16), j);
  const Expr x = pool.load(0, at, Expr{}, DType::f32);
  Stage scan;
  scan.loops = {1};
  scan.accumulators = {{Combiner::sum, x, DType::f32, Index{}},
                       {Combiner::argmax, x, DType::f32, j}};
  const Expr sum = pool.acc(0, 0, DType::f32);
  scan.stores = {{1, at, sum, Expr{}, false}, {2, at, pool.acc(0, 1, DType::i32), Expr{}, false}};
  Stage store;
  store.stores = {{3, i, sum, Expr{}, false}};
  k.nest.outer = {0};
  k.nest.stages = {scan, store};
  return k;
}

/// Sorts the columns of x [16, 8].
Kernel sort_kernel() {
  Kernel k;
  k.name = "sort";
  k.args = {{DType::f32, 128, true, false},
            {DType::f32, 128, false, true},
            {DType::i32, 128, false, true}};
  Sort s;
  s.length = 16;
  s.inner = 8;
  s.descending = true;
  s.in = {0, 0, {128, 8, 1}};
  s.values = {1, 0, {128, 8, 1}};
  s.indices = {2, 0, {128, 8, 1}};
  k.sort = s;
  return k;
}

TEST(Combiner, Neutral) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(neutral(Combiner::sum, DType::f32), 0);
  EXPECT_EQ(neutral(Combiner::prod, DType::i32), 1);
  EXPECT_EQ(neutral(Combiner::max, DType::f32), -inf);
  EXPECT_EQ(neutral(Combiner::max, DType::u32), 0);
  EXPECT_EQ(neutral(Combiner::max, DType::bool_), 0);
  EXPECT_EQ(neutral(Combiner::min, DType::i32), 2147483647.0);
  EXPECT_EQ(neutral(Combiner::min, DType::bool_), 1);
  EXPECT_EQ(neutral(Combiner::argmin, DType::f32), inf);
  EXPECT_STREQ(name(Combiner::argmax), "argmax");
}

TEST(KernelText, ReadsLikeALoopProgram) {
  EXPECT_EQ(to_string(row_kernel()),
            "kernel row\n"
            "b0: f32[128] read\n"
            "b1: f32[8] written\n"
            "b2: i32[8] written\n"
            "for i0 < 8:\n"
            "  reduce i1 < 16:\n"
            "    t0 = b0[16*i0 + i1]\n"
            "    s0.0 = sum f32 exp(t0)\n"
            "    s0.1 = argmax f32 t0 at i1\n"
            "  b1[i0] = log(s0.0)\n"
            "  b2[i0] = s0.1\n");
}

TEST(KernelText, Contractions) {
  EXPECT_EQ(to_string(matmul_kernel()),
            "kernel contract 4x2x8 + relu\n"
            "b0: f32[32] read\n"
            "b1: f32[16] read\n"
            "b2: f32[8] read written\n"
            "matmul batch [] m 4 n 2 k [8]\n"
            "  lhs b0 by (8, 1)\n"
            "  rhs b1 by (2, 1)\n"
            "  out b2 by (2, 1)\n"
            "for i0 < 8:\n"
            "  b2[i0] = relu(b2[i0])\n");
  EXPECT_THAT(to_string(conv_kernel()), HasSubstr("conv forward batch 2 groups 2"));
}

TEST(KernelText, Attention) {
  EXPECT_EQ(
      to_string(attention_kernel()),
      "kernel attention\n"
      "b0: f32[1536] read\n"
      "b1: f32[512] written\n"
      "b2: f32[64] written\n"
      "attention forward batch [2, 4] queries 8 keys 8 depth 8 value depth 8 scale 0.5 causal\n"
      "  q b0 by (768, 8, 96, 1)\n"
      "  k b0 + 32 by (768, 8, 96, 1)\n"
      "  v b0 + 64 by (768, 8, 96, 1)\n"
      "  out b1 by (256, 8, 32, 1)\n"
      "  lse b2 by (32, 8, 1)\n");
}

TEST(KernelText, Scans) {
  EXPECT_EQ(to_string(scan_kernel()),
            "kernel scan\n"
            "b0: f32[128] read\n"
            "b1: f32[128] written\n"
            "b2: i32[128] written\n"
            "b3: f32[8] written\n"
            "for i0 < 8:\n"
            "  scan i1 < 16:\n"
            "    t0 = b0[16*i0 + i1]\n"
            "    s0.0 = sum f32 t0\n"
            "    s0.1 = argmax f32 t0 at i1\n"
            "    b1[16*i0 + i1] = s0.0\n"
            "    b2[16*i0 + i1] = s0.1\n"
            "  b3[i0] = s0.0\n");
}

TEST(KernelText, Sorts) {
  EXPECT_THAT(to_string(sort_kernel()), HasSubstr("sort descending rows 1 x 8 length 16\n"
                                                  "  in b0 by (128, 8, 1)\n"
                                                  "  values b1 by (128, 8, 1)\n"
                                                  "  indices b2 by (128, 8, 1)\n"));
}

TEST(KernelText, DoesNotDependOnOrderOfBuilding) {
  Kernel other = row_kernel();
  const Kernel same = row_kernel();
  Pool pool;
  // The same expressions, after others and in another order.
  pool.apply(Fn::sin, {pool.from_index(pool.loop(1, 16), DType::f32)});
  for (auto stage = other.nest.stages.rbegin(); stage != other.nest.stages.rend(); ++stage) {
    for (Accumulator& a : stage->accumulators) {
      if (a.position.id >= 0) a.position = pool.import(other.pool, a.position, {});
      a.value = pool.import(other.pool, a.value, {});
    }
    for (Store& s : stage->stores) {
      s.index = pool.import(other.pool, s.index, {});
      s.value = pool.import(other.pool, s.value, {});
    }
  }
  other.pool = pool;
  EXPECT_EQ(to_string(other), to_string(same));
}

TEST(KernelCost, Rows) {
  const Cost c = cost(row_kernel());
  EXPECT_EQ(c.bytes, 4 * (128 + 8 + 8));
  // exp, sum and argmax at each element; log a row.
  EXPECT_EQ(c.flops, 3 * 128 + 8);
}

TEST(KernelCost, BroadcastOperandsAreReadOnce) {
  Kernel k;
  k.args = {{DType::f32, 16, true, false}, {DType::f32, 128, false, true}};
  k.loops = {{8}, {16}};
  const Index j = k.pool.loop(1, 16);
  const Expr x = k.pool.load(0, j, Expr{}, DType::f32);
  const Expr y = k.pool.load(0, k.pool.sub(k.pool.number(15), j), Expr{}, DType::f32);
  Stage store;
  store.stores = {{1, k.pool.add(k.pool.mul(k.pool.loop(0, 8), 16), j),
                   k.pool.apply(Fn::add, {x, y}), Expr{}, false}};
  k.nest.outer = {0, 1};
  k.nest.stages = {store};
  EXPECT_NO_THROW(verify(k));
  EXPECT_EQ(cost(k).bytes, 4 * (16 + 128));
  EXPECT_EQ(cost(k).flops, 128);
}

TEST(KernelCost, ScattersReadAndWrite) {
  Kernel k;
  k.args = {{DType::i32, 4, true, false}, {DType::f32, 100, true, true}};
  k.loops = {{4}};
  const Index i = k.pool.loop(0, 4);
  const Index row = k.pool.value(k.pool.load(0, i, Expr{}, DType::i32), 0, 99);
  Stage store;
  store.stores = {{1, row, k.pool.constant(1, DType::f32), Expr{}, true}};
  k.nest.stages = {store};
  k.nest.stages[0].loops = {0};
  EXPECT_NO_THROW(verify(k));
  EXPECT_EQ(cost(k).bytes, 4 * (4 + 4 + 4));
  EXPECT_EQ(cost(k).flops, 4);
}

TEST(KernelCost, Contractions) {
  const Cost matmul = cost(matmul_kernel());
  EXPECT_EQ(matmul.bytes, 4 * (32 + 16 + 8));
  EXPECT_EQ(matmul.flops, 2 * 4 * 2 * 8 + 8);
  const Cost attention = cost(attention_kernel());
  EXPECT_EQ(attention.bytes, 4 * (1536 + 512 + 64));
  EXPECT_EQ(attention.flops, 8 * (8 * 9 / 2) * 2 * (8 + 8)) << "what is after a query is skipped";
  const Cost conv = cost(conv_kernel());
  EXPECT_EQ(conv.bytes, 4 * (2 * 4 * 49 + 6 * 2 * 9 + 2 * 6 * 25));
  EXPECT_EQ(conv.flops, 2 * (2 * 6 * 25) * (2 * 9));
}

TEST(KernelCost, ScansPassOnce) {
  EXPECT_EQ(cost(scan_kernel()).bytes, 4 * (3 * 128 + 8));
  EXPECT_EQ(cost(scan_kernel()).flops, 2 * 128);
}

TEST(KernelCost, SortsCompare) {
  EXPECT_EQ(cost(sort_kernel()).bytes, 4 * 3 * 128);
  EXPECT_EQ(cost(sort_kernel()).flops, 4 * 128);
}

/// Expects that the kernel is refused after `breaks`, with `message` in the error.
void expect_refused(Kernel kernel, const std::function<void(Kernel&)>& breaks,
                    const std::string& message) {
  ASSERT_NO_THROW(verify(kernel));
  breaks(kernel);
  try {
    verify(kernel);
    FAIL() << "accepted, though " << message;
  } catch (const GraphError& error) {
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

TEST(KernelVerify, Buffers) {
  expect_refused(
      row_kernel(), [](Kernel& k) { k.args.pop_back(); }, "buffer b2 is not among its 2 arguments");
  expect_refused(row_kernel(), [](Kernel& k) { k.args[0].read = false; }, "b0, which is not read");
  expect_refused(
      row_kernel(), [](Kernel& k) { k.args[1].written = false; }, "b1, which is not written");
  expect_refused(
      row_kernel(), [](Kernel& k) { k.args[0].dtype = DType::i32; }, "loads f32 from b0 of i32");
  expect_refused(
      row_kernel(), [](Kernel& k) { k.args[1].dtype = DType::i32; }, "stores f32 to b1 of i32");
}

TEST(KernelVerify, Loops) {
  expect_refused(
      row_kernel(), [](Kernel& k) { k.nest.stages[0].loops.clear(); },
      "loop variable i1, which is not in scope");
  expect_refused(row_kernel(), [](Kernel& k) { k.nest.outer = {0, 0}; }, "loop i0 twice");
  expect_refused(row_kernel(), [](Kernel& k) { k.nest.outer = {5}; }, "loop i5 of 2 loops");
  expect_refused(
      row_kernel(), [](Kernel& k) { k.loops[1].extent = 15; }, "to have extent 16, but it has 15");
}

TEST(KernelVerify, Bounds) {
  expect_refused(
      row_kernel(), [](Kernel& k) { k.args[0].elements = 127; },
      "accesses b0[16*i0 + i1] from element 0 to 127, but it has 127");
  expect_refused(
      row_kernel(), [](Kernel& k) { k.args[1].elements = 7; },
      "accesses b1[i0] from element 0 to 7, but it has 7");
  // A condition guards what would leave the buffer.
  Kernel k = row_kernel();
  k.args[1].elements = 7;
  k.nest.stages[1].stores[0].cond = k.pool.in_range(k.pool.loop(0, 8), 0, 7);
  EXPECT_NO_THROW(verify(k));
}

TEST(KernelVerify, Stages) {
  expect_refused(
      row_kernel(), [](Kernel& k) { std::swap(k.nest.stages[0], k.nest.stages[1]); },
      "reads a result of stage 0, which is not before it");
  expect_refused(
      row_kernel(), [](Kernel& k) { k.nest.stages[0].accumulators.pop_back(); },
      "reads result 1 of stage 0, which has 1");
  expect_refused(
      row_kernel(), [](Kernel& k) { k.nest.stages[1].stores.clear(); },
      "stage 1 has neither accumulators nor stores");
  expect_refused(
      row_kernel(), [](Kernel& k) { k.nest.stages[0].accumulators[0].dtype = DType::i32; },
      "combines f32 as i32");
  expect_refused(
      row_kernel(), [](Kernel& k) { k.nest.stages[0].accumulators[1].position = Index{}; },
      "argmax of stage 0 has no position");
  expect_refused(
      row_kernel(),
      [](Kernel& k) { k.nest.stages[1].stores[0].value = k.pool.acc(-1, 0, DType::f32); },
      "result of a contraction, but there is none");
}

TEST(KernelVerify, Scans) {
  EXPECT_NO_THROW(verify(scan_kernel()));
  expect_refused(
      scan_kernel(),
      [](Kernel& k) { k.nest.stages[0].accumulators[0].value = k.pool.acc(0, 0, DType::f32); },
      "stage 0 reads a result of stage 0, which is not before it");
  expect_refused(
      scan_kernel(),
      [](Kernel& k) { k.nest.stages[0].stores[0].value = k.pool.acc(1, 0, DType::f32); },
      "stage 0 reads a result of stage 1, which is not before it");
}

TEST(KernelVerify, Sorts) {
  const auto refused = [](const std::function<void(Kernel&)>& breaks, const std::string& message) {
    expect_refused(sort_kernel(), breaks, message);
  };
  refused([](Kernel& k) { k.sort->values.buffer = k.sort->indices.buffer = -1; }, "has no result");
  refused([](Kernel& k) { k.sort->length = 17; }, "reaches from element 0 to 135 of b0");
  refused([](Kernel& k) { k.sort->in.offset = 1; }, "reaches from element 1 to 128 of b0");
  refused([](Kernel& k) { k.sort->values.strides = {128, 8, 0}; }, "a stride of 0 over an extent");
  refused([](Kernel& k) { k.args[2].dtype = DType::f32; }, "with indices of f32, not i32");
  refused([](Kernel& k) { k.args[1].dtype = DType::i32; }, "sorts f32 into values of i32");
  refused([](Kernel& k) { k.nest.stages.emplace_back(); }, "or a loop nest as well");
}

TEST(KernelVerify, Matmuls) {
  const auto refused = [](const std::function<void(Matmul&)>& breaks, const std::string& message) {
    expect_refused(
        matmul_kernel(), [&](Kernel& k) { breaks(std::get<Matmul>(*k.contraction)); }, message);
  };
  refused([](Matmul& c) { c.lhs.strides = {8}; }, "lhs of the matmul has 1 strides, not 2");
  refused([](Matmul& c) { c.lhs.strides = {16, 2}; }, "of which none in a row or a column is 1");
  refused([](Matmul& c) { c.rhs.offset = 1; }, "reaches from element 1 to 16 of b1, which has 16");
  refused([](Matmul& c) { c.out.strides = {0, 1}; }, "a stride of 0 over an extent of 4");
  refused([](Matmul& c) { c.out.buffer = 0; }, "b0, which is not written");
}

TEST(KernelVerify, Attention) {
  EXPECT_NO_THROW(verify(attention_kernel()));
  const auto refused = [](const std::function<void(Attention&)>& breaks,
                          const std::string& message) {
    expect_refused(
        attention_kernel(), [&](Kernel& k) { breaks(std::get<Attention>(*k.contraction)); },
        message);
  };
  refused([](Attention& c) { c.q.strides = {96, 1}; }, "q of the attention has 2 strides, not 4");
  refused([](Attention& c) { c.v.strides[3] = 2; }, "none in a row or a column is 1");
  refused([](Attention& c) { c.v.offset = 65; }, "of b0, which has 1536");
  refused([](Attention& c) { c.dq = c.out; }, "an attention that runs forward has gradients");
  refused([](Attention& c) { c.lse.buffer = 0; }, "b0, which is not written");
}

TEST(KernelVerify, Convs) {
  const auto refused = [](const std::function<void(Conv&)>& breaks, const std::string& message) {
    expect_refused(
        conv_kernel(), [&](Kernel& k) { breaks(std::get<Conv>(*k.contraction)); }, message);
  };
  refused([](Conv& c) { c.output = {5, 4}; }, "has output 4 in dimension 1, but 5 windows fit");
  refused([](Conv& c) { c.stride = {1}; }, "a convolution over 2 dimensions has a list of 1");
  refused([](Conv& c) { c.batch = 3; }, "of b0, which has 392");
  refused([](Conv& c) { c.mode = Conv::Mode::input_grad; }, "b0, which is not written");
}

TEST(KernelVerify, EmptyIterationTouchesNothing) {
  Kernel k;
  k.args = {{DType::f32, 0, false, true}};
  k.loops = {{0}};
  Stage store;
  store.stores = {{0, k.pool.loop(0, 0), k.pool.constant(1, DType::f32), Expr{}, false}};
  k.nest.outer = {0};
  k.nest.stages = {store};
  EXPECT_NO_THROW(verify(k));
  EXPECT_EQ(cost(k).bytes, 0);
  EXPECT_EQ(cost(k).flops, 0);
}

}  // namespace
}  // namespace tensorgrad::kernel
