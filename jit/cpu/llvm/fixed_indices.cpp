#include "jit/cpu/llvm/fixed_indices.h"

#include <algorithm>
#include <set>

#include "jit/lower/nest_rewrite.h"

namespace heddle::jit::cpu {
namespace {

/// The axes and temporaries that a block binds.
void collect_bound(const Block& block, std::set<Symbol>& bound) {
  for (const Stmt& statement : block) {
    if (const auto* bind = std::get_if<BindStmt>(&statement.node)) bound.insert(bind->symbol);
    if (const auto* branch = std::get_if<IfStmt>(&statement.node))
      collect_bound(*branch->body, bound);
    const auto* loop = std::get_if<ForStmt>(&statement.node);
    if (loop == nullptr) continue;
    bound.insert(loop->axis);
    collect_bound(*loop->body, bound);
  }
}

class FixedDivisions {
 public:
  explicit FixedDivisions(const ForStmt& loop) : bound_{loop.axis} {
    collect_bound(*loop.body, bound_);
    for (const SymExpr& expr : expressions_of(*loop.body)) collect(expr);
  }

  std::vector<SymExpr> found;
  std::vector<SymExpr> divisors;  ///< of those that are not fixed

 private:
  void collect(const SymExpr& expr) {
    if (expr.is_constant() || expr.is_symbol()) return;
    const bool divides =
        expr.kind() == SymExpr::Kind::FloorDiv || expr.kind() == SymExpr::Kind::Mod;
    if (!divides || !is_fixed(expr)) {
      const std::vector<SymExpr> operands = expr.operands();
      for (const SymExpr& operand : operands) collect(operand);
      if (divides && !operands[1].is_constant() && is_fixed(operands[1]) &&
          std::ranges::find(divisors, operands[1]) == divisors.end())
        divisors.push_back(operands[1]);
    } else if (std::ranges::find(found, expr) == found.end()) {
      found.push_back(expr);
    }
  }

  bool is_fixed(const SymExpr& expr) const {
    std::vector<Symbol> symbols;
    expr.collect_symbols(symbols);
    return std::ranges::none_of(symbols, [&](Symbol s) { return bound_.count(s) != 0; });
  }

  std::set<Symbol> bound_;
};

}  // namespace

std::vector<SymExpr> fixed_divisions(const ForStmt& loop) { return FixedDivisions(loop).found; }
std::vector<SymExpr> fixed_divisors(const ForStmt& loop) { return FixedDivisions(loop).divisors; }

}  // namespace heddle::jit::cpu
