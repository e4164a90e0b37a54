// Every parser on sound inputs and on thousands that are nearly sound.
#include "fuzz/parsers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "tensorgrad/error.h"

namespace tensorgrad::fuzz {
namespace {

class ParserTest : public ::testing::TestWithParam<Parser> {};

INSTANTIATE_TEST_SUITE_P(All, ParserTest, ::testing::ValuesIn(parsers().begin(), parsers().end()),
                         [](const auto& test) { return std::string(test.param.name); });

/// Flips bits, cuts, repeats and inserts what numbers and texts are sensitive to.
Bytes mutated(Bytes bytes, std::mt19937_64& rng) {
  constexpr std::string_view pieces[] = {"-",     "9999999999999999999",
                                         "1e999", "\"",
                                         "{",     "[",
                                         "null",  ",",
                                         ":",     "\\u0000",
                                         "true",  "\xff",
                                         "]",     "}"};
  const auto edits = 1 + rng() % 4;
  for (std::uint64_t e = 0; e < edits; ++e) {
    const std::size_t at = bytes.empty() ? 0 : rng() % bytes.size();
    const auto place = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    switch (rng() % 6) {
      case 0:
        if (!bytes.empty()) *place ^= static_cast<std::byte>(1U << (rng() % 8));
        break;
      case 1:
        if (!bytes.empty()) *place = static_cast<std::byte>(rng() % 2 == 0 ? 0xff : 0);
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3: {
        const Bytes again(
            place, bytes.begin() + static_cast<std::ptrdiff_t>(std::min(bytes.size(), at + 8)));
        bytes.insert(place, again.begin(), again.end());
        break;
      }
      case 4: {
        const std::string_view piece = pieces[rng() % std::size(pieces)];
        const auto raw = std::as_bytes(std::span(piece));
        bytes.insert(place, raw.begin(), raw.end());
        break;
      }
      default:
        if (!bytes.empty()) {
          bytes.erase(place, bytes.begin() + static_cast<std::ptrdiff_t>(
                                                 std::min(bytes.size(), at + 1 + rng() % 4)));
        }
    }
  }
  return bytes;
}

TEST_P(ParserTest, AnswersOrThrowsAnErrorOfTheLibrary) {
  std::mt19937_64 rng(1);
  constexpr int mutations = 400;
  for (const Bytes& seed : GetParam().seeds()) {
    for (int i = 0; i < mutations; ++i) {
      const Bytes bytes = mutated(seed, rng);
      try {
        GetParam().parse(bytes);
      } catch (const Error& error) {
        ASSERT_FALSE(std::string(error.what()).empty());
      } catch (const std::exception& error) {
        FAIL() << error.what() << " for \""
               << std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()) << '"';
      }
    }
  }
}

}  // namespace
}  // namespace tensorgrad::fuzz
