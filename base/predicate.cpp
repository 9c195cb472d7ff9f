#include "base/check.h"
#include "base/symexpr.h"

namespace heddle::base {
namespace {

/// Whether expr = 0, where that is decided.
std::optional<bool> is_zero(const SymExpr& expr, const Facts& facts) {
  if (expr.is_constant()) return expr.constant() == 0;
  if (provably_nonnegative(expr - 1, facts) || provably_nonnegative(-expr - 1, facts)) return false;
  if (provably_nonnegative(expr, facts) && provably_nonnegative(-expr, facts)) return true;
  return std::nullopt;
}

/// Whether expr >= 0, where that is decided.
std::optional<bool> is_nonnegative(const SymExpr& expr, const Facts& facts) {
  if (provably_nonnegative(expr, facts)) return true;
  if (provably_nonnegative(-expr - 1, facts)) return false;
  return std::nullopt;
}

}  // namespace

Predicate Predicate::negated() const {
  switch (op) {
    case Op::Eq:
      return {Op::Ne, left, right};
    case Op::Ne:
      return {Op::Eq, left, right};
    case Op::Lt:
      return {Op::Le, right, left};
    case Op::Le:
      return {Op::Lt, right, left};
  }
  check_failed(__FILE__, __LINE__, "a predicate of a known kind");
}

bool Predicate::evaluate(const SymbolValues& values) const {
  const std::int64_t l = left.evaluate(values);
  const std::int64_t r = right.evaluate(values);
  switch (op) {
    case Op::Eq:
      return l == r;
    case Op::Ne:
      return l != r;
    case Op::Lt:
      return l < r;
    case Op::Le:
      return l <= r;
  }
  check_failed(__FILE__, __LINE__, "a predicate of a known kind");
}

std::optional<bool> Predicate::decide(const Facts& facts) const {
  const SymExpr difference = (right - left).simplify(facts);
  switch (op) {
    case Op::Eq:
      return is_zero(difference, facts);
    case Op::Ne: {
      const std::optional<bool> equal = is_zero(difference, facts);
      return equal ? std::optional<bool>(!*equal) : std::nullopt;
    }
    case Op::Lt:
      return is_nonnegative(difference - 1, facts);
    case Op::Le:
      return is_nonnegative(difference, facts);
  }
  check_failed(__FILE__, __LINE__, "a predicate of a known kind");
}

std::string Predicate::to_string() const {
  static constexpr const char* kOps[] = {" == ", " != ", " < ", " <= "};
  return left.to_string() + kOps[static_cast<std::size_t>(op)] + right.to_string();
}

}  // namespace heddle::base
