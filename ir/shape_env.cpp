#include <algorithm>

#include "heddle/error.h"
#include "ir/analysis/unbacked.h"
#include "ir/known_sizes.h"

namespace heddle::ir {

using base::Predicate;

ShapeEnv::ShapeEnv() = default;
ShapeEnv::~ShapeEnv() = default;

namespace {

using Solved = std::optional<std::pair<base::Symbol, SymExpr>>;

/// What a symbol is where `zero` == 0, if it stands alone there.
Solved solved_for(const base::Symbol& symbol, const SymExpr& zero) {
  const auto linear = zero.linear_in(symbol);
  if (!linear) return {};
  if (linear->coefficient.is_constant(1)) return std::pair(symbol, -linear->rest);
  if (linear->coefficient.is_constant(-1)) return std::pair(symbol, linear->rest);
  return {};
}

/// The symbol that `zero` == 0 gives away and what it is: the last one that stands alone, rather one that is a sum than one that
/// is a difference, of which nothing says that it is no less than 0.
Solved solve(const SymExpr& zero) {
  std::vector<base::Symbol> symbols;
  zero.collect_symbols(symbols);
  Solved first;
  for (std::size_t k = symbols.size(); k-- > 0;) {
    Solved solved = solved_for(symbols[k], zero);
    if (solved && base::provably_nonnegative(solved->second, {})) return solved;
    if (!first) first = std::move(solved);
  }
  return first;
}

}  // namespace

base::SymbolExprs equalities(std::span<const Assumption> assumptions) {
  base::SymbolExprs known;
  for (const Assumption& assumption : assumptions) {
    const Predicate& p = assumption.predicate;
    if (p.op != Predicate::Op::Eq) continue;
    const auto solved = solve(p.left.substitute(known) - p.right.substitute(known));
    if (!solved) continue;
    const base::SymbolExprs one{{solved->first, solved->second}};
    for (auto& [symbol, expr] : known) expr = expr.substitute(one);
    known.insert(*solved);
  }
  return known;
}

namespace {

/// a == b and b == a say the same.
bool same(const Predicate& a, const Predicate& b) {
  if (a == b) return true;
  const bool symmetric = a.op == Predicate::Op::Eq || a.op == Predicate::Op::Ne;
  return symmetric && a.op == b.op && a.left == b.right && a.right == b.left;
}

std::optional<bool> known_outcome(const ShapeEnv& env, const Predicate& predicate) {
  if (const auto outcome = predicate.decide(env.facts)) return outcome;
  for (const Assumption& assumption : env.assumptions) {
    if (same(assumption.predicate, predicate)) return true;
    if (same(assumption.predicate, predicate.negated())) return false;
  }
  const base::SymbolExprs known = equalities(env.assumptions);
  if (known.empty()) return {};
  const Predicate reduced{predicate.op, predicate.left.substitute(known),
                          predicate.right.substitute(known)};
  return reduced.decide(env.facts);
}

bool hinted(const ShapeEnv& env, const Predicate& predicate) {
  std::vector<base::Symbol> symbols;
  predicate.left.collect_symbols(symbols);
  predicate.right.collect_symbols(symbols);
  return std::all_of(symbols.begin(), symbols.end(),
                     [&](const base::Symbol& symbol) { return env.hints.contains(symbol); });
}

}  // namespace

std::optional<bool> ShapeEnv::expect(const Predicate& predicate) const {
  if (const auto outcome = known_outcome(*this, predicate)) return outcome;
  if (!hints.empty() && hinted(*this, predicate)) return predicate.evaluate(hints);
  return {};
}

bool ShapeEnv::decide(const Predicate& predicate, std::string_view reason,
                      const base::Location& location) {
  if (const auto outcome = known_outcome(*this, predicate)) return *outcome;
  const bool outcome = hinted(*this, predicate) && predicate.evaluate(hints);
  assumptions.push_back({outcome ? predicate : predicate.negated(), std::string(reason), location});
  return outcome;
}

bool ShapeEnv::require(const Predicate& predicate, std::string_view reason,
                       const base::Location& location) {
  if (const auto outcome = known_outcome(*this, predicate)) return *outcome;
  if (hinted(*this, predicate) && !predicate.evaluate(hints)) return false;
  const bool is_late = is_unbacked(predicate.left) || is_unbacked(predicate.right);
  (is_late ? late : assumptions).push_back({predicate, std::string(reason), location});
  return true;
}

SymExpr seen(const ShapeEnv& env, const SymExpr& size) {
  std::vector<base::Symbol> symbols;
  size.collect_symbols(symbols);
  base::SymbolExprs numbers;
  for (const base::Symbol& symbol : symbols)
    if (const auto hint = env.hints.find(symbol); hint != env.hints.end())
      numbers.emplace(symbol, hint->second);
  if (numbers.empty()) return size;
  try {
    return size.substitute(numbers);
  } catch (const ShapeError&) {
    return size;  // divides by a size of 0
  }
}

Dims seen(const ShapeEnv& env, const Dims& sizes) {
  Dims result;
  for (const SymExpr& size : sizes) result.push_back(seen(env, size));
  return result;
}

TensorMeta seen(const ShapeEnv& env, TensorMeta meta) {
  meta.sizes = seen(env, meta.sizes);
  meta.strides = seen(env, meta.strides);
  return meta;
}

std::optional<std::int64_t> number_of(ShapeEnv& env, const SymExpr& size, std::string_view reason,
                                      const base::Location& location) {
  if (const auto known = size.as_constant()) return known;
  if (const auto known = size.substitute(equalities(env.assumptions)).as_constant()) return known;
  if (env.hints.empty() || !hinted(env, {Predicate::Op::Eq, size, 0})) return {};
  const std::int64_t seen = size.evaluate(env.hints);
  env.decide({Predicate::Op::Eq, size, seen}, reason, location);
  return seen;
}

}  // namespace heddle::ir
