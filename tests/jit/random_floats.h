// Floats to compute with.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

namespace heddle::tests {

/// `count` numbers of [-1, 1), the same for the same seed.
inline std::vector<float> random_floats(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(engine);
  return values;
}

}  // namespace heddle::tests
