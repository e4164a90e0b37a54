// Small programs with the same fault, and their text.
#pragma once

#include <functional>
#include <string>

#include "fuzz/compare.h"

namespace tensorgrad::fuzz {

/// Whether a program fails as the one to be made smaller does.
using Fails = std::function<bool(const Program&, const Compilation&)>;

/// Removes outputs, nodes and passes that are off, and makes extents and values smaller, as long as
/// `fails` holds; `program` and `how` are replaced by what is left.
void minimise(Program& program, Compilation& how, const Fails& fails);

/// The program as the printed graph, its data, and C++ that builds it.
std::string to_text(const Program& program, const Compilation& how);

}  // namespace tensorgrad::fuzz
