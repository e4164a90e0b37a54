// Index algebra of Pool: canonical sums, floor division and remainder with known ranges.
#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "graph/order.h"
#include "kernel/checked.h"
#include "kernel/expr.h"
#include "kernel/hash.h"
#include "kernel/linear.h"
#include "tensorgrad/error.h"

namespace tensorgrad::kernel {

namespace {

std::size_t hash_of(const IndexNode& node) {
  std::size_t seed = static_cast<std::size_t>(node.kind);
  for (const auto& [atom, factor] : node.terms) {
    mix(seed, static_cast<std::uint64_t>(atom));
    mix(seed, static_cast<std::uint64_t>(factor));
  }
  for (const std::int64_t field :
       {node.constant, static_cast<std::int64_t>(node.var), static_cast<std::int64_t>(node.arg),
        node.divisor, static_cast<std::int64_t>(node.expr.id), node.lo, node.hi}) {
    mix(seed, static_cast<std::uint64_t>(field));
  }
  return seed;
}

/// Divisors of `divisor` strictly between 1 and it that factors of the sum share with it, largest
/// first: the units at which the digits of the sum may be told apart.
std::vector<std::int64_t> candidate_units(
    const std::vector<std::pair<std::int32_t, std::int64_t>>& terms, std::int64_t divisor) {
  std::vector<std::int64_t> units;
  const auto insert = [&](std::int64_t unit) {
    if (unit <= 1 || unit >= divisor) return;
    if (std::find(units.begin(), units.end(), unit) == units.end()) units.push_back(unit);
  };
  for (const auto& term : terms) insert(std::gcd(term.second, divisor));
  for (std::size_t i = 0; i < units.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) insert(std::gcd(units[i], units[j]));
  }
  sort_values(units, std::greater<>());
  return units;
}

void require_divisor(std::int64_t divisor) {
  if (divisor < 1) {
    throw GraphError("an index is divided by " + std::to_string(divisor) +
                     ", but a divisor is at least 1");
  }
}

}  // namespace

bool IndexNode::operator==(const IndexNode&) const = default;

Index Pool::intern(IndexNode node) {
  const std::size_t hash = hash_of(node);
  const auto [first, last] = index_ids_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    if (indices_[static_cast<std::size_t>(it->second)] == node) return Index{it->second};
  }
  const auto id = static_cast<std::int32_t>(indices_.size());
  indices_.push_back(std::move(node));
  index_ids_.emplace(hash, id);
  return Index{id};
}

Pool::Linear Pool::linear(Index i) const {
  const IndexNode& n = node(i);
  Linear result;
  if (n.kind == IndexNode::Kind::sum) {
    result.terms = n.terms;
    result.constant = n.constant;
  } else {
    result.terms = {{i.id, 1}};
  }
  result.lo = n.lo;
  result.hi = n.hi;
  return result;
}

void Pool::add_scaled(Linear& sum, const Linear& other, std::int64_t factor) const {
  for (const auto& term : other.terms) sum.add(term.first, checked_mul(term.second, factor));
  sum.constant = checked_add(sum.constant, checked_mul(other.constant, factor));
}

void Pool::set_range(Linear& sum) const {
  sum.lo = sum.hi = sum.constant;
  for (const auto& [atom, factor] : sum.terms) {
    const IndexNode& n = node(Index{atom});
    sum.lo = checked_add(sum.lo, checked_mul(factor, factor > 0 ? n.lo : n.hi));
    sum.hi = checked_add(sum.hi, checked_mul(factor, factor > 0 ? n.hi : n.lo));
  }
}

/// sum = unit * quotient + rest: multiples of `unit` go into the quotient, and as much of the
/// constant that the range of the rest begins in [0, unit). Returns whether the rest also ends
/// there, so that the two are the digits of the sum.
bool Pool::split(const Linear& sum, std::int64_t unit, Linear& quotient, Linear& rest) const {
  quotient = rest = Linear{};
  for (const auto& [atom, factor] : sum.terms) {
    if (factor % unit == 0) {
      quotient.terms.emplace_back(atom, factor / unit);
    } else {
      rest.terms.emplace_back(atom, factor);
    }
  }
  rest.constant = sum.constant;
  set_range(rest);
  quotient.constant = floor_div(rest.lo, unit);
  const std::int64_t moved = quotient.constant * unit;
  rest.constant = checked_add(rest.constant, -moved);
  rest.lo -= moved;
  rest.hi = checked_add(rest.hi, -moved);
  return rest.hi < unit;
}

/// Joins two terms that are digits of one number: n * (x / n) + x % n = x, and
/// n * ((x / n) % b) + x % n = x % (n * b). Returns whether it found such a pair.
bool Pool::recombine(Linear& sum) {
  for (const auto& [low_atom, factor] : sum.terms) {
    const IndexNode& low = node(Index{low_atom});
    if (low.kind != IndexNode::Kind::mod) continue;
    std::int64_t high_factor = 0;
    if (__builtin_mul_overflow(factor, low.divisor, &high_factor)) continue;
    for (const auto& [high_atom, other_factor] : sum.terms) {
      if (other_factor != high_factor) continue;
      const IndexNode& high = node(Index{high_atom});
      const Index number{low.arg};
      Linear joined;
      if (high.kind == IndexNode::Kind::div) {
        const Linear upper = linear(div(number, low.divisor));
        if (!upper.is_shifted_atom() || upper.terms[0].first != high_atom) continue;
        joined = linear(number);
        joined.constant = checked_add(joined.constant, -checked_mul(upper.constant, low.divisor));
      } else if (high.kind == IndexNode::Kind::mod) {
        std::int64_t modulus = 0;
        if (__builtin_mul_overflow(high.divisor, low.divisor, &modulus)) continue;
        if (mod(div(number, low.divisor), high.divisor) != Index{high_atom}) continue;
        joined = linear(mod(number, modulus));
      } else {
        continue;
      }
      const std::int64_t scale = factor;
      const std::int32_t low_id = low_atom;
      const std::int32_t high_id = high_atom;
      sum.add(low_id, -scale);
      sum.add(high_id, -high_factor);
      add_scaled(sum, joined, scale);
      return true;
    }
  }
  return false;
}

Index Pool::from_linear(Linear sum) {
  while (recombine(sum)) {
  }
  if (sum.constant == 0 && sum.is_shifted_atom()) return Index{sum.terms[0].first};
  set_range(sum);
  IndexNode n;
  n.kind = IndexNode::Kind::sum;
  n.terms = std::move(sum.terms);
  n.constant = sum.constant;
  n.lo = sum.lo;
  n.hi = sum.hi;
  return intern(std::move(n));
}

Index Pool::number(std::int64_t value) {
  Linear sum;
  sum.constant = value;
  return from_linear(std::move(sum));
}

Index Pool::loop(int var, std::int64_t extent) {
  if (extent < 0 || var < 0) {
    throw GraphError("loop " + std::to_string(var) + " cannot have extent " +
                     std::to_string(extent));
  }
  if (extent <= 1) return number(0);
  IndexNode n;
  n.kind = IndexNode::Kind::loop;
  n.var = var;
  n.hi = extent - 1;
  return intern(std::move(n));
}

Index Pool::add(Index a, Index b) {
  Linear sum = linear(a);
  add_scaled(sum, linear(b), 1);
  return from_linear(std::move(sum));
}

Index Pool::sub(Index a, Index b) {
  Linear sum = linear(a);
  add_scaled(sum, linear(b), -1);
  return from_linear(std::move(sum));
}

Index Pool::mul(Index a, std::int64_t factor) {
  if (factor == 1) return a;
  Linear sum;
  if (factor != 0) add_scaled(sum, linear(a), factor);
  return from_linear(std::move(sum));
}

Index Pool::div(Index a, std::int64_t divisor) {
  require_divisor(divisor);
  if (divisor == 1) return a;
  Linear quotient;
  Linear rest;
  if (split(linear(a), divisor, quotient, rest)) return from_linear(std::move(quotient));
  add_scaled(quotient, linear(div_rest(rest, divisor)), 1);
  return from_linear(std::move(quotient));
}

/// rest / divisor, where no term is a multiple of the divisor and the range begins in [0, divisor).
Index Pool::div_rest(const Linear& rest, std::int64_t divisor) {
  for (const std::int64_t unit : candidate_units(rest.terms, divisor)) {
    Linear upper;
    Linear lower;
    if (split(rest, unit, upper, lower)) return div(from_linear(std::move(upper)), divisor / unit);
  }
  // (s + x / n) / d = (n * s + x) / (n * d): one way to write what is divided twice.
  for (const auto& [id, factor] : rest.terms) {
    const IndexNode& atom = node(Index{id});
    std::int64_t product = 0;
    if (atom.kind != IndexNode::Kind::div || factor != 1 ||
        __builtin_mul_overflow(atom.divisor, divisor, &product)) {
      continue;
    }
    const std::int64_t inner = atom.divisor;
    const Index whole{atom.arg};
    Linear sum = rest;
    sum.add(id, -1);
    Linear scaled;
    add_scaled(scaled, sum, inner);
    add_scaled(scaled, linear(whole), 1);
    return div(from_linear(std::move(scaled)), product);
  }
  if (rest.is_shifted_atom()) {
    const IndexNode& atom = node(Index{rest.terms[0].first});
    if (atom.kind == IndexNode::Kind::mod && rest.constant == 0 && atom.divisor % divisor == 0) {
      return mod(div(Index{atom.arg}, divisor), atom.divisor / divisor);
    }
  }
  IndexNode n;
  n.kind = IndexNode::Kind::div;
  n.arg = from_linear(rest).id;
  n.divisor = divisor;
  n.lo = rest.lo / divisor;
  n.hi = rest.hi / divisor;
  return intern(std::move(n));
}

Index Pool::mod(Index a, std::int64_t divisor) {
  require_divisor(divisor);
  Linear quotient;
  Linear rest;
  if (split(linear(a), divisor, quotient, rest)) return from_linear(std::move(rest));
  return mod_rest(rest, divisor);
}

/// rest % divisor, where no term is a multiple of the divisor and the range begins in [0, divisor).
Index Pool::mod_rest(const Linear& rest, std::int64_t divisor) {
  for (const std::int64_t unit : candidate_units(rest.terms, divisor)) {
    Linear upper;
    Linear lower;
    if (!split(rest, unit, upper, lower)) continue;
    add_scaled(lower, linear(mod(from_linear(std::move(upper)), divisor / unit)), unit);
    return from_linear(std::move(lower));
  }
  if (rest.is_shifted_atom() && rest.constant == 0) {
    const IndexNode& atom = node(Index{rest.terms[0].first});
    if (atom.kind == IndexNode::Kind::mod && atom.divisor % divisor == 0) {
      return mod(Index{atom.arg}, divisor);
    }
  }
  IndexNode n;
  n.kind = IndexNode::Kind::mod;
  n.arg = from_linear(rest).id;
  n.divisor = divisor;
  n.hi = divisor - 1;
  return intern(std::move(n));
}

Index Pool::value(Expr e, std::int64_t lo, std::int64_t hi) {
  if (!e.defined() || !is_integer(node(e).dtype)) {
    throw GraphError("only an i32 or u32 expression is a value of an index");
  }
  if (lo > hi) {
    throw GraphError("an index has an empty range from " + std::to_string(lo) + " to " +
                     std::to_string(hi));
  }
  if (lo == hi) return number(lo);
  const Index known = as_index(e);
  if (known.id >= 0 && node(known).lo >= lo && node(known).hi <= hi) return known;
  IndexNode n;
  n.kind = IndexNode::Kind::value;
  n.expr = e;
  n.lo = lo;
  n.hi = hi;
  return intern(std::move(n));
}

}  // namespace tensorgrad::kernel
