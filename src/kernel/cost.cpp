// Bytes and floating operations of a kernel.
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kernel/kernel.h"
#include "kernel/visit.h"

namespace tensorgrad::kernel {
namespace {

/// a * b, at most the largest number.
std::int64_t saturating_mul(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? INT64_MAX : result;
}

std::int64_t product(const std::vector<std::int64_t>& extents) {
  std::int64_t result = 1;
  for (const std::int64_t extent : extents) result = saturating_mul(result, extent);
  return result;
}

/// Elements of each buffer that are read and written, as far as counted.
class Traffic {
 public:
  explicit Traffic(const Kernel& kernel)
      : kernel_(kernel), read_(kernel.args.size(), 0), written_(kernel.args.size(), 0) {}

  void read(int buffer, std::int64_t elements) { count(read_, buffer, elements); }
  void write(int buffer, std::int64_t elements) { count(written_, buffer, elements); }

  std::int64_t bytes() const {
    std::int64_t result = 0;
    for (std::size_t i = 0; i < kernel_.args.size(); ++i) {
      const auto size = static_cast<std::int64_t>(info(kernel_.args[i].dtype).bytes);
      result += (read_[i] + written_[i]) * size;
    }
    return result;
  }

 private:
  void count(std::vector<std::int64_t>& counts, int buffer, std::int64_t elements) {
    const auto at = static_cast<std::size_t>(buffer);
    std::int64_t& counted = counts.at(at);
    const std::int64_t left = kernel_.args.at(at).elements - counted;
    counted += std::min(elements, left);
  }

  const Kernel& kernel_;
  std::vector<std::int64_t> read_, written_;
};

/// How many different values an index takes: the trips of the loops it depends on, or its range
/// where that is shorter.
std::int64_t distinct(const Kernel& kernel, Index index) {
  std::int64_t trips = 1;
  for_each_part(
      kernel.pool, index,
      [&](const IndexNode& n) {
        if (n.kind == IndexNode::Kind::loop) trips = saturating_mul(trips, n.hi + 1);
      },
      [](const ExprNode&) {});
  const IndexNode& n = kernel.pool.node(index);
  return std::min(trips, n.hi - n.lo + 1);
}

std::vector<std::int64_t> join(std::initializer_list<std::vector<std::int64_t>> lists) {
  std::vector<std::int64_t> result;
  for (const auto& list : lists) result.insert(result.end(), list.begin(), list.end());
  return result;
}

std::int64_t strided_elements(const std::vector<std::int64_t>& extents, const Access& access) {
  std::int64_t result = 1;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (access.strides.at(i) != 0) result = saturating_mul(result, extents[i]);
  }
  return result;
}

std::int64_t add_contraction(const Matmul& c, Traffic& traffic) {
  traffic.read(c.lhs.buffer, strided_elements(join({c.batch, {c.m}, c.k}), c.lhs));
  traffic.read(c.rhs.buffer, strided_elements(join({c.batch, c.k, {c.n}}), c.rhs));
  traffic.write(c.out.buffer, strided_elements(join({c.batch, {c.m, c.n}}), c.out));
  return saturating_mul(2, product({c.batches(), c.m, c.n, c.depth()}));
}

std::int64_t add_contraction(const Attention& c, Traffic& traffic) {
  const auto read = [&](const Access& access, std::vector<std::int64_t> last) {
    if (access.buffer < 0) return;
    traffic.read(access.buffer, strided_elements(join({c.batch, std::move(last)}), access));
  };
  const auto write = [&](const Access& access, std::vector<std::int64_t> last) {
    if (access.buffer < 0) return;
    traffic.write(access.buffer, strided_elements(join({c.batch, std::move(last)}), access));
  };
  const bool forward = c.mode == Attention::Mode::forward;
  read(c.q, {c.queries, c.depth});
  read(c.k, {c.keys, c.depth});
  read(c.v, {c.keys, c.value_depth});
  read(c.mask, {c.queries, c.keys});
  if (forward) {
    write(c.out, {c.queries, c.value_depth});
    write(c.lse, {c.queries});
  } else {
    read(c.out, {c.queries, c.value_depth});
    read(c.lse, {c.queries});
    read(c.dout, {c.queries, c.value_depth});
    write(c.dq, {c.queries, c.depth});
    write(c.dk, {c.keys, c.depth});
    write(c.dv, {c.keys, c.value_depth});
  }
  // Scores that count; forward multiplies by q and v, backward forms s, dp, dq, dk and dv.
  std::int64_t scores = saturating_mul(c.queries, c.keys);
  if (c.causal) {
    const std::int64_t square = std::min(c.queries, c.keys);
    scores = square * (square + 1) / 2 + (c.queries - square) * c.keys;
  }
  const std::int64_t per_score =
      forward ? c.depth + c.value_depth : 3 * c.depth + 2 * c.value_depth;
  return saturating_mul(2, product({product(c.batch), scores, per_score}));
}

std::int64_t add_contraction(const Conv& c, Traffic& traffic) {
  const std::int64_t x = product({c.batch, c.groups, c.in_channels, product(c.input)});
  const std::int64_t w = product({c.groups, c.out_channels, c.in_channels, product(c.kernel)});
  const std::int64_t y = product({c.batch, c.groups, c.out_channels, product(c.output)});
  using Mode = Conv::Mode;
  const auto count = [&](const Access& access, std::int64_t elements, bool is_result) {
    if (is_result) {
      traffic.write(access.buffer, elements);
    } else {
      traffic.read(access.buffer, elements);
    }
  };
  count(c.x, x, c.mode == Mode::input_grad);
  count(c.w, w, c.mode == Mode::weight_grad);
  count(c.y, y, c.mode == Mode::forward);
  // Each output element is a dot product over a window, whichever of the three is computed.
  return saturating_mul(2, saturating_mul(y, product({c.in_channels, product(c.kernel)})));
}

/// Elements that an access of a sort touches.
std::int64_t sort_operand(const Sort& s, const Access& access) {
  return strided_elements({s.outer, s.length, s.inner}, access);
}

/// Comparisons count as operations.
std::int64_t add_sort(const Sort& s, Traffic& traffic) {
  traffic.read(s.in.buffer, sort_operand(s, s.in));
  for (const Access* result : {&s.values, &s.indices}) {
    if (result->buffer >= 0) traffic.write(result->buffer, sort_operand(s, *result));
  }
  std::int64_t rounds = 0;
  while (rounds < 62 && (std::int64_t{1} << rounds) < s.length) ++rounds;
  return saturating_mul(rounds, product({s.outer, s.length, s.inner}));
}

bool is_operation(const Pool& pool, const ExprNode& n) {
  if (arity(n.fn) == 0 || n.fn == Fn::cast || n.fn == Fn::bitcast) return false;
  return n.dtype == DType::f32 || pool.node(Expr{n.args[0]}).dtype == DType::f32;
}

}  // namespace

Cost cost(const Kernel& kernel) {
  Traffic traffic(kernel);
  Cost result;
  int contraction_out = -1;
  if (kernel.contraction) {
    result.flops =
        std::visit([&](const auto& c) { return add_contraction(c, traffic); }, *kernel.contraction);
    contraction_out = result_buffer(*kernel.contraction);
  }
  if (kernel.sort) result.flops = add_sort(*kernel.sort, traffic);
  std::unordered_set<std::int64_t> loads;   // (buffer, index) counted
  std::unordered_set<std::int64_t> stores;  // likewise
  const auto key = [](int buffer, Index index) {
    return (std::int64_t{buffer} << 32) | std::int64_t{index.id};
  };
  for (const Stage& stage : kernel.nest.stages) {
    std::int64_t trips = 1;
    for (const auto* loops : {&kernel.nest.outer, &stage.loops}) {
      for (const int loop : *loops) {
        trips = saturating_mul(trips, kernel.loops.at(static_cast<std::size_t>(loop)).extent);
      }
    }
    if (trips == 0) continue;
    auto operations = static_cast<std::int64_t>(stage.accumulators.size());
    for_each_part(
        kernel.pool, roots(stage), [](const IndexNode&) {},
        [&](const ExprNode& n) {
          if (is_operation(kernel.pool, n)) ++operations;
          // The epilogue finds the contraction's result in cache.
          if (n.fn != Fn::load || n.buffer == contraction_out) return;
          if (loads.insert(key(n.buffer, n.index)).second) {
            traffic.read(n.buffer, distinct(kernel, n.index));
          }
        });
    for (const Store& store : stage.stores) {
      if (store.accumulate) ++operations;
      if (!stores.insert(key(store.buffer, store.index)).second) continue;
      const std::int64_t elements = distinct(kernel, store.index);
      traffic.write(store.buffer, elements);
      if (store.accumulate) traffic.read(store.buffer, elements);
    }
    result.flops += saturating_mul(operations, trips);
  }
  result.bytes = traffic.bytes();
  return result;
}

}  // namespace tensorgrad::kernel
