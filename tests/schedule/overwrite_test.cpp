// Temporaries computed over others that are read for the last time.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "ops/primitives.h"
#include "schedule/schedule.h"
#include "tensorgrad/ops.h"

namespace tensorgrad {
namespace {

Tensor input(const std::string& name, const Shape& shape) {
  return prim::input(InputRole::input, name, {shape, DType::f32});
}

Tensor normalised(const Tensor& x) {
  const Tensor centred = x - mean(x, Reduce(-1, true));
  return centred * rsqrt(mean(square(centred), Reduce(-1, true)) + 1e-5);
}

/// Products, what `f` makes of them, and products of that, with the arena that takes.
class Overwriting : public ::testing::Test {
 protected:
  static constexpr std::int64_t rows = 64, columns = 64;
  static constexpr std::int64_t matrix = rows * columns * 4;

  std::int64_t arena(const Tensor& made, const std::string& passes = "") {
    const Tensor w = input("w", {columns, 16});
    Graph graph;
    graph.inputs = {x_, y_, z_, w};
    graph.outputs = {{"result", matmul(made, w)}};
    for (const auto& [name, value] : extra_) graph.outputs.push_back({name, value});
    const Plan plan = make_plan(graph, {}, PassOptions(passes));
    for (const kernel::Kernel& k : plan.kernels) kernel::verify(k);
    return plan.arena_bytes;
  }

  Tensor x_ = input("x", {rows, 16});
  Tensor y_ = input("y", {16, columns});
  Tensor z_ = input("z", {rows, columns});
  Tensor product_ = matmul(x_, y_);
  std::vector<std::pair<std::string, Tensor>> extra_;
};

TEST_F(Overwriting, ARowKernelWritesOverWhatItReadsLast) {
  EXPECT_EQ(arena(normalised(product_)), matrix);
  EXPECT_EQ(arena(normalised(product_), "-overwrite"), 2 * matrix);
}

TEST_F(Overwriting, AMapWritesOverWhatItReadsLast) {
  EXPECT_EQ(arena(exp(sort(z_, 1))), matrix);
  EXPECT_EQ(arena(exp(sort(z_, 1)), "-overwrite"), 2 * matrix);
}

TEST_F(Overwriting, NotWhatIsReadLater) {
  const Tensor made = normalised(product_);
  extra_ = {{"later", product_ * sum(exp(made))}};
  EXPECT_GE(arena(made), 2 * matrix);
}

TEST_F(Overwriting, NotWhatIsReadElsewhereThanItIsWritten) {
  EXPECT_EQ(arena(normalised(transpose(product_))), 2 * matrix);
  EXPECT_EQ(arena(normalised(product_) + flip(product_, {1})), 2 * matrix);
  // The first element of each row is read by all.
  EXPECT_EQ(arena(normalised(product_) + slice(product_, 1, {0, 1})), 2 * matrix);
}

}  // namespace
}  // namespace tensorgrad
