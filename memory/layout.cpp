#include "memory/layout.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "memory/slide.h"

namespace heddle::memory {

namespace {

struct Placed {
  std::size_t item;
  std::int64_t begin;
  std::int64_t end;
};

/// Bytes that are free below the end of what is taken, by address and by size.
class FreeRanges {
 public:
  /// The size of the smallest range that holds `bytes`, if there is one.
  std::optional<std::int64_t> fit(std::int64_t bytes) const {
    const auto fit = by_size_.lower_bound({bytes, 0});
    if (fit == by_size_.end()) return std::nullopt;
    return fit->first;
  }
  /// The smallest range that holds `bytes`, the lowest of several, else what begins at the end.
  std::int64_t take(std::int64_t bytes) {
    const auto fit = by_size_.lower_bound({bytes, 0});
    if (fit == by_size_.end()) return std::exchange(end_, end_ + bytes);
    const auto [size, begin] = *fit;
    erase(begin, begin + size);
    if (size > bytes) insert(begin + bytes, begin + size);
    return begin;
  }

  void give_back(std::int64_t begin, std::int64_t end) {
    if (const auto above = by_begin_.find(end); above != by_begin_.end()) {
      const std::int64_t top = above->second;
      erase(end, top);
      end = top;
    }
    if (auto below = by_begin_.lower_bound(begin);
        below != by_begin_.begin() && (--below)->second == begin) {
      const std::int64_t bottom = below->first;
      erase(bottom, begin);
      begin = bottom;
    }
    if (end == end_)
      end_ = begin;
    else
      insert(begin, end);
  }

 private:
  void insert(std::int64_t begin, std::int64_t end) {
    by_begin_.emplace(begin, end);
    by_size_.emplace(end - begin, begin);
  }
  void erase(std::int64_t begin, std::int64_t end) {
    by_begin_.erase(begin);
    by_size_.erase({end - begin, begin});
  }

  std::map<std::int64_t, std::int64_t> by_begin_;            ///< begin to end; no two touch
  std::set<std::pair<std::int64_t, std::int64_t>> by_size_;  ///< size, begin
  std::int64_t end_ = 0;
};

/// Bytes that are free for some streams and not yet for all.
class PartlyFree {
 public:
  struct Range {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    Clock clock;             ///< from which on it is free
    std::uint32_t time = 0;  ///< when it is free for all
  };

  void add(Range range) {
    by_size_.emplace(range.end - range.begin, ranges_.size());
    by_time_.emplace(range.time, ranges_.size());
    ranges_.push_back(range);
  }
  /// Gives what is free for all by `time` to `visit(range)`.
  template <typename F>
  void leave(std::uint32_t time, F&& visit) {
    for (; !by_time_.empty() && by_time_.top().first <= time; by_time_.pop()) {
      const std::size_t place = by_time_.top().second;
      const Range& range = ranges_[place];
      if (by_size_.erase({range.end - range.begin, place}) != 0) visit(range);
    }
  }
  /// A range below `most` bytes that holds `bytes` and is free at `now`: the smallest of those that are looked at, which are
  /// so many at most that time stays n log n.
  std::optional<std::int64_t> take(std::int64_t bytes, std::int64_t most, Clock now) {
    auto fit = by_size_.lower_bound({bytes, 0});
    for (int looks = 0; fit != by_size_.end() && fit->first < most && looks < kMostLooks;
         ++fit, ++looks) {
      Range range = ranges_[fit->second];
      if (!reached(range.clock, now)) continue;
      by_size_.erase(fit);
      const std::int64_t begin = std::exchange(range.begin, range.begin + bytes);
      if (range.begin < range.end) add(range);
      return begin;
    }
    return std::nullopt;
  }

 private:
  static constexpr int kMostLooks = 64;
  using At = std::pair<std::uint32_t, std::size_t>;

  std::vector<Range> ranges_;
  std::set<std::pair<std::int64_t, std::size_t>> by_size_;            ///< those that are left
  std::priority_queue<At, std::vector<At>, std::greater<>> by_time_;  ///< all
};

/// Placing items by size compares every two of them: so many at most, or time would grow with the square.
constexpr std::size_t kMostCompared = 4096;
/// Pairs of items that may be compared in the search for a better plan: some tens of microseconds.
constexpr std::size_t kMostPairsTried = 30'000;

/// Whether a plan is more than half a percent above the least.
bool is_loose(const Layout::Plan& plan) {
  return plan.peak_bytes > plan.lower_bound_bytes + plan.lower_bound_bytes / 200 + kAlignment;
}

/// The smallest gap among items alive at the same time that holds `bytes`, or the end.
template <typename Conflict>
std::int64_t best_fit(const std::vector<Placed>& by_begin, std::int64_t bytes,
                      Conflict&& conflict) {
  std::int64_t end = 0;
  std::int64_t best = -1;
  std::int64_t best_size = 0;
  for (const Placed& item : by_begin) {
    if (!conflict(item.item)) continue;
    const std::int64_t gap = item.begin - end;
    if (gap >= bytes && (best < 0 || gap < best_size)) {
      best = end;
      best_size = gap;
    }
    end = std::max(end, item.end);
  }
  return best >= 0 ? best : end;
}

}  // namespace

/// Two items may share bytes if all accesses of one are done before the first of the other begins.
bool Layout::conflict(std::size_t a, std::size_t b) const {
  return !reached(until(a), from(b)) && !reached(until(b), from(a));
}

std::int64_t Layout::place(std::span<const std::size_t> order, std::span<const std::int64_t> bytes,
                           std::span<std::int64_t> offsets) const {
  std::vector<Placed> placed;  // sorted by begin
  std::int64_t peak = 0;
  for (const std::size_t k : order) {
    const std::int64_t size = aligned(bytes[k]);
    const std::int64_t begin =
        reuse ? best_fit(placed, size, [&](std::size_t other) { return conflict(k, other); })
              : peak;
    offsets[k] = begin;
    peak = std::max(peak, begin + size);
    if (size == 0) continue;
    const Placed entry{k, begin, begin + size};
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), entry,
                         [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
        entry);
  }
  return peak;
}

std::int64_t Layout::place_in_time(std::span<const std::size_t> order,
                                   std::span<const std::int64_t> bytes,
                                   std::span<std::int64_t> offsets) const {
  using LastUse = std::pair<std::uint32_t, std::size_t>;  // time, item
  std::priority_queue<LastUse, std::vector<LastUse>, std::greater<>> live;
  FreeRanges ranges;
  PartlyFree partly;
  std::int64_t peak = 0;
  for (const std::size_t k : order) {
    const std::uint32_t now = begin_of(items[k]);
    for (; !live.empty() && live.top().first < now; live.pop()) {
      const std::size_t dead = live.top().second;
      const std::int64_t end = offsets[dead] + aligned(bytes[dead]);
      partly.add({offsets[dead], end, until(dead), items[dead].free_for_all});
    }
    partly.leave(now, [&](const auto& range) { ranges.give_back(range.begin, range.end); });
    const std::int64_t size = aligned(bytes[k]);
    if (size == 0) {
      offsets[k] = 0;
      continue;
    }
    const auto most = ranges.fit(size).value_or(std::numeric_limits<std::int64_t>::max());
    const auto shared = partly.take(size, most, from(k));
    offsets[k] = shared ? *shared : ranges.take(size);
    peak = std::max(peak, offsets[k] + size);
    live.emplace(end_of(items[k]), k);
  }
  return peak;
}

std::int64_t Layout::lower_bound(std::span<const std::int64_t> bytes) const {
  std::vector<std::int64_t> change(stages + 1, 0);
  for (std::size_t k = 0; k < items.size(); ++k) {
    change[items[k].first_stage] += bytes[k];
    change[items[k].last_stage + 1] -= bytes[k];
  }
  std::int64_t live = 0;
  std::int64_t bound = 0;
  for (const std::int64_t delta : change) bound = std::max(bound, live += delta);
  return bound;
}

/// Places again and again, each time with what lay highest placed before the others, and keeps the best.
void Layout::place_highest_first(std::vector<std::size_t> order,
                                 std::span<const std::int64_t> bytes, Plan& plan,
                                 std::vector<std::int64_t>& offsets) const {
  const auto end_of_item = [&](std::span<const std::int64_t> at, std::size_t k) {
    return at[k] + aligned(bytes[k]);
  };
  std::vector<std::int64_t> tried(offsets);
  const std::size_t pairs = std::max<std::size_t>(order.size() * order.size(), 1);
  for (std::size_t left = kMostPairsTried / pairs; left > 0 && is_loose(plan); --left) {
    const auto highest =
        std::ranges::max_element(order, {}, [&](std::size_t k) { return end_of_item(tried, k); });
    std::rotate(order.begin(), highest, highest + 1);
    const std::int64_t peak = place(order, bytes, tried);
    if (peak >= plan.peak_bytes) continue;
    plan.peak_bytes = peak;
    offsets = tried;
  }
}

void Layout::slide_items(std::span<const std::size_t> order, std::span<const std::int64_t> bytes,
                         std::int64_t peak, std::span<std::int64_t> offsets) const {
  std::vector<Placement> placements;
  placements.reserve(order.size());
  for (const std::size_t k : order)
    placements.push_back(
        {items[k].first_stage, items[k].last_stage, offsets[k], aligned(bytes[k])});
  slide(placements, peak);
  for (std::size_t n = 0; n < order.size(); ++n) offsets[order[n]] = placements[n].offset;
}

Layout::Plan Layout::plan_for(std::span<const std::int64_t> bytes, std::uint32_t arena) const {
  std::vector<std::size_t> by_size;
  for (std::size_t k = 0; k < items.size(); ++k)
    if (items[k].arena == arena) by_size.push_back(k);
  Plan plan;
  plan.lower_bound_bytes = lower_bound(bytes);
  std::vector<std::size_t> by_time = by_size;
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  std::stable_sort(by_time.begin(), by_time.end(), [&](std::size_t a, std::size_t b) {
    return begin_of(items[a]) < begin_of(items[b]);
  });
  std::vector<std::int64_t> offsets(items.size());
  const bool every_pair = !reuse || by_size.size() <= kMostCompared;
  if (every_pair) plan.peak_bytes = place(by_size, bytes, offsets);
  if (!every_pair || plan.peak_bytes > plan.lower_bound_bytes + kAlignment) {
    std::vector<std::int64_t> other(items.size());
    const bool in_time = reuse && (in_stages || !every_pair);
    const std::int64_t peak =
        in_time ? place_in_time(by_time, bytes, other) : place(by_time, bytes, other);
    if (!every_pair || peak < plan.peak_bytes) {
      plan.peak_bytes = peak;
      offsets = std::move(other);
    }
  }
  if (reuse && every_pair && is_loose(plan)) place_highest_first(by_size, bytes, plan, offsets);
  if (reuse && in_stages) slide_items(by_size, bytes, plan.peak_bytes, offsets);
  plan.offsets = std::move(offsets);
  return plan;
}

}  // namespace heddle::memory
