#include "memory/planner.h"

#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "base/check.h"
#include "heddle/error.h"
#include "memory/slide.h"

namespace heddle::memory {

using ir::BufferId;
using ir::PlanBuffer;
using ir::ScheduleRecord;

namespace {

bool in_arena(const PlanBuffer& buffer) {
  return buffer.role == PlanBuffer::Role::Intermediate ||
         buffer.role == PlanBuffer::Role::Workspace;
}

/// First and last step that touches each root; data accesses only, so order edges never extend it.
std::vector<Lifetime> root_lifetimes(const ScheduleRecord& record,
                                     std::span<const BufferId> roots) {
  std::vector<Lifetime> lifetimes(record.buffers.size());
  const auto touch = [&](BufferId buffer, std::uint32_t step) {
    Lifetime& life = lifetimes[roots[buffer]];
    if (life.first_step == ir::kNone) life.first_step = step;
    life.last_step = step;
  };
  for (std::uint32_t step = 0; step < record.steps.size(); ++step) {
    for (const BufferId buffer : record.steps[step].writes) touch(buffer, step);
    for (const BufferId buffer : record.steps[step].reads) touch(buffer, step);
  }
  return lifetimes;
}

/// By root: the first arena among those of the buffers that share its bytes.
std::vector<std::uint32_t> arenas_of_roots(const ScheduleRecord& record,
                                           std::span<const BufferId> roots,
                                           std::span<const std::uint32_t> arena_of) {
  std::vector<std::uint32_t> arenas(record.buffers.size(), arena_of.empty() ? 0 : ir::kNone);
  for (BufferId b = 0; b < arena_of.size(); ++b)
    arenas[roots[b]] = std::min(arenas[roots[b]], arena_of[b]);
  return arenas;
}

/// By root: the steps that touch it, in order.
std::vector<std::vector<std::uint32_t>> steps_of_roots(const ScheduleRecord& record,
                                                       std::span<const BufferId> roots) {
  std::vector<std::vector<std::uint32_t>> steps(record.buffers.size());
  const auto touch = [&](BufferId buffer, std::uint32_t step) {
    auto& own = steps[roots[buffer]];
    if (own.empty() || own.back() != step) own.push_back(step);
  };
  for (std::uint32_t step = 0; step < record.steps.size(); ++step) {
    for (const BufferId buffer : record.steps[step].reads) touch(buffer, step);
    for (const BufferId buffer : record.steps[step].writes) touch(buffer, step);
  }
  return steps;
}

/// Steps that wait by a weak edge for each step, in order.
std::vector<std::vector<std::uint32_t>> weak_followers(const ScheduleRecord& record) {
  std::vector<std::vector<std::uint32_t>> followers(record.steps.size());
  for (std::uint32_t step = 0; step < record.steps.size(); ++step)
    for (const ir::PlanEdge& edge : record.steps[step].edges)
      if (edge.weak) followers[edge.from].push_back(step);
  return followers;
}

/// By root: the steps that write it.
std::vector<std::vector<std::uint32_t>> writers_of_roots(const ScheduleRecord& record,
                                                         std::span<const BufferId> roots) {
  std::vector<std::vector<std::uint32_t>> writers(record.buffers.size());
  for (std::uint32_t step = 0; step < record.steps.size(); ++step)
    for (const BufferId buffer : record.steps[step].writes) writers[roots[buffer]].push_back(step);
  return writers;
}

/// Stages run one after another: one lane, whose places they are.
ir::StepClocks clocks_of_stages(std::span<const std::uint32_t> stage_of) {
  ir::StepClocks clocks;
  clocks.lane_of.assign(stage_of.size(), 0);
  clocks.place_of.assign(stage_of.begin(), stage_of.end());
  clocks.counts = clocks.place_of;
  return clocks;
}

struct Placed {
  std::size_t item;
  std::int64_t begin;
  std::int64_t end;
};

using Clock = std::span<const std::uint32_t>;  ///< by lane: how many places are done

bool reached(Clock wanted, Clock now) {
  return std::ranges::equal(wanted, now, std::less_equal<>());
}

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
bool is_loose(const MemoryPlan& plan) {
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

Planner::Planner(const ScheduleRecord& record, std::span<const std::uint32_t> stage_of,
                 Options options)
    : roots_(alias_roots(record)), in_stages_(options.clocks == nullptr), reuse_(options.reuse) {
  HD_CHECK(stage_of.size() == record.steps.size());
  lifetimes_ = root_lifetimes(record, roots_);
  for (const std::uint32_t stage : stage_of) stages_ = std::max<std::size_t>(stages_, stage + 1);
  std::vector<BufferId> merged(record.buffers.size());
  std::iota(merged.begin(), merged.end(), 0);
  taken_from_.assign(record.buffers.size(), ir::kNone);
  const std::vector<std::uint32_t> arenas = arenas_of_roots(record, roots_, options.arena_of);
  std::vector<std::vector<base::SymExpr>> bytes(record.buffers.size());
  for (BufferId b = 0; b < record.buffers.size(); ++b) {
    if (!options.arena_of.empty() && options.arena_of[b] != arenas[roots_[b]]) continue;
    std::vector<base::SymExpr>& own = bytes[roots_[b]];
    if (std::find(own.begin(), own.end(), record.buffers[b].bytes) == own.end())
      own.push_back(record.buffers[b].bytes);
  }
  const auto followers = weak_followers(record);
  const auto writers = writers_of_roots(record, roots_);
  const auto touching = steps_of_roots(record, roots_);
  const ir::StepClocks by_stage = clocks_of_stages(stage_of);
  const ir::StepClocks& clocks = options.clocks == nullptr ? by_stage : *options.clocks;
  // Whether every other step that touches bytes of `root` is done before `step` begins.
  const auto ends_with = [&](BufferId root, std::uint32_t step) {
    return std::ranges::all_of(touching[root], [&](std::uint32_t other) {
      return other == step || clocks.ordered(other, step);
    });
  };
  const auto is_awaited = [&](BufferId root, std::uint32_t step) {
    for (const std::uint32_t writer : writers[root])
      for (const std::uint32_t waiter : followers[writer])
        if (waiter != step && !clocks.ordered(waiter, step)) return true;
    return false;
  };
  for (std::uint32_t k = 0; options.reuse && options.in_place && k < record.steps.size(); ++k) {
    const ir::PlanStep& step = record.steps[k];
    std::set<BufferId> taken;
    for (const auto& [read, write] : step.may_reuse) {
      const BufferId from = roots_[step.reads[read]];
      const BufferId to = roots_[step.writes[write]];
      if (from == to || merged[to] != to || taken.contains(merged[from])) continue;
      if (!in_arena(record.buffers[from]) || !in_arena(record.buffers[to])) continue;
      if (lifetimes_[from].last_step != k || lifetimes_[to].first_step != k) continue;
      if (record.buffers[from].bytes != record.buffers[to].bytes) continue;
      if (bytes[from].size() != 1 || bytes[to].size() != 1) continue;
      if (is_awaited(from, k) || !ends_with(from, k)) continue;
      merged[to] = merged[from];
      taken_from_[to] = from;
      taken.insert(merged[from]);
    }
  }
  base::ExprTable::Builder expressions;
  std::vector<std::ptrdiff_t> item_of(record.buffers.size(), -1);
  for (BufferId b = 0; b < record.buffers.size(); ++b) {
    if (roots_[b] != b || !in_arena(record.buffers[b]) || lifetimes_[b].first_step == ir::kNone)
      continue;
    const BufferId owner = merged[b];
    if (item_of[owner] < 0) {
      item_of[owner] = static_cast<std::ptrdiff_t>(items_.size());
      items_.push_back({owner, static_cast<std::uint32_t>(stages_), 0, arenas[owner], {}});
      for (const base::SymExpr& expr : bytes[owner])
        items_.back().bytes.push_back(expressions.add(expr));
    }
    item_of[b] = item_of[owner];
    Item& item = items_[static_cast<std::size_t>(item_of[b])];
    item.first_stage = std::min(item.first_stage, stage_of[lifetimes_[b].first_step]);
    item.last_stage = std::max(item.last_stage, stage_of[lifetimes_[b].last_step]);
    item.first_step = std::min(item.first_step, lifetimes_[b].first_step);
    item.last_step = std::max(item.last_step, lifetimes_[b].last_step);
  }
  expressions_ = expressions.finish();
  item_of_ = std::move(item_of);
  for (BufferId b = 0; b < record.buffers.size(); ++b) {
    lifetimes_[b] = lifetimes_[roots_[b]];
    item_of_[b] = item_of_[roots_[b]];
  }
  set_clocks(record, clocks);
}

Lifetime Planner::chain_lifetime(BufferId b) const {
  if (item_of_[b] < 0) return lifetimes_[b];
  const Item& item = items_[static_cast<std::size_t>(item_of_[b])];
  return {item.first_step, item.last_step};
}

void Planner::set_clocks(const ScheduleRecord& record, const ir::StepClocks& clocks) {
  lanes_ = clocks.lanes;
  until_.assign(items_.size() * lanes_, 0);
  from_.assign(items_.size() * lanes_, std::numeric_limits<std::uint32_t>::max());
  const auto touch = [&](BufferId buffer, ir::StepId step) {
    if (item_of_[buffer] < 0) return;
    const std::size_t at = static_cast<std::size_t>(item_of_[buffer]) * lanes_;
    std::uint32_t& until = until_[at + clocks.lane_of[step]];
    until = std::max(until, clocks.place_of[step] + 1);
    const auto done = clocks.done(step);
    for (std::size_t lane = 0; lane < lanes_; ++lane)
      from_[at + lane] = std::min(from_[at + lane], done[lane]);
  };
  for (ir::StepId step = 0; step < record.steps.size(); ++step) {
    for (const BufferId buffer : record.steps[step].reads) touch(buffer, step);
    for (const BufferId buffer : record.steps[step].writes) touch(buffer, step);
  }
  if (in_stages_)
    for (Item& item : items_) item.free_for_all = item.last_stage + 1;
  else
    set_free_for_all(clocks);
}

/// By item: the first step from which on every step of every lane begins after all accesses of the item.
void Planner::set_free_for_all(const ir::StepClocks& clocks) {
  const auto steps = static_cast<std::uint32_t>(clocks.lane_of.size());
  std::vector<std::uint32_t> last_of(lanes_, 0);  // by lane: its last step
  for (std::uint32_t step = 0; step < steps; ++step) last_of[clocks.lane_of[step]] = step;
  std::vector<std::size_t> dead(items_.size());
  std::iota(dead.begin(), dead.end(), 0);
  std::ranges::stable_sort(dead, {}, [&](std::size_t k) { return items_[k].last_step; });
  // What each lane knows, and all of those that go on.
  std::vector<std::uint32_t> known(lanes_ * lanes_, 0);
  std::vector<std::uint32_t> all(lanes_, 0);
  auto next = dead.begin();
  for (std::uint32_t step = 0; step < steps && next != dead.end(); ++step) {
    const std::uint32_t lane = clocks.lane_of[step];
    std::ranges::copy(clocks.done(step),
                      known.begin() + static_cast<std::ptrdiff_t>(lane * lanes_));
    known[lane * lanes_ + lane] = clocks.place_of[step] + 1;
    std::ranges::fill(all, std::numeric_limits<std::uint32_t>::max());
    for (std::size_t other = 0; other < lanes_; ++other)
      for (std::size_t of = 0; of < lanes_ && last_of[other] > step; ++of)
        all[of] = std::min(all[of], known[other * lanes_ + of]);
    for (; next != dead.end() && items_[*next].last_step <= step && reached(until(*next), all);
         ++next)
      items_[*next].free_for_all = step + 1;
  }
}

/// Two items may share bytes if all accesses of one are done before the first of the other begins.
bool Planner::conflict(std::size_t a, std::size_t b) const {
  return !reached(until(a), from(b)) && !reached(until(b), from(a));
}

std::int64_t Planner::place(std::span<const std::size_t> order, std::span<const std::int64_t> bytes,
                            std::span<std::int64_t> offsets) const {
  std::vector<Placed> placed;  // sorted by begin
  std::int64_t peak = 0;
  for (const std::size_t k : order) {
    const std::int64_t size = aligned(bytes[k]);
    const std::int64_t begin =
        reuse_ ? best_fit(placed, size, [&](std::size_t other) { return conflict(k, other); })
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

std::int64_t Planner::place_in_time(std::span<const std::size_t> order,
                                    std::span<const std::int64_t> bytes,
                                    std::span<std::int64_t> offsets) const {
  using LastUse = std::pair<std::uint32_t, std::size_t>;  // time, item
  std::priority_queue<LastUse, std::vector<LastUse>, std::greater<>> live;
  FreeRanges ranges;
  PartlyFree partly;
  std::int64_t peak = 0;
  for (const std::size_t k : order) {
    const std::uint32_t now = begin_of(items_[k]);
    for (; !live.empty() && live.top().first < now; live.pop()) {
      const std::size_t dead = live.top().second;
      const std::int64_t end = offsets[dead] + aligned(bytes[dead]);
      partly.add({offsets[dead], end, until(dead), items_[dead].free_for_all});
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
    live.emplace(end_of(items_[k]), k);
  }
  return peak;
}

std::int64_t Planner::lower_bound(std::span<const std::int64_t> bytes) const {
  std::vector<std::int64_t> change(stages_ + 1, 0);
  for (std::size_t k = 0; k < items_.size(); ++k) {
    change[items_[k].first_stage] += bytes[k];
    change[items_[k].last_stage + 1] -= bytes[k];
  }
  std::int64_t live = 0;
  std::int64_t bound = 0;
  for (const std::int64_t delta : change) bound = std::max(bound, live += delta);
  return bound;
}

/// Places again and again, each time with what lay highest placed before the others, and keeps the best.
void Planner::place_highest_first(std::vector<std::size_t> order,
                                  std::span<const std::int64_t> bytes, MemoryPlan& plan,
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

MemoryPlan Planner::bind(const base::SymbolValues& sizes, std::uint32_t arena) const {
  const base::ExprTable::Values values = expressions_.evaluate(sizes);
  std::vector<std::int64_t> bytes(items_.size(), 0);
  for (std::size_t k = 0; k < items_.size(); ++k) {
    if (items_[k].arena != arena) continue;
    for (const std::uint32_t value : items_[k].bytes) bytes[k] = std::max(bytes[k], values[value]);
    if (bytes[k] > (std::int64_t{1} << 56))
      throw OutOfMemory({.what = "memory plan",
                         .where = {},
                         .expected = "a buffer below 2^56 bytes",
                         .got = fmt::format("{} bytes", bytes[k])});
  }
  const auto is_same = [&](const Made& made) { return made.arena == arena && made.bytes == bytes; };
  {
    const std::scoped_lock lock(made_mutex_);
    if (const auto made = std::ranges::find_if(made_, is_same); made != made_.end())
      return *made->plan;
  }
  auto plan = std::make_shared<const MemoryPlan>(plan_for(bytes, arena));
  const std::scoped_lock lock(made_mutex_);
  made_.push_front({arena, std::move(bytes), plan});
  if (made_.size() > kMostMade) made_.pop_back();
  return *plan;
}

void Planner::slide_items(std::span<const std::size_t> order, std::span<const std::int64_t> bytes,
                          std::int64_t peak, std::span<std::int64_t> offsets) const {
  std::vector<Placement> placements;
  placements.reserve(order.size());
  for (const std::size_t k : order)
    placements.push_back(
        {items_[k].first_stage, items_[k].last_stage, offsets[k], aligned(bytes[k])});
  slide(placements, peak);
  for (std::size_t n = 0; n < order.size(); ++n) offsets[order[n]] = placements[n].offset;
}

MemoryPlan Planner::plan_for(std::span<const std::int64_t> bytes, std::uint32_t arena) const {
  std::vector<std::size_t> by_size;
  for (std::size_t k = 0; k < items_.size(); ++k)
    if (items_[k].arena == arena) by_size.push_back(k);
  MemoryPlan plan;
  plan.lower_bound_bytes = lower_bound(bytes);
  std::vector<std::size_t> by_time = by_size;
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  std::stable_sort(by_time.begin(), by_time.end(), [&](std::size_t a, std::size_t b) {
    return begin_of(items_[a]) < begin_of(items_[b]);
  });
  std::vector<std::int64_t> offsets(items_.size());
  const bool every_pair = !reuse_ || by_size.size() <= kMostCompared;
  if (every_pair) plan.peak_bytes = place(by_size, bytes, offsets);
  if (!every_pair || plan.peak_bytes > plan.lower_bound_bytes + kAlignment) {
    std::vector<std::int64_t> other(items_.size());
    const bool in_time = reuse_ && (in_stages_ || !every_pair);
    const std::int64_t peak =
        in_time ? place_in_time(by_time, bytes, other) : place(by_time, bytes, other);
    if (!every_pair || peak < plan.peak_bytes) {
      plan.peak_bytes = peak;
      offsets = std::move(other);
    }
  }
  if (reuse_ && every_pair && is_loose(plan)) place_highest_first(by_size, bytes, plan, offsets);
  if (reuse_ && in_stages_) slide_items(by_size, bytes, plan.peak_bytes, offsets);
  plan.offsets.assign(item_of_.size(), kNotInArena);
  for (std::size_t b = 0; b < item_of_.size(); ++b) {
    const std::ptrdiff_t item = item_of_[b];
    if (item >= 0 && items_[static_cast<std::size_t>(item)].arena == arena)
      plan.offsets[b] = offsets[static_cast<std::size_t>(item)];
  }
  return plan;
}

}  // namespace heddle::memory
