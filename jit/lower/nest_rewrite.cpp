#include "jit/lower/nest_rewrite.h"

namespace heddle::jit {

std::vector<SymExpr> expressions_of(const Block& block) {
  std::vector<SymExpr> found;
  for_each_expr(const_cast<Block&>(block), [&](SymExpr& expr) { found.push_back(expr); });
  return found;
}

void substitute(Block& block, const base::SymbolExprs& replacements, const base::Facts& facts) {
  for_each_expr(block, [&](SymExpr& expr) {
    if (!expr.is_constant()) expr = expr.substitute(replacements).simplify(facts);
  });
}

}  // namespace heddle::jit
