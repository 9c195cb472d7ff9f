// Inside of SymExpr: its nodes and the polynomial arithmetic on them. Only base/symexpr*.cpp
// include this.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/symexpr.h"

namespace heddle::base {

using SymNode = SymExpr::Node;
using SymNodePtr = std::shared_ptr<const SymNode>;

/// coefficient * monomial. A monomial is an atom or a Product of two or more atoms; its coefficient
/// is 1.
struct SymTerm {
  std::int64_t coefficient = 0;
  SymNodePtr monomial;
};

/// What is shared. The kind says which fields mean something:
///   Symbol                     symbol
///   Product of atoms           factors, sorted, at least two
///   Product with a coefficient terms, one of them, constant 0
///   Sum                        constant, terms in the monomial order
///   the rest                   left, right (0 where there is one argument)
struct SymExpr::Node {
  Kind kind = Kind::Constant;
  std::uint32_t depth = 0;   ///< how deep division, min, max and real arithmetic nest
  std::uint32_t weight = 1;  ///< atoms in all, as often as they are seen; at most kMostWeight
  Symbol symbol;
  std::uint64_t hash = 0;
  std::uint64_t symbols = 0;      ///< a bit for each symbol inside, see symbol_bit
  std::uint8_t symbol_kinds = 0;  ///< kind_bit() of each symbol inside
  bool own_bits = true;           ///< each symbol inside has its bit in `symbols` for itself
  std::int64_t constant = 0;
  std::vector<SymTerm> terms;
  std::vector<SymNodePtr> factors;
  SymExpr left;
  SymExpr right;
};

constexpr std::uint32_t kMostWeight = 1U << 30;

struct SymExprAccess {
  static const SymNodePtr& node(const SymExpr& expr) { return expr.node_; }
  static std::int64_t constant(const SymExpr& expr) { return expr.constant_; }
  static SymExpr make(SymNodePtr node) { return SymExpr(std::move(node)); }
};

[[noreturn]] void throw_size_overflow();
[[noreturn]] void throw_size_division_by_zero();
std::int64_t checked_add(std::int64_t a, std::int64_t b);
std::int64_t checked_multiply(std::int64_t a, std::int64_t b);
std::int64_t floor_divide(std::int64_t a, std::int64_t b);
std::int64_t floor_modulo(std::int64_t a, std::int64_t b);

constexpr std::uint32_t kOwnBits = 16;

/// Symbols below kOwnBits of each kind have a bit of their own; others share them: a clear bit says that a symbol is absent, a set
/// one nothing.
constexpr std::uint64_t symbol_bit(Symbol symbol) {
  return std::uint64_t{1} << ((static_cast<std::uint32_t>(symbol.kind) * kOwnBits + symbol.id) %
                              64);
}
constexpr std::uint8_t kind_bit(Symbol::Kind kind) {
  return static_cast<std::uint8_t>(1U << static_cast<unsigned>(kind));
}
inline std::uint8_t symbol_kinds(const SymExpr& expr) {
  return expr.is_constant() ? std::uint8_t{0} : SymExprAccess::node(expr)->symbol_kinds;
}
inline std::uint64_t symbol_bits(const SymExpr& expr) {
  return expr.is_constant() ? 0 : SymExprAccess::node(expr)->symbols;
}

/// Any expression read as constant + terms. Borrows from the expression.
class Polynomial {
 public:
  explicit Polynomial(const SymExpr& expr);
  Polynomial(const Polynomial&) = delete;
  Polynomial& operator=(const Polynomial&) = delete;

  std::int64_t constant() const { return constant_; }
  std::span<const SymTerm> terms() const { return terms_; }
  bool is_monomial() const { return constant_ == 0 && terms_.size() == 1; }

 private:
  std::int64_t constant_ = 0;
  SymTerm single_;
  std::span<const SymTerm> terms_;
};

/// Collects terms in any order.
class SumBuilder {
 public:
  void reserve(std::size_t count) { terms_.reserve(count); }
  void add(std::int64_t constant) { constant_ = checked_add(constant_, constant); }
  void add(std::int64_t coefficient, SymNodePtr monomial);
  void add(const SymExpr& expr, std::int64_t scale = 1);
  SymExpr finish();

 private:
  std::int64_t constant_ = 0;
  std::vector<SymTerm> terms_;
};

/// The factors of a monomial: itself if it is an atom.
std::span<const SymNodePtr> factors_of(const SymNodePtr& monomial);
/// Graded lexicographic: higher degree first, then by factors. A monomial order, so that
/// multiplication keeps it and exact division can go by leading terms.
int compare_monomials(const SymNode& a, const SymNode& b);
int compare_atoms(const SymNode& a, const SymNode& b);
/// The product of `factors`, which must be sorted and not empty.
SymNodePtr make_monomial(std::vector<SymNodePtr> factors);
SymNodePtr multiply_monomials(const SymNodePtr& a, const SymNodePtr& b);
/// coefficient * monomial.
SymExpr make_term(std::int64_t coefficient, const SymNodePtr& monomial);
/// A division, modulo, min or max exactly as given.
SymExpr make_atom(SymExpr::Kind kind, SymExpr left, SymExpr right);

/// The quotient of monomials as an expression (1 if they are equal), or nothing.
bool divide_monomials(const SymNodePtr& a, const SymNodePtr& b, std::vector<SymNodePtr>& quotient);

/// floordiv, mod, min, max, with the rules that `facts` allow (none: only what always holds).
SymExpr make_floordiv(const SymExpr& a, const SymExpr& b, const Facts* facts);
SymExpr make_mod(const SymExpr& a, const SymExpr& b, const Facts* facts);
SymExpr make_extremum(SymExpr::Kind kind, const SymExpr& a, const SymExpr& b, const Facts* facts);

/// Whichever of them, or of real arithmetic, `kind` is.
SymExpr make_division(SymExpr::Kind kind, const SymExpr& left, const SymExpr& right,
                      const Facts* facts);

/// `expr` with what `replace` makes of each monomial that may hold one of the `symbols`, which are bits.
template <typename Replace>
SymExpr with_monomials(const SymExpr& expr, std::uint64_t symbols, const Replace& replace) {
  if ((symbol_bits(expr) & symbols) == 0) return expr;
  const Polynomial polynomial(expr);
  SumBuilder sum;
  sum.reserve(polynomial.terms().size());
  sum.add(polynomial.constant());
  for (const SymTerm& term : polynomial.terms()) {
    if ((term.monomial->symbols & symbols) == 0)
      sum.add(term.coefficient, term.monomial);
    else
      sum.add(replace(term.monomial), term.coefficient);
  }
  return sum.finish();
}

}  // namespace heddle::base
