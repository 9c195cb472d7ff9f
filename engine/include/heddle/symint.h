// Sizes as a program sees them: numbers, or expressions over the sizes of the inputs while tracing.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>

#include "heddle/export.h"

namespace heddle {

/// A size: a number, or while tracing an expression such as 2*s0+1.
///
/// Arithmetic stays symbolic. Comparing two sizes while tracing takes the truth for the sizes of this
/// trace and records a guard with the source line of the comparison: the compiled code serves the calls
/// for which the comparison has the same outcome. Division and % round like Python's.
class HEDDLE_API SymInt {
 public:
  SymInt() = default;
  template <std::integral T>
  SymInt(T value) : value_(static_cast<std::int64_t>(value)) {}  // NOLINT: implicit on purpose

  bool is_symbolic() const { return expr_ != nullptr; }
  /// The number. While tracing a symbolic size: the size of this trace, and a guard that pins it.
  std::int64_t value(std::source_location where = std::source_location::current()) const;
  std::string to_string() const;  ///< "128", "2*s0+1"

  friend HEDDLE_API SymInt operator+(const SymInt& a, const SymInt& b);
  friend HEDDLE_API SymInt operator-(const SymInt& a, const SymInt& b);
  friend HEDDLE_API SymInt operator*(const SymInt& a, const SymInt& b);
  friend HEDDLE_API SymInt operator/(const SymInt& a, const SymInt& b);
  friend HEDDLE_API SymInt operator%(const SymInt& a, const SymInt& b);
  friend HEDDLE_API SymInt min(const SymInt& a, const SymInt& b);
  friend HEDDLE_API SymInt max(const SymInt& a, const SymInt& b);

  struct Impl;  // the expression; defined by the engine
  explicit SymInt(std::shared_ptr<const Impl> expr);
  const Impl* impl() const { return expr_.get(); }

 private:
  std::int64_t value_ = 0;
  std::shared_ptr<const Impl> expr_;
};

/// One side of a comparison, with the line where it stands.
struct SymIntArg {
  template <typename T>
    requires std::convertible_to<T, SymInt>
  SymIntArg(const T& v, std::source_location l = std::source_location::current())  // NOLINT
      : value(v), where(l) {}
  SymInt value;
  std::source_location where;
};

HEDDLE_API bool operator==(const SymIntArg& a, const SymIntArg& b);
HEDDLE_API bool operator!=(const SymIntArg& a, const SymIntArg& b);
HEDDLE_API bool operator<(const SymIntArg& a, const SymIntArg& b);
HEDDLE_API bool operator<=(const SymIntArg& a, const SymIntArg& b);
HEDDLE_API bool operator>(const SymIntArg& a, const SymIntArg& b);
HEDDLE_API bool operator>=(const SymIntArg& a, const SymIntArg& b);

}  // namespace heddle
