// Values of expressions, substitution, and questions about their symbols.
#include <algorithm>
#include <bit>
#include <unordered_map>

#include "base/check.h"
#include "base/symexpr.h"
#include "base/symexpr_node.h"
#include "base/symexpr_value.h"
#include "heddle/error.h"

namespace heddle::base {
namespace {

using Kind = SymExpr::Kind;

/// Replaces symbols; the memo keeps a shared operand from being rebuilt for each of its users.
class Substitution {
 public:
  explicit Substitution(const SymbolExprs& replacements) : replacements_(replacements) {
    for (const auto& entry : replacements) symbols_ |= symbol_bit(entry.first);
  }

  SymExpr run(const SymExpr& expr) {
    return with_monomials(expr, symbols_,
                          [this](const SymNodePtr& monomial) { return run_monomial(monomial); });
  }

 private:
  SymExpr run_monomial(const SymNodePtr& monomial) {
    SymExpr result = 1;
    for (const SymNodePtr& factor : factors_of(monomial)) result *= run_atom(factor);
    return result;
  }

  SymExpr run_atom(const SymNodePtr& atom) {
    if ((atom->symbols & symbols_) == 0) return SymExprAccess::make(atom);
    if (atom->kind == Kind::Symbol) {
      const auto found = replacements_.find(atom->symbol);
      return found == replacements_.end() ? SymExprAccess::make(atom) : found->second;
    }
    if (atom->kind == Kind::Sum) return run(SymExprAccess::make(atom));
    if (const auto found = memo_.find(atom.get()); found != memo_.end()) return found->second;
    SymExpr result = make_division(atom->kind, run(atom->left), run(atom->right), nullptr);
    memo_.emplace(atom.get(), result);
    return result;
  }

  const SymbolExprs& replacements_;
  std::uint64_t symbols_ = 0;
  std::unordered_map<const SymNode*, SymExpr> memo_;
};

/// Calls `visit` with each symbol of which `bits` tells.
template <typename Visit>
bool any_of_bits(std::uint64_t bits, const Visit& visit) {
  for (; bits != 0; bits &= bits - 1) {
    const auto place = static_cast<std::uint32_t>(std::countr_zero(bits));
    if (visit(Symbol{static_cast<Symbol::Kind>(place / kOwnBits), place % kOwnBits})) return true;
  }
  return false;
}

/// Calls `visit` with each symbol below `node`, those of shared nodes as often as they are used.
template <typename Visit>
bool any_symbol(const SymNode& node, const Visit& visit) {
  if (node.own_bits) return any_of_bits(node.symbols, visit);
  if (node.kind == Kind::Symbol) return visit(node.symbol);
  for (const SymTerm& term : node.terms) {
    if (any_symbol(*term.monomial, visit)) return true;
  }
  for (const SymNodePtr& factor : node.factors) {
    if (any_symbol(*factor, visit)) return true;
  }
  for (const SymExpr* side : {&node.left, &node.right}) {
    if (!side->is_constant() && any_symbol(*SymExprAccess::node(*side), visit)) return true;
  }
  return false;
}

bool node_mentions(const SymNode& node, Symbol symbol) {
  if ((node.symbols & symbol_bit(symbol)) == 0) return false;
  return any_symbol(node, [symbol](Symbol found) { return found == symbol; });
}

}  // namespace

std::int64_t SymExpr::evaluate(const SymbolValues& values) const {
  if (is_constant()) return constant_;
  const auto lookup = [&values](Symbol symbol) {
    const auto found = values.find(symbol);
    HD_CHECK(found != values.end(), "no value of " + symbol.to_string());
    return found->second;
  };
  return Evaluator(lookup).value(*this);
}

std::int64_t SymExpr::evaluate_sizes(std::span<const std::int64_t> sizes) const {
  if (is_constant()) return constant_;
  const auto lookup = [sizes](Symbol symbol) {
    HD_CHECK(symbol.kind == Symbol::Kind::Size && symbol.id < sizes.size(),
             "no value of " + symbol.to_string());
    return sizes[symbol.id];
  };
  return Evaluator(lookup).value(*this);
}

SymExpr SymExpr::substitute(const SymbolExprs& replacements) const {
  if (is_constant() || replacements.empty()) return *this;
  return Substitution(replacements).run(*this);
}

void SymExpr::collect_symbols(std::vector<Symbol>& out) const {
  if (is_constant()) return;
  any_symbol(*node_, [&out](Symbol symbol) {
    const auto place = std::lower_bound(out.begin(), out.end(), symbol);
    if (place == out.end() || *place != symbol) out.insert(place, symbol);
    return false;
  });
}

bool SymExpr::mentions(Symbol symbol) const {
  return !is_constant() && node_mentions(*node_, symbol);
}

bool SymExpr::mentions(Symbol::Kind kind) const {
  return (symbol_kinds(*this) & kind_bit(kind)) != 0;
}

std::vector<SymExpr> SymExpr::operands() const {
  if (is_constant() || is_symbol()) return {};
  std::vector<SymExpr> result;
  if (kind() == Kind::Sum) {
    for (const SymTerm& term : node_->terms) {
      result.push_back(make_term(term.coefficient, term.monomial));
    }
    if (node_->constant != 0) result.emplace_back(node_->constant);
    return result;
  }
  if (kind() != Kind::Product) return {node_->left, node_->right};
  const Polynomial polynomial(*this);
  const SymTerm& term = polynomial.terms()[0];
  if (term.coefficient != 1) result.emplace_back(term.coefficient);
  for (const SymNodePtr& factor : factors_of(term.monomial)) {
    result.push_back(SymExprAccess::make(factor));
  }
  return result;
}

std::optional<SymExpr::Linear> SymExpr::linear_in(Symbol symbol) const {
  if (!mentions(symbol)) return Linear{0, *this};
  const Polynomial polynomial(*this);
  SumBuilder coefficient;
  SumBuilder rest;
  rest.add(polynomial.constant());
  const SymExpr wanted = symbol;
  const SymNodePtr& wanted_node = SymExprAccess::node(wanted);
  for (const SymTerm& term : polynomial.terms()) {
    if (!node_mentions(*term.monomial, symbol)) {
      rest.add(term.coefficient, term.monomial);
      continue;
    }
    std::vector<SymNodePtr> factors;
    if (!divide_monomials(term.monomial, wanted_node, factors)) return std::nullopt;
    if (factors.empty()) {
      coefficient.add(term.coefficient);
      continue;
    }
    SymNodePtr others = make_monomial(std::move(factors));
    if (node_mentions(*others, symbol)) return std::nullopt;
    coefficient.add(term.coefficient, std::move(others));
  }
  return Linear{coefficient.finish(), rest.finish()};
}

SymExpr product(std::span<const SymExpr> sizes) {
  SymExpr result = 1;
  for (const SymExpr& size : sizes) result *= size;
  return result;
}

void throw_size_overflow() { throw ShapeError({.what = "size overflows 64 bits"}); }
void throw_size_division_by_zero() { throw ShapeError({.what = "size is divided by zero"}); }

std::int64_t checked_add(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) throw_size_overflow();
  return result;
}

std::int64_t checked_multiply(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) throw_size_overflow();
  return result;
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) throw_size_division_by_zero();
  if (b == -1) return checked_multiply(a, -1);
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a % b < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t floor_modulo(std::int64_t a, std::int64_t b) {
  if (b == 0) throw_size_division_by_zero();
  if (b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

}  // namespace heddle::base
