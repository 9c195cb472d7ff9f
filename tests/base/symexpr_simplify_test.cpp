// What facts allow: kernel indices, bounds, and proofs.
#include <gtest/gtest.h>
#include <utility>

#include "base/symexpr.h"

namespace heddle::base {
namespace {

const SymExpr s0 = SymExpr::size(0);
const SymExpr s1 = SymExpr::size(1);
const SymExpr s2 = SymExpr::size(2);
const SymExpr i0 = SymExpr::axis(0);
const SymExpr i1 = SymExpr::axis(1);
const SymExpr i2 = SymExpr::axis(2);
const SymExpr t0 = SymExpr::temp(0);

void set_extent(Facts& facts, const SymExpr& axis, const SymExpr& extent) {
  facts.set_range(axis.symbol(), 0, extent - 1);
}

/// i0 < s0, i1 < s1, i2 < 64.
Facts loops() {
  Facts facts;
  set_extent(facts, i0, s0);
  set_extent(facts, i1, s1);
  set_extent(facts, i2, 64);
  return facts;
}

TEST(Simplify, undoes_a_flattened_pair_of_axes) {
  const SymExpr flat = i0 * s1 + i1;
  EXPECT_EQ(floordiv(flat, s1).simplify(loops()), i0);
  EXPECT_EQ(mod(flat, s1).simplify(loops()), i1);
  EXPECT_EQ(floordiv(flat, s1), i0 + floordiv(i1, s1)) << "unproved without facts";
}

TEST(Simplify, undoes_constant_extents) {
  Facts facts = loops();
  set_extent(facts, i1, 128);
  EXPECT_EQ(floordiv(i0 * 128 + i1, 128).simplify(facts), i0);
  EXPECT_EQ(mod(i0 * 128 + i1, 128).simplify(facts), i1);
  EXPECT_EQ(floordiv(i0 * 128 + i1, 256).simplify(facts), floordiv(i0, 2));
  EXPECT_EQ(mod(i0 * 128 + i1, 256).simplify(facts), mod(i0, 2) * 128 + i1);
}

TEST(Simplify, undoes_nested_splits) {
  const SymExpr flat = i0 * s1 * 64 + i1 * 64 + i2;
  const SymExpr rows = floordiv(flat, 64).simplify(loops());
  EXPECT_EQ(rows, i0 * s1 + i1);
  EXPECT_EQ(mod(rows, s1).simplify(loops()), i1);
  EXPECT_EQ(floordiv(rows, s1).simplify(loops()), i0);
  EXPECT_EQ(floordiv(flat, s1 * 64).simplify(loops()), i0);
  EXPECT_EQ(mod(flat, s1 * 64).simplify(loops()), i1 * 64 + i2);
  EXPECT_EQ(mod(floordiv(flat, 64), s1).simplify(loops()), i1) << "in one go";
}

TEST(Simplify, three_symbolic_extents) {
  Facts facts = loops();
  set_extent(facts, i2, s2);
  const SymExpr flat = (i0 * s1 + i1) * s2 + i2;
  EXPECT_EQ(floordiv(flat, s1 * s2).simplify(facts), i0);
  EXPECT_EQ(mod(floordiv(flat, s2), s1).simplify(facts), i1);
  EXPECT_EQ(mod(flat, s2).simplify(facts), i2);
  EXPECT_EQ(floordiv(mod(flat, s1 * s2), s2).simplify(facts), i1);
}

TEST(Simplify, joins_quotient_and_remainder) {
  EXPECT_EQ((4 * floordiv(i0, 4) + mod(i0, 4)).simplify({}), i0);
  EXPECT_EQ((s1 * floordiv(i0, s1) * 3 + 3 * mod(i0, s1) + 1).simplify({}), 3 * i0 + 1);
  const SymExpr sum = i0 + i1;
  EXPECT_EQ((s1 * s0 * floordiv(sum, s1) + s0 * mod(sum, s1)).simplify({}), s0 * i0 + s0 * i1);
  EXPECT_EQ((4 * floordiv(i0, 8) + mod(i0, 4)).simplify({}), 4 * floordiv(i0, 8) + mod(i0, 4));
}

/// As a position in a block of a larger tensor: of no use are its rows and columns.
TEST(Simplify, joins_the_parts_of_a_position) {
  Facts facts = loops();
  facts.sizes_positive = true;
  const SymExpr flat = i0 + t0;
  EXPECT_EQ((s1 * mod(floordiv(flat, s1), s0) + mod(flat, s1)).simplify(facts), mod(flat, s0 * s1));
  EXPECT_EQ((6 * mod(floordiv(flat, 3), 4) + 2 * mod(flat, 3) + s2).simplify({}),
            2 * mod(flat, 12) + s2);
  const SymExpr three =
      s1 * s2 * mod(floordiv(flat, s1 * s2), s0) + s2 * mod(floordiv(flat, s2), s1) + mod(flat, s2);
  EXPECT_EQ(three.simplify(facts), mod(flat, s0 * s1 * s2));
  facts.set_range(t0.symbol(), 0, s0 * s1 - 1 - i0);
  EXPECT_EQ((s1 * mod(floordiv(flat, s1), s0) + mod(flat, s1)).simplify(facts), flat);
  const SymExpr other = s2 * mod(floordiv(flat, s1), s0) + mod(flat, s1);
  EXPECT_EQ(other.simplify(facts), other) << "rows lie apart";
}

TEST(Simplify, joins_only_what_vanishes) {
  const SymExpr sum = 3 * floordiv(i0, 4) + mod(i0, 4);
  EXPECT_EQ(sum.simplify({}), sum);
}

TEST(Simplify, a_divisor_of_unknown_sign_keeps_its_remainder) {
  Facts facts;
  set_extent(facts, i0, 8);
  set_extent(facts, i1, 4);
  facts.set_range(t0.symbol(), -3, 3);
  const SymbolValues values = {{i0.symbol(), 2}, {i1.symbol(), 1}, {t0.symbol(), -1}};
  EXPECT_EQ(floordiv(4 * i0 + i1, 4 * t0).simplify(facts).evaluate(values), -3);
  EXPECT_EQ(mod(4 * i0 + i1, 4 * t0).simplify(facts).evaluate(values), -3);
}

TEST(Simplify, drops_min_and_max_that_cannot_bind) {
  EXPECT_EQ(min(i0, s0).simplify(loops()), i0);
  EXPECT_EQ(min(i0, s0 - 1).simplify(loops()), i0);
  EXPECT_EQ(max(i0 - s0, 0).simplify(loops()), SymExpr(0));
  EXPECT_EQ(min(i0, s1).simplify(loops()), min(i0, s1));
}

TEST(Simplify, negative_remainders_and_single_values) {
  Facts facts = loops();
  facts.sizes_positive = true;
  EXPECT_EQ(floordiv(s0 * s1 - 1, s1).simplify(facts), s0 - 1);
  EXPECT_EQ(mod(s0 * s1 - 1, s1).simplify(facts), s1 - 1);
  set_extent(facts, i2, 1);
  EXPECT_EQ((i0 * 3 + i2).simplify(facts), i0 * 3);
}

TEST(Simplify, leaves_what_it_cannot_prove) {
  Facts facts = loops();
  facts.set_range(i1.symbol(), 0, s1);
  EXPECT_EQ(mod(i0 * s1 + i1, s1).simplify(facts), mod(i1, s1));
  EXPECT_EQ(mod(t0, 4).simplify(facts), mod(t0, 4));
}

TEST(ProvablyNonnegative, bounds_beyond_64_bits_prove_nothing) {
  Facts facts;
  facts.set_range(s0.symbol(), std::int64_t{1} << 62, std::int64_t{1} << 62);
  EXPECT_FALSE(provably_nonnegative(s0 * 4 - s1, facts));
}

TEST(ProvablyNonnegative, index_stays_inside_its_buffer) {
  EXPECT_TRUE(provably_nonnegative(s0 * s1 - 1 - (i0 * s1 + i1), loops()));
  EXPECT_TRUE(provably_nonnegative(s0 * s1 * 64 - 1 - (i0 * s1 * 64 + i1 * 64 + i2), loops()));
  EXPECT_FALSE(provably_nonnegative(s0 * s1 - 2 - (i0 * s1 + i1), loops()));
  EXPECT_FALSE(provably_nonnegative(s0 * s1 - 1 - (i1 * s0 + i0) - 1, loops()));
}

TEST(SymExprSimplify, AProofIsOneOfItsFactsOnly) {
  // Asked in turns, so that what was found for the one is there when the other is asked.
  Facts wide = loops();
  wide.set_range(i1.symbol(), 0, s1 + 1);
  Facts sizes = loops();
  sizes.sizes_positive = !sizes.sizes_positive;
  const SymExpr inside = s0 * s1 * 64 - 1 - (i0 * s1 * 64 + i1 * 64 + i2);
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(provably_nonnegative(inside, loops()));
    EXPECT_FALSE(provably_nonnegative(inside, wide));
    EXPECT_TRUE(provably_nonnegative(inside, sizes));
    EXPECT_FALSE(provably_nonnegative(inside - 1, loops()));
  }
}

TEST(ProvablyNonnegative, sizes_and_their_lower_ends) {
  EXPECT_TRUE(provably_nonnegative(s0, {}));
  EXPECT_FALSE(provably_nonnegative(s0 - 1, {}));
  Facts positive;
  positive.sizes_positive = true;
  EXPECT_TRUE(provably_nonnegative(s0 * s1 - s0, positive));
  EXPECT_TRUE(provably_nonnegative(s0 * s0 - s0, positive));
  EXPECT_FALSE(provably_nonnegative(s0 * s1 - s0, {}));
  EXPECT_FALSE(provably_nonnegative(s0 - 2, positive));
  Facts ranged;
  ranged.set_range(s0.symbol(), 4, 8);
  EXPECT_TRUE(provably_nonnegative(s0 - 4, ranged));
  EXPECT_TRUE(provably_nonnegative(8 - s0, ranged));
  EXPECT_FALSE(provably_nonnegative(7 - s0, ranged));
}

TEST(ProvablyNonnegative, quotients_are_whole_numbers) {
  const auto half = [](const SymExpr& size) { return floordiv(size + 1, 2); };
  Facts facts;
  facts.set_low(s0.symbol(), 1);
  EXPECT_TRUE(provably_nonnegative(half(s0) - 1, facts));
  EXPECT_TRUE(provably_nonnegative(half(half(s0)) - 1, facts));
  EXPECT_FALSE(provably_nonnegative(half(s0) - 2, facts));
  EXPECT_FALSE(provably_nonnegative(half(half(s0)) - 1, {}));
  EXPECT_TRUE(provably_nonnegative(half(s0) * 3 - 2, facts));
  EXPECT_FALSE(provably_nonnegative(half(s0) * 3 - 4, facts));
  EXPECT_TRUE(provably_nonnegative(floordiv(s0 + s1 * 4, 4) - s1, facts));
  EXPECT_FALSE(provably_nonnegative(floordiv(s0 + s1 * 4, 4) - s1 - 1, facts));
}

TEST(ProvablyNonnegative, unbounded_symbols_prove_nothing) {
  EXPECT_FALSE(provably_nonnegative(i0, {}));
  EXPECT_FALSE(provably_nonnegative(t0 * t0 + 1, {}));
  EXPECT_TRUE(provably_nonnegative(SymExpr::unbacked(0), {}));
}

TEST(ProvablyNonnegative, divisions_min_and_max) {
  Facts facts = loops();
  facts.sizes_positive = true;
  EXPECT_TRUE(provably_nonnegative(i0 - 4 * floordiv(i0, 4), facts));
  EXPECT_TRUE(provably_nonnegative(3 - mod(i0, 4), facts));
  EXPECT_TRUE(provably_nonnegative(s1 - 1 - mod(t0, s1), facts));
  EXPECT_TRUE(provably_nonnegative(floordiv(s0 + 3, 4) * 4 - s0, facts));
  EXPECT_TRUE(provably_nonnegative(s0 - min(s0, s1), facts));
  EXPECT_TRUE(provably_nonnegative(max(s0, s1) - s1, facts));
  EXPECT_FALSE(provably_nonnegative(min(s0, s1) - s1, facts));
  EXPECT_FALSE(provably_nonnegative(floordiv(s0, 4) * 4 - s0, facts));
  EXPECT_TRUE(provably_nonnegative(floordiv(s0, 4) * 4 - s0 + 3, facts));
  EXPECT_FALSE(provably_nonnegative(mod(s0, 4) - 1, facts));
  facts.set_range(i0.symbol(), 0, floordiv(s0, 2) - 1);
  EXPECT_TRUE(provably_nonnegative(floordiv(s0, 2) - 1 - i0, facts));
  EXPECT_TRUE(provably_nonnegative(s0 - 1 - 2 * i0 - 1, facts));
}

TEST(ProvablyNonnegative, ranges_that_depend_on_axes) {
  Facts facts;
  set_extent(facts, i0, s0);
  facts.set_range(i1.symbol(), 0, i0);  // the lower triangle
  EXPECT_TRUE(provably_nonnegative(i0 - i1, facts));
  EXPECT_TRUE(provably_nonnegative(s0 - 1 - i1, facts));
  EXPECT_FALSE(provably_nonnegative(i1 - i0, facts));
}

/// Answers are kept for a while, by facts and expression: these differ in one of them.
TEST(Simplify, asks_again_when_facts_change) {
  Facts facts = loops();
  const SymExpr rows = floordiv(i2, 32);
  EXPECT_NE(rows.simplify(facts), SymExpr(0));
  set_extent(facts, i2, 32);
  EXPECT_EQ(rows.simplify(facts), SymExpr(0));
  Facts other = facts;
  EXPECT_EQ(rows.simplify(other), SymExpr(0));
  set_extent(other, i2, 33);
  EXPECT_NE(rows.simplify(other), SymExpr(0));
  EXPECT_EQ(rows.simplify(facts), SymExpr(0));

  const Facts moved = std::move(facts);
  EXPECT_EQ(rows.simplify(moved), SymExpr(0));
  facts = Facts();
  EXPECT_NE(rows.simplify(facts), SymExpr(0));
  facts.set_low(i2.symbol(), 0);
  EXPECT_FALSE(provably_nonnegative(31 - i2, facts));
  EXPECT_TRUE(provably_nonnegative(i2, facts));
}

TEST(Simplify, puts_the_number_of_a_single_value) {
  Facts facts = loops();
  const SymExpr flat = i0 * s1 + i2;
  EXPECT_EQ(flat.simplify(facts), flat);
  facts.set_range(i2.symbol(), 5, 5);
  EXPECT_EQ(flat.simplify(facts), i0 * s1 + 5);
  facts.set_range(i2.symbol(), s0, s0);
  EXPECT_EQ(flat.simplify(facts), i0 * s1 + s0);
  facts.set_range(i2.symbol(), 0, s0);
  EXPECT_EQ(flat.simplify(facts), flat);
}

/// What bounds an expression's symbols is bounded by others in turn: each of these facts counts, those of other symbols do not.
TEST(Simplify, by_the_facts_that_say_something_of_it) {
  const auto facts_of = [](std::int64_t rows, std::int64_t others, bool positive) {
    Facts facts;
    facts.sizes_positive = positive;
    facts.set_range(s0.symbol(), 0, rows);
    set_extent(facts, i0, s0);
    set_extent(facts, i2, others);
    return facts;
  };
  for (const std::int64_t others : {3, 5, 3}) {
    EXPECT_EQ(floordiv(i0, 8).simplify(facts_of(8, others, false)), SymExpr(0));
    EXPECT_EQ(floordiv(i0, 8).simplify(facts_of(16, others, false)), floordiv(i0, 8));
    EXPECT_TRUE(provably_nonnegative(7 - i0, facts_of(8, others, false)));
    EXPECT_FALSE(provably_nonnegative(7 - i0, facts_of(16, others, false)));
    EXPECT_TRUE(provably_nonnegative(s1 - 1, facts_of(8, others, true)));
    EXPECT_FALSE(provably_nonnegative(s1 - 1, facts_of(8, others, false)));
  }
}

TEST(Simplify, of_more_questions_than_are_kept) {
  for (int round = 0; round < 2; ++round) {
    for (std::int64_t extent = 2; extent <= 5000; ++extent) {
      Facts facts;
      set_extent(facts, i0, extent);
      ASSERT_EQ(floordiv(i0, extent).simplify(facts), SymExpr(0));
      ASSERT_EQ(mod(i0 + 2 * extent, extent).simplify(facts), i0);
      ASSERT_EQ(provably_nonnegative(extent - 1 - i0, facts), true);
      ASSERT_EQ(provably_nonnegative(extent - 2 - i0, facts), false);
    }
  }
}

}  // namespace
}  // namespace heddle::base
