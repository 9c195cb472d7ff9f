// Expressions evaluated together have the values that each has by itself.
#include "base/expr_table.h"

#include <gtest/gtest.h>
#include <limits>

#include "base/check.h"
#include "heddle/error.h"

namespace heddle::base {
namespace {

const SymExpr s0 = SymExpr::size(0), s1 = SymExpr::size(1), u0 = SymExpr::unbacked(0);

std::int64_t value_of(const SymExpr& expr, const SymbolValues& symbols) {
  ExprTable::Builder builder;
  const std::uint32_t number = builder.add(expr);
  return builder.finish().evaluate(symbols)[number];
}

TEST(ExprTable, HasTheValuesOfItsExpressions) {
  const std::vector<SymExpr> exprs{
      7,
      s0,
      s0 - s1,
      2 * s0 * s0 * s1 + 3 * s1 - 5,
      floordiv(s0 - s1, 3),
      mod(s0 - 2 * s1, 4),
      min(s0, s1) * max(s0 * 2, s1 + 1),
      ceildiv(s0 * s1, s1 + 2),
      parse_symexpr("whole(rceil(rdiv(real(s0),single(real(s1)))))*2")};
  ExprTable::Builder builder;
  std::vector<std::uint32_t> numbers;
  for (const SymExpr& expr : exprs) numbers.push_back(builder.add(expr));
  const ExprTable table = builder.finish();
  for (const auto& [a, b] : {std::pair{0, 1}, {5, 3}, {3, 50}, {1000, 1}}) {
    const SymbolValues symbols{{s0.symbol(), a}, {s1.symbol(), b}};
    const ExprTable::Values values = table.evaluate(symbols);
    for (std::size_t k = 0; k < exprs.size(); ++k)
      EXPECT_EQ(values[numbers[k]], exprs[k].evaluate(symbols)) << exprs[k].to_string();
  }
}

TEST(ExprTable, GivesEqualExpressionsOneNumber) {
  ExprTable::Builder builder;
  const std::uint32_t first = builder.add(s0 * 3 + s1);
  EXPECT_EQ(builder.add(s1 + s0 + s0 * 2), first);
  EXPECT_NE(builder.add(s1), first);
}

TEST(ExprTable, TakesAKernelsSizesFromItsOwnValues) {
  ExprTable::Builder builder;
  const std::vector<std::uint32_t> arguments{builder.add(s1 + 1), builder.add(9)};
  const std::uint32_t number = builder.add(s0 * s1, arguments);
  EXPECT_EQ(builder.finish().evaluate({{s1.symbol(), 4}})[number], 45);
}

TEST(ExprTable, FailsOnlyWhereAFailureIsAskedFor) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 62;
  ExprTable::Builder builder;
  const std::uint32_t divided = builder.add(floordiv(s0, s1) + 1);
  const std::uint32_t multiplied = builder.add(s0 * 4 + s1);
  const std::uint32_t unknown = builder.add(u0 + s0);
  const std::uint32_t fine = builder.add(s0 + s1);
  const ExprTable::Values values =
      builder.finish().evaluate({{s0.symbol(), kLarge}, {s1.symbol(), 0}});
  EXPECT_THROW(values[divided], ShapeError);
  EXPECT_THROW(values[multiplied], ShapeError);
  EXPECT_THROW(values[unknown], InternalError);
  EXPECT_EQ(values[fine], kLarge);
}

TEST(ExprTable, DividesByMinusOne) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(value_of(floordiv(s0, s1), {{s0.symbol(), 5}, {s1.symbol(), -1}}), -5);
  EXPECT_THROW(value_of(floordiv(s0, s1), {{s0.symbol(), kLeast}, {s1.symbol(), -1}}), ShapeError);
  EXPECT_EQ(value_of(mod(s0, s1), {{s0.symbol(), kLeast}, {s1.symbol(), -1}}), 0);
}

}  // namespace
}  // namespace heddle::base
