// Range conditions of Pool: the simplest index whose range test decides the same.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/order.h"
#include "kernel/checked.h"
#include "kernel/expr.h"
#include "kernel/linear.h"

namespace tensorgrad::kernel {
namespace {

/// Magnitudes of the factors and their common divisor, largest first, without 1.
std::vector<std::int64_t> units_of(
    const std::vector<std::pair<std::int32_t, std::int64_t>>& terms) {
  std::vector<std::int64_t> units;
  std::int64_t common = 0;
  for (const auto& term : terms) {
    units.push_back(std::abs(term.second));
    common = std::gcd(common, term.second);
  }
  units.push_back(common);
  sort_values(units, std::greater<>());
  units.erase(std::unique(units.begin(), units.end()), units.end());
  std::erase(units, 1);
  return units;
}

/// The t with (unit * y + rest >= bound) = (y >= t) for every rest in [rest_lo, rest_hi]; false if
/// there is none.
bool bound_of_quotient(std::int64_t bound, std::int64_t unit, std::int64_t rest_lo,
                       std::int64_t rest_hi, std::int64_t& t) {
  t = ceil_div(checked_add(bound, -rest_lo), unit);
  return checked_add(checked_mul(unit, t - 1), rest_hi) < bound;
}

}  // namespace

Expr Pool::in_range(Index i, std::int64_t lo, std::int64_t hi) {
  Linear sum = linear(i);
  lo = std::max(lo, sum.lo);
  hi = std::min(hi, checked_add(sum.hi, 1));
  if (lo >= hi) return constant(0, DType::bool_);
  if (lo == sum.lo && hi == sum.hi + 1) return constant(1, DType::bool_);

  // Without the constant, and with a positive first factor.
  lo = checked_add(lo, -sum.constant);
  hi = checked_add(hi, -sum.constant);
  sum.constant = 0;
  if (sum.terms[0].second < 0) {
    for (auto& term : sum.terms) term.second = checked_mul(term.second, -1);
    std::tie(lo, hi) = std::pair(checked_add(1, -hi), checked_add(1, -lo));
  }
  set_range(sum);

  for (const std::int64_t unit : units_of(sum.terms)) {
    Linear upper;
    Linear lower;
    if (!split(sum, unit, upper, lower)) continue;
    set_range(upper);
    std::int64_t upper_lo = upper.lo;
    std::int64_t upper_hi = upper.hi + 1;
    if (lo > sum.lo && !bound_of_quotient(lo, unit, lower.lo, lower.hi, upper_lo)) continue;
    if (hi <= sum.hi && !bound_of_quotient(hi, unit, lower.lo, lower.hi, upper_hi)) continue;
    return in_range(from_linear(std::move(upper)), upper_lo, upper_hi);
  }
  if (sum.is_shifted_atom()) {
    const IndexNode& atom = node(Index{sum.terms[0].first});
    if (atom.kind == IndexNode::Kind::div) {
      return in_range(Index{atom.arg}, checked_mul(lo, atom.divisor),
                      checked_mul(hi, atom.divisor));
    }
  }
  ExprNode n;
  n.fn = Fn::in_range;
  n.dtype = DType::bool_;
  n.index = from_linear(std::move(sum));
  n.lo = lo;
  n.hi = hi;
  return intern(n);
}

}  // namespace tensorgrad::kernel
