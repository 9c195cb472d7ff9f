#include "memory/planner.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <utility>

#include "base/check.h"
#include "heddle/error.h"

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

/// Whether a step of `stage` other than `step` touches bytes of `root`.
bool touched_beside(const ScheduleRecord& record, std::span<const BufferId> roots,
                    std::span<const std::uint32_t> stage_of, std::uint32_t step, BufferId root) {
  const auto touches = [&](std::uint32_t other) {
    const auto is_root = [&](BufferId b) { return roots[b] == root; };
    const ir::PlanStep& s = record.steps[other];
    return std::any_of(s.reads.begin(), s.reads.end(), is_root) ||
           std::any_of(s.writes.begin(), s.writes.end(), is_root);
  };
  for (std::uint32_t k = step; k-- > 0 && stage_of[k] == stage_of[step];)
    if (touches(k)) return true;
  for (std::uint32_t k = step + 1; k < record.steps.size() && stage_of[k] == stage_of[step]; ++k)
    if (touches(k)) return true;
  return false;
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

struct Placed {
  std::size_t item;
  std::int64_t begin;
  std::int64_t end;
};

/// Bytes that are free below the end of what is taken, by address and by size.
class FreeRanges {
 public:
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

/// Placing items by size compares every two of them: so many at most, or time would grow with the square.
constexpr std::size_t kMostCompared = 4096;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
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
    : roots_(alias_roots(record)), reuse_(options.reuse) {
  HD_CHECK(stage_of.size() == record.steps.size());
  lifetimes_ = root_lifetimes(record, roots_);
  for (const std::uint32_t stage : stage_of) stages_ = std::max<std::size_t>(stages_, stage + 1);
  std::vector<BufferId> merged(record.buffers.size());
  std::iota(merged.begin(), merged.end(), 0);
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
  // Whether every other step that touches bytes of `root` is done before `step` begins.
  const auto ends_with = [&](BufferId root, std::uint32_t step) {
    return std::ranges::all_of(touching[root], [&](std::uint32_t other) {
      return other == step || options.ordered(other, step);
    });
  };
  const auto is_done = [&](std::uint32_t first, std::uint32_t step) {
    return options.ordered ? options.ordered(first, step) : stage_of[first] < stage_of[step];
  };
  const auto is_awaited = [&](BufferId root, std::uint32_t step) {
    for (const std::uint32_t writer : writers[root])
      for (const std::uint32_t waiter : followers[writer])
        if (waiter != step && !is_done(waiter, step)) return true;
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
      if (is_awaited(from, k)) continue;
      if (options.ordered ? !ends_with(from, k) : touched_beside(record, roots_, stage_of, k, from))
        continue;
      merged[to] = merged[from];
      taken.insert(merged[from]);
    }
  }
  std::vector<std::ptrdiff_t> item_of(record.buffers.size(), -1);
  for (BufferId b = 0; b < record.buffers.size(); ++b) {
    if (roots_[b] != b || !in_arena(record.buffers[b]) || lifetimes_[b].first_step == ir::kNone)
      continue;
    const BufferId owner = merged[b];
    if (item_of[owner] < 0) {
      item_of[owner] = static_cast<std::ptrdiff_t>(items_.size());
      items_.push_back(
          {owner, static_cast<std::uint32_t>(stages_), 0, arenas[owner], bytes[owner]});
    }
    item_of[b] = item_of[owner];
    Item& item = items_[static_cast<std::size_t>(item_of[b])];
    item.first_stage = std::min(item.first_stage, stage_of[lifetimes_[b].first_step]);
    item.last_stage = std::max(item.last_stage, stage_of[lifetimes_[b].last_step]);
  }
  item_of_ = std::move(item_of);
  for (BufferId b = 0; b < record.buffers.size(); ++b) {
    lifetimes_[b] = lifetimes_[roots_[b]];
    item_of_[b] = item_of_[roots_[b]];
  }
  if (options.ordered) find_conflicts(record, options);
}

/// Two items may share bytes if all accesses of one are done before the first of the other begins.
void Planner::find_conflicts(const ScheduleRecord& record, const Options& options) {
  std::vector<std::vector<ir::StepId>> steps_of(items_.size());
  const auto touch = [&](BufferId buffer, ir::StepId step) {
    if (item_of_[buffer] < 0) return;
    auto& steps = steps_of[static_cast<std::size_t>(item_of_[buffer])];
    if (steps.empty() || steps.back() != step) steps.push_back(step);
  };
  for (ir::StepId step = 0; step < record.steps.size(); ++step) {
    for (const BufferId buffer : record.steps[step].reads) touch(buffer, step);
    for (const BufferId buffer : record.steps[step].writes) touch(buffer, step);
  }
  const auto before = [&](std::size_t a, std::size_t b) {
    for (const ir::StepId first : steps_of[a])
      for (const ir::StepId second : steps_of[b])
        if (!options.ordered(first, second)) return false;
    return true;
  };
  conflicts_.assign(items_.size(), std::vector<bool>(items_.size(), true));
  for (std::size_t a = 0; a < items_.size(); ++a)
    for (std::size_t b = 0; b < a; ++b)
      conflicts_[a][b] = conflicts_[b][a] = !before(a, b) && !before(b, a);
}

bool Planner::conflict(std::size_t a, std::size_t b) const {
  if (!conflicts_.empty()) return conflicts_[a][b];
  return items_[a].last_stage >= items_[b].first_stage &&
         items_[b].last_stage >= items_[a].first_stage;
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
  using LastUse = std::pair<std::uint32_t, std::size_t>;  // stage, item
  std::priority_queue<LastUse, std::vector<LastUse>, std::greater<>> live;
  FreeRanges ranges;
  std::int64_t peak = 0;
  for (const std::size_t k : order) {
    for (; !live.empty() && live.top().first < items_[k].first_stage; live.pop()) {
      const std::size_t dead = live.top().second;
      ranges.give_back(offsets[dead], offsets[dead] + aligned(bytes[dead]));
    }
    const std::int64_t size = aligned(bytes[k]);
    offsets[k] = size == 0 ? 0 : ranges.take(size);
    peak = std::max(peak, offsets[k] + size);
    if (size != 0) live.emplace(items_[k].last_stage, k);
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

MemoryPlan Planner::bind(const base::SymbolValues& sizes, std::uint32_t arena) const {
  std::vector<std::int64_t> bytes(items_.size(), 0);
  std::vector<std::size_t> by_size;
  for (std::size_t k = 0; k < items_.size(); ++k) {
    if (items_[k].arena != arena) continue;
    by_size.push_back(k);
    for (const base::SymExpr& expr : items_[k].bytes)
      bytes[k] = std::max(bytes[k], expr.evaluate(sizes));
    if (bytes[k] > (std::int64_t{1} << 56))
      throw OutOfMemory({.what = "memory plan",
                         .where = {},
                         .expected = "a buffer below 2^56 bytes",
                         .got = fmt::format("{} bytes", bytes[k])});
  }
  MemoryPlan plan;
  plan.lower_bound_bytes = lower_bound(bytes);
  std::vector<std::size_t> by_time = by_size;
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  std::stable_sort(by_time.begin(), by_time.end(), [&](std::size_t a, std::size_t b) {
    return items_[a].first_stage < items_[b].first_stage;
  });
  std::vector<std::int64_t> offsets(items_.size());
  const bool in_stages = reuse_ && conflicts_.empty();
  const bool every_pair = !in_stages || by_size.size() <= kMostCompared;
  if (every_pair) plan.peak_bytes = place(by_size, bytes, offsets);
  if (!every_pair || plan.peak_bytes > plan.lower_bound_bytes + kAlignment) {
    std::vector<std::int64_t> other(items_.size());
    const std::int64_t peak =
        in_stages ? place_in_time(by_time, bytes, other) : place(by_time, bytes, other);
    if (!every_pair || peak < plan.peak_bytes) {
      plan.peak_bytes = peak;
      offsets = std::move(other);
    }
  }
  plan.offsets.assign(item_of_.size(), kNotInArena);
  for (std::size_t b = 0; b < item_of_.size(); ++b) {
    const std::ptrdiff_t item = item_of_[b];
    if (item >= 0 && items_[static_cast<std::size_t>(item)].arena == arena)
      plan.offsets[b] = offsets[static_cast<std::size_t>(item)];
  }
  return plan;
}

namespace {

/// An access of a step to bytes of the arena.
struct Use {
  BufferId buffer;
  std::int64_t begin, end;
  ir::StepId step;
  bool write;
};

std::vector<Use> arena_uses(const ScheduleRecord& record, const base::SymbolValues& sizes,
                            const MemoryPlan& plan) {
  std::vector<Use> uses;
  for (ir::StepId step = 0; step < record.steps.size(); ++step) {
    const auto add = [&](BufferId b, bool write) {
      if (plan.offsets[b] == kNotInArena) return;
      const std::int64_t bytes = record.buffers[b].bytes.evaluate(sizes);
      if (bytes > 0) uses.push_back({b, plan.offsets[b], plan.offsets[b] + bytes, step, write});
    };
    for (const BufferId b : record.steps[step].reads) add(b, false);
    for (const BufferId b : record.steps[step].writes) add(b, true);
  }
  return uses;
}

/// Whether `step` may put what it writes where what it reads lies.
bool may_overwrite(const ir::PlanStep& step, const std::vector<BufferId>& roots, const Use& read,
                   const Use& write) {
  return std::any_of(step.may_reuse.begin(), step.may_reuse.end(), [&](const auto& pair) {
    return roots[step.reads[pair.first]] == roots[read.buffer] &&
           roots[step.writes[pair.second]] == roots[write.buffer];
  });
}

[[noreturn]] void overlap_error(const ScheduleRecord& record, const Use& a, const Use& b,
                                const char* expected) {
  throw InvariantError(
      {.what = fmt::format("memory plan: {} and {} overlap", record.buffers[a.buffer].value,
                           record.buffers[b.buffer].value),
       .where = fmt::format("steps {} and {}", a.step, b.step),
       .expected = expected,
       .got = {}});
}

}  // namespace

void check_streams(const ScheduleRecord& record, const base::SymbolValues& sizes,
                   const MemoryPlan& plan,
                   const std::function<bool(ir::StepId first, ir::StepId second)>& ordered) {
  const std::vector<Use> uses = arena_uses(record, sizes, plan);
  const std::vector<BufferId> roots = alias_roots(record);
  const auto fail = [&](const Use& a, const Use& b) {
    overlap_error(record, a, b,
                  "bytes that are used one after the other, in an order that events keep");
  };
  std::map<std::pair<BufferId, BufferId>, bool> first_of;  // which of two roots is used first
  for (const Use& a : uses) {
    for (const Use& b : uses) {
      const BufferId x = roots[a.buffer];
      const BufferId y = roots[b.buffer];
      if (x >= y || a.end <= b.begin || b.end <= a.begin) continue;
      if (a.step == b.step) {
        const Use& read = a.write ? b : a;
        const Use& write = a.write ? a : b;
        const ir::PlanStep& step = record.steps[a.step];
        const bool allowed = !read.write && write.write && may_overwrite(step, roots, read, write);
        if (!allowed) fail(a, b);
        continue;
      }
      const bool a_first = ordered(a.step, b.step);
      if (!a_first && !ordered(b.step, a.step)) fail(a, b);
      if (first_of.try_emplace({x, y}, a_first).first->second != a_first) fail(a, b);
    }
  }
}

void check(const ScheduleRecord& record, std::span<const std::uint32_t> stage_of,
           const base::SymbolValues& sizes, const MemoryPlan& plan) {
  const std::vector<Use> uses = arena_uses(record, sizes, plan);
  const std::vector<BufferId> roots = alias_roots(record);
  const auto fail = [&](const Use& a, const Use& b) {
    overlap_error(record, a, b, "bytes of their own while both are in use");
  };
  // A write destroys what overlapping buffers held: none of them may be read at or after it unless it was
  // written again, except operands that the writing step itself may overwrite.
  for (const Use& write : uses) {
    if (!write.write) continue;
    for (const Use& other : uses) {
      if (roots[other.buffer] == roots[write.buffer]) continue;
      if (other.end <= write.begin || write.end <= other.begin) continue;
      if (stage_of[other.step] == stage_of[write.step]) {
        const ir::PlanStep& step = record.steps[write.step];
        const bool allowed =
            other.step == write.step && !other.write && may_overwrite(step, roots, other, write);
        if (!allowed) fail(write, other);
      } else if (!other.write && stage_of[other.step] > stage_of[write.step]) {
        const bool rewritten = std::any_of(uses.begin(), uses.end(), [&](const Use& again) {
          return again.write && roots[again.buffer] == roots[other.buffer] &&
                 stage_of[again.step] > stage_of[write.step] &&
                 stage_of[again.step] <= stage_of[other.step];
        });
        if (!rewritten) fail(write, other);
      }
    }
  }
}

}  // namespace heddle::memory
