#pragma once

#include <cstdint>
#include <random>

#include "heddle/heddle.h"

namespace heddle::test {

/// Elements in [-1, 1], the same ones for the same seed.
inline Tensor random_tensor(Sizes sizes, unsigned seed) {
  Tensor tensor = Tensor::empty(f32, std::move(sizes));
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  float* data = tensor.data_as<float>();
  for (std::int64_t k = 0; k < tensor.count(); ++k) data[k] = uniform(engine);
  return tensor;
}

}  // namespace heddle::test
