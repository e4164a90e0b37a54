// Matrix products through oneDNN.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

#include "runtime/cpu/blocked.h"

namespace tensorgrad::cpu {
namespace {

using dnnl::memory;
using kernel::Access;
using kernel::Matmul;

constexpr auto f32 = memory::data_type::f32;

/// One operand as matrices over batch dimensions. Strides are {batch..., row, column}.
struct Matrix {
  Access access;
  memory::dims batch;
  std::int64_t rows, columns;

  std::int64_t& row_stride() { return access.strides[batch.size()]; }
  std::int64_t& column_stride() { return access.strides[batch.size() + 1]; }

  void transpose() {
    std::swap(rows, columns);
    std::swap(row_stride(), column_stride());
  }
  /// Strides of axes with one element are free; these keep the matrix dense in one direction.
  void normalise() {
    if (columns == 1 && rows == 1) row_stride() = column_stride() = 1;
    if (columns == 1) column_stride() = 1;
    if (rows == 1 && columns > 1) row_stride() = column_stride() == 1 ? columns : 1;
  }
  /// Takes the innermost batch dimension into the rows.
  void stack() {
    rows *= batch.back();
    drop_batch(batch.size() - 1);
  }
  void drop_batch(std::size_t dimension) {
    batch.erase(batch.begin() + static_cast<std::ptrdiff_t>(dimension));
    access.strides.erase(access.strides.begin() + static_cast<std::ptrdiff_t>(dimension));
  }
  memory::desc desc() const {
    memory::dims extents = batch;
    memory::dims strides = access.strides;
    extents.insert(extents.end(), {rows, columns});
    const std::size_t last = batch.size();
    // A batch that repeats one matrix has one element, which oneDNN broadcasts.
    for (std::size_t i = 0; i < last; ++i) {
      if (strides[i] != 0) continue;
      extents[i] = 1;
      strides[i] = std::max(rows * strides[last], columns * strides[last + 1]);
    }
    return {extents, f32, strides};
  }
};

/// Calls f(point) for every point of the extents, the last running fastest.
template <class F>
void for_each_point(const memory::dims& extents, F f) {
  memory::dims point(extents.size(), 0);
  while (true) {
    f(point);
    std::size_t axis = extents.size();
    while (axis > 0 && ++point[axis - 1] == extents[axis - 1]) point[--axis] = 0;
    if (axis == 0) return;
  }
}

std::int64_t shift(const memory::dims& point, const memory::dims& strides) {
  return std::inner_product(point.begin(), point.end(), strides.begin(), std::int64_t{0});
}

/// A matrix product in oneDNN calls: one for each point of `loops`, whose strides in the operands
/// are given, and of the outer k dimensions, over which results add up.
struct MatmulCalls {
  Matrix lhs, rhs, out;
  memory::dims loops, lhs_loops, rhs_loops, out_loops;
  memory::dims segments, lhs_segments, rhs_segments;

  /// Makes a call for each point of a dimension of the batch.
  void unbatch(std::size_t dimension = 0) {
    loops.push_back(out.batch[dimension]);
    lhs_loops.push_back(lhs.access.strides[dimension]);
    rhs_loops.push_back(rhs.access.strides[dimension]);
    out_loops.push_back(out.access.strides[dimension]);
    for (Matrix* matrix : {&lhs, &rhs, &out}) matrix->drop_batch(dimension);
  }
};

MatmulCalls calls_of(const Matmul& matmul) {
  MatmulCalls c{{matmul.lhs, matmul.batch, matmul.m, 1},
                {matmul.rhs, matmul.batch, 1, matmul.n},
                {matmul.out, matmul.batch, matmul.m, matmul.n},
                {},
                {},
                {},
                {},
                {},
                {},
                {}};
  // lhs is {batch..., m, k...} and rhs {batch..., k..., n}: of k the last dimension stays.
  const auto batches = static_cast<std::ptrdiff_t>(matmul.batch.size());
  memory::dims& ls = c.lhs.access.strides;
  memory::dims& rs = c.rhs.access.strides;
  if (matmul.k.empty()) {
    ls.push_back(1);
    rs.insert(rs.begin() + batches, 1);
  } else {
    const auto outer = static_cast<std::ptrdiff_t>(matmul.k.size()) - 1;
    c.lhs.columns = c.rhs.rows = matmul.k.back();
    c.segments.assign(matmul.k.begin(), matmul.k.end() - 1);
    c.lhs_segments.assign(ls.begin() + batches + 1, ls.begin() + batches + 1 + outer);
    ls.erase(ls.begin() + batches + 1, ls.begin() + batches + 1 + outer);
    c.rhs_segments.assign(rs.begin() + batches, rs.begin() + batches + outer);
    rs.erase(rs.begin() + batches, rs.begin() + batches + outer);
  }
  for (Matrix* matrix : {&c.lhs, &c.rhs, &c.out}) matrix->normalise();
  if (c.out.column_stride() != 1) {
    // oneDNN writes rows: the transposed product has them.
    std::swap(c.lhs, c.rhs);
    std::swap(c.lhs_segments, c.rhs_segments);
    for (Matrix* matrix : {&c.lhs, &c.rhs, &c.out}) matrix->transpose();
  }
  while (!c.out.batch.empty()) {
    // Rows of a batch that meet the same matrix make one larger product.
    const std::size_t last = c.out.batch.size() - 1;
    const bool stacks = c.rhs.access.strides[last] == 0 &&
                        c.lhs.access.strides[last] == c.lhs.rows * c.lhs.row_stride() &&
                        c.out.access.strides[last] == c.out.rows * c.out.row_stride();
    if (!stacks) break;
    c.lhs.stack();
    c.out.stack();
    c.rhs.drop_batch(last);
  }
  // oneDNN takes no batch of results whose operands are both the same throughout.
  for (std::size_t d = c.out.batch.size(); d-- > 0;) {
    if (c.lhs.access.strides[d] == 0 && c.rhs.access.strides[d] == 0) c.unbatch(d);
  }
  return c;
}

/// The sequence for a part of a call: the first `extents` of {batch's first dimension, rows,
/// columns} of the operands. Adds to what the result holds where it `accumulates`.
std::unique_ptr<Primitives> build(const MatmulCalls& calls,
                                  const std::array<std::int64_t, 3>& extents, bool accumulates,
                                  int slots) {
  Matrix lhs = calls.lhs;
  Matrix rhs = calls.rhs;
  Matrix out = calls.out;
  for (Matrix* matrix : {&lhs, &rhs, &out}) {
    if (matrix->batch.empty()) continue;
    matrix->batch[0] = extents[0];
    if (extents[0] == 1) matrix->drop_batch(0);
  }
  lhs.rows = out.rows = extents[1];
  rhs.columns = out.columns = extents[2];
  auto primitives = std::make_unique<Primitives>(slots);
  dnnl::primitive_attr attr = attributes();
  if (accumulates) {
    dnnl::post_ops post;
    post.append_sum(1);
    attr.set_post_ops(post);
  }
  const SingleThread guard;
  const dnnl::matmul::primitive_desc pd(dnnl::matmul::desc(lhs.desc(), rhs.desc(), out.desc()),
                                        attr, primitives->engine());
  primitives->describe(pd.impl_info_str());
  const Primitives::Id source = primitives->bind(lhs.access, lhs.desc());
  const Primitives::Id weights = primitives->bind(rhs.access, rhs.desc());
  const Primitives::Id result = primitives->bind(out.access, out.desc());
  primitives->add(dnnl::matmul(pd),
                  {{DNNL_ARG_SRC, source},
                   {DNNL_ARG_WEIGHTS, weights},
                   {DNNL_ARG_DST, result},
                   {DNNL_ARG_SCRATCHPAD, primitives->scratch(pd.scratchpad_desc())}});
  return primitives;
}

/// Elements from the first to beyond the last of a part of the result.
std::int64_t span(const Matrix& out, const std::array<std::int64_t, 3>& extents) {
  memory::dims shape = out.batch;
  if (!shape.empty()) shape[0] = extents[0];
  shape.insert(shape.end(), {extents[1], extents[2]});
  std::int64_t last = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) last += (shape[i] - 1) * out.access.strides[i];
  return last + 1;
}

/// How a product is cut: calls of a block, and the size of a part of a call.
struct Blocking {
  std::int64_t points, batches, rows, columns;
};

Blocking choose_blocking(const MatmulCalls& c, std::int64_t points, std::int64_t flops) {
  // Each block prepares the right matrix for itself, which fewer rows would not repay.
  const std::int64_t row_unit = c.out.rows >= 256 ? 128 : 32;
  constexpr std::int64_t column_unit = 64;
  std::int64_t count = block_count(flops, most_blocks);
  const auto cut = [&](std::int64_t extent, std::int64_t unit) {
    const std::int64_t size = block_size(extent, count, unit);
    count = std::max<std::int64_t>(1, count / ceil_div(extent, size));
    return size;
  };
  Blocking result{};
  result.points = cut(points, 1);
  result.batches = c.out.batch.empty() ? 1 : cut(c.out.batch[0], 1);
  result.rows = cut(c.out.rows, row_unit);
  result.columns = cut(c.out.columns, column_unit);
  return result;
}

/// The calls of a product as blocks.
class Blocks {
 public:
  Blocks(MatmulCalls calls, int slots) : c_(std::move(calls)), slots_(slots) {
    runner_ = std::make_unique<BlockedContraction>(
        std::vector<int>{c_.lhs.access.buffer, c_.rhs.access.buffer, c_.out.access.buffer});
    for_each_point(c_.loops, [&](const memory::dims& loop) { loops_.push_back(loop); });
  }

  std::unique_ptr<ContractionRunner> cut(std::int64_t flops) {
    const auto points = static_cast<std::int64_t>(loops_.size());
    const Blocking by = choose_blocking(c_, points, flops);
    const std::int64_t batches = c_.out.batch.empty() ? 1 : c_.out.batch[0];
    for (std::int64_t p = 0; p < points; p += by.points) {
      const std::int64_t end = std::min(p + by.points, points);
      for (std::int64_t b = 0; b < batches; b += by.batches) {
        for (std::int64_t r = 0; r < c_.out.rows; r += by.rows) {
          for (std::int64_t c = 0; c < c_.out.columns; c += by.columns) {
            add(p, end, {b, r, c},
                {std::min(by.batches, batches - b), std::min(by.rows, c_.out.rows - r),
                 std::min(by.columns, c_.out.columns - c)});
          }
        }
      }
    }
    return std::move(runner_);
  }

 private:
  void add(std::int64_t first, std::int64_t end, const std::array<std::int64_t, 3>& start,
           const std::array<std::int64_t, 3>& extents) {
    std::vector<BlockedContraction::Call> calls;
    Block block;
    const auto batch_shift = [&](const Matrix& matrix) {
      return matrix.batch.empty() ? 0 : start[0] * matrix.access.strides[0];
    };
    for (std::int64_t p = first; p < end; ++p) {
      const memory::dims& loop = loops_[static_cast<std::size_t>(p)];
      const std::int64_t lhs =
          shift(loop, c_.lhs_loops) + batch_shift(c_.lhs) + start[1] * c_.lhs.row_stride();
      const std::int64_t rhs =
          shift(loop, c_.rhs_loops) + batch_shift(c_.rhs) + start[2] * c_.rhs.column_stride();
      const std::int64_t out = shift(loop, c_.out_loops) + batch_shift(c_.out) +
                               start[1] * c_.out.row_stride() + start[2] * c_.out.column_stride();
      const std::int64_t from = c_.out.access.offset + out;
      const std::int64_t to = from + span(c_.out, extents);
      block.begin = p == first ? from : std::min(block.begin, from);
      block.end = std::max(block.end, to);
      bool accumulates = false;
      for_each_point(c_.segments, [&](const memory::dims& segment) {
        calls.push_back(
            {shape(extents, accumulates),
             {lhs + shift(segment, c_.lhs_segments), rhs + shift(segment, c_.rhs_segments), out}});
        accumulates = true;
      });
    }
    runner_->add_block(std::move(calls), block);
  }

  std::size_t shape(const std::array<std::int64_t, 3>& extents, bool accumulates) {
    const auto [known, added] = shapes_.emplace(std::pair(extents, accumulates), 0);
    if (added) known->second = runner_->add_shape(build(c_, extents, accumulates, slots_));
    return known->second;
  }

  MatmulCalls c_;
  int slots_;
  std::unique_ptr<BlockedContraction> runner_;
  std::vector<memory::dims> loops_;
  std::map<std::pair<std::array<std::int64_t, 3>, bool>, std::size_t> shapes_;
};

}  // namespace

std::unique_ptr<ContractionRunner> make_matmul(const Matmul& matmul, int slots) {
  if (matmul.batches() * matmul.m * matmul.n == 0 || matmul.depth() == 0) {
    memory::dims extents = matmul.batch;
    extents.insert(extents.end(), {matmul.m, matmul.n});
    return make_zero(matmul.out, extents);
  }
  MatmulCalls c = calls_of(matmul);
  // oneDNN packs an operand again for each matrix of a batch, so large ones are called one by one.
  constexpr std::int64_t large = std::int64_t{1} << 20;
  if (c.out.rows * c.out.columns * c.lhs.columns >= large) {
    while (!c.out.batch.empty()) c.unbatch();
  }
  const auto is_slow = [&] {
    return is_reference(
        build(c, {c.out.batch[0], c.out.rows, c.out.columns}, false, slots)->description());
  };
  while (!c.out.batch.empty() && is_slow()) c.unbatch();
  return Blocks(std::move(c), slots)
      .cut(2 * matmul.batches() * matmul.m * matmul.n * matmul.depth());
}

}  // namespace tensorgrad::cpu
