#include "base/expr_table.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/symexpr_node.h"
#include "base/symreal.h"

namespace heddle::base {

/// Appends the operations of one expression.
struct ExprTable::Builder::Walk {
  Builder& builder;
  std::span<const std::uint32_t> arguments;
  bool is_kernel = false;  ///< sizes are `arguments`

  std::uint32_t value(const SymExpr& expr) {
    const SymNodePtr& node = SymExprAccess::node(expr);
    return node == nullptr ? builder.constant(SymExprAccess::constant(expr)) : value(*node);
  }

  std::uint32_t value(const SymNode& node) {
    switch (node.kind) {
      case SymExpr::Kind::Symbol:
        return symbol(node.symbol);
      case SymExpr::Kind::Sum:
      case SymExpr::Kind::Product:
        return node.factors.empty() ? sum(node) : product(node);
      case SymExpr::Kind::FloorDiv:
        return join(Op::FloorDiv, node);
      case SymExpr::Kind::Mod:
        return join(Op::Mod, node);
      case SymExpr::Kind::Min:
        return join(Op::Min, node);
      case SymExpr::Kind::Max:
        return join(Op::Max, node);
      case SymExpr::Kind::Constant:
        break;
      default:
        return join(Op::Real, node, node.kind);
    }
    check_failed(__FILE__, __LINE__, "a node of a known kind");
  }

  std::uint32_t symbol(Symbol symbol) const {
    if (!is_kernel) return builder.symbol(symbol);
    HD_CHECK(symbol.kind == Symbol::Kind::Size && symbol.id < arguments.size(),
             "no value of " + symbol.to_string());
    return arguments[symbol.id];
  }

  std::uint32_t join(Op op, const SymNode& node, SymExpr::Kind real = SymExpr::Kind::Constant) {
    const std::uint32_t left = value(node.left);
    return builder.append({op, left, value(node.right), real});
  }

  std::uint32_t sum(const SymNode& node) {
    std::uint32_t total = builder.constant(node.constant);
    bool is_zero = node.constant == 0;
    for (const SymTerm& term : node.terms) {
      std::uint32_t made = value(*term.monomial);
      if (term.coefficient != 1)
        made = builder.append({Op::Multiply, builder.constant(term.coefficient), made});
      total = is_zero ? made : builder.append({Op::Add, total, made});
      is_zero = false;
    }
    return total;
  }

  std::uint32_t product(const SymNode& node) {
    std::uint32_t total = value(*node.factors[0]);
    for (std::size_t k = 1; k < node.factors.size(); ++k)
      total = builder.append({Op::Multiply, total, value(*node.factors[k])});
    return total;
  }
};

std::uint32_t ExprTable::Builder::add(const SymExpr& expr) { return Walk{*this, {}}.value(expr); }

std::uint32_t ExprTable::Builder::add(const SymExpr& expr,
                                      std::span<const std::uint32_t> arguments) {
  return Walk{*this, arguments, true}.value(expr);
}

std::uint32_t ExprTable::Builder::append(Operation operation) {
  const auto next = static_cast<std::uint32_t>(made_.operations_.size());
  const auto [known, is_new] = numbers_.try_emplace(operation, next);
  if (is_new) made_.operations_.push_back(operation);
  return known->second;
}

std::uint32_t ExprTable::Builder::constant(std::int64_t value) {
  const auto next = static_cast<std::uint32_t>(made_.constants_.size());
  const auto [known, is_new] = constants_.try_emplace(value, next);
  if (is_new) made_.constants_.push_back(value);
  return append({Op::Constant, known->second});
}

std::uint32_t ExprTable::Builder::symbol(Symbol symbol) {
  const auto next = static_cast<std::uint32_t>(made_.symbols_.size());
  const auto [known, is_new] = symbols_.try_emplace(symbol, next);
  if (is_new) made_.symbols_.push_back(symbol);
  return append({Op::Symbol, known->second});
}

ExprTable::Values::Failure ExprTable::Values::operate(const Operation& operation,
                                                      std::int64_t& value) const {
  const std::int64_t left = numbers_[operation.left];
  const std::int64_t right = numbers_[operation.right];
  const bool divides = operation.op == Op::FloorDiv || operation.op == Op::Mod;
  if (divides && right == 0) return Failure::DivisionByZero;
  bool overflows = false;
  switch (operation.op) {
    case Op::Add:
      overflows = __builtin_add_overflow(left, right, &value);
      break;
    case Op::Multiply:
      overflows = __builtin_mul_overflow(left, right, &value);
      break;
    case Op::FloorDiv:
      overflows = right == -1 && __builtin_mul_overflow(left, right, &value);
      if (!overflows) value = floor_divide(left, right);
      break;
    case Op::Mod:
      value = floor_modulo(left, right);
      break;
    case Op::Min:
      value = std::min(left, right);
      break;
    case Op::Max:
      value = std::max(left, right);
      break;
    case Op::Real:
      value = apply_real(operation.real, left, right);
      break;
    case Op::Constant:
    case Op::Symbol:
      break;
  }
  return overflows ? Failure::Overflow : Failure::None;
}

void ExprTable::Values::fail(std::size_t number, Failure failure) {
  failures_.resize(numbers_.size(), Failure::None);
  failures_[number] = failure;
}

void ExprTable::Values::check(std::uint32_t number) const {
  HD_CHECK(failures_[number] != Failure::NoValue, "no value of a symbol");
  if (failures_[number] == Failure::Overflow) throw_size_overflow();
  if (failures_[number] == Failure::DivisionByZero) throw_size_division_by_zero();
}

ExprTable::Values ExprTable::evaluate(const SymbolValues& symbols) const {
  using Failure = Values::Failure;
  Values made;
  made.numbers_.resize(operations_.size());
  for (std::size_t k = 0; k < operations_.size(); ++k) {
    const Operation& operation = operations_[k];
    std::int64_t& value = made.numbers_[k];
    Failure failure = Failure::None;
    if (operation.op == Op::Constant) {
      value = constants_[operation.left];
    } else if (operation.op == Op::Symbol) {
      const auto known = symbols.find(symbols_[operation.left]);
      if (known == symbols.end())
        failure = Failure::NoValue;
      else
        value = known->second;
    } else {
      if (!made.failures_.empty()) [[unlikely]]
        failure = std::max(made.failures_[operation.left], made.failures_[operation.right]);
      if (failure == Failure::None) failure = made.operate(operation, value);
    }
    if (failure != Failure::None) [[unlikely]]
      made.fail(k, failure);
  }
  return made;
}

}  // namespace heddle::base
