#include "scheduler/streams.h"

#include <algorithm>
#include <fmt/format.h>

#include "heddle/error.h"

namespace heddle::scheduler {

using ir::ScheduleRecord;
using ir::StepId;

namespace {

/// A set of steps.
using StepSet = std::vector<bool>;

void add_all(StepSet& to, const StepSet& from) {
  for (std::size_t k = 0; k < to.size(); ++k) to[k] = to[k] || from[k];
}

/// The edges of a record. Of up to kMostMatched steps, with all that they imply; of more, as they are.
class Edges {
 public:
  explicit Edges(const ScheduleRecord& record) : direct_(record.steps.size()) {
    const std::size_t count = record.steps.size();
    if (count <= kMostMatched) before_.assign(count, StepSet(count, false));
    for (StepId step = 0; step < count; ++step) {
      std::vector<StepId> from;
      for (const ir::PlanEdge& edge : record.steps[step].edges) from.push_back(edge.from);
      std::sort(from.begin(), from.end(), std::greater<>());
      from.erase(std::unique(from.begin(), from.end()), from.end());
      direct_[step] = before_.empty() ? std::move(from) : reduced(step, from);
    }
  }

  bool are_reduced() const { return !before_.empty(); }
  /// By step: its direct predecessors, the last first, without those that others imply if reduced.
  const std::vector<std::vector<StepId>>& direct() const { return direct_; }
  /// Whether `first` comes before `second`; unless reduced, whether by an edge of its own.
  bool ordered(StepId first, StepId second) const {
    if (are_reduced()) return before_[second][first];
    return std::ranges::binary_search(direct_[second], first, std::greater<>());
  }

 private:
  std::vector<StepId> reduced(StepId step, const std::vector<StepId>& from) {
    std::vector<StepId> kept;
    for (const StepId edge : from) {
      if (before_[step][edge]) continue;
      kept.push_back(edge);
      add_all(before_[step], before_[edge]);
      before_[step][edge] = true;
    }
    return kept;
  }

  std::vector<std::vector<StepId>> direct_;
  std::vector<StepSet> before_;  ///< all predecessors
};

/// Matches steps with one successor each at most, each successor once: by Kuhn's augmenting paths where edges
/// are reduced, else each step with the last predecessor that is left.
class Matching {
 public:
  explicit Matching(const Edges& edges)
      : predecessors_(edges.direct()), successor_(predecessors_.size(), ir::kNone) {
    for (StepId step = 0; step < predecessors_.size(); ++step) {
      if (edges.are_reduced()) {
        StepSet seen(predecessors_.size(), false);
        augment(step, seen);
      } else {
        take_last(step);
      }
    }
  }

  /// By step: the predecessor that it follows on its chain; kNone: it begins one.
  std::vector<StepId> followed() const {
    std::vector<StepId> result(successor_.size(), ir::kNone);
    for (StepId from = 0; from < successor_.size(); ++from)
      if (successor_[from] != ir::kNone) result[successor_[from]] = from;
    return result;
  }

 private:
  bool augment(StepId step, StepSet& seen) {
    for (const StepId from : predecessors_[step]) {
      if (seen[from]) continue;
      seen[from] = true;
      if (successor_[from] != ir::kNone && !augment(successor_[from], seen)) continue;
      successor_[from] = step;
      return true;
    }
    return false;
  }

  void take_last(StepId step) {
    const auto& from = predecessors_[step];
    const auto left = std::ranges::find_if(
        from, [&](StepId candidate) { return successor_[candidate] == ir::kNone; });
    if (left != from.end()) successor_[*left] = step;
  }

  const std::vector<std::vector<StepId>>& predecessors_;
  std::vector<StepId> successor_;
};

/// Deals chains out: to a stream all of whose steps come before anyway, best the one of a direct
/// predecessor; else to a new one.
class Dealer {
 public:
  Dealer(const Edges& edges, std::uint32_t max_streams)
      : edges_(edges), followed_(Matching(edges).followed()) {
    last_.assign(max_streams, ir::kNone);
    chain_end_.resize(followed_.size());
    for (StepId step = static_cast<StepId>(followed_.size()); step-- > 0;) {
      chain_end_[step] = std::max(chain_end_[step], step);
      if (followed_[step] != ir::kNone)
        chain_end_[followed_[step]] = std::max(chain_end_[followed_[step]], chain_end_[step]);
    }
  }

  std::vector<std::uint32_t> run() {
    std::vector<std::uint32_t> stream_of(followed_.size(), 0);
    for (StepId step = 0; step < followed_.size(); ++step) {
      if (followed_[step] != ir::kNone) {
        stream_of[step] = stream_of[followed_[step]];
        continue;
      }
      StepId& last = last_[stream_of[step] = choose(step, stream_of)];
      last = last == ir::kNone ? chain_end_[step] : std::max(last, chain_end_[step]);
    }
    return stream_of;
  }

 private:
  bool is_free(std::uint32_t stream, StepId step) const {
    return last_[stream] != ir::kNone && edges_.ordered(last_[stream], step);
  }

  std::uint32_t choose(StepId step, const std::vector<std::uint32_t>& stream_of) const {
    for (const StepId from : edges_.direct()[step])
      if (is_free(stream_of[from], step)) return stream_of[from];
    for (std::uint32_t stream = 0; stream < last_.size(); ++stream)
      if (is_free(stream, step)) return stream;
    const auto unused = std::find(last_.begin(), last_.end(), ir::kNone);
    if (unused != last_.end()) return static_cast<std::uint32_t>(unused - last_.begin());
    return static_cast<std::uint32_t>(std::min_element(last_.begin(), last_.end()) - last_.begin());
  }

  const Edges& edges_;
  std::vector<StepId> followed_;
  std::vector<StepId> chain_end_;  ///< the last step of the chain from each step on
  std::vector<StepId> last_;       ///< by stream: the last step of its chains; kNone: unused
};

/// Makes the last step's stream stream 0, which waits for all at the end: the fewest joins.
void end_on_stream_0(std::vector<std::uint32_t>& stream_of) {
  if (stream_of.empty()) return;
  const std::uint32_t last = stream_of.back();
  for (std::uint32_t& stream : stream_of) {
    if (stream == last)
      stream = 0;
    else if (stream == 0)
      stream = last;
  }
}

using Clock = std::vector<std::uint32_t>;  ///< by stream: how many of its steps are done

void join(Clock& to, std::span<const std::uint32_t> from) {
  for (std::size_t k = 0; k < to.size(); ++k) to[k] = std::max(to[k], from[k]);
}

/// What is done once `step` is.
Clock done_after(const ir::StepClocks& clocks, StepId step) {
  const auto done = clocks.done(step);
  Clock clock(done.begin(), done.end());
  clock[clocks.lane_of[step]] = clocks.place_of[step] + 1;
  return clock;
}

void add_waits(const std::vector<std::vector<StepId>>& predecessors, StreamPlan& plan) {
  const std::size_t count = predecessors.size();
  std::vector<StepId> last(plan.streams, ir::kNone);
  plan.waits_for.resize(count);
  plan.records.assign(count, false);
  ir::StepClocks& clocks = plan.clocks;
  clocks.lanes = plan.streams;
  clocks.lane_of = plan.stream_of;
  clocks.place_of.assign(count, 0);
  const auto is_done = [&](const Clock& clock, StepId step) {
    return clocks.place_of[step] < clock[clocks.lane_of[step]];
  };
  for (StepId step = 0; step < count; ++step) {
    Clock done(plan.streams, 0);
    StepId& before = last[plan.stream_of[step]];
    if (before != ir::kNone) done = done_after(clocks, before);
    clocks.place_of[step] = done[plan.stream_of[step]];
    // Later steps first: they may imply the earlier ones.
    for (const StepId from : predecessors[step]) {
      if (is_done(done, from)) continue;
      plan.waits_for[step].push_back(from);
      plan.records[from] = true;
      join(done, done_after(clocks, from));
    }
    clocks.counts.insert(clocks.counts.end(), done.begin(), done.end());
    before = step;
  }
  Clock done(plan.streams, 0);
  if (last[0] != ir::kNone) done = done_after(clocks, last[0]);
  std::vector<StepId> ends(last.begin() + 1, last.end());
  std::sort(ends.begin(), ends.end(), std::greater<>());
  for (const StepId end : ends) {
    if (end == ir::kNone || is_done(done, end)) continue;
    plan.joins.push_back(end);
    plan.records[end] = true;
    join(done, done_after(clocks, end));
  }
}

}  // namespace

std::size_t StreamPlan::event_waits() const {
  std::size_t waits = 0;
  for (const auto& list : waits_for) waits += list.size();
  return waits;
}

StreamPlan assign_streams(const ScheduleRecord& record, std::uint32_t max_streams,
                          std::span<const std::optional<std::uint32_t>> pins) {
  const Edges edges(record);
  const std::uint32_t most = std::max(1u, max_streams);
  StreamPlan plan;
  plan.stream_of = Dealer(edges, most).run();
  end_on_stream_0(plan.stream_of);
  for (std::size_t step = 0; step < pins.size(); ++step)
    if (pins[step]) plan.stream_of[step] = *pins[step] % most;
  for (const std::uint32_t stream : plan.stream_of)
    plan.streams = std::max(plan.streams, stream + 1);
  add_waits(edges.direct(), plan);
  return plan;
}

void check(const ScheduleRecord& record, const StreamPlan& plan) {
  const std::size_t count = record.steps.size();
  // Vector clocks: how many steps of each stream are known to be done.
  std::vector<std::vector<std::uint32_t>> clock_of(count);
  std::vector<std::vector<std::uint32_t>> clocks(plan.streams,
                                                 std::vector<std::uint32_t>(plan.streams, 0));
  std::vector<std::uint32_t> place(count);
  const auto join = [](std::vector<std::uint32_t>& to, const std::vector<std::uint32_t>& from) {
    for (std::size_t k = 0; k < to.size(); ++k) to[k] = std::max(to[k], from[k]);
  };
  for (StepId step = 0; step < count; ++step) {
    const std::uint32_t stream = plan.stream_of[step];
    for (const StepId from : plan.waits_for[step]) {
      if (from >= step || !plan.records[from])
        throw InvariantError({.what = "streams: a wait for an event that was not recorded",
                              .where = fmt::format("steps {} and {}", from, step),
                              .expected = {},
                              .got = {}});
      join(clocks[stream], clock_of[from]);
    }
    for (const ir::PlanEdge& edge : record.steps[step].edges) {
      if (clocks[stream][plan.stream_of[edge.from]] > place[edge.from]) continue;
      throw InvariantError({.what = "streams: an edge that no stream and no event keeps",
                            .where = fmt::format("steps {} and {}", edge.from, step),
                            .expected = "a step that begins after those it depends on",
                            .got = {}});
    }
    place[step] = clocks[stream][stream]++;
    clock_of[step] = clocks[stream];
  }
  for (const StepId end : plan.joins) join(clocks[0], clock_of[end]);
  for (StepId step = 0; step < count; ++step) {
    if (clocks[0][plan.stream_of[step]] > place[step]) continue;
    throw InvariantError({.what = "streams: a step that may run after the end of the plan",
                          .where = fmt::format("step {}", step),
                          .expected = "an event that stream 0 waits for",
                          .got = {}});
  }
}

}  // namespace heddle::scheduler
