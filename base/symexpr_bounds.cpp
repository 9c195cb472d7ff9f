// provably_nonnegative: replaces one unknown after the other by the end of its range at which the
// expression is least, until the signs of the coefficients decide. Most questions have the answer no: a few values
// within all ranges show it long before a proof gives up.
#include <algorithm>
#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "base/symexpr.h"
#include "base/symexpr_memo.h"
#include "base/symexpr_node.h"
#include "base/symexpr_value.h"
#include "base/symreal.h"
#include "heddle/error.h"

namespace heddle::base {
namespace {

using Kind = SymExpr::Kind;

/// Steps after which the answer is "unknown": far above what kernel indices need.
constexpr int kMaxSteps = 300;

/// The least value that a symbol without a range of its own has; nothing if any number will do.
std::optional<std::int64_t> least_of(Symbol symbol, const Facts& facts) {
  if (symbol.kind == Symbol::Kind::Size) return facts.sizes_positive ? 1 : 0;
  if (symbol.kind == Symbol::Kind::Unbacked) return 0;
  return std::nullopt;
}

/// Values of all symbols that the facts allow, at ends of their ranges.
class Sample {
 public:
  /// Which end of its range a symbol takes.
  enum class Ends : std::uint8_t { Low, High, LowOfEven, LowOfOdd };

  Sample(const Facts& facts, Ends ends) : facts_(facts), ends_(ends) {}

  /// The value of `expr`; nothing where a range is empty, or the value is none.
  std::optional<std::int64_t> evaluate(const SymExpr& expr) {
    const auto lookup = [this](Symbol symbol) { return value_of(symbol); };
    try {
      const std::int64_t value = Evaluator(lookup).value(expr);
      if (is_possible_) return value;
    } catch (const Error&) {
    }
    return std::nullopt;
  }

 private:
  bool takes_low(Symbol symbol) const {
    if (ends_ == Ends::Low || ends_ == Ends::High) return ends_ == Ends::Low;
    return (symbol.id % 2 == 0) == (ends_ == Ends::LowOfEven);
  }

  std::int64_t value_of(Symbol symbol) {
    for (const auto& [known, value] : values_)
      if (known == symbol) return value;
    std::optional<std::int64_t> low = least_of(symbol, facts_);
    std::optional<std::int64_t> high;
    if (const auto found = facts_.ranges().find(symbol); found != facts_.ranges().end()) {
      const Facts::Range& range = found->second;
      if (range.low) low = end(*range.low);
      if (range.high) high = end(*range.high);
    }
    if (low && high && *low > *high) is_possible_ = false;
    values_.emplace_back(symbol, choose(symbol, low, high));
    return values_.back().second;
  }

  std::optional<std::int64_t> end(const SymExpr& expr) {
    const std::optional<std::int64_t> value = evaluate(expr);
    if (!value) is_possible_ = false;
    return value;
  }

  std::int64_t choose(Symbol symbol, std::optional<std::int64_t> low,
                      std::optional<std::int64_t> high) const {
    // Large enough that divisions give something, another one for each symbol.
    const std::int64_t far = 37 + 10 * static_cast<std::int64_t>(symbol.id % 8);
    if (takes_low(symbol)) return low ? *low : (high ? *high - far : -far);
    return high ? *high : (low ? *low + far : far);
  }

  const Facts& facts_;
  const Ends ends_;
  bool is_possible_ = true;  ///< no range that was looked at is empty
  std::vector<std::pair<Symbol, std::int64_t>> values_;
};

/// Whether `expr` is negative for values that the facts allow.
bool has_counterexample(const SymExpr& expr, const Facts& facts) {
  using Ends = Sample::Ends;
  return std::ranges::any_of(std::array{Ends::High, Ends::Low, Ends::LowOfEven, Ends::LowOfOdd},
                             [&](Ends ends) {
                               const auto value = Sample(facts, ends).evaluate(expr);
                               return value && *value < 0;
                             });
}

class Prover {
 public:
  explicit Prover(const Facts& facts) : facts_(facts) {}

  bool at_once(const SymExpr& expr) { return signs_decide(expr); }

  bool nonnegative(const SymExpr& expr) {
    if (expr.is_constant()) return expr.constant() >= 0;
    if (--steps_left_ < 0) return false;
    if (signs_decide(expr)) return true;
    const SymNodePtr atom = choose(expr);
    return atom != nullptr && eliminate(expr, atom);
  }

 private:
  /// expr = coefficient * atom + rest.
  struct Parts {
    SymExpr coefficient;
    SymExpr rest;
  };

  std::optional<SymExpr> low(Symbol symbol) const {
    const auto found = facts_.ranges().find(symbol);
    if (found != facts_.ranges().end() && found->second.low) return found->second.low;
    const auto least = least_of(symbol, facts_);
    return least ? std::optional(SymExpr(*least)) : std::nullopt;
  }

  std::optional<SymExpr> high(Symbol symbol) const {
    const auto found = facts_.ranges().find(symbol);
    return found == facts_.ranges().end() ? std::nullopt : found->second.high;
  }

  /// Every symbol has a constant low end (else false); written as low + something, no coefficient
  /// is negative.
  bool signs_decide(const SymExpr& expr) {
    SymbolExprs shifted;
    const Polynomial polynomial(expr);
    bool negative = polynomial.constant() < 0;
    for (const SymTerm& term : polynomial.terms()) {
      negative |= term.coefficient < 0;
      for (const SymNodePtr& factor : factors_of(term.monomial)) {
        if (!shift(factor, shifted)) return false;
      }
    }
    if (!negative) return true;
    if (shifted.empty()) return false;
    const SymExpr result = expr.substitute(shifted);
    const Polynomial moved(result);
    return moved.constant() >= 0 && std::ranges::all_of(moved.terms(), [](const SymTerm& term) {
             return term.coefficient > 0;
           });
  }

  /// Whether `atom` >= a constant low end >= 0 that is known without a proof. Notes the shift of a
  /// symbol whose low end is not 0.
  bool shift(const SymNodePtr& atom, SymbolExprs& shifted) {
    if (atom->kind != Kind::Symbol) return false;
    const auto end = low(atom->symbol);
    if (!end || !end->is_constant() || end->constant() < 0) return false;
    if (end->constant() > 0) {
      shifted.emplace(atom->symbol, SymExprAccess::make(atom) + end->constant());
    }
    return true;
  }

  /// The unknown to replace next: one that no other depends on, so that what its range brings in
  /// can still cancel. Nothing if every unknown occurs in a higher power.
  SymNodePtr choose(const SymExpr& expr) const {
    std::vector<SymNodePtr> atoms;
    const Polynomial polynomial(expr);
    for (const SymTerm& term : polynomial.terms()) {
      for (const SymNodePtr& factor : factors_of(term.monomial)) {
        if (std::ranges::find(atoms, factor) == atoms.end()) atoms.push_back(factor);
      }
    }
    SymNodePtr best;
    for (const SymNodePtr& atom : atoms) {
      if (atom->kind == Kind::Sum || !is_linear(polynomial, atom)) continue;
      if (best == nullptr || before(atom, best, atoms)) best = atom;
    }
    return best;
  }

  static bool is_linear(const Polynomial& polynomial, const SymNodePtr& atom) {
    return std::ranges::all_of(polynomial.terms(), [&atom](const SymTerm& term) {
      return std::ranges::count_if(factors_of(term.monomial), [&atom](const SymNodePtr& factor) {
               return compare_atoms(*factor, *atom) == 0;
             }) <= 1;
    });
  }

  /// Symbols that nothing in `atoms` depends on come first, then divisions, the deepest first, then
  /// the symbols that something depends on.
  bool before(const SymNodePtr& a, const SymNodePtr& b,
              const std::vector<SymNodePtr>& atoms) const {
    const auto rank = [&](const SymNodePtr& atom) -> std::uint32_t {
      if (atom->kind != Kind::Symbol) return 1 + std::min(atom->depth, 1000U);
      return is_depended_on(atom->symbol, atoms) ? 0 : 2000;
    };
    const std::uint32_t a_rank = rank(a);
    const std::uint32_t b_rank = rank(b);
    if (a_rank != b_rank) return a_rank > b_rank;
    // Of symbols alike the later kinds go first: axes before the sizes that bound them.
    return a->kind == Kind::Symbol && b->kind == Kind::Symbol && b->symbol < a->symbol;
  }

  bool is_depended_on(Symbol symbol, const std::vector<SymNodePtr>& atoms) const {
    return std::ranges::any_of(atoms, [&](const SymNodePtr& atom) {
      if (atom->kind != Kind::Symbol) return SymExprAccess::make(atom).mentions(symbol);
      if (atom->symbol == symbol) return false;
      const auto found = facts_.ranges().find(atom->symbol);
      if (found == facts_.ranges().end()) return false;
      const Facts::Range& range = found->second;
      return (range.low && range.low->mentions(symbol)) ||
             (range.high && range.high->mentions(symbol));
    });
  }

  static Parts split(const SymExpr& expr, const SymNodePtr& atom) {
    const Polynomial polynomial(expr);
    SumBuilder coefficient;
    SumBuilder rest;
    rest.add(polynomial.constant());
    for (const SymTerm& term : polynomial.terms()) {
      std::vector<SymNodePtr> factors;
      if (!divide_monomials(term.monomial, atom, factors)) {
        rest.add(term.coefficient, term.monomial);
      } else if (factors.empty()) {
        coefficient.add(term.coefficient);
      } else {
        coefficient.add(term.coefficient, make_monomial(std::move(factors)));
      }
    }
    return {coefficient.finish(), rest.finish()};
  }

  bool eliminate(const SymExpr& expr, const SymNodePtr& atom) {
    const Parts parts = split(expr, atom);
    const bool rises = nonnegative(parts.coefficient);
    const bool falls = !rises && nonnegative(-parts.coefficient);
    if (atom->kind == Kind::Symbol) return eliminate_symbol(parts, atom->symbol, rises, falls);
    if (!rises && !falls) return false;
    if (is_real(atom->kind)) return rises && is_nonnegative_whole(*atom) && nonnegative(parts.rest);
    if (atom->kind == Kind::FloorDiv) return eliminate_floordiv(parts, *atom, rises);
    if (atom->kind == Kind::Mod) return eliminate_mod(parts, *atom, rises);
    return eliminate_extremum(parts, *atom, rises);
  }

  bool is_nonnegative_whole(const SymNode& atom) const {
    return atom.kind == Kind::Whole && provably_nonnegative_real(atom.left, facts_);
  }

  bool at(const Parts& parts, const SymExpr& value) {
    return nonnegative(parts.coefficient * value + parts.rest);
  }

  bool eliminate_symbol(const Parts& parts, Symbol symbol, bool rises, bool falls) {
    // A linear function is least at one of its ends; without a sign both are tried.
    const auto least = low(symbol);
    const auto greatest = high(symbol);
    if (!falls && (!least || !at(parts, *least))) return false;
    return rises || (greatest && at(parts, *greatest));
  }

  bool positive(const SymExpr& expr) { return nonnegative(expr - 1); }

  bool eliminate_floordiv(const Parts& parts, const SymNode& atom, bool rises) {
    if (!positive(atom.right)) return false;
    const SymExpr scaled_rest = parts.rest * atom.right;
    if (!rises) return nonnegative(parts.coefficient * atom.left + scaled_rest);
    // floor(a / b) + r >= 0 where a + r*b >= 0, and there only.
    const SymExpr& times = parts.coefficient;
    if (times.is_constant(1) && nonnegative(atom.left + scaled_rest)) return true;
    if (times.is_constant() && parts.rest.is_constant())
      return nonnegative(atom.left + floordiv(parts.rest, times) * atom.right);
    const SymExpr least = atom.left - atom.right + 1;
    if (!times.is_constant(1) && nonnegative(times * least + scaled_rest)) return true;
    return nonnegative(atom.left) && nonnegative(parts.rest);
  }

  bool eliminate_mod(const Parts& parts, const SymNode& atom, bool rises) {
    if (!positive(atom.right)) return false;
    if (rises) return nonnegative(parts.rest);
    if (at(parts, atom.right - 1)) return true;
    return nonnegative(atom.left) && at(parts, atom.left);
  }

  bool eliminate_extremum(const Parts& parts, const SymNode& atom, bool rises) {
    const bool both = (atom.kind == Kind::Min) == rises;
    const bool left = at(parts, atom.left);
    if (left != both) return left;
    return at(parts, atom.right);
  }

  const Facts& facts_;
  int steps_left_ = kMaxSteps;
};

}  // namespace

void Facts::set_range(Symbol symbol, SymExpr low, SymExpr high) {
  set_range(symbol, Range{std::move(low), std::move(high)});
}

void Facts::set_range(Symbol symbol, Range range) {
  note(symbol, ranges_.insert_or_assign(symbol, std::move(range)).first->second);
}

void Facts::set_low(Symbol symbol, SymExpr low) {
  Range& range = ranges_[symbol];
  range.low = std::move(low);
  note(symbol, range);
}

void Facts::note(Symbol symbol, const Range& range) {
  static std::atomic<std::uint64_t> last_version{0};
  version_.number = 1 + last_version.fetch_add(1, std::memory_order_relaxed);
  if (range.low && range.high && *range.low == *range.high) single_valued_ |= symbol_bit(symbol);
}

bool provably_nonnegative(const SymExpr& expr, const Facts& facts) try {
  if (expr.is_constant()) return expr.constant() >= 0;
  Prover prover(facts);
  if (prover.at_once(expr)) return true;
  std::optional<bool>& known = FactsMemo::of_this_thread().at(expr, facts).nonnegative;
  if (!known) known = !has_counterexample(expr, facts) && prover.nonnegative(expr);
  return *known;
} catch (const ShapeError&) {
  return false;  // bounds beyond 64 bits prove nothing
}

}  // namespace heddle::base
