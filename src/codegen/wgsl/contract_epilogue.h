// What happens to the results of a contraction.
#pragma once

#include <optional>

#include "codegen/wgsl/contract_text.h"

namespace tensorgrad::wgsl {

/// Stores results as they are; `wide` says that four neighbours are stored as one vector (then
/// there is no `finish`). A result without argument goes to scratch buffer s0.
Epilogue plain_epilogue(const Problem& problem, const Result& out, bool wide);

/// Whether four results that are neighbours in n can be stored as a vector.
bool is_wide_result(const Problem& problem, const Result& out, std::int64_t elements);

/// The kernel's nest applied to each result as it is delivered, or nothing where the nest is not a
/// map over the results. `vectors` says that the template can deliver four at a time; arguments
/// that are then stored so, and those of `wide` that the nest reads element by element, end up in
/// `wide`.
std::optional<Epilogue> map_epilogue(const kernel::Kernel& kernel, const Problem& problem,
                                     bool vectors, WideArgs& wide);

}  // namespace tensorgrad::wgsl
