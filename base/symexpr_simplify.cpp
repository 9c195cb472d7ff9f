// simplify: rebuilds an expression bottom up with the rules that facts allow.
#include <algorithm>
#include <unordered_map>

#include "base/symexpr.h"
#include "base/symexpr_memo.h"
#include "base/symexpr_node.h"

namespace heddle::base {
namespace {

using Kind = SymExpr::Kind;

/// Whether a monomial is symbols alone, none of which is a single value.
bool stays(const SymNode& monomial, const Facts& facts) {
  if (monomial.depth != 0 || (monomial.symbols & facts.single_valued()) != 0) return false;
  const auto is_symbol = [](const SymNodePtr& factor) { return factor->kind == Kind::Symbol; };
  return monomial.kind == Kind::Symbol ||
         (monomial.kind == Kind::Product && std::ranges::all_of(monomial.factors, is_symbol));
}

bool stays(const SymExpr& expr, const Facts& facts) {
  const Polynomial polynomial(expr);
  return std::ranges::all_of(
      polynomial.terms(), [&facts](const SymTerm& term) { return stays(*term.monomial, facts); });
}

class Simplifier {
 public:
  explicit Simplifier(const Facts& facts) : facts_(facts) {}

  SymExpr run(const SymExpr& expr) {
    if (expr.is_constant()) return expr;
    return joined(with_simple_atoms(expr));
  }

 private:
  SymExpr with_simple_atoms(const SymExpr& expr) {
    const Polynomial polynomial(expr);
    SumBuilder sum;
    sum.reserve(polynomial.terms().size());
    sum.add(polynomial.constant());
    for (const SymTerm& term : polynomial.terms()) {
      if (stays(*term.monomial, facts_)) {
        sum.add(term.coefficient, term.monomial);
        continue;
      }
      SymExpr product = term.coefficient;
      for (const SymNodePtr& factor : factors_of(term.monomial)) product *= atom(factor);
      sum.add(product);
    }
    return sum.finish();
  }

  SymExpr atom(const SymNodePtr& node) {
    if (node->kind == Kind::Symbol) return symbol(node);
    if (node->kind == Kind::Sum) return run(SymExprAccess::make(node));
    if (const auto found = memo_.find(node.get()); found != memo_.end()) return found->second;
    SymExpr result = shared_division(node);
    memo_.emplace(node.get(), result);
    return result;
  }

  SymExpr joined(const SymExpr& expr) const { return has_mod(expr) ? join_divisions(expr) : expr; }

  /// Other indices of the kernel hold the same divisions. What is kept is what simplify() of the division gives, whichever comes first:
  /// texts of kernels, which are keys, must not depend on what a thread was asked before.
  SymExpr shared_division(const SymNodePtr& node) {
    const SymExpr whole = SymExprAccess::make(node);
    FactsMemo& memo = FactsMemo::of_this_thread();
    if (const auto& known = memo.at(whole, facts_).simple) return *known;
    SymExpr result = joined(make_division(node->kind, run(node->left), run(node->right), &facts_));
    memo.at(whole, facts_).simple = result;
    return result;
  }

  /// A symbol whose range is a single value is that value.
  SymExpr symbol(const SymNodePtr& node) const {
    const auto found = facts_.ranges().find(node->symbol);
    if (found == facts_.ranges().end()) return SymExprAccess::make(node);
    const Facts::Range& range = found->second;
    const bool single = range.low && range.high && *range.low == *range.high;
    return single && !range.low->mentions(node->symbol) ? *range.low : SymExprAccess::make(node);
  }

  static bool has_mod(const SymExpr& expr) {
    const Polynomial polynomial(expr);
    return std::ranges::any_of(polynomial.terms(), [](const SymTerm& term) {
      return std::ranges::any_of(factors_of(term.monomial),
                                 [](const SymNodePtr& f) { return f->kind == Kind::Mod; });
    });
  }

  /// How many terms have `atom` as a factor.
  static std::size_t count_terms(const SymExpr& expr, const SymExpr& atom) {
    if (atom.is_constant()) return 0;
    const Polynomial polynomial(expr);
    return static_cast<std::size_t>(
        std::ranges::count_if(polynomial.terms(), [&atom](const SymTerm& term) {
          return std::ranges::any_of(factors_of(term.monomial), [&atom](const SymNodePtr& f) {
            return SymExprAccess::make(f) == atom;
          });
        }));
  }

  /// scale*b*floor(a/b) + scale*mod(a,b) = scale*a, and
  /// scale*b*mod(floor(a/b),c) + scale*mod(a,b) = scale*mod(a,b*c) where c is positive.
  SymExpr join_divisions(SymExpr expr) const {
    for (bool changed = true; changed;) {
      changed = false;
      const SymExpr before = expr;
      const Polynomial polynomial(before);
      for (const SymTerm& term : polynomial.terms()) {
        if (auto joined = join_at(before, term)) {
          expr = *std::move(joined);
          changed = true;
          break;
        }
      }
    }
    return expr;
  }

  std::optional<SymExpr> join_at(const SymExpr& expr, const SymTerm& term) const {
    for (const SymNodePtr& factor : factors_of(term.monomial)) {
      if (factor->kind != Kind::Mod) continue;
      const SymExpr modulo = SymExprAccess::make(factor);
      const SymExpr whole = make_term(term.coefficient, term.monomial);
      const SymExpr quotient = make_floordiv(factor->left, factor->right, &facts_);
      const SymExpr scale = *divide_exact(whole, modulo);
      if (auto joined = join_mods(expr, whole, *factor, scale, quotient)) return joined;
      const std::size_t floors = count_terms(expr, quotient);
      if (floors == 0) continue;
      const SymExpr joined = expr - whole + scale * (factor->left - factor->right * quotient);
      if (count_terms(joined, quotient) < floors) return joined;
    }
    return std::nullopt;
  }

  /// `whole` is scale * inner, `inner` a mod and `quotient` what it is the rest of.
  std::optional<SymExpr> join_mods(const SymExpr& expr, const SymExpr& whole, const SymNode& inner,
                                   const SymExpr& scale, const SymExpr& quotient) const {
    const Polynomial polynomial(expr);
    for (const SymTerm& term : polynomial.terms()) {
      for (const SymNodePtr& factor : factors_of(term.monomial)) {
        if (factor->kind != Kind::Mod || factor->left != quotient) continue;
        const SymExpr other = make_term(term.coefficient, term.monomial);
        if (divide_exact(other, SymExprAccess::make(factor)) != scale * inner.right) continue;
        if (!provably_nonnegative(factor->right - 1, facts_)) continue;
        return expr - whole - other +
               scale * make_mod(inner.left, inner.right * factor->right, &facts_);
      }
    }
    return std::nullopt;
  }

  const Facts& facts_;
  std::unordered_map<const SymNode*, SymExpr> memo_;
};

}  // namespace

SymExpr SymExpr::simplify(const Facts& facts) const {
  if (is_constant() || stays(*this, facts)) return *this;
  FactsMemo& memo = FactsMemo::of_this_thread();
  if (const auto& known = memo.at(*this, facts).simple) return *known;
  SymExpr result = Simplifier(facts).run(*this);
  memo.at(*this, facts).simple = result;
  return result;
}

}  // namespace heddle::base
