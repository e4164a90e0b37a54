// Bytes and floating operations of a kernel.
#include <algorithm>
#include <cstdint>
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

std::int64_t strided_elements(const std::vector<std::int64_t>& extents, const Access& access) {
  if (access.strides.empty()) return product(extents);
  std::int64_t result = 1;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (access.strides.at(i) != 0) result = saturating_mul(result, extents[i]);
  }
  return result;
}

std::int64_t operations(const Matmul& c) {
  return saturating_mul(2, product({c.batches(), c.m, c.n, c.depth()}));
}

std::int64_t operations(const Attention& c) {
  // Scores that count; forward multiplies by q and v, backward forms s, dp, dq, dk and dv.
  std::int64_t scores = saturating_mul(c.queries, c.keys);
  if (c.causal) {
    const std::int64_t square = std::min(c.queries, c.keys);
    scores = square * (square + 1) / 2 + (c.queries - square) * c.keys;
  }
  const std::int64_t per_score = c.mode == Attention::Mode::forward
                                     ? c.depth + c.value_depth
                                     : 3 * c.depth + 2 * c.value_depth;
  return saturating_mul(2, product({product(c.batch), scores, per_score}));
}

std::int64_t operations(const Conv& c) {
  // Each output element is a dot product over a window, whichever of the three is computed.
  const std::int64_t y = product({c.batch, c.groups, c.out_channels, product(c.output)});
  return saturating_mul(2, saturating_mul(y, product({c.in_channels, product(c.kernel)})));
}

/// Comparisons count as operations.
std::int64_t operations(const Sort& s) {
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
    result.flops = std::visit([](const auto& c) { return operations(c); }, *kernel.contraction);
    contraction_out = result_buffer(*kernel.contraction);
  }
  if (kernel.sort) result.flops = operations(*kernel.sort);
  for_each_access(kernel, [&](const Access& access, const auto& extents, bool is_written) {
    const std::int64_t elements = strided_elements(extents, access);
    if (is_written) {
      traffic.write(access.buffer, elements);
    } else {
      traffic.read(access.buffer, elements);
    }
  });
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
    auto count = static_cast<std::int64_t>(stage.accumulators.size());
    for_each_part(
        kernel.pool, roots(stage), [](const IndexNode&) {},
        [&](const ExprNode& n) {
          if (is_operation(kernel.pool, n)) ++count;
          // The epilogue finds the contraction's result in cache.
          if (n.fn != Fn::load || n.buffer == contraction_out) return;
          if (loads.insert(key(n.buffer, n.index)).second) {
            traffic.read(n.buffer, distinct(kernel, n.index));
          }
        });
    for (const Store& store : stage.stores) {
      if (store.accumulate) ++count;
      if (!stores.insert(key(store.buffer, store.index)).second) continue;
      const std::int64_t elements = distinct(kernel, store.index);
      traffic.write(store.buffer, elements);
      if (store.accumulate) traffic.read(store.buffer, elements);
    }
    result.flops += saturating_mul(count, trips);
  }
  result.bytes = traffic.bytes();
  return result;
}

}  // namespace tensorgrad::kernel
