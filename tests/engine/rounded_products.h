// How far off the results of products are whose operands were rounded.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "heddle/heddle.h"

namespace heddle::tests {

/// f32 in [-1, 1) that looks random, the same in every run.
inline Tensor rounded_noise(Sizes sizes, std::uint32_t seed) {
  Tensor tensor = Tensor::empty(f32, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k) {
    seed = seed * 1664525u + 1013904223u;
    tensor.data_as<float>()[k] = static_cast<float>(seed >> 8) * 0x1p-23f - 1;
  }
  return tensor;
}

/// The largest error of y = x . weights, matrices of f32, as a share of the sum of the magnitudes that the element adds up.
inline double share_of_error(const Tensor& x, const Tensor& weights, const Tensor& y) {
  const std::int64_t depth = weights.sizes()[0];
  const std::int64_t columns = weights.sizes()[1];
  double most = 0;
  for (std::int64_t r = 0; r < x.sizes()[0]; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      double want = 0;
      double size = 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        const double product = static_cast<double>(x.data_as<float>()[r * depth + k]) *
                               weights.data_as<float>()[k * columns + c];
        want += product;
        size += std::abs(product);
      }
      most = std::max(most, std::abs(y.data_as<float>()[r * columns + c] - want) / size);
    }
  }
  return most;
}

}  // namespace heddle::tests
