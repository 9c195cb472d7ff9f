// Convolutions on memory with the channels last, summed up in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "jit/cpu/onednn/problem.h"
#include "tests/jit/random_floats.h"

namespace heddle::jit::onednn {

using Floats = std::vector<float>;

inline std::size_t count_of(const Ints& sizes) {
  return static_cast<std::size_t>(elements_of(sizes));
}

/// Operands of a convolution, and what is added to its result.
struct ConvData {
  Floats x, weights, bias, added;

  explicit ConvData(const Problem& p)
      : x(tests::random_floats(count_of(p.x), 1)),
        weights(tests::random_floats(count_of(p.weights), 2)),
        bias(tests::random_floats(static_cast<std::size_t>(p.result[1]), 3)),
        added(tests::random_floats(count_of(p.result), 4)) {}
};

/// Element `m` of position `at` of the result, over [n, out…], in the order of memory.
inline double conv_sum(const Problem& p, const ConvData& d, std::int64_t at, std::int64_t m) {
  const std::size_t rank = p.strides.size();
  Ints position(rank);
  for (std::size_t k = rank; k-- > 0; at /= p.result[k + 2]) position[k] = at % p.result[k + 2];
  const Ints kernel(p.weights.end() - static_cast<std::ptrdiff_t>(rank), p.weights.end());
  const std::int64_t taps = elements_of(kernel);
  const std::int64_t groups = p.weights.size() == p.result.size() ? 1 : p.weights[0];
  const std::int64_t channels = p.x[1] / groups;
  const std::int64_t first = m / (p.result[1] / groups) * channels;
  double sum = p.has_bias ? d.bias[static_cast<std::size_t>(m)] : 0;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    std::int64_t from = at;  // by now the image
    bool inside = true;
    std::int64_t below = taps;
    for (std::size_t k = 0; k < rank; ++k) {
      below /= kernel[k];
      const std::int64_t one = tap / below % kernel[k];
      const std::int64_t read =
          position[k] * p.strides[k] - p.pads_low[k] + one * (p.dilations[k] + 1);
      inside = inside && read >= 0 && read < p.x[k + 2];
      from = from * p.x[k + 2] + read;
    }
    for (std::int64_t c = 0; c < channels && inside; ++c)
      sum += static_cast<double>(d.x[static_cast<std::size_t>(from * p.x[1] + first + c)]) *
             d.weights[static_cast<std::size_t>((m * channels + c) * taps + tap)];
  }
  return sum;
}

/// The largest error of `got`, which has relu behind it and, where `adds`, what is added, as a share of the largest result; infinite where
/// something is NaN.
inline double worst_error(const Problem& p, const ConvData& data, bool adds,
                          std::span<const float> got) {
  double worst = 0;
  double most = 0;
  std::size_t at = 0;
  for (std::int64_t position = 0; position < positions_of(p); ++position)
    for (std::int64_t m = 0; m < p.result[1]; ++m, ++at) {
      const double want = std::max(
          0.0, conv_sum(p, data, position, m) + (adds ? static_cast<double>(data.added[at]) : 0.0));
      const double error = std::abs(want - static_cast<double>(got[at]));
      worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
      most = std::max(most, std::abs(want));
    }
  return most == 0 ? worst : worst / most;
}

}  // namespace heddle::jit::onednn
