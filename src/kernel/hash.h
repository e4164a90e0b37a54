// Hash mixing for structural hashes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tensorgrad::kernel {

/// Mixes `value` into `seed` (the finaliser of SplitMix64 over the sum).
inline void mix(std::size_t& seed, std::uint64_t value) {
  std::uint64_t x = static_cast<std::uint64_t>(seed) + 0x9e3779b97f4a7c15ULL + value;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
  seed = static_cast<std::size_t>(x ^ (x >> 31U));
}

}  // namespace tensorgrad::kernel
