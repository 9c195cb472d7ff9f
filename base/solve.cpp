#include "base/solve.h"

#include <limits>
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
  std::int64_t left = 0;
  if (__builtin_sub_overflow(value, linear->rest.evaluate(known), &left)) return {};
  const bool negative = left != 0 && (left < 0) != (coefficient < 0);
  if (coefficient == 0 || negative || left == std::numeric_limits<std::int64_t>::min()) return {};
  if (left % coefficient != 0) return {};
  return std::pair(symbols[0], left / coefficient);
}

}  // namespace heddle::base
