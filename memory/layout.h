// What has to lie in an arena, from when to when, and places for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ir/schedule.h"

namespace heddle::memory {

inline constexpr std::int64_t kAlignment = 64;

/// `bytes` up to the next multiple of kAlignment.
constexpr std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

using Clock = std::span<const std::uint32_t>;  ///< by lane: how many places are done

inline bool reached(Clock wanted, Clock now) {
  return std::ranges::equal(wanted, now, std::less_equal<>());
}

struct Layout {
  /// A buffer, or several that lie in the same bytes one after the other.
  struct Item {
    ir::BufferId buffer;
    std::uint32_t first_stage;
    std::uint32_t last_stage;
    std::uint32_t arena;
    std::vector<std::uint32_t> bytes;  ///< the largest of these, numbers of expressions
    std::uint32_t first_step = ir::kNone;
    std::uint32_t last_step = 0;
    std::uint32_t free_for_all =
        ir::kNone;  ///< when its bytes are: a stage, or a step of several streams
  };
  struct Plan {
    std::vector<std::int64_t> offsets;  ///< by item; those of other arenas have none
    std::int64_t peak_bytes = 0;
    std::int64_t lower_bound_bytes =
        0;  ///< largest sum of bytes of items that are there in one stage
  };

  std::vector<Item> items;
  std::size_t lanes = 1;
  std::vector<std::uint32_t> until_places, from_places;  ///< by item and lane
  std::size_t stages = 0;
  bool in_stages = true;  ///< steps run in stages, not on several streams
  bool reuse = true;      ///< false: every item has bytes of its own

  /// By lane: how many places must be done before other items may lie where item k lies, and how many are done
  /// when it is first used.
  Clock until(std::size_t k) const { return std::span(until_places).subspan(k * lanes, lanes); }
  Clock from(std::size_t k) const { return std::span(from_places).subspan(k * lanes, lanes); }

  /// Places for the items of one arena, which take so many `bytes`, by item.
  Plan plan_for(std::span<const std::int64_t> bytes, std::uint32_t arena) const;

 private:
  /// Stages, or steps of several streams.
  std::uint32_t begin_of(const Item& item) const {
    return in_stages ? item.first_stage : item.first_step;
  }
  std::uint32_t end_of(const Item& item) const {
    return in_stages ? item.last_stage : item.last_step;
  }
  bool conflict(std::size_t a, std::size_t b) const;
  /// Places items in `order`; fills `offsets` by item and returns the peak. Compares every two.
  std::int64_t place(std::span<const std::size_t> order, std::span<const std::int64_t> bytes,
                     std::span<std::int64_t> offsets) const;
  /// The same for items in the order of their first uses: takes and gives back ranges as steps go by. n log n.
  std::int64_t place_in_time(std::span<const std::size_t> order,
                             std::span<const std::int64_t> bytes,
                             std::span<std::int64_t> offsets) const;
  std::int64_t lower_bound(std::span<const std::int64_t> bytes) const;
  /// slide() of items (memory/slide.h).
  void slide_items(std::span<const std::size_t> order, std::span<const std::int64_t> bytes,
                   std::int64_t peak, std::span<std::int64_t> offsets) const;
  /// Looks for a better plan than `plan`, whose offsets by item are `offsets`, from `order` on.
  void place_highest_first(std::vector<std::size_t> order, std::span<const std::int64_t> bytes,
                           Plan& plan, std::vector<std::int64_t>& offsets) const;
};

}  // namespace heddle::memory
