#include "engine/batch_choice.h"

#include <algorithm>
#include <functional>
#include <map>

namespace heddle::engine {

using base::SymbolValues;
using ir::BufferId;
using ir::PlanBuffer;
using ir::StepId;

namespace {

/// Of a batch: more would be little each.
constexpr std::int64_t kMostTimes = 1024;
/// Of a run, of which all parts are compared.
constexpr std::size_t kMostStages = 512;

}  // namespace

BatchChoice::BatchChoice(const scheduler::Schedule& schedule, const Phases& phases,
                         const memory::Planner& planner,
                         std::span<const ir::Assumption> assumptions, std::int64_t cache_bytes)
    : schedule_(schedule), planner_(planner), cache_bytes_(cache_bytes) {
  const base::Symbol batch = *schedule.record.batch;
  for (const ir::Assumption& assumption : assumptions)
    if (assumption.predicate.left.mentions(batch) || assumption.predicate.right.mentions(batch))
      assumptions_.push_back(assumption);
  const auto& stages = schedule.stages;
  const auto roots = planner.roots();
  const auto lies_in_first = [&](BufferId buffer) { return phases.arena_of()[roots[buffer]] == 0; };
  // Of one phase, on memory that is planned when the first one is.
  const auto is_apart = [&](const scheduler::Stage& stage, std::uint32_t phase) {
    return !stage.empty() && std::ranges::all_of(stage, [&](StepId number) {
      const ir::PlanStep& step = schedule.record.steps[number];
      return step.by_entry && phases.phase_of(number) == phase &&
             std::ranges::all_of(step.reads, lies_in_first) &&
             std::ranges::all_of(step.writes, lies_in_first);
    });
  };
  for (std::size_t first = 0; first < stages.size();) {
    const std::uint32_t phase = stages[first].empty() ? 0 : phases.phase_of(stages[first].front());
    std::size_t end = first;
    while (end < stages.size() && end - first < kMostStages && is_apart(stages[end], phase)) ++end;
    if (end - first >= 2) add_run(first, end);
    first = std::max(end, first + 1);
  }
}

void BatchChoice::add_run(std::size_t first, std::size_t end) {
  const ir::ScheduleRecord& record = schedule_.record;
  const auto roots = planner_.roots();
  Run run;
  run.first = first;
  run.constant.resize(end - first);
  run.between.resize(end - first);
  std::map<BufferId, std::int64_t> uses;
  std::map<StepId, std::size_t> stage_of;
  for (std::size_t stage = 0; stage < end - first; ++stage) {
    const scheduler::Stage& steps = schedule_.stages[first + stage];
    run.steps.push_back(static_cast<std::int64_t>(steps.size()));
    for (const StepId step : steps) {
      stage_of[step] = stage;
      std::vector<BufferId> touched;
      for (const auto* list : {&record.steps[step].reads, &record.steps[step].writes})
        for (const BufferId buffer : *list) touched.push_back(roots[buffer]);
      std::ranges::sort(touched);
      touched.erase(std::ranges::unique(touched).begin(), touched.end());
      for (const BufferId root : touched) {
        if (!record.buffers[root].bytes.mentions(*record.batch))
          run.constant[stage].push_back(root);
        else if (record.buffers[root].role == PlanBuffer::Role::Intermediate)
          ++uses[root];
      }
    }
  }
  for (const auto& [root, count] : uses) {
    const memory::Lifetime life = planner_.chain_lifetime(root);
    const auto begin = stage_of.find(life.first_step);
    const auto last = stage_of.find(life.last_step);
    if (begin == stage_of.end() || last == stage_of.end()) continue;
    run.between[last->second].push_back({begin->second, root, count});
  }
  runs_.push_back(std::move(run));
}

/// Whether what was assumed of sizes when the steps were made holds for a batch of so many entries.
bool BatchChoice::holds_for(std::int64_t entries, const SymbolValues& sizes) const {
  SymbolValues some = sizes;
  some[*schedule_.record.batch] = entries;
  return std::ranges::all_of(assumptions_, [&](const ir::Assumption& assumption) {
    std::vector<base::Symbol> symbols;
    assumption.predicate.left.collect_symbols(symbols);
    assumption.predicate.right.collect_symbols(symbols);
    return std::ranges::all_of(symbols, [&](const auto& s) { return some.contains(s); }) &&
           assumption.predicate.evaluate(some);
  });
}

/// For sizes.
class BatchChoice::Search {
 public:
  /// Parts of runs that are repeated so many times.
  struct Found {
    std::int64_t times = 0;
    std::int64_t kept_bytes = 0;  ///< the more, the farther they would have been
    std::vector<std::pair<std::size_t, std::size_t>> runs;  ///< stages [first, end), in order
  };

  Search(const BatchChoice& choice, const std::function<std::int64_t(BufferId)>& bytes)
      : choice_(choice), bytes_(bytes) {
    for (const Run& run : choice.runs_)
      if (has_far(run)) runs_.push_back(&run);
  }

  bool empty() const { return runs_.empty(); }

  Found best(std::int64_t times) const {
    Found all{times, 0, {}};
    for (const Run* run : runs_) add_best(*run, all);
    return all;
  }

 private:
  /// How dear a byte is of so many that are written and read again, where those that fill half a second-level cache are free: how often
  /// they are twice as many. From 64 times as many on they come from memory.
  std::int64_t distance(std::int64_t bytes) const {
    std::int64_t doublings = 0;
    for (std::int64_t near = std::max<std::int64_t>(1, choice_.cache_bytes_ / 2);
         near < bytes && doublings < 6; near *= 2)
      ++doublings;
    return doublings;
  }

  bool has_far(const Run& run) const {
    return std::ranges::any_of(run.between, [&](const std::vector<Between>& last) {
      return std::ranges::any_of(
          last, [&](const Between& between) { return distance(bytes_(between.buffer)) != 0; });
    });
  }

  /// What comes again each time in a stage: constants, and what a kernel takes to begin, in the bytes that come in that time. They are
  /// no farther than one doubling: constants are read in order, so that they are fetched ahead (farther, or free, measured slower on Zen 4).
  std::int64_t again(const Run& run, std::size_t stage) const {
    std::int64_t bytes = run.steps[stage] * (choice_.cache_bytes_ / 64);
    for (const BufferId constant : run.constant[stage]) bytes += bytes_(constant);
    return bytes;
  }

  /// The parts of a run that keep most, from its last stage on.
  void add_best(const Run& run, Found& all) const {
    const std::size_t count = run.steps.size();
    std::vector<std::int64_t> dear(count);
    std::vector<std::vector<std::pair<std::size_t, std::int64_t>>> keeps(
        count);  // first stage, bytes
    for (std::size_t stage = 0; stage < count; ++stage) {
      dear[stage] = again(run, stage) * (all.times - 1);
      for (const Between& between : run.between[stage]) {
        const std::int64_t bytes = bytes_(between.buffer);
        keeps[stage].emplace_back(
            between.first, between.uses * bytes * (distance(bytes) - distance(bytes / all.times)));
      }
    }
    std::vector<std::int64_t> kept(count + 1, 0);  // by stage: the most from it on
    std::vector<std::size_t> end(count, 0);        // of the part that begins there; 0: none
    for (std::size_t first = count; first-- > 0;) {
      kept[first] = kept[first + 1];
      std::int64_t sum = 0;
      for (std::size_t last = first; last < count; ++last) {
        sum -= dear[last];
        for (const auto& [begin, bytes] : keeps[last])
          if (begin >= first) sum += bytes;
        const std::int64_t most = sum + kept[last + 1];
        // Of parts that keep as much the longest: between two of them workers wait for each other.
        if (most < kept[first] || (most == kept[first] && end[first] == 0)) continue;
        kept[first] = most;
        end[first] = last + 1;
      }
    }
    all.kept_bytes += kept[0];
    for (std::size_t at = 0; at < count; at = std::max(at + 1, end[at]))
      if (end[at] != 0) all.runs.emplace_back(run.first + at, run.first + end[at]);
  }

  const BatchChoice& choice_;
  const std::function<std::int64_t(BufferId)>& bytes_;
  std::vector<const Run*> runs_;  ///< those between whose steps is more than the caches hold
};

std::vector<memory::Repeat> BatchChoice::repeats(
    const BoundSteps& plan, const std::function<std::int64_t(BufferId)>& bytes) const {
  const auto batch = plan.sizes.find(*schedule_.record.batch);
  if (batch == plan.sizes.end() || batch->second < std::max(2, plan.threads)) return {};
  const std::int64_t entries = batch->second;
  const Search search(*this, bytes);
  if (search.empty()) return {};
  Search::Found found;
  for (std::int64_t times = std::max(2, plan.threads); times <= std::min(entries, kMostTimes);
       ++times) {
    if (entries % times != 0 || !holds_for(entries / times, plan.sizes)) continue;
    Search::Found other = search.best(times);
    if (other.kept_bytes > found.kept_bytes) found = std::move(other);
  }
  std::vector<memory::Repeat> repeats;
  for (const auto& [first, end] : found.runs) {
    memory::Repeat& repeat = repeats.emplace_back();
    repeat.first_step = schedule_.stages[first].front();
    repeat.last_step = schedule_.stages[end - 1].back();
    repeat.first_stage = static_cast<std::uint32_t>(first);
    repeat.last_stage = static_cast<std::uint32_t>(end - 1);
    repeat.sizes = plan.sizes;
    repeat.sizes[batch->first] = entries / found.times;
    repeat.workers = plan.threads;
  }
  return repeats;
}

}  // namespace heddle::engine
