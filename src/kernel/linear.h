// The working form of an index sum.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernel/checked.h"
#include "kernel/expr.h"

namespace tensorgrad::kernel {

/// constant + sum of factor * atom: a sum while it is worked on. Terms are sorted by atom and their
/// factors are not 0.
struct Pool::Linear {
  std::vector<std::pair<std::int32_t, std::int64_t>> terms;
  std::int64_t constant = 0;
  std::int64_t lo = 0, hi = 0;  ///< inclusive range, valid after set_range

  /// Adds factor * atom.
  void add(std::int32_t atom, std::int64_t factor) {
    const auto at = std::lower_bound(terms.begin(), terms.end(), atom,
                                     [](const auto& term, auto id) { return term.first < id; });
    if (at == terms.end() || at->first != atom) {
      if (factor != 0) terms.insert(at, {atom, factor});
      return;
    }
    at->second = checked_add(at->second, factor);
    if (at->second == 0) terms.erase(at);
  }
  /// Whether this is 1 * atom + constant.
  bool is_shifted_atom() const { return terms.size() == 1 && terms[0].second == 1; }
};

}  // namespace tensorgrad::kernel
