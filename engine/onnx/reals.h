// Real numbers that sizes make, as where an exporter halves a size in floating point.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "heddle/dtype.h"
#include "heddle/symint.h"

namespace heddle::onnx {

/// A real number of f32 or f64 that follows from sizes, computed as its dtype computes it. It stays symbolic; what is read as a number
/// ties the trace to its sizes.
///
/// What it is cut, rounded down or up to is an integer expression where it is known to be a fraction: one that its dtype holds
/// exactly, or one that a single division by a small number rounded (a fifth of a size, in windows of seven), as far as its terms leave
/// the roundings room. Such expressions say more than those of reals, whose rounding nothing looks through.
class Real {
 public:
  Real(double number, DType dtype);
  /// A size converted to `dtype`.
  Real(const SymInt& size, DType dtype);

  /// Rounded as `dtype` rounds each step. Guards the sizes that it comes from.
  double number() const;
  /// The same number, rounded to another dtype.
  Real as(DType dtype) const;
  /// The number cut to an integer; 0 where it is none that 62 bits hold.
  SymInt cut() const;

  /// a - b of two that their dtype holds exactly, times a positive number: its sign tells which is larger.
  static std::optional<SymInt> difference(const Real& a, const Real& b);

  /// ceil((limit - start) / step), at least 0: how many numbers there are from `start` on below `limit`; 0 where the step is.
  static SymInt count(const Real& start, const Real& limit, const Real& step);

  /// op of reals of one dtype, by the names of the IR's ops; nothing if it is none that is known of reals.
  static std::optional<Real> apply(std::string_view op, const Real& a);
  static std::optional<Real> apply(std::string_view op, const Real& a, const Real& b);

 private:
  /// numerator / denominator, which is positive.
  struct Fraction {
    SymInt numerator;
    std::int64_t denominator = 1;
  };
  Real() = default;
  /// Of which no fraction is known, unless it is a number.
  static Real of(SymInt real, DType dtype);
  static std::optional<Fraction> fraction_of(double number);
  static std::optional<Fraction> combine(std::string_view op, const Fraction& a, const Fraction& b);
  /// Whether op of what a division rounded and of another number keeps what is_near() tells.
  static bool may_follow_division(std::string_view op, const Real& divided, const Real& other,
                                  bool other_is_left);
  /// Sets what is known of a result of two: its fraction and what was rounded on the way.
  void combined(std::string_view op, const Real& a, const Real& b);
  static std::optional<SymInt> exact_count(const Real& start, const Real& limit, const Real& step);
  /// Whether terms below a limit are so before the run; guards that they are.
  static bool is_below(const SymInt& term, std::int64_t limit);
  /// Whether `dtype_` holds the fraction exactly; guards that it does.
  bool is_exact() const;
  /// Whether the number is less than a denominator's part from the fraction, and the fraction where that is whole; guards that it is.
  bool is_near() const;
  int digits() const { return dtype_ == f32 ? 24 : 53; }

  SymInt real_;  ///< of heddle/frontend.h
  std::optional<Fraction> fraction_;
  std::vector<Fraction> rounded_{};  ///< the steps from a division on whose results may be rounded
  DType dtype_ = f32;
};

/// Of a scalar or vector, its elements.
using Reals = std::vector<Real>;

/// op of each element, single elements repeating; nothing where the lengths do not fit or the op is not known of reals.
std::optional<Reals> apply_reals(std::string_view op, std::span<const Reals> operands);

}  // namespace heddle::onnx
