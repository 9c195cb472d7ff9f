#include "base/solve.h"

#include <algorithm>
#include <vector>

namespace heddle::base {

std::optional<std::pair<Symbol, std::int64_t>> solve(const SymExpr& expr, std::int64_t value,
                                                     const SymbolValues& known) {
  std::vector<Symbol> symbols;
  expr.collect_symbols(symbols);
  std::erase_if(symbols, [&](const Symbol& symbol) { return known.contains(symbol); });
  if (symbols.size() != 1) return {};
  const auto linear = expr.linear_in(symbols[0]);
  if (!linear) return {};
  const std::int64_t coefficient = linear->coefficient.evaluate(known);
  const std::int64_t left = value - linear->rest.evaluate(known);
  const bool sizes = left >= 0 ? coefficient > 0 : coefficient < -1;  // no size is negative
  if (!sizes || left % coefficient != 0) return {};
  return std::pair(symbols[0], left / coefficient);
}

}  // namespace heddle::base
