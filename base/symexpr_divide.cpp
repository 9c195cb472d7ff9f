// Division: exact, and floordiv, mod, min and max in canonical form.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/symexpr.h"
#include "base/symexpr_node.h"
#include "base/symreal.h"

namespace heddle::base {
namespace {

using Kind = SymExpr::Kind;

/// a = quotient * b + rest.
struct Split {
  SymExpr quotient;
  SymExpr rest;
};

bool divides(std::int64_t divisor, std::int64_t value) {
  return divisor == -1 || value % divisor == 0;
}

/// One term of `a` over one of `b`; false unless exact.
bool divide_terms(const SymTerm& a, const SymTerm& b, SymExpr& quotient) {
  std::vector<SymNodePtr> factors;
  if (!divides(b.coefficient, a.coefficient)) return false;
  if (!divide_monomials(a.monomial, b.monomial, factors)) return false;
  const std::int64_t coefficient = floor_divide(a.coefficient, b.coefficient);
  quotient = factors.empty() ? SymExpr(coefficient)
                             : make_term(coefficient, make_monomial(std::move(factors)));
  return true;
}

std::optional<SymExpr> divide_by_constant(const SymExpr& expr, std::int64_t divisor) {
  if (divisor == 0) return std::nullopt;
  const Polynomial polynomial(expr);
  if (!divides(divisor, polynomial.constant())) return std::nullopt;
  SumBuilder quotient;
  quotient.add(floor_divide(polynomial.constant(), divisor));
  for (const SymTerm& term : polynomial.terms()) {
    if (!divides(divisor, term.coefficient)) return std::nullopt;
    quotient.add(floor_divide(term.coefficient, divisor), term.monomial);
  }
  return quotient.finish();
}

std::optional<SymExpr> divide_by_term(const SymExpr& expr, const SymTerm& divisor) {
  const Polynomial polynomial(expr);
  if (polynomial.constant() != 0) return std::nullopt;
  SumBuilder sum;
  for (const SymTerm& term : polynomial.terms()) {
    SymExpr quotient;
    if (!divide_terms(term, divisor, quotient)) return std::nullopt;
    sum.add(quotient);
  }
  return sum.finish();
}

/// Long division by leading terms: in a monomial order the leading term of an exact multiple is
/// divisible by that of the divisor at every step.
std::optional<SymExpr> divide_long(SymExpr rest, const SymExpr& divisor) {
  const Polynomial by(divisor);
  SumBuilder sum;
  while (!rest.is_constant(0)) {
    if (rest.is_constant()) return std::nullopt;
    SymExpr quotient;
    if (!divide_terms(Polynomial(rest).terms()[0], by.terms()[0], quotient)) return std::nullopt;
    rest = rest - quotient * divisor;
    sum.add(quotient);
  }
  return sum.finish();
}

Split split_by_constant(const SymExpr& a, std::int64_t divisor) {
  const Polynomial polynomial(a);
  SumBuilder quotient;
  SumBuilder rest;
  quotient.add(floor_divide(polynomial.constant(), divisor));
  rest.add(floor_modulo(polynomial.constant(), divisor));
  for (const SymTerm& term : polynomial.terms()) {
    if (const auto whole = term.coefficient / divisor; whole != 0) {
      quotient.add(whole, term.monomial);
    }
    if (const auto left = term.coefficient % divisor; left != 0) rest.add(left, term.monomial);
  }
  return {quotient.finish(), rest.finish()};
}

Split split_by_term(const SymExpr& a, const SymTerm& divisor) {
  const Polynomial polynomial(a);
  SumBuilder quotient;
  SumBuilder rest;
  rest.add(polynomial.constant());
  for (const SymTerm& term : polynomial.terms()) {
    const std::int64_t whole = term.coefficient / divisor.coefficient;
    std::vector<SymNodePtr> factors;
    if (whole == 0 || !divide_monomials(term.monomial, divisor.monomial, factors)) {
      rest.add(term.coefficient, term.monomial);
      continue;
    }
    if (factors.empty()) {
      quotient.add(whole);
    } else {
      quotient.add(whole, make_monomial(std::move(factors)));
    }
    if (const auto left = term.coefficient % divisor.coefficient; left != 0) {
      rest.add(left, term.monomial);
    }
  }
  return {quotient.finish(), rest.finish()};
}

/// Takes out multiples of a sum where that makes the rest shorter; otherwise the rest could become
/// harder to bound (s0 over s0+1 would leave -1).
Split split_by_sum(const SymExpr& a, const SymExpr& divisor) {
  const Polynomial by(divisor);
  Split split{0, a};
  for (std::size_t i = 0; i < Polynomial(split.rest).terms().size();) {
    const std::size_t terms = Polynomial(split.rest).terms().size();
    SymExpr quotient;
    if (divide_terms(Polynomial(split.rest).terms()[i], by.terms()[0], quotient)) {
      const SymExpr rest = split.rest - quotient * divisor;
      if (Polynomial(rest).terms().size() < terms) {
        split = {split.quotient + quotient, rest};
        continue;
      }
    }
    ++i;
  }
  return split;
}

Split split_by(const SymExpr& a, const SymExpr& b) {
  if (b.is_constant()) return split_by_constant(a, b.constant());
  const Polynomial by(b);
  return by.is_monomial() ? split_by_term(a, by.terms()[0]) : split_by_sum(a, b);
}

bool leads_negative(const SymExpr& expr) {
  if (expr.is_constant()) return expr.constant() < 0;
  return Polynomial(expr).terms()[0].coefficient < 0;
}

/// The greatest common divisor; 1 where it would not fit (both are the least integer or one is 0).
std::int64_t gcd(std::int64_t a, std::int64_t b) {
  const auto magnitude = [](std::int64_t value) {
    const auto bits = static_cast<std::uint64_t>(value);
    return value < 0 ? 0 - bits : bits;
  };
  const auto result = static_cast<std::int64_t>(std::gcd(magnitude(a), magnitude(b)));
  return result < 0 ? 1 : result;
}

std::int64_t coefficient_gcd(const SymExpr& expr, std::int64_t start) {
  const Polynomial polynomial(expr);
  for (const SymTerm& term : polynomial.terms()) start = gcd(start, term.coefficient);
  return start;
}

/// Keeps the factors that are in both.
void intersect(std::vector<SymNodePtr>& common, std::span<const SymNodePtr> other) {
  std::vector<SymNodePtr> kept;
  std::set_intersection(
      common.begin(), common.end(), other.begin(), other.end(), std::back_inserter(kept),
      [](const SymNodePtr& x, const SymNodePtr& y) { return compare_atoms(*x, *y) < 0; });
  common = std::move(kept);
}

/// The largest term that divides both, 1 included.
SymExpr common_factor(const SymExpr& a, const SymExpr& b) {
  const Polynomial left(a);
  const Polynomial right(b);
  std::int64_t number = gcd(left.constant(), right.constant());
  number = coefficient_gcd(b, coefficient_gcd(a, number));
  if (left.constant() != 0 || right.constant() != 0) return number;
  const auto first = factors_of(left.terms()[0].monomial);
  std::vector<SymNodePtr> factors(first.begin(), first.end());
  for (const Polynomial* side : {&left, &right}) {
    for (const SymTerm& term : side->terms()) {
      if (factors.empty()) return number;
      intersect(factors, factors_of(term.monomial));
    }
  }
  return factors.empty() ? SymExpr(number) : make_term(number, make_monomial(std::move(factors)));
}

SymExpr divided(const SymExpr& expr, const SymExpr& divisor) {
  auto quotient = divide_exact(expr, divisor);
  HD_CHECK(quotient.has_value(), expr.to_string() + " over " + divisor.to_string());
  return *std::move(quotient);
}

bool provably_positive(const SymExpr& expr, const Facts* facts) {
  if (expr.is_constant()) return expr.constant() > 0;
  return facts != nullptr && provably_nonnegative(expr - 1, *facts);
}

/// 0 <= rest < divisor.
bool is_remainder(const SymExpr& rest, const SymExpr& divisor, const Facts* facts) {
  return facts != nullptr && provably_nonnegative(rest, *facts) &&
         provably_nonnegative(divisor - rest - 1, *facts);
}

/// -divisor <= rest < 0. Most often it is known by now that `rest` is not negative.
bool is_remainder_below(const SymExpr& rest, const SymExpr& divisor, const Facts* facts) {
  return facts != nullptr && !provably_nonnegative(rest, *facts) &&
         is_remainder(rest + divisor, divisor, facts);
}

/// divisor = factor * divisor_left, rest = factor * multiple + remainder, 0 <= remainder < factor:
/// the remainder cannot change the quotient.
struct Grouping {
  SymExpr factor;
  SymExpr divisor;
  SymExpr multiple;
  SymExpr remainder;
};

/// A number dividing the divisor leaves at most a constant: 4*x+3 over 8 is x over 2.
std::optional<Grouping> group_by_number(const SymExpr& rest, const SymExpr& divisor) {
  if (!divisor.is_constant()) return std::nullopt;
  const std::int64_t factor = coefficient_gcd(rest, divisor.constant());
  if (factor <= 1) return std::nullopt;
  const Split split = split_by_constant(rest, factor);
  return Grouping{factor, divisor.constant() / factor, split.quotient, split.rest};
}

/// Tries the factors that a term of the rest has in common with the divisor.
std::optional<Grouping> group_by_facts(const SymExpr& rest, const SymExpr& divisor,
                                       const Facts* facts) {
  if (facts == nullptr) return std::nullopt;
  const Polynomial polynomial(rest);
  for (const SymTerm& term : polynomial.terms()) {
    const SymExpr factor = common_factor(make_term(term.coefficient, term.monomial), divisor);
    if (factor.is_constant(1) || factor == divisor) continue;
    const Split split = split_by(rest, factor);
    if (split.quotient.is_constant(0) || !is_remainder(split.rest, factor, facts)) continue;
    const SymExpr left = divided(divisor, factor);
    if (!provably_positive(left, facts)) continue;
    return Grouping{factor, left, split.quotient, split.rest};
  }
  return std::nullopt;
}

std::optional<Grouping> group(const SymExpr& rest, const SymExpr& divisor, const Facts* facts) {
  if (auto found = group_by_number(rest, divisor)) return found;
  return group_by_facts(rest, divisor, facts);
}

const SymNode& node_of(const SymExpr& expr) { return *SymExprAccess::node(expr); }

/// Division of a remainder: nothing of `a` is a multiple of `b`, and b leads positive.
SymExpr floordiv_rest(const SymExpr& a, const SymExpr& b, const Facts* facts) {
  if (is_remainder(a, b, facts)) return 0;
  if (is_remainder_below(a, b, facts)) return -1;
  if (const SymExpr factor = common_factor(a, b); !factor.is_constant(1)) {
    return make_floordiv(divided(a, factor), divided(b, factor), facts);
  }
  if (const auto found = group(a, b, facts)) {
    return make_floordiv(found->multiple, found->divisor, facts);
  }
  if (a.kind() == Kind::FloorDiv && provably_positive(b, facts)) {
    return make_floordiv(node_of(a).left, node_of(a).right * b, facts);
  }
  if (a.kind() == Kind::Mod && provably_positive(b, facts)) {
    const auto times = divide_exact(node_of(a).right, b);
    if (times && provably_positive(*times, facts)) {
      return make_mod(make_floordiv(node_of(a).left, b, facts), *times, facts);
    }
  }
  return make_atom(Kind::FloorDiv, a, b);
}

/// mod(x, y) in a term whose coefficient times y is a multiple of b may as well be x.
std::optional<SymExpr> without_inner_mod(const SymExpr& a, const SymExpr& b) {
  const Polynomial polynomial(a);
  for (const SymTerm& term : polynomial.terms()) {
    if (term.monomial->kind != Kind::Mod) continue;
    const SymNode& inner = *term.monomial;
    if (!divide_exact(inner.right * term.coefficient, b)) continue;
    return a - make_term(term.coefficient, term.monomial) + inner.left * term.coefficient;
  }
  return std::nullopt;
}

SymExpr mod_rest(const SymExpr& a, const SymExpr& b, const Facts* facts) {
  if (is_remainder(a, b, facts)) return a;
  if (is_remainder_below(a, b, facts)) return a + b;
  if (const SymExpr factor = common_factor(a, b); !factor.is_constant(1)) {
    return factor * make_mod(divided(a, factor), divided(b, factor), facts);
  }
  if (const auto found = group(a, b, facts)) {
    return found->factor * make_mod(found->multiple, found->divisor, facts) + found->remainder;
  }
  if (const auto inner = without_inner_mod(a, b)) return make_mod(*inner, b, facts);
  return make_atom(Kind::Mod, a, b);
}

}  // namespace

bool divide_monomials(const SymNodePtr& a, const SymNodePtr& b, std::vector<SymNodePtr>& quotient) {
  const auto from = factors_of(a);
  const auto by = factors_of(b);
  if (by.size() > from.size() || (b->symbols & ~a->symbols) != 0) return false;
  const auto before = [](const SymNodePtr& x, const SymNodePtr& y) {
    return compare_atoms(*x, *y) < 0;
  };
  if (!std::includes(from.begin(), from.end(), by.begin(), by.end(), before)) return false;
  std::set_difference(from.begin(), from.end(), by.begin(), by.end(), std::back_inserter(quotient),
                      before);
  return true;
}

std::optional<SymExpr> divide_exact(const SymExpr& expr, const SymExpr& divisor) {
  if (divisor.is_constant()) return divide_by_constant(expr, divisor.constant());
  if (expr.is_constant(0)) return SymExpr(0);
  if (expr == divisor) return SymExpr(1);
  if (expr.is_constant()) return std::nullopt;
  const Polynomial by(divisor);
  return by.is_monomial() ? divide_by_term(expr, by.terms()[0]) : divide_long(expr, divisor);
}

SymExpr make_floordiv(const SymExpr& a, const SymExpr& b, const Facts* facts) {
  if (b.is_constant(0)) throw_size_division_by_zero();
  if (a.is_constant() && b.is_constant()) return floor_divide(a.constant(), b.constant());
  if (auto exact = divide_exact(a, b)) return *std::move(exact);
  if (leads_negative(b)) return make_floordiv(-a, -b, facts);
  const Split split = split_by(a, b);
  if (split.rest.is_constant() && b.is_constant()) return split.quotient;
  return split.quotient + floordiv_rest(split.rest, b, facts);
}

SymExpr make_mod(const SymExpr& a, const SymExpr& b, const Facts* facts) {
  if (b.is_constant(0)) throw_size_division_by_zero();
  if (a.is_constant() && b.is_constant()) return floor_modulo(a.constant(), b.constant());
  if (divide_exact(a, b)) return 0;
  if (leads_negative(b)) return -make_mod(-a, -b, facts);
  const SymExpr rest = split_by(a, b).rest;
  if (rest.is_constant() && b.is_constant()) return rest;
  return mod_rest(rest, b, facts);
}

SymExpr make_extremum(Kind kind, const SymExpr& a, const SymExpr& b, const Facts* facts) {
  const auto at_least = [facts](const SymExpr& difference) {
    if (difference.is_constant()) return difference.constant() >= 0;
    return facts != nullptr && provably_nonnegative(difference, *facts);
  };
  const SymExpr difference = a - b;
  if (at_least(difference)) return kind == Kind::Max ? a : b;
  if (at_least(-difference)) return kind == Kind::Max ? b : a;
  return SymExpr::compare(a, b) < 0 ? make_atom(kind, a, b) : make_atom(kind, b, a);
}

SymExpr make_division(Kind kind, const SymExpr& left, const SymExpr& right, const Facts* facts) {
  if (is_real(kind)) return make_real(kind, left, right);
  if (kind == Kind::FloorDiv) return make_floordiv(left, right, facts);
  if (kind == Kind::Mod) return make_mod(left, right, facts);
  return make_extremum(kind, left, right, facts);
}

SymExpr floordiv(const SymExpr& a, const SymExpr& b) { return make_floordiv(a, b, nullptr); }
SymExpr mod(const SymExpr& a, const SymExpr& b) { return make_mod(a, b, nullptr); }

SymExpr ceildiv(const SymExpr& a, const SymExpr& b) {
  if (!b.is_constant()) {
    if (auto exact = divide_exact(a, b)) return *std::move(exact);
  }
  return floordiv(a + b - 1, b);
}

SymExpr min(const SymExpr& a, const SymExpr& b) {
  return make_extremum(SymExpr::Kind::Min, a, b, nullptr);
}

SymExpr max(const SymExpr& a, const SymExpr& b) {
  return make_extremum(SymExpr::Kind::Max, a, b, nullptr);
}

}  // namespace heddle::base
