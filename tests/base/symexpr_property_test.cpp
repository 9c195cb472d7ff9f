// Properties of random expressions against a plain tree evaluated beside them.
#include <gtest/gtest.h>

#include "base/symexpr.h"
#include "tests/base/symexpr_random.h"

namespace heddle::base {
namespace {

using testing::RandomExpr;
using testing::RandomExprs;

constexpr Symbol kS0{Symbol::Kind::Size, 0};
constexpr Symbol kS1{Symbol::Kind::Size, 1};
constexpr Symbol kI0{Symbol::Kind::Axis, 0};
constexpr Symbol kI1{Symbol::Kind::Axis, 1};
constexpr Symbol kT0{Symbol::Kind::Temp, 0};

const std::vector<Symbol> kSymbols = {kS0, kS1, kI0, kI1, kT0};

/// i0 < s0, i1 < s1, -3 <= t0 <= 2*s0, sizes positive.
Facts loop_facts() {
  Facts facts;
  facts.sizes_positive = true;
  facts.set_range(kI0, 0, SymExpr(kS0) - 1);
  facts.set_range(kI1, 0, SymExpr(kS1) - 1);
  facts.set_range(kT0, -3, SymExpr(kS0) * 2);
  return facts;
}

SymbolValues random_values(RandomExprs& random) {
  SymbolValues values;
  values[kS0] = random.between(1, 9);
  values[kS1] = random.between(1, 9);
  values[kI0] = random.between(0, values[kS0] - 1);
  values[kI1] = random.between(0, values[kS1] - 1);
  values[kT0] = random.between(-3, 2 * values[kS0]);
  return values;
}

class SymExprProperty : public ::testing::TestWithParam<int> {
 protected:
  static constexpr int kExprs = 500;
  static constexpr int kValues = 12;

  /// Calls check(random expression, source of randomness) many times.
  template <typename Check>
  void for_each(const Check& check) {
    RandomExprs random(static_cast<std::uint32_t>(GetParam()), kSymbols);
    for (int i = 0; i < kExprs && !HasFatalFailure(); ++i) {
      check(random.make(static_cast<int>(random.between(1, 4))), random);
    }
  }
};

TEST_P(SymExprProperty, construction_keeps_the_value) {
  int compared = 0;
  for_each([&](const RandomExpr& e, RandomExprs& random) {
    for (int i = 0; i < kValues; ++i) {
      const SymbolValues values = random_values(random);
      const auto want = e.tree->value(values);
      if (!want) continue;
      ++compared;
      ASSERT_EQ(e.expr.evaluate(values), *want) << e.expr.to_string();
    }
  });
  EXPECT_GT(compared, kExprs * kValues / 2);
}

TEST_P(SymExprProperty, simplify_keeps_the_value_within_the_facts) {
  const Facts facts = loop_facts();
  int changed = 0;
  for_each([&](const RandomExpr& e, RandomExprs& random) {
    const SymExpr simple = e.expr.simplify(facts);
    changed += simple == e.expr ? 0 : 1;
    for (int i = 0; i < kValues; ++i) {
      const SymbolValues values = random_values(random);
      const auto want = e.tree->value(values);
      if (!want) continue;
      ASSERT_EQ(simple.evaluate(values), *want)
          << e.expr.to_string() << " ==> " << simple.to_string();
    }
  });
  EXPECT_GT(changed, 10);
}

TEST_P(SymExprProperty, proofs_are_true) {
  const Facts facts = loop_facts();
  int proved = 0;
  for_each([&](const RandomExpr& e, RandomExprs& random) {
    if (!provably_nonnegative(e.expr, facts)) return;
    ++proved;
    for (int i = 0; i < kValues; ++i) {
      const auto value = e.tree->value(random_values(random));
      if (!value) continue;
      ASSERT_GE(*value, 0) << e.expr.to_string();
    }
  });
  EXPECT_GT(proved, kExprs / 20);
}

TEST_P(SymExprProperty, text_round_trips) {
  for_each([](const RandomExpr& e, RandomExprs&) {
    const SymExpr parsed = parse_symexpr(e.expr.to_string());
    ASSERT_EQ(parsed, e.expr) << e.expr.to_string() << " ==> " << parsed.to_string();
    ASSERT_EQ(parsed.hash(), e.expr.hash());
    ASSERT_EQ(parsed.to_string(), e.expr.to_string());
  });
}

TEST_P(SymExprProperty, algebra_is_canonical) {
  for_each([](const RandomExpr& e, RandomExprs& random) {
    const SymExpr a = e.expr;
    const SymExpr b = random.make(2).expr;
    const SymExpr c = random.make(2).expr;
    ASSERT_EQ(a + b, b + a);
    ASSERT_EQ(a * b, b * a);
    ASSERT_EQ((a + b) + c, a + (b + c));
    ASSERT_EQ((a * b) * c, a * (b * c));
    ASSERT_EQ(a * (b + c), a * b + a * c);
    ASSERT_EQ(a - b + b, a);
    ASSERT_EQ(SymExpr::compare(a, b), -SymExpr::compare(b, a));
    ASSERT_EQ(SymExpr::compare(a, b) == 0, a == b);
    if (b.is_constant(0)) return;
    ASSERT_EQ(divide_exact(a * b, b), a) << a.to_string() << " times " << b.to_string();
  });
}

TEST_P(SymExprProperty, substitution_is_evaluation) {
  for_each([](const RandomExpr& e, RandomExprs& random) {
    const SymbolValues values = random_values(random);
    const auto want = e.tree->value(values);
    if (!want) return;
    SymbolExprs constants;
    for (const auto& [symbol, value] : values) constants[symbol] = value;
    ASSERT_EQ(e.expr.substitute(constants), SymExpr(*want)) << e.expr.to_string();
  });
}

TEST_P(SymExprProperty, linear_parts_put_together_again) {
  int linear = 0;
  for_each([&linear](const RandomExpr& e, RandomExprs&) {
    const auto parts = e.expr.linear_in(kI0);
    if (!parts) return;
    ++linear;
    ASSERT_FALSE(parts->coefficient.mentions(kI0));
    ASSERT_FALSE(parts->rest.mentions(kI0));
    ASSERT_EQ(parts->coefficient * kI0 + parts->rest, e.expr);
  });
  EXPECT_GT(linear, kExprs / 4);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SymExprProperty, ::testing::Range(1, 7));

}  // namespace
}  // namespace heddle::base
