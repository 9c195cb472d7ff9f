#include "base/symexpr.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "heddle/error.h"

namespace heddle::base {
namespace {

using ::testing::ElementsAre;

const SymExpr s0 = SymExpr::size(0);
const SymExpr s1 = SymExpr::size(1);
const SymExpr u0 = SymExpr::unbacked(0);
const SymExpr i0 = SymExpr::axis(0);
const SymExpr i1 = SymExpr::axis(1);
const SymExpr t0 = SymExpr::temp(0);
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();

template <typename Function>
std::string shape_error(Function function) {
  try {
    function();
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "no error";
}

TEST(SymExpr, prints_higher_degrees_first_and_the_constant_last) {
  EXPECT_EQ((1 + 2 * s0 + s1 * s0).to_string(), "s0*s1+2*s0+1");
  EXPECT_EQ((s0 - 1).to_string(), "s0-1");
  EXPECT_EQ((1 - s0).to_string(), "-s0+1");
  EXPECT_EQ((i0 + u0 * 3 + s0 + t0).to_string(), "s0+3*u0+i0+t0");
  EXPECT_EQ((s0 * s0 * -2).to_string(), "-2*s0*s0");
  EXPECT_EQ(floordiv(s0 + 1, 2).to_string(), "floor((s0+1)/2)");
  EXPECT_EQ(floordiv(s0, s1 * 2).to_string(), "floor(s0/(2*s1))");
  EXPECT_EQ((mod(s0, 4) * 3).to_string(), "3*mod(s0,4)");
  EXPECT_EQ(min(8, s0).to_string(), "min(s0,8)");
  EXPECT_EQ(max(s0 - 3, 0).to_string(), "max(s0-3,0)");
  EXPECT_EQ(SymExpr(-7).to_string(), "-7");
}

TEST(SymExpr, equal_polynomials_are_equal) {
  EXPECT_EQ((s0 + 1) * 2, 2 * s0 + 2);
  EXPECT_EQ((s0 + 1) * (s0 - 1), s0 * s0 - 1);
  EXPECT_EQ((s0 + s1) * (s0 + s1), s0 * s0 + 2 * s0 * s1 + s1 * s1);
  EXPECT_EQ(s0 - s0, SymExpr(0));
  EXPECT_EQ(((s0 + 1) * 2).hash(), (2 * s0 + 2).hash());
  EXPECT_FALSE(s0 == s1);
  EXPECT_FALSE(s0 == SymExpr(0));
  EXPECT_EQ(SymExpr::size(1000) + s0, s0 + SymExpr::size(1000));
}

TEST(SymExpr, division_folds_what_always_holds) {
  EXPECT_EQ(floordiv(-7, 2), SymExpr(-4));
  EXPECT_EQ(mod(-7, 2), SymExpr(1));
  EXPECT_EQ(mod(7, -2), SymExpr(-1));
  EXPECT_EQ(ceildiv(7, 2), SymExpr(4));
  EXPECT_EQ(floordiv(s0, 1), s0);
  EXPECT_EQ(mod(s0, 1), SymExpr(0));
  EXPECT_EQ(floordiv(6 * s0, 4 * s1), floordiv(3 * s0, 2 * s1));
  EXPECT_EQ(floordiv(s0 * s0 - 1, s0 + 1), s0 - 1);
  EXPECT_EQ(mod(s0 * s1, s1), SymExpr(0));
  EXPECT_EQ(floordiv(4 * s0 + 3, 4), s0);
  EXPECT_EQ(floordiv(4 * s0 + 4 + s1, 4), s0 + 1 + floordiv(s1, 4));
  EXPECT_EQ(floordiv(i0 * s0 + i0 + i1, s0 + 1), i0 + floordiv(i1, s0 + 1));
  EXPECT_EQ(floordiv(floordiv(s0, 2), 3), floordiv(s0, 6));
  EXPECT_EQ(floordiv(floordiv(s0, s1), 3), floordiv(s0, 3 * s1));
  EXPECT_EQ(mod(mod(s0, 12), 4), mod(s0, 4));
  EXPECT_EQ(floordiv(mod(s0, 12), 4), mod(floordiv(s0, 4), 3));
  EXPECT_EQ(ceildiv(s0 * s1, s1), s0);
}

TEST(SymExpr, min_and_max_fold_known_differences) {
  EXPECT_EQ(min(s0, s0 + 1), s0);
  EXPECT_EQ(max(s0, s0 + 1), s0 + 1);
  EXPECT_EQ(min(3, 4), SymExpr(3));
  EXPECT_EQ(min(s0, s1), min(s1, s0));
}

TEST(SymExpr, operands_are_what_emitters_walk) {
  EXPECT_THAT((2 * s0 * s1 + s0 + 3).operands(), ElementsAre(2 * s0 * s1, s0, SymExpr(3)));
  EXPECT_THAT((2 * s0 * s1).operands(), ElementsAre(SymExpr(2), s0, s1));
  EXPECT_THAT((s0 * s1).operands(), ElementsAre(s0, s1));
  EXPECT_THAT(floordiv(s0, 2).operands(), ElementsAre(s0, SymExpr(2)));
  EXPECT_THAT(s0.operands(), ElementsAre());
  EXPECT_EQ((2 * s0).kind(), SymExpr::Kind::Product);
  EXPECT_EQ((s0 + 1).kind(), SymExpr::Kind::Sum);
}

TEST(SymExpr, substitutes_all_symbols_at_once) {
  const SymbolExprs swap = {{s0.symbol(), s1}, {s1.symbol(), s0 + 1}};
  EXPECT_EQ((s0 + 2 * s1).substitute(swap), s1 + 2 * s0 + 2);
  EXPECT_EQ(floordiv(s0 * s1, 4).substitute(swap), floordiv(s1 * s0 + s1, 4));
  EXPECT_EQ(i0.substitute(swap), i0);
}

TEST(SymExpr, lists_symbols_sorted_and_once) {
  std::vector<Symbol> symbols;
  (i0 * s1 + mod(s1, 3) + u0).collect_symbols(symbols);
  EXPECT_THAT(symbols, ElementsAre(s1.symbol(), u0.symbol(), i0.symbol()));
  EXPECT_TRUE(mod(i0 + 1, s1).mentions(s1.symbol()));
  EXPECT_FALSE(mod(i0 + 1, s1).mentions(s0.symbol()));
}

TEST(SymExpr, linear_in_takes_a_symbol_out) {
  const auto linear = (i0 * s1 + 3 * i0 + i1 + floordiv(s0, 2)).linear_in(i0.symbol());
  ASSERT_TRUE(linear.has_value());
  EXPECT_EQ(linear->coefficient, s1 + 3);
  EXPECT_EQ(linear->rest, i1 + floordiv(s0, 2));
  EXPECT_FALSE((i0 * i0).linear_in(i0.symbol()));
  EXPECT_FALSE(floordiv(i0, 2).linear_in(i0.symbol()));
  EXPECT_FALSE((i0 * mod(i0, 3)).linear_in(i0.symbol()));
  EXPECT_EQ(s0.linear_in(i0.symbol())->coefficient, SymExpr(0));
}

TEST(SymExpr, divides_exactly_or_not_at_all) {
  EXPECT_EQ(divide_exact(s0 * s1 * 6, 2 * s1), 3 * s0);
  EXPECT_EQ(divide_exact((s0 + s1) * (s0 - 2) * 3, s0 + s1), 3 * s0 - 6);
  EXPECT_EQ(divide_exact((s0 + 1) * (s1 + 1) * (i0 + s0), (s1 + 1) * (s0 + 1)), s0 + i0);
  EXPECT_FALSE(divide_exact(s0 * s1 + 1, s1));
  EXPECT_FALSE(divide_exact(s0, 2));
  EXPECT_FALSE(divide_exact(s0, 0));
  EXPECT_EQ(divide_exact(0, s0), SymExpr(0));
}

TEST(SymExpr, large_products_of_sums_keep_their_value) {
  SymExpr left = 1;
  SymExpr right = 2;
  SymbolValues values;
  std::int64_t total = 0;
  for (std::uint32_t i = 0; i < 40; ++i) {
    left += SymExpr::size(i);
    right += SymExpr::size(i) * 3;
    values[SymExpr::size(i).symbol()] = i;
    total += i;
  }
  EXPECT_EQ((left * right).evaluate(values), (total + 1) * (3 * total + 2));
  EXPECT_EQ(parse_symexpr((left * right).to_string()), left * right);
  EXPECT_EQ((left * right - right * left), SymExpr(0));
}

TEST(SymExpr, evaluates_dense_sizes) {
  const std::int64_t sizes[] = {7, 3};
  EXPECT_EQ((s0 * s1 + floordiv(s0, 2) + mod(s0, s1)).evaluate_sizes(sizes), 21 + 3 + 1);
  EXPECT_EQ(SymExpr(5).evaluate_sizes({}), 5);
  const SymExpr all[] = {s0, s1, 2};
  EXPECT_EQ(product(all).evaluate_sizes(sizes), 42);
  EXPECT_EQ(product({}), SymExpr(1));
}

TEST(SymExpr, overflow_is_an_error) {
  const std::string text = "size overflows 64 bits";
  EXPECT_EQ(shape_error([] { return SymExpr(kMost) + 1; }), text);
  EXPECT_EQ(shape_error([] { return SymExpr(kMost) * 2; }), text);
  EXPECT_EQ(shape_error([] { return (s0 * kMost) * 2; }), text);
  EXPECT_EQ(shape_error([] { return -SymExpr(kLeast); }), text);
  EXPECT_EQ(shape_error([] { return floordiv(kLeast, -1); }), text);
  EXPECT_EQ(mod(kLeast, -1), SymExpr(0));
  EXPECT_EQ(shape_error([] { return (s0 * s0).evaluate({{s0.symbol(), kMost}}); }), text);
}

TEST(SymExpr, division_by_zero_is_an_error) {
  const std::string text = "size is divided by zero";
  EXPECT_EQ(shape_error([] { return floordiv(s0, 0); }), text);
  EXPECT_EQ(shape_error([] { return mod(s0, 0); }), text);
  EXPECT_EQ(shape_error([] { return mod(s0, s1).evaluate_sizes(std::vector<std::int64_t>{1, 0}); }),
            text);
}

TEST(Predicate, negates_prints_and_decides) {
  const Predicate less{Predicate::Op::Lt, s0, 4};
  EXPECT_EQ(less.to_string(), "s0 < 4");
  EXPECT_EQ(less.negated().to_string(), "4 <= s0");
  EXPECT_EQ(less.negated().negated(), less);
  EXPECT_TRUE(less.evaluate({{s0.symbol(), 3}}));
  EXPECT_FALSE(less.negated().evaluate({{s0.symbol(), 3}}));
  EXPECT_EQ(less.decide({}), std::nullopt);

  Facts facts;
  facts.set_range(s0.symbol(), 5, 9);
  EXPECT_EQ(less.decide(facts), false);
  EXPECT_EQ((Predicate{Predicate::Op::Lt, s0, 10}.decide(facts)), true);
  EXPECT_EQ((Predicate{Predicate::Op::Eq, s0, 4}.decide(facts)), false);
  EXPECT_EQ((Predicate{Predicate::Op::Ne, s0, s0}.decide(facts)), false);
  EXPECT_EQ((Predicate{Predicate::Op::Le, s0, s1}.decide(facts)), std::nullopt);
  EXPECT_EQ((Predicate{Predicate::Op::Eq, s0 * 2, s1}.to_string()), "2*s0 == s1");
}

}  // namespace
}  // namespace heddle::base
