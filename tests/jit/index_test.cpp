// Places in tensors, and what is known where they have elements.
#include "jit/lower/index.h"

#include <gtest/gtest.h>
#include <optional>

namespace heddle::jit {
namespace {

const SymExpr s0 = SymExpr::size(0);
const SymExpr s1 = SymExpr::size(1);
const SymExpr s2 = SymExpr::size(2);

SymExpr half(const SymExpr& size) { return floordiv(size + 1, 2); }

std::optional<SymExpr> low_of(const SymExpr& symbol, const base::Facts& facts) {
  const auto found = facts.ranges().find(symbol.symbol());
  return found == facts.ranges().end() ? std::nullopt : found->second.low;
}

TEST(Index, SizesOfWhatHasElements) {
  base::Facts facts;
  const SymExpr sizes[] = {s0 * s1, floordiv(s2 - 4, 3) + 1, 7};
  assume_elements(sizes, facts);
  EXPECT_EQ(low_of(s0, facts), SymExpr(1));
  EXPECT_EQ(low_of(s1, facts), SymExpr(1));
  EXPECT_EQ(low_of(s2, facts), SymExpr(4));
}

TEST(Index, WhatIsKnownIsNotForgotten) {
  base::Facts facts;
  facts.set_low(s0.symbol(), 5);
  const SymExpr sizes[] = {half(s0), min(s1, s2)};
  assume_elements(sizes, facts);
  EXPECT_EQ(low_of(s0, facts), SymExpr(5));
  EXPECT_EQ(low_of(s1, facts), SymExpr(1));
  EXPECT_EQ(low_of(s2, facts), SymExpr(1));
}

/// Positions of an image that strides halved twice, taken apart into rows and columns and put together again.
TEST(Index, PositionsOfHalvedImagesComeTogether) {
  const SymExpr sizes[] = {s0, half(half(s1)), half(half(s2))};
  const Symbol position{Symbol::Kind::Axis, 0};
  base::Facts facts;
  facts.set_range(position, 0, sizes[0] * sizes[1] * sizes[2] - 1);
  const auto there_and_back = [&] {
    const Index index = delinearize(position, sizes, facts);
    return ((index[0] * sizes[1] + index[1]) * sizes[2] + index[2]).simplify(facts);
  };
  EXPECT_NE(there_and_back(), SymExpr(position)) << "there may be no elements";
  assume_elements(sizes, facts);
  EXPECT_EQ(there_and_back(), SymExpr(position));
}

}  // namespace
}  // namespace heddle::jit
