#include "base/symreal.h"

#include <bit>
#include <cmath>

#include "base/symexpr_node.h"

namespace heddle::base {

using Kind = SymExpr::Kind;

std::int64_t bits_of(double number) { return std::bit_cast<std::int64_t>(number); }
double number_of(std::int64_t bits) { return std::bit_cast<double>(bits); }

SymExpr real(double number) { return bits_of(number); }
SymExpr real(const SymExpr& integer) { return make_real(Kind::Real, integer); }
SymExpr whole(const SymExpr& real) { return make_real(Kind::Whole, real); }

SymExpr make_real(Kind kind, const SymExpr& left, const SymExpr& right) {
  if (left.is_constant() && right.is_constant())
    return apply_real(kind, left.constant(), right.constant());
  if (kind == Kind::RealSingle && left.kind() == kind) return left;
  return make_atom(kind, left, right);
}

std::int64_t apply_real(Kind kind, std::int64_t left, std::int64_t right) {
  const double a = number_of(left);
  const double b = number_of(right);
  switch (kind) {
    case Kind::Whole:
      return std::fabs(a) < 0x1p62 ? static_cast<std::int64_t>(a) : 0;
    case Kind::Real:
      return bits_of(static_cast<double>(left));
    case Kind::RealAdd:
      return bits_of(a + b);
    case Kind::RealSub:
      return bits_of(a - b);
    case Kind::RealMul:
      return bits_of(a * b);
    case Kind::RealDiv:
      return bits_of(a / b);
    case Kind::RealMin:
      return bits_of(b < a ? b : a);
    case Kind::RealMax:
      return bits_of(a < b ? b : a);
    case Kind::RealFloor:
      return bits_of(std::floor(a));
    case Kind::RealCeil:
      return bits_of(std::ceil(a));
    case Kind::RealRound:
      return bits_of(std::nearbyint(a));
    case Kind::RealSqrt:
      return bits_of(std::sqrt(a));
    case Kind::RealAbs:
      return bits_of(std::fabs(a));
    default:
      return bits_of(static_cast<double>(static_cast<float>(a)));
  }
}

bool has_two_arguments(Kind kind) { return kind >= Kind::RealAdd && kind <= Kind::RealMax; }

std::string_view name_of_real(Kind kind) {
  static constexpr std::string_view kNames[] = {"whole",  "real",  "radd", "rsub",   "rmul",
                                                "rdiv",   "rmin",  "rmax", "rfloor", "rceil",
                                                "rround", "rsqrt", "rabs", "single"};
  return kNames[static_cast<std::size_t>(kind) - static_cast<std::size_t>(Kind::Whole)];
}

bool is_short(const SymExpr& expr) {
  constexpr std::uint32_t kMostDepth = 40;
  constexpr std::uint32_t kMostAtoms = 1000;
  if (expr.is_constant()) return true;
  const SymNode& node = *SymExprAccess::node(expr);
  return node.depth <= kMostDepth && node.weight <= kMostAtoms;
}

bool provably_nonnegative_real(const SymExpr& real, const Facts& facts) {
  if (real.is_constant()) return !(number_of(real.constant()) < 0);
  const SymNode& node = *SymExprAccess::node(real);
  const auto left = [&] { return provably_nonnegative_real(node.left, facts); };
  const auto right = [&] { return provably_nonnegative_real(node.right, facts); };
  switch (node.kind) {
    case Kind::Real:
      return provably_nonnegative(node.left, facts);
    case Kind::RealAbs:
      return true;
    case Kind::RealAdd:
    case Kind::RealMul:
    case Kind::RealDiv:
    case Kind::RealMin:
    case Kind::RealMax:
      return left() && right();
    case Kind::RealFloor:
    case Kind::RealCeil:
    case Kind::RealRound:
    case Kind::RealSqrt:
    case Kind::RealSingle:
      return left();
    default:
      return false;
  }
}

}  // namespace heddle::base
