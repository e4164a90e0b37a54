// Columns in registers: what several stages of a row compute of a column is computed once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/wgsl/nest_rows.h"

namespace tensorgrad::wgsl {

/// An expression that stages keep in an array `name`, whose element k is the column of the k-th
/// turn: the first of them fills it.
struct Kept {
  kernel::Expr expr;
  int var = -1;  ///< the loop over the columns
  std::set<std::size_t> stages;
  std::string name;
  std::string_view type;   ///< of an element
  std::int64_t turns = 1;  ///< elements
};

/// Chooses what the stages `run` of a pass keep: the largest expressions of a column that several
/// of them share, as long as no stage but the last changes what they are computed from, and
/// registers suffice.
std::vector<Kept> choose_kept(const FlatNest& flat, const std::vector<std::size_t>& run,
                              const RowLayout& layout);

}  // namespace tensorgrad::wgsl
