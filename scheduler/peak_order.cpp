#include "scheduler/peak_order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <queue>
#include <tuple>

namespace heddle::scheduler {

using ir::BufferId;
using ir::StepId;

namespace {

/// Who waits for each step, and how many steps each waits for.
struct Links {
  explicit Links(const ir::ScheduleRecord& record)
      : successors(record.steps.size()), unmet(record.steps.size(), 0) {
    for (StepId step = 0; step < record.steps.size(); ++step) {
      for (const ir::PlanEdge& edge : record.steps[step].edges) {
        successors[edge.from].push_back(step);
        ++unmet[step];
      }
    }
  }
  std::vector<std::vector<StepId>> successors;
  std::vector<std::uint32_t> unmet;
};

/// Ready steps, sorted by what they allocate at first; finds the best one under a bound by halving.
class ReadySteps {
 public:
  using Key = std::pair<std::int64_t, StepId>;  // growth, step
  static constexpr Key kNone{std::numeric_limits<std::int64_t>::max(), ir::kNone};

  explicit ReadySteps(const std::vector<std::int64_t>& allocations) : rank_(allocations.size()) {
    std::vector<StepId> by_allocation(allocations.size());
    std::iota(by_allocation.begin(), by_allocation.end(), 0);
    std::stable_sort(by_allocation.begin(), by_allocation.end(),
                     [&](StepId a, StepId b) { return allocations[a] < allocations[b]; });
    for (std::uint32_t k = 0; k < by_allocation.size(); ++k) rank_[by_allocation[k]] = k;
    while (leaves_ < allocations.size()) leaves_ *= 2;
    tree_.assign(2 * leaves_, kNone);
    for (const StepId step : by_allocation) sorted_.push_back(allocations[step]);
  }

  void set(StepId step, std::int64_t growth) { put(step, {growth, step}); }
  void remove(StepId step) { put(step, kNone); }

  /// The least growth among ready steps that allocate at most `bytes`; kNone if there is none.
  Key best_within(std::int64_t bytes) const {
    const auto end = std::upper_bound(sorted_.begin(), sorted_.end(), bytes) - sorted_.begin();
    return best(0, static_cast<std::size_t>(end));
  }

  /// The ready step with the least allocation above `bytes`, then the least growth.
  Key best_above(std::int64_t bytes) const {
    const auto end_of = [&](std::int64_t value) {
      return static_cast<std::size_t>(std::upper_bound(sorted_.begin(), sorted_.end(), value) -
                                      sorted_.begin());
    };
    const std::size_t first = first_ready(end_of(bytes));
    return first == sorted_.size() ? kNone : best(first, end_of(sorted_[first]));
  }

 private:
  void put(StepId step, Key key) {
    std::size_t at = leaves_ + rank_[step];
    tree_[at] = key;
    while (at > 1) {
      at /= 2;
      tree_[at] = std::min(tree_[2 * at], tree_[2 * at + 1]);
    }
  }
  /// The first rank from `from` on with a ready step; the number of ranks if there is none.
  std::size_t first_ready(std::size_t from) const {
    if (from >= sorted_.size()) return sorted_.size();
    std::size_t at = leaves_ + from;
    while (tree_[at] == kNone) {
      while (at % 2 == 1 && at > 1) at /= 2;  // the last of its siblings: go on beside its parent
      if (at == 1) return sorted_.size();
      ++at;
    }
    while (at < leaves_) at = tree_[2 * at] != kNone ? 2 * at : 2 * at + 1;
    return at - leaves_;
  }
  Key best(std::size_t from, std::size_t to) const {
    Key found = kNone;
    for (from += leaves_, to += leaves_; from < to; from /= 2, to /= 2) {
      if (from % 2 == 1) found = std::min(found, tree_[from++]);
      if (to % 2 == 1) found = std::min(found, tree_[--to]);
    }
    return found;
  }

  std::vector<std::uint32_t> rank_;
  std::vector<std::int64_t> sorted_;
  std::size_t leaves_ = 1;
  std::vector<Key> tree_;
};

/// The state of the least-peak-memory-first search.
class LpmfSearch {
 public:
  explicit LpmfSearch(const StepMemory& memory)
      : memory_(memory),
        links_(memory.record()),
        left_(memory.buffers(), 0),
        allocated_(memory.buffers(), false),
        growth_(memory.steps(), 0),
        is_ready_(memory.steps(), false),
        ready_(first_allocations(memory)) {
    for (BufferId b = 0; b < memory.buffers(); ++b) {
      left_[b] = static_cast<std::uint32_t>(memory.touching(b).size());
      allocated_[b] = memory.kind(b) == StepMemory::Kind::Given;
      for (const StepId step : memory.touching(b))
        if (!allocated_[b]) growth_[step] += memory.bytes(b);
      if (left_[b] == 1) credit(b, memory.touching(b)[0]);
    }
    for (StepId step = 0; step < memory.steps(); ++step)
      if (links_.unmet[step] == 0) add(step);
  }

  std::vector<StepId> run() {
    std::vector<StepId> order;
    std::int64_t live = memory_.given_bytes();
    std::int64_t peak = std::max(live, memory_.output_bytes());
    while (order.size() < memory_.steps()) {
      const StepId step = choose(peak - live);
      order.push_back(step);
      live += take(step, peak, live);
    }
    return order;
  }

 private:
  static std::vector<std::int64_t> first_allocations(const StepMemory& memory) {
    std::vector<std::int64_t> bytes(memory.steps(), 0);
    for (StepId step = 0; step < memory.steps(); ++step) bytes[step] = written_first(memory, step);
    return bytes;
  }

  /// Bytes of what the step is the first to touch in any order: nothing that it depends on touches it.
  static std::int64_t written_first(const StepMemory& memory, StepId step) {
    std::int64_t bytes = 0;
    for (const BufferId b : memory.touched(step))
      if (memory.touching(b)[0] == step && memory.kind(b) != StepMemory::Kind::Given)
        bytes += memory.bytes(b);
    return bytes;
  }

  StepId choose(std::int64_t gap) const {
    const ReadySteps::Key within = ready_.best_within(gap);
    return within != ReadySteps::kNone ? within.second : ready_.best_above(gap).second;
  }

  void add(StepId step) {
    is_ready_[step] = true;
    ready_.set(step, growth_[step]);
  }

  /// `step` is the last one that touches the buffer: it frees it.
  void credit(BufferId buffer, StepId step) {
    if (memory_.is_freed(buffer)) change(step, -memory_.bytes(buffer));
  }

  void change(StepId step, std::int64_t bytes) {
    growth_[step] += bytes;
    if (is_ready_[step]) ready_.set(step, growth_[step]);
  }

  /// Runs `step`. @return by how much live bytes grow.
  std::int64_t take(StepId step, std::int64_t& peak, std::int64_t live) {
    is_ready_[step] = false;
    ready_.remove(step);
    std::int64_t allocated = 0;
    std::int64_t freed = 0;
    for (const BufferId b : memory_.touched(step)) {
      if (!allocated_[b]) {
        allocated_[b] = true;
        allocated += memory_.bytes(b);
        for (const StepId other : memory_.touching(b))
          if (other != step) change(other, -memory_.bytes(b));
      }
      if (--left_[b] == 0 && memory_.is_freed(b)) freed += memory_.bytes(b);
    }
    done_.resize(memory_.steps(), false);
    done_[step] = true;
    for (const BufferId b : memory_.touched(step)) {
      if (left_[b] != 1) continue;
      for (const StepId other : memory_.touching(b))
        if (!done_[other]) credit(b, other);
    }
    peak = std::max(peak, live + allocated);
    for (const StepId next : links_.successors[step])
      if (--links_.unmet[next] == 0) add(next);
    return allocated - freed;
  }

  const StepMemory& memory_;
  Links links_;
  std::vector<std::uint32_t> left_;
  std::vector<bool> allocated_;
  std::vector<std::int64_t> growth_;  ///< allocated less freed, if the step ran now
  std::vector<bool> is_ready_;
  std::vector<bool> done_;
  ReadySteps ready_;
};

}  // namespace

const char* name_of(Method method) {
  switch (method) {
    case Method::Given:
      return "given";
    case Method::Lpmf:
      return "lpmf";
    case Method::Bfs:
      return "bfs";
    case Method::Dfs:
      break;
  }
  return "dfs";
}

std::vector<StepId> lpmf_order(const StepMemory& memory) { return LpmfSearch(memory).run(); }

std::vector<StepId> bfs_order(const StepMemory& memory) {
  Links links(memory.record());
  using Item = std::pair<std::vector<std::uint32_t>, StepId>;
  std::priority_queue<Item, std::vector<Item>, std::greater<>> ready;
  std::vector<std::uint32_t> place(memory.steps(), 0);
  const auto add = [&](StepId step) {
    std::vector<std::uint32_t> places;
    for (const ir::PlanEdge& edge : memory.record().steps[step].edges)
      places.push_back(place[edge.from]);
    std::sort(places.begin(), places.end());
    ready.emplace(std::move(places), step);
  };
  for (StepId step = 0; step < memory.steps(); ++step)
    if (links.unmet[step] == 0) add(step);
  std::vector<StepId> order;
  while (!ready.empty()) {
    const StepId step = ready.top().second;
    ready.pop();
    place[step] = static_cast<std::uint32_t>(order.size());
    order.push_back(step);
    for (const StepId next : links.successors[step])
      if (--links.unmet[next] == 0) add(next);
  }
  return order;
}

std::vector<StepId> dfs_order(const StepMemory& memory) {
  const auto count = static_cast<StepId>(memory.steps());
  std::vector<std::int64_t> weight(count, 0);
  for (StepId step = 0; step < count; ++step)
    for (const BufferId b : memory.touched(step)) weight[step] += memory.bytes(b);
  const auto before = [&](StepId a, StepId b) {
    return std::pair(weight[a], a) < std::pair(weight[b], b);
  };
  std::vector<StepId> all(count);
  std::iota(all.begin(), all.end(), 0);
  std::sort(all.begin(), all.end(), before);
  std::vector<StepId> order;
  std::vector<bool> seen(count, false);
  // A frame: a step, and what it still waits for, the next one last.
  std::vector<std::pair<StepId, std::vector<StepId>>> open;
  const auto enter = [&](StepId step) {
    seen[step] = true;
    std::vector<StepId> needs;
    for (const ir::PlanEdge& edge : memory.record().steps[step].edges) needs.push_back(edge.from);
    std::sort(needs.begin(), needs.end(), [&](StepId a, StepId b) { return before(b, a); });
    open.emplace_back(step, std::move(needs));
  };
  for (const StepId start : all) {
    if (seen[start]) continue;
    enter(start);
    while (!open.empty()) {
      auto& [step, needs] = open.back();
      while (!needs.empty() && seen[needs.back()]) needs.pop_back();
      if (needs.empty()) {
        order.push_back(step);
        open.pop_back();
        continue;
      }
      enter(needs.back());
    }
  }
  return order;
}

}  // namespace heddle::scheduler
