// Large buffers slide to where the next ones may follow them, and never onto each other.
#include "memory/slide.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>
#include <vector>

namespace heddle::memory {
namespace {

constexpr std::int64_t kMega = std::int64_t{1} << 20;

Placement at(std::uint32_t first, std::uint32_t last, std::int64_t offset, std::int64_t bytes) {
  return {first, last, offset * kMega, bytes * kMega};
}

TEST(Slide, WhatFollowsBeginsAndEndsNoLater) {
  EXPECT_TRUE(may_follow(at(0, 1, 2, 4), at(2, 3, 6, 4))) << "apart";
  EXPECT_TRUE(may_follow(at(0, 1, 2, 4), at(2, 3, 2, 4))) << "alike";
  EXPECT_TRUE(may_follow(at(0, 1, 2, 4), at(2, 3, 0, 6))) << "larger, ends alike";
  EXPECT_TRUE(may_follow(at(0, 1, 2, 4), at(2, 3, 2, 3))) << "smaller, begins alike";
  EXPECT_FALSE(may_follow(at(0, 1, 2, 4), at(2, 3, 2, 6))) << "larger, begins alike";
  EXPECT_FALSE(may_follow(at(0, 1, 2, 4), at(2, 3, 3, 3))) << "smaller, ends alike";
}

/// As where a convolution of each channel stands between one that makes channels and one that adds them up: its operand takes most of the
/// arena, and its result lies where the operand's operand lay.
TEST(Slide, TheSmallerOperandOfALargeOneEndsWhereTheResultEnds) {
  std::vector<Placement> items{at(1, 2, 0, 38), at(2, 3, 38, 10), at(0, 1, 38, 6)};
  slide(items, 48 * kMega);
  EXPECT_EQ(items[0].offset, 0);
  EXPECT_EQ(items[1].offset, 38 * kMega);
  EXPECT_EQ(items[2].offset, 42 * kMega);
  EXPECT_TRUE(may_follow(items[2], items[1]));
}

TEST(Slide, SmallOnesStay) {
  std::vector<Placement> items{{1, 2, 0, 380}, {2, 3, 380, 100}, {0, 1, 380, 60}};
  slide(items, 480);
  EXPECT_EQ(items[2].offset, 380);
}

TEST(Slide, NothingMeetsAndMoreMayFollow) {
  std::mt19937 random(7);
  const auto below = [&](std::uint32_t n) {
    return std::uniform_int_distribution<std::uint32_t>(0, n - 1)(random);
  };
  std::int64_t before = 0, after = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<Placement> items;
    std::int64_t peak = 0;
    for (int k = 0; k < 24; ++k) {
      const std::uint32_t first = below(12);
      Placement item = at(first, first + below(3), 0, 1 + below(12));
      if (below(4) == 0) item.bytes /= 3 * kMega;
      for (bool moved = true; moved;) {  // the lowest place that is free
        moved = false;
        for (const Placement& other : items)
          if (item.meets(other) && item.offset < other.end() && other.offset < item.end()) {
            item.offset = other.end();
            moved = true;
          }
      }
      peak = std::max(peak, item.end());
      items.push_back(item);
    }
    const auto follows = [&] {
      std::int64_t count = 0;
      for (const Placement& a : items)
        for (const Placement& b : items)
          if (b.first == a.last + 1 && a.bytes >= kMega && b.bytes >= kMega)
            count += may_follow(a, b) ? 1 : 0;
      return count;
    };
    before += follows();
    slide(items, peak);
    after += follows();
    for (const Placement& a : items) {
      EXPECT_GE(a.offset, 0);
      EXPECT_LE(a.end(), peak);
      for (const Placement& b : items)
        EXPECT_TRUE(&a == &b || !a.meets(b) || a.end() <= b.offset || b.end() <= a.offset);
    }
  }
  EXPECT_GT(after, before + before / 20);
}

}  // namespace
}  // namespace heddle::memory
