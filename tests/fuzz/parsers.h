// Every parser of bytes from outside, under one roof: for libFuzzer, and for a test that needs
// nothing but the compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tensorgrad::fuzz {

using Bytes = std::vector<std::byte>;

/// A parser as a function of bytes.
struct Parser {
  std::string_view name;
  /// Parses. An Error of the library is an answer; any other exception leaves.
  void (*parse)(std::span<const std::byte> bytes);
  /// Sound inputs, from which others are made.
  std::vector<Bytes> (*seeds)();
};

/// All of them.
std::span<const Parser> parsers();

}  // namespace tensorgrad::fuzz
