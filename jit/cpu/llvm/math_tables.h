// Numbers that functions of vector math share, and tables of those that look their coefficients up: one lane of a register an interval.
#pragma once

#include <array>
#include <cstddef>

namespace heddle::jit::cpu {

/// log2(e), and what the float leaves.
inline constexpr double kLog2E = 0x1.715476p+0;
inline constexpr double kLog2ELow = 0x1.4ae0cp-26;
// ln 2 in parts of 24 bits.
inline constexpr double kLn2High = 0x1.62e43p-1;
inline constexpr double kLn2Low = -0x1.05c61p-29;
/// Added and subtracted, it rounds to an integer, which the low bits of the sum then hold.
inline constexpr double kRounder = 0x1.8p23;

/// An odd function that grows to 1, as polynomials in |x| - center over 32 intervals, four to each power of
/// two from 2^first_exponent on. The first one reaches down to 0, where it is t times a polynomial, so that
/// the error stays relative.
struct PiecewiseTable {
  static constexpr std::size_t kIntervals = 32;
  static constexpr std::size_t kTerms = 6;
  int first_exponent = 0;
  float highest = 0;  ///< beyond it the function is 1
  /// By bits 21 to 25 of |x| as an integer.
  std::array<float, kIntervals> centers{};
  /// By power, then as `centers`.
  std::array<std::array<float, kIntervals>, kTerms> coefficients{};
};

/// 2^-26 of tanh from 2^-4 to 9.5.
const PiecewiseTable& tanh_table();
/// 2^-25 of erf from 2^-6 to 4.
const PiecewiseTable& erf_table();

/// An odd function that grows to 1, as polynomials in |x| - k * width for |x| around it, k from 0 to 7. Around 0 it is
/// t + t times a polynomial, so that the error stays relative.
struct EvenTable {
  static constexpr std::size_t kIntervals = 8;
  static constexpr std::size_t kTerms = 7;
  float width = 0;    ///< of few bits, so that its multiples are exact
  float highest = 0;  ///< beyond it the function is 1
  /// By power, then by k. That of t itself is one less for k = 0.
  std::array<std::array<float, kIntervals>, kTerms> coefficients{};
};
/// 2^-25.5 of erf from 2^-2 on.
const EvenTable& even_erf_table();

/// log(m) = logarithm + log(1 + r) for m in [0.75, 1.5): m * reciprocal = 1 + r with r in [-1/32, 1/16]. By the
/// four highest bits of the mantissa. Around 1 the reciprocal is 1; elsewhere it is one whose logarithm is close to a
/// float, so that its rounding adds nothing.
struct LogTable {
  static constexpr std::size_t kIntervals = 16;
  std::array<float, kIntervals> reciprocals{};
  std::array<float, kIntervals> logarithms{};
  /// (log(1 + r) - r) / r^2: 2^-27 of log(1 + r).
  std::array<double, 4> rest{};
};
const LogTable& log_table();

}  // namespace heddle::jit::cpu
