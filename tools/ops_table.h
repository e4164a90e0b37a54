// What the registry says about every primitive, for people and for programs.
#pragma once

#include <string>
#include <vector>

namespace tensorgrad::tools {

/// One primitive.
struct OpEntry {
  std::string name;
  std::string kind;                 ///< how the schedule sees it: map, view, reduction, …
  std::vector<std::string> dtypes;  ///< that its operands take, one entry each; "" for leaves
  std::string derivative;           ///< "yes", "zero", or "none: " and why
  bool linear = false;              ///< in some operand: it has a transpose rule
  double ulp = 0;                   ///< what a device may differ by, relative, in ULP of f32
  std::string doc;
};

/// All primitives, in the registry's order.
std::vector<OpEntry> op_entries();
/// The page `docs/ops.md`.
std::string ops_markdown();
/// The same as a JSON list, ended by a line break.
std::string ops_json();

}  // namespace tensorgrad::tools
