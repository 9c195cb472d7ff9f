// Many expressions that are evaluated together.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/symexpr.h"

namespace heddle::base {

/// Expressions as one list of operations, each distinct one once: what one set of sizes makes of all of them is found in one pass
/// over adjacent memory, where each expression by itself is a tree whose nodes lie anywhere.
class ExprTable {
 public:
  class Builder;
  class Values;

  /// The values of all of its expressions. A value whose expression fails throws when it is asked for, as SymExpr::evaluate() does.
  Values evaluate(const SymbolValues& symbols) const;

 private:
  enum class Op : std::uint8_t { Constant, Symbol, Add, Multiply, FloorDiv, Mod, Min, Max, Real };
  struct Operation {
    Op op = Op::Constant;
    std::uint32_t left = 0;  ///< a value before this one; Constant, Symbol: which
    std::uint32_t right = 0;
    SymExpr::Kind real = SymExpr::Kind::Constant;  ///< Real: which operation
    friend auto operator<=>(const Operation&, const Operation&) = default;
  };

  std::vector<Operation> operations_;
  std::vector<std::int64_t> constants_;
  std::vector<Symbol> symbols_;
};

class ExprTable::Values {
 public:
  /// @throws ShapeError on overflow or division by zero.
  std::int64_t operator[](std::uint32_t number) const {
    if (!failures_.empty()) [[unlikely]]
      check(number);
    return numbers_[number];
  }

 private:
  friend class ExprTable;
  enum class Failure : std::uint8_t { None, NoValue, Overflow, DivisionByZero };
  void check(std::uint32_t number) const;
  void fail(std::size_t number, Failure failure);
  Failure operate(const Operation& operation, std::int64_t& value) const;

  std::vector<std::int64_t> numbers_;
  std::vector<Failure> failures_;  ///< empty: there are none
};

class ExprTable::Builder {
 public:
  /// The number of the expression's value.
  std::uint32_t add(const SymExpr& expr);
  /// The same where size sN is the value `arguments[N]` of this table.
  std::uint32_t add(const SymExpr& expr, std::span<const std::uint32_t> arguments);
  ExprTable finish() { return std::move(made_); }

 private:
  struct Walk;
  std::uint32_t append(Operation operation);
  std::uint32_t constant(std::int64_t value);
  std::uint32_t symbol(Symbol symbol);

  ExprTable made_;
  std::map<Operation, std::uint32_t> numbers_;
  std::map<std::int64_t, std::uint32_t> constants_;
  std::map<Symbol, std::uint32_t> symbols_;
};

}  // namespace heddle::base
