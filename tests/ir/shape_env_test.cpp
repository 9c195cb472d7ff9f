#include <gtest/gtest.h>

#include "heddle/error.h"
#include "ir/graph.h"
#include "ir/known_sizes.h"
#include "ir/op.h"
#include "ir/text.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using base::Predicate;
using ir::Dims;
using ir::ShapeEnv;
using ir::SymExpr;

const SymExpr s0 = SymExpr::size(0);
const SymExpr s1 = SymExpr::size(1);

/// The size of x[a] + y[b] and what had to be assumed for it.
struct Broadcast {
  std::string size;
  std::string assumed;
};

Broadcast broadcast(const SymExpr& a, const SymExpr& b, const base::SymbolValues& hints = {}) {
  auto env = std::make_shared<ShapeEnv>();
  env->hints = hints;
  ir::GraphBuilder builder("main", env);
  const ir::Value x = builder.input(meta(f32, {a}));
  const ir::Value y = builder.input(meta(f32, {b}));
  const ir::Value z = builder.emit("add", {x, y});
  Broadcast result{z.meta().sizes[0].to_string(), ""};
  for (const ir::Assumption& assumption : env->assumptions)
    result.assumed += assumption.predicate.to_string() + ";";
  return result;
}

base::SymbolValues hints(std::int64_t a, std::int64_t b) {
  return {{s0.symbol(), a}, {s1.symbol(), b}};
}

void expect_broadcast(const Broadcast& got, const char* size, const char* assumed) {
  EXPECT_EQ(got.size, size);
  EXPECT_EQ(got.assumed, assumed);
}

TEST(Broadcast, WhatIsProvableIsNotAssumed) {
  expect_broadcast(broadcast(s0, s0), "s0", "");
  expect_broadcast(broadcast(s0, 1), "s0", "");
  expect_broadcast(broadcast(1, s0), "s0", "");
  expect_broadcast(broadcast(s0 * 2 + 2, (s0 + 1) * 2), "2*s0+2", "");
}

TEST(Broadcast, OneIsSpecialOnlyWhereTheResultDependsOnIt) {
  expect_broadcast(broadcast(s0, s1), "s0", "s0 == s1;");
  expect_broadcast(broadcast(s0, s1, hints(4, 4)), "s0", "s0 == s1;");
  expect_broadcast(broadcast(s0, s1, hints(1, 1)), "s0", "s0 == s1;");
  expect_broadcast(broadcast(s0, s1, hints(1, 4)), "s1", "s0 == 1;");
  expect_broadcast(broadcast(s0, s1, hints(4, 1)), "s0", "s1 == 1;");
  expect_broadcast(broadcast(s0, 8, hints(8, 8)), "8", "s0 == 8;");
  expect_broadcast(broadcast(8, s0, hints(1, 8)), "8", "s0 == 1;");
}

TEST(Broadcast, SizesThatDoNotFitAreAnError) {
  EXPECT_THROW(broadcast(4, 3), ShapeError);
  EXPECT_THROW(broadcast(s0, s1, hints(4, 3)), ShapeError);
}

TEST(ShapeEnv, AnAssumedEqualityMakesLaterChecksProvable) {
  ShapeEnv env;
  EXPECT_TRUE(env.require({Predicate::Op::Eq, s0, s1}, "", {}));
  EXPECT_TRUE(env.require({Predicate::Op::Eq, s1 * 2 + 1, s0 * 2 + 1}, "", {}));
  EXPECT_TRUE(env.decide({Predicate::Op::Eq, s1, s0}, "", {}));
  EXPECT_FALSE(env.decide({Predicate::Op::Ne, s1, s0}, "", {}));
  EXPECT_EQ(env.assumptions.size(), 1u);
}

TEST(ShapeEnv, ALinearEqualityIsSolved) {
  ShapeEnv env;
  EXPECT_TRUE(env.require({Predicate::Op::Eq, s0 + 1, s1 - 2}, "", {}));
  EXPECT_TRUE(env.decide({Predicate::Op::Eq, s1, s0 + 3}, "", {}));
  EXPECT_EQ(env.assumptions.size(), 1u);
}

TEST(ShapeEnv, ASumIsSolvedForBeforeADifference) {
  // A mask is as long as a cache and what comes behind it.
  const SymExpr s2 = SymExpr::size(2);
  for (const auto& [left, right] : {std::pair(s0, s1 + s2), std::pair(s1 + s2, s0)}) {
    const ir::Assumption sum{{Predicate::Op::Eq, left, right}, "", {}};
    const base::SymbolExprs known = ir::equalities({&sum, 1});
    ASSERT_EQ(known.size(), 1u);
    EXPECT_EQ(known.begin()->first, s0.symbol());
    EXPECT_EQ(known.begin()->second, s1 + s2);
  }
  const ir::Assumption difference{{Predicate::Op::Eq, s0, s1 - s2 + s2 * s0}, "", {}};
  EXPECT_EQ(ir::equalities({&difference, 1}).begin()->second, s0 - s2 * s0 + s2);
}

TEST(ShapeEnv, DecidesByHintsAndRecordsTheOutcome) {
  ShapeEnv env;
  env.hints = hints(4, 9);
  EXPECT_TRUE(env.decide({Predicate::Op::Lt, s0, s1}, "branch", {"user.cpp", 3}));
  EXPECT_FALSE(env.decide({Predicate::Op::Lt, s1, s0 + 1}, "branch", {"user.cpp", 4}));
  ASSERT_EQ(env.assumptions.size(), 2u);
  EXPECT_EQ(env.assumptions[0].predicate.to_string(), "s0 < s1");
  EXPECT_EQ(env.assumptions[0].location.to_string(), "user.cpp:3");
  for (const ir::Assumption& a : env.assumptions) EXPECT_TRUE(a.predicate.evaluate(env.hints));
  EXPECT_TRUE(env.decide({Predicate::Op::Lt, s0, s1}, "again", {}));
  EXPECT_EQ(env.assumptions.size(), 2u);
}

TEST(ShapeEnv, ExpectRecordsNothing) {
  ShapeEnv env;
  EXPECT_FALSE(env.expect({Predicate::Op::Eq, s0, s1}).has_value());
  env.hints = hints(4, 4);
  EXPECT_EQ(env.expect({Predicate::Op::Eq, s0, s1}), std::optional(true));
  EXPECT_TRUE(env.assumptions.empty());
}

TEST(ShapeEnv, WhatContradictsTheHintsCannotBeRequired) {
  ShapeEnv env;
  env.hints = hints(4, 9);
  EXPECT_FALSE(env.require({Predicate::Op::Eq, s0, s1}, "", {}));
  EXPECT_FALSE(env.require({Predicate::Op::Eq, s0, s0 + 1}, "", {}));
  EXPECT_TRUE(env.assumptions.empty());
}

}  // namespace
}  // namespace heddle::testing
