// Real numbers that sizes make, as where an exporter halves a size in floating point.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "heddle/dtype.h"
#include "heddle/symint.h"

namespace heddle::onnx {

/// A real number of f32 or f64 that follows from sizes. It stays symbolic as long as it is a fraction that its dtype holds
/// exactly; what is read as a number ties the trace to its sizes.
class Real {
 public:
  Real(double number, DType dtype);
  /// A size converted to `dtype`.
  Real(const SymInt& size, DType dtype);

  /// Rounded as `dtype` rounds each step. Guards the sizes that it comes from.
  double number() const;
  /// The number cut to an integer; 0 where it is none that 62 bits hold.
  std::int64_t whole() const;
  /// The number cut to an integer, if it is symbolic still.
  std::optional<SymInt> cut() const;

  /// a - b of two that their dtype holds exactly, times a positive number: its sign tells which is larger.
  static std::optional<SymInt> difference(const Real& a, const Real& b);

  /// ceil((limit - start) / step), at least 0: how many numbers there are from `start` on below `limit`; nothing where the dtype does
  /// not hold them exactly, or the step follows from sizes or is 0.
  static std::optional<SymInt> count(const Real& start, const Real& limit, const Real& step);

  /// op of reals of one dtype, by the names of the IR's ops; nothing if it is none that is known of reals.
  static std::optional<Real> apply(std::string_view op, const Real& a);
  static std::optional<Real> apply(std::string_view op, const Real& a, const Real& b);

 private:
  /// numerator / denominator, which is a power of two.
  struct Fraction {
    SymInt numerator;
    std::int64_t denominator = 1;
  };
  using Number = std::function<double()>;
  Real(Number number, std::optional<Fraction> fraction, DType dtype, int steps = 1)
      : number_(std::make_shared<const Number>(std::move(number))),
        fraction_(std::move(fraction)),
        dtype_(dtype),
        steps_(steps) {}
  static std::optional<Fraction> fraction_of(double number);
  static std::optional<Fraction> combine(std::string_view op, const Fraction& a, const Fraction& b);
  /// Nothing where its terms overflow too.
  static std::optional<Fraction> combined(std::string_view op, const Real& a, const Real& b);
  /// Whether `dtype_` holds the fraction exactly; guards that it does.
  bool is_exact() const;

  std::shared_ptr<const Number> number_;
  std::optional<Fraction> fraction_;
  DType dtype_;
  int steps_;  ///< calls that number() makes
};

/// Of a scalar or vector, its elements.
using Reals = std::vector<Real>;

/// op of each element, single elements repeating; nothing where the lengths do not fit or the op is not known of reals.
std::optional<Reals> apply_reals(std::string_view op, std::span<const Reals> operands);

}  // namespace heddle::onnx
