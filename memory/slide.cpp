#include "memory/slide.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace heddle::memory {
namespace {

/// What is smaller stays in a cache.
constexpr std::int64_t kLeastBytes = std::int64_t{1} << 20;
/// Of large items, and of all: this is done for each new size.
constexpr std::size_t kMostLarge = 128;
constexpr std::size_t kMostItems = 2048;
/// Stages between the last use of one and the first of another that may follow it in the same pieces.
constexpr std::uint32_t kSoon = 3;

/// How soon b comes after a; 0: not soon, or they are there together.
std::int64_t nearness(const Placement& a, const Placement& b) {
  return b.first > a.last && b.first - a.last <= kSoon ? kSoon + 1 - (b.first - a.last) : 0;
}

/// What is free around an item while it is there.
std::pair<std::int64_t, std::int64_t> room_of(const Placement& item,
                                              std::span<const Placement> items, std::int64_t peak) {
  std::int64_t low = 0, high = peak;
  for (const Placement& other : items) {
    if (&other == &item || other.bytes == 0 || !item.meets(other)) continue;
    if (other.offset < item.offset)
      low = std::max(low, other.end());
    else
      high = std::min(high, other.offset);
  }
  return {low, high};
}

}  // namespace

bool may_follow(const Placement& a, const Placement& b) {
  const bool apart = a.end() <= b.offset || b.end() <= a.offset;
  return apart || (b.offset <= a.offset && b.end() <= a.end());
}

void slide(std::span<Placement> items, std::int64_t peak) {
  std::vector<Placement*> large;
  for (Placement& item : items)
    if (item.bytes >= kLeastBytes) large.push_back(&item);
  if (large.size() < 2 || large.size() > kMostLarge || items.size() > kMostItems) return;
  std::ranges::stable_sort(large, {}, [](const Placement* item) { return item->first; });
  for (Placement* item : large) {
    std::vector<const Placement*> near;
    for (const Placement* other : large)
      if (nearness(*item, *other) != 0 || nearness(*other, *item) != 0) near.push_back(other);
    const auto [low, high] = room_of(*item, items, peak);
    const std::int64_t highest = high - item->bytes;
    std::vector<std::int64_t> places{item->offset, low, highest};
    for (const Placement* other : near) {
      places.push_back(std::clamp(other->offset, low, highest));
      places.push_back(std::clamp(other->end() - item->bytes, low, highest));
    }
    const auto worth = [&](std::int64_t place) {
      Placement moved = *item;
      moved.offset = place;
      std::int64_t sum = 0;
      for (const Placement* other : near) {
        if (may_follow(moved, *other)) sum += nearness(moved, *other);
        if (may_follow(*other, moved)) sum += nearness(*other, moved);
      }
      return sum;
    };
    item->offset = *std::ranges::max_element(places, {}, worth);  // the first of the best
  }
}

}  // namespace heddle::memory
