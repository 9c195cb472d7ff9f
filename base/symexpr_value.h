// The number of an expression, of whatever tells those of its symbols. Only base/symexpr*.cpp include this.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/check.h"
#include "base/symexpr_node.h"
#include "base/symreal.h"

namespace heddle::base {

/// `lookup(symbol)` is asked once for each time that a symbol is used.
template <typename Lookup>
class Evaluator {
 public:
  explicit Evaluator(const Lookup& lookup) : lookup_(lookup) {}

  std::int64_t value(const SymExpr& expr) const {
    const SymNodePtr& node = SymExprAccess::node(expr);
    return node == nullptr ? SymExprAccess::constant(expr) : value(*node);
  }

 private:
  std::int64_t value(const SymNode& node) const {
    switch (node.kind) {
      case SymExpr::Kind::Symbol:
        return lookup_(node.symbol);
      case SymExpr::Kind::Sum:
      case SymExpr::Kind::Product:
        return node.factors.empty() ? sum(node) : product(node);
      case SymExpr::Kind::FloorDiv:
        return floor_divide(value(node.left), value(node.right));
      case SymExpr::Kind::Mod:
        return floor_modulo(value(node.left), value(node.right));
      case SymExpr::Kind::Min:
        return std::min(value(node.left), value(node.right));
      case SymExpr::Kind::Max:
        return std::max(value(node.left), value(node.right));
      case SymExpr::Kind::Constant:
        break;
      default:
        return apply_real(node.kind, value(node.left), value(node.right));
    }
    check_failed(__FILE__, __LINE__, "a node of a known kind");
  }

  std::int64_t sum(const SymNode& node) const {
    std::int64_t total = node.constant;
    for (const SymTerm& term : node.terms) {
      total = checked_add(total, checked_multiply(term.coefficient, value(*term.monomial)));
    }
    return total;
  }

  std::int64_t product(const SymNode& node) const {
    std::int64_t total = 1;
    for (const SymNodePtr& factor : node.factors) total = checked_multiply(total, value(*factor));
    return total;
  }

  const Lookup& lookup_;
};

}  // namespace heddle::base
