#include "base/order_list.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <random>

namespace heddle::base {
namespace {

void expect_order(const OrderList& list, const std::vector<std::uint32_t>& items) {
  for (std::size_t a = 0; a < items.size(); ++a)
    for (std::size_t b = 0; b < items.size(); ++b)
      ASSERT_EQ(list.before(items[a], items[b]), a < b) << items[a] << " and " << items[b];
}

TEST(OrderList, KeepsTheOrderOfRandomMoves) {
  constexpr std::uint32_t kItems = 40;
  OrderList list(kItems);
  std::vector<std::uint32_t> items;
  for (std::uint32_t k = 0; k < kItems; ++k) {
    list.append(k);
    items.push_back(k);
  }
  std::mt19937 random(7);
  for (int turn = 0; turn < 2000; ++turn) {
    const std::uint32_t item = items[random() % items.size()];
    const std::uint32_t next = items[random() % items.size()];
    if (item == next) continue;
    list.move(item, next);
    items.erase(std::ranges::find(items, item));
    items.insert(std::ranges::find(items, next), item);
    if (turn % 50 == 0) expect_order(list, items);
  }
  for (int turn = 0; turn < 20; ++turn) {
    const std::size_t at = random() % items.size();
    list.remove(items[at]);
    items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
  }
  expect_order(list, items);
}

/// Always between the same two: labels run out and are given anew.
TEST(OrderList, HasRoomBetweenAnyTwo) {
  constexpr std::uint32_t kItems = 300;
  OrderList list(kItems);
  std::vector<std::uint32_t> items{0};
  list.append(0);
  for (std::uint32_t k = 1; k < kItems; ++k) {
    list.append(k);
    list.move(k, items.front());
    items.insert(items.begin(), k);
  }
  expect_order(list, items);
}

}  // namespace
}  // namespace heddle::base
