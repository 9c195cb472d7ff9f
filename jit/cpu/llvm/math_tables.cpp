#include "jit/cpu/llvm/math_tables.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

namespace heddle::jit::cpu {
namespace {

/// Coefficients, lowest power first, of the polynomial that equals `f` at the Chebyshev nodes of [low, high]: within
/// a small factor of the best one of its degree. In the variable of `f` itself.
template <typename Function>
std::vector<double> interpolate(const Function& f, double low, double high, std::size_t terms) {
  std::vector<double> nodes(terms);
  std::vector<double> differences(terms);
  for (std::size_t k = 0; k < terms; ++k) {
    const double angle =
        std::numbers::pi * (2.0 * static_cast<double>(k) + 1) / (2.0 * static_cast<double>(terms));
    nodes[k] = (low + high) / 2 + (high - low) / 2 * std::cos(angle);
    differences[k] = f(nodes[k]);
  }
  for (std::size_t order = 1; order < terms; ++order)
    for (std::size_t k = terms - 1; k >= order; --k)
      differences[k] = (differences[k] - differences[k - 1]) / (nodes[k] - nodes[k - order]);
  // Newton's form, multiplied out.
  std::vector<double> powers(terms, 0.0);
  for (std::size_t k = terms; k-- > 0;) {
    for (std::size_t power = terms - 1; power > 0; --power)
      powers[power] = powers[power - 1] - nodes[k] * powers[power];
    powers[0] = differences[k] - nodes[k] * powers[0];
  }
  return powers;
}

/// The lane that looks up what belongs to `magnitude`.
std::size_t lane_of(float magnitude) {
  return (std::bit_cast<std::uint32_t>(magnitude) >> 21) % PiecewiseTable::kIntervals;
}

template <typename Function>
PiecewiseTable make_piecewise(const Function& f, int first_exponent, float highest) {
  constexpr std::size_t kTerms = PiecewiseTable::kTerms;
  PiecewiseTable table;
  table.first_exponent = first_exponent;
  table.highest = highest;
  for (std::size_t k = 0; k < PiecewiseTable::kIntervals; ++k) {
    const double power = std::ldexp(1.0, first_exponent + static_cast<int>(k / 4));
    const double low = power * (1 + static_cast<double>(k % 4) / 4);
    const double high = std::min(low + power / 4, static_cast<double>(highest));
    const std::size_t lane = lane_of(static_cast<float>(low));
    if (low >= high) continue;
    // At the last one's center the value is its first term, 1 itself.
    const bool last = high == static_cast<double>(highest);
    const double center = k == 0 ? 0 : last ? high : (low + high) / 2;
    table.centers[lane] = static_cast<float>(center);
    std::vector<double> terms;
    if (k == 0) {
      terms = interpolate([&](double t) { return f(t) / t; }, 0, high, kTerms - 1);
      terms.insert(terms.begin(), 0.0);
    } else {
      terms =
          interpolate([&](double t) { return f(center + t); }, low - center, high - center, kTerms);
      if (last) terms[0] = f(center);
    }
    for (std::size_t power_of = 0; power_of < kTerms; ++power_of)
      table.coefficients[power_of][lane] = static_cast<float>(terms[power_of]);
  }
  return table;
}

template <typename Function>
EvenTable make_even(const Function& f, float width, float highest) {
  constexpr std::size_t kTerms = EvenTable::kTerms;
  EvenTable table;
  table.width = width;
  table.highest = highest;
  for (std::size_t k = 0; k < EvenTable::kIntervals; ++k) {
    const double center = static_cast<double>(k) * static_cast<double>(width);
    const double half = static_cast<double>(width) / 2;
    std::vector<double> terms;
    if (k == 0) {
      terms = interpolate([&](double t) { return f(t) / t; }, 0, half, kTerms - 1);
      terms[0] -= 1;
      terms.insert(terms.begin(), 0.0);
    } else {
      terms = interpolate([&](double t) { return f(center + t); }, -half, half, kTerms);
    }
    for (std::size_t power = 0; power < kTerms; ++power)
      table.coefficients[power][k] = static_cast<float>(terms[power]);
  }
  return table;
}

/// The float near `value` whose logarithm is closest to a float.
float with_exact_logarithm(float value) {
  constexpr int kTried = 256;
  float best = value;
  double least = 1;
  for (int k = -kTried; k <= kTried; ++k) {
    const auto bits = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(value)) + k;
    const auto candidate = std::bit_cast<float>(bits);
    const double logarithm = std::log(static_cast<double>(candidate));
    const double error = std::abs(logarithm - static_cast<double>(static_cast<float>(logarithm)));
    if (error >= least) continue;
    least = error;
    best = candidate;
  }
  return best;
}

LogTable make_log() {
  LogTable table;
  for (std::size_t k = 0; k < LogTable::kIntervals; ++k) {
    double low = 1 + static_cast<double>(k) / 16;
    double width = 1.0 / 16;
    if (k >= 8) low /= 2, width /= 2;
    const bool around_one = k == 0 || k == LogTable::kIntervals - 1;
    const auto middle = static_cast<float>(1 / (low + width / 2));
    const float reciprocal = around_one ? 1 : with_exact_logarithm(middle);
    table.reciprocals[k] = reciprocal;
    table.logarithms[k] =
        around_one ? 0 : static_cast<float>(-std::log(static_cast<double>(reciprocal)));
  }
  const auto rest = [](double r) { return (std::log1p(r) - r) / (r * r); };
  const std::vector<double> terms = interpolate(rest, -1.0 / 32, 1.0 / 16, table.rest.size());
  for (std::size_t k = 0; k < terms.size(); ++k) table.rest[k] = terms[k];
  return table;
}

}  // namespace

const PiecewiseTable& tanh_table() {
  static const PiecewiseTable table =
      make_piecewise([](double x) { return std::tanh(x); }, -4, 9.5f);
  return table;
}

const PiecewiseTable& erf_table() {
  static const PiecewiseTable table =
      make_piecewise([](double x) { return std::erf(x); }, -6, 0x1.fffffep1f);
  return table;
}

const EvenTable& even_erf_table() {
  static const EvenTable table = make_even([](double x) { return std::erf(x); }, 0.53125f, 3.96f);
  return table;
}

const LogTable& log_table() {
  static const LogTable table = make_log();
  return table;
}

}  // namespace heddle::jit::cpu
