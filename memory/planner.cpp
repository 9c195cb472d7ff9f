#include "memory/planner.h"

#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <map>
#include <numeric>
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

}  // namespace

Planner::Planner(const ScheduleRecord& record, std::span<const std::uint32_t> stage_of,
                 Options options)
    : roots_(alias_roots(record)) {
  layout_.in_stages = options.clocks == nullptr;
  layout_.reuse = options.reuse;
  HD_CHECK(stage_of.size() == record.steps.size());
  lifetimes_ = root_lifetimes(record, roots_);
  for (const std::uint32_t stage : stage_of)
    layout_.stages = std::max<std::size_t>(layout_.stages, stage + 1);
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
      item_of[owner] = static_cast<std::ptrdiff_t>(layout_.items.size());
      layout_.items.push_back(
          {owner, static_cast<std::uint32_t>(layout_.stages), 0, arenas[owner], {}});
      for (const base::SymExpr& expr : bytes[owner])
        layout_.items.back().bytes.push_back(expressions.add(expr));
    }
    item_of[b] = item_of[owner];
    Layout::Item& item = layout_.items[static_cast<std::size_t>(item_of[b])];
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
  const Layout::Item& item = layout_.items[static_cast<std::size_t>(item_of_[b])];
  return {item.first_step, item.last_step};
}

void Planner::set_clocks(const ScheduleRecord& record, const ir::StepClocks& clocks) {
  layout_.lanes = clocks.lanes;
  layout_.until_places.assign(layout_.items.size() * layout_.lanes, 0);
  layout_.from_places.assign(layout_.items.size() * layout_.lanes,
                             std::numeric_limits<std::uint32_t>::max());
  const auto touch = [&](BufferId buffer, ir::StepId step) {
    if (item_of_[buffer] < 0) return;
    const std::size_t at = static_cast<std::size_t>(item_of_[buffer]) * layout_.lanes;
    std::uint32_t& until = layout_.until_places[at + clocks.lane_of[step]];
    until = std::max(until, clocks.place_of[step] + 1);
    const auto done = clocks.done(step);
    for (std::size_t lane = 0; lane < layout_.lanes; ++lane)
      layout_.from_places[at + lane] = std::min(layout_.from_places[at + lane], done[lane]);
  };
  for (ir::StepId step = 0; step < record.steps.size(); ++step) {
    for (const BufferId buffer : record.steps[step].reads) touch(buffer, step);
    for (const BufferId buffer : record.steps[step].writes) touch(buffer, step);
  }
  if (layout_.in_stages)
    for (Layout::Item& item : layout_.items) item.free_for_all = item.last_stage + 1;
  else
    set_free_for_all(clocks);
}

/// By item: the first step from which on every step of every lane begins after all accesses of the item.
void Planner::set_free_for_all(const ir::StepClocks& clocks) {
  const auto steps = static_cast<std::uint32_t>(clocks.lane_of.size());
  std::vector<std::uint32_t> last_of(layout_.lanes, 0);  // by lane: its last step
  for (std::uint32_t step = 0; step < steps; ++step) last_of[clocks.lane_of[step]] = step;
  std::vector<std::size_t> dead(layout_.items.size());
  std::iota(dead.begin(), dead.end(), 0);
  std::ranges::stable_sort(dead, {}, [&](std::size_t k) { return layout_.items[k].last_step; });
  // What each lane knows, and all of those that go on.
  std::vector<std::uint32_t> known(layout_.lanes * layout_.lanes, 0);
  std::vector<std::uint32_t> all(layout_.lanes, 0);
  auto next = dead.begin();
  for (std::uint32_t step = 0; step < steps && next != dead.end(); ++step) {
    const std::uint32_t lane = clocks.lane_of[step];
    std::ranges::copy(clocks.done(step),
                      known.begin() + static_cast<std::ptrdiff_t>(lane * layout_.lanes));
    known[lane * layout_.lanes + lane] = clocks.place_of[step] + 1;
    std::ranges::fill(all, std::numeric_limits<std::uint32_t>::max());
    for (std::size_t other = 0; other < layout_.lanes; ++other)
      for (std::size_t of = 0; of < layout_.lanes && last_of[other] > step; ++of)
        all[of] = std::min(all[of], known[other * layout_.lanes + of]);
    for (; next != dead.end() && layout_.items[*next].last_step <= step &&
           reached(layout_.until(*next), all);
         ++next)
      layout_.items[*next].free_for_all = step + 1;
  }
}

namespace {

/// What an item's bytes are, of whatever lies in them.
std::int64_t largest(const Layout::Item& item, const base::ExprTable::Values& values) {
  std::int64_t bytes = 0;
  for (const std::uint32_t value : item.bytes) bytes = std::max(bytes, values[value]);
  if (bytes > (std::int64_t{1} << 56))
    throw OutOfMemory({.what = "memory plan",
                       .where = {},
                       .expected = "a buffer below 2^56 bytes",
                       .got = fmt::format("{} bytes", bytes)});
  return bytes;
}

bool meets(const Layout::Item& item, const Repeat& repeat) {
  return item.first_step <= repeat.last_step && repeat.first_step <= item.last_step;
}
bool is_inside(const Layout::Item& item, const Repeat& repeat) {
  return repeat.first_step <= item.first_step && item.last_step <= repeat.last_step;
}

/// A layout in which the items of each Repeat are one, in the bytes of which they lie.
class RepeatedLayout {
 public:
  /// `bytes`: by item, of one time where only repeated steps use it.
  RepeatedLayout(const Layout& layout, std::span<const std::int64_t> bytes, std::uint32_t arena,
                 std::span<const Repeat> repeats)
      : given_(layout), layout_(layout), bytes_(bytes.begin(), bytes.end()), arena_(arena) {
    HD_CHECK(layout.in_stages && layout.lanes == 1);
    repeat_of_.assign(layout.items.size(), ir::kNone);
    for (std::size_t k = 0; k < layout.items.size(); ++k)
      for (std::uint32_t r = 0; r < repeats.size(); ++r) fit(k, r, repeats[r]);
    for (std::uint32_t r = 0; r < repeats.size(); ++r) add(r, repeats[r]);
  }

  MemoryPlan plan(std::span<const std::ptrdiff_t> item_of) const {
    const Layout::Plan placed = layout_.plan_for(bytes_, arena_);
    MemoryPlan plan;
    plan.peak_bytes = placed.peak_bytes;
    plan.lower_bound_bytes = placed.lower_bound_bytes;
    plan.offsets.assign(item_of.size(), kNotInArena);
    if (!inside_.empty()) plan.once.resize(item_of.size());
    for (std::size_t b = 0; b < item_of.size(); ++b) {
      if (item_of[b] < 0) continue;
      const auto item = static_cast<std::size_t>(item_of[b]);
      if (given_.items[item].arena != arena_) continue;
      plan.offsets[b] = placed.offsets[item];
      if (repeat_of_[item] == ir::kNone) continue;
      const Inside& inside = inside_[repeat_of_[item]];
      plan.offsets[b] = placed.offsets[inside.item] + inside.offsets[item];
      plan.once[b] = {inside.bytes[item], inside.worker_bytes};
    }
    return plan;
  }

 private:
  /// What lies in the arena of each worker of a Repeat.
  struct Inside {
    std::size_t item = 0;               ///< the arenas of all
    std::vector<std::int64_t> offsets;  ///< by item
    std::vector<std::int64_t> bytes;
    std::int64_t worker_bytes = 0;
  };

  /// An item that the steps use alone is theirs; another one that they may touch is in use as long as they run.
  void fit(std::size_t k, std::uint32_t number, const Repeat& repeat) {
    const Layout::Item& given = given_.items[k];
    if (given.arena != arena_ || !meets(given, repeat)) return;
    Layout::Item& item = layout_.items[k];
    if (is_inside(given, repeat)) {
      repeat_of_[k] = number;
      item.arena = ir::kNone;
      return;
    }
    item.first_stage = std::min(item.first_stage, repeat.first_stage);
    item.last_stage = std::max(item.last_stage, repeat.last_stage);
    set_times(k);
  }

  void set_times(std::size_t k) {
    Layout::Item& item = layout_.items[k];
    layout_.from_places[k] = item.first_stage;
    layout_.until_places[k] = item.free_for_all = item.last_stage + 1;
  }

  void add(std::uint32_t number, const Repeat& repeat) {
    Layout own = given_;
    Inside inside{layout_.items.size(), {}, std::vector<std::int64_t>(given_.items.size(), 0), 0};
    for (std::size_t k = 0; k < own.items.size(); ++k) {
      if (repeat_of_[k] != number)
        own.items[k].arena = ir::kNone;
      else
        inside.bytes[k] = std::exchange(bytes_[k], 0);
    }
    Layout::Plan placed = own.plan_for(inside.bytes, arena_);
    inside.offsets = std::move(placed.offsets);
    inside.worker_bytes = aligned(placed.peak_bytes);
    Layout::Item all{.buffer = ir::kNone,
                     .first_stage = repeat.first_stage,
                     .last_stage = repeat.last_stage,
                     .arena = arena_};
    all.first_step = repeat.first_step;
    all.last_step = repeat.last_step;
    layout_.items.push_back(std::move(all));
    layout_.from_places.push_back(0);
    layout_.until_places.push_back(0);
    set_times(layout_.items.size() - 1);
    bytes_.push_back(inside.worker_bytes * repeat.workers);
    inside_.push_back(std::move(inside));
  }

  const Layout& given_;
  Layout layout_;
  std::vector<std::int64_t> bytes_;  ///< by item
  std::uint32_t arena_;
  std::vector<std::uint32_t> repeat_of_;  ///< by item; kNone: of none
  std::vector<Inside> inside_;            ///< by Repeat
};

}  // namespace

std::vector<std::int64_t> Planner::bytes_of_items(const base::SymbolValues& sizes,
                                                  std::uint32_t arena,
                                                  std::span<const Repeat> repeats) const {
  std::vector<std::int64_t> bytes(layout_.items.size(), 0);
  const auto fill = [&](const base::ExprTable::Values& values, const Repeat* repeat) {
    for (std::size_t k = 0; k < layout_.items.size(); ++k) {
      const Layout::Item& item = layout_.items[k];
      if (item.arena == arena && (repeat == nullptr || is_inside(item, *repeat)))
        bytes[k] = largest(item, values);
    }
  };
  fill(expressions_.evaluate(sizes), nullptr);
  for (const Repeat& repeat : repeats) fill(expressions_.evaluate(repeat.sizes), &repeat);
  return bytes;
}

MemoryPlan Planner::bind(const base::SymbolValues& sizes, std::uint32_t arena,
                         std::span<const Repeat> repeats) const {
  std::vector<std::int64_t> bytes = bytes_of_items(sizes, arena, repeats);
  const auto is_same = [&](const Made& made) {
    return made.arena == arena && made.bytes == bytes && std::ranges::equal(made.repeats, repeats);
  };
  {
    const std::scoped_lock lock(made_mutex_);
    if (const auto made = std::ranges::find_if(made_, is_same); made != made_.end())
      return *made->plan;
  }
  auto plan = std::make_shared<const MemoryPlan>(plan_for(bytes, arena, repeats));
  const std::scoped_lock lock(made_mutex_);
  made_.push_front({arena, std::move(bytes), {repeats.begin(), repeats.end()}, plan});
  if (made_.size() > kMostMade) made_.pop_back();
  return *plan;
}

MemoryPlan Planner::plan_for(std::span<const std::int64_t> bytes, std::uint32_t arena,
                             std::span<const Repeat> repeats) const {
  if (!repeats.empty()) return RepeatedLayout(layout_, bytes, arena, repeats).plan(item_of_);
  const Layout::Plan placed = layout_.plan_for(bytes, arena);
  MemoryPlan plan;
  plan.peak_bytes = placed.peak_bytes;
  plan.lower_bound_bytes = placed.lower_bound_bytes;
  plan.offsets.assign(item_of_.size(), kNotInArena);
  for (std::size_t b = 0; b < item_of_.size(); ++b) {
    if (item_of_[b] < 0) continue;
    const auto item = static_cast<std::size_t>(item_of_[b]);
    if (layout_.items[item].arena == arena) plan.offsets[b] = placed.offsets[item];
  }
  return plan;
}

}  // namespace heddle::memory
