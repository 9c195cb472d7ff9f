// Plans with sizes put in: how many are remembered.
#include "engine/plan_cache.h"

#include <gtest/gtest.h>
#include <memory>
#include <vector>

namespace heddle::engine {
namespace {

std::unique_ptr<BoundPlan> plan_of(std::int64_t number, std::size_t stages) {
  auto plan = std::make_unique<BoundPlan>();
  plan->words = {number};
  plan->hash = static_cast<std::uint64_t>(number);
  plan->stages.resize(stages);
  return plan;
}

bool has(const PlanCache& cache, std::int64_t number) {
  const Reclaimer::Reader reader(cache.reclaimer());
  return cache.find(std::vector{number}, static_cast<std::uint64_t>(number)) != nullptr;
}

TEST(PlanCache, DropsTheOlderHalfWhenItIsFull) {
  PlanCache cache(8);
  for (std::int64_t k = 0; k < 9; ++k) cache.insert(plan_of(k, 1));
  EXPECT_EQ(cache.size(), 5u);
  EXPECT_FALSE(has(cache, 3));
  EXPECT_TRUE(has(cache, 4));
  EXPECT_TRUE(has(cache, 8));
}

TEST(PlanCache, HoldsFewerWhereTheyAreLarge) {
  constexpr std::size_t kStages = 10000;
  const std::int64_t each = plan_of(0, kStages)->held_bytes();
  EXPECT_GE(each, static_cast<std::int64_t>(kStages * sizeof(scheduler::BoundStage)));
  PlanCache cache(1000, 10 * each);
  for (std::int64_t k = 0; k < 100; ++k) {
    cache.insert(plan_of(k, kStages));
    EXPECT_LE(cache.size(), 10u);
    EXPECT_TRUE(has(cache, k));
  }
  EXPECT_GE(cache.size(), 5u);
  for (std::int64_t k = 200; k < 300; ++k) cache.insert(plan_of(k, 1));
  EXPECT_GT(cache.size(), 50u) << "small ones take the room of large ones";
}

TEST(PlanCache, OneThatIsTooLargeIsHeldAlone) {
  PlanCache cache(1000, 100);
  for (std::int64_t k = 0; k < 5; ++k) {
    cache.insert(plan_of(k, 1000));
    EXPECT_TRUE(has(cache, k));
    EXPECT_LE(cache.size(), 2u);
  }
}

TEST(PlanCache, WhatIsErasedOrReplacedCountsNoMore) {
  constexpr std::size_t kStages = 10000;
  const std::int64_t each = plan_of(0, kStages)->held_bytes();
  PlanCache cache(1000, 10 * each);
  const auto* const first = reinterpret_cast<const Executable*>(&cache);  // never followed
  for (std::int64_t k = 0; k < 10; ++k) {
    auto plan = plan_of(k, kStages);
    plan->executable = {std::shared_ptr<void>(), k < 5 ? first : nullptr};
    cache.insert(std::move(plan));
  }
  cache.erase(first);
  EXPECT_EQ(cache.size(), 5u);
  for (std::int64_t k = 5; k < 10; ++k) cache.replace(plan_of(k, kStages));
  for (std::int64_t k = 10; k < 15; ++k) cache.insert(plan_of(k, kStages));
  EXPECT_EQ(cache.size(), 10u) << "room for ten";
  for (std::int64_t k = 5; k < 15; ++k) EXPECT_TRUE(has(cache, k));
}

}  // namespace
}  // namespace heddle::engine
