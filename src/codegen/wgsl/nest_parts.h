// Pieces that several templates of loop nests share.
#pragma once

#include <string>

#include "codegen/wgsl/pass_builder.h"

namespace tensorgrad::wgsl {

/// The stores of a stage at the current point: all values first. `guard`, if not empty, is a
/// condition for all of them.
void render_stores(PassBuilder& pass, const kernel::Stage& stage, const std::string& guard);

/// The running value of one accumulator: WGSL variables.
struct Running {
  const kernel::Accumulator* accumulator = nullptr;
  std::string value, position;
  bool indexed() const;
};
/// Declares the variables, neutral.
Running start(PassBuilder& pass, const kernel::Accumulator& accumulator);
/// Takes in the accumulator's value at the current point.
void take(PassBuilder& pass, const Running& running);
/// Takes in another partial result, given as WGSL texts.
void take(PassBuilder& pass, const Running& running, const std::string& value,
          const std::string& position);
/// The WGSL type of a running value: bool as u32.
std::string_view running_type(const kernel::Accumulator& accumulator);

}  // namespace tensorgrad::wgsl
