// Numbers for tests of numeric kernels.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace tensorgrad {

/// `count` numbers, uniform in [-1, 1).
inline std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> result(count);
  for (float& value : result) value = uniform(random);
  return result;
}

}  // namespace tensorgrad
