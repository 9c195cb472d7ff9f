#include "scheduler/order.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <queue>

#include "base/check.h"
#include "heddle/error.h"

namespace heddle::scheduler {

using ir::BufferId;
using ir::PlanStep;
using ir::ScheduleRecord;
using ir::StepId;

namespace {

/// More steps than this in one stage bring nothing and cost memory reuse.
constexpr std::size_t kMaxStageSteps = 8;

std::string step_name(const ScheduleRecord& record, StepId step) {
  return fmt::format("{} (step {})", record.kernels[record.steps[step].kernel].name, step);
}

/// Follows unmet edges from `start` until a step comes again; lists the cycle.
[[noreturn]] void fail_cycle(const ScheduleRecord& record, const std::vector<bool>& placed,
                             StepId start) {
  std::vector<StepId> path;
  StepId at = start;
  while (std::find(path.begin(), path.end(), at) == path.end()) {
    path.push_back(at);
    for (const ir::PlanEdge& edge : record.steps[at].edges) {
      if (!placed[edge.from]) {
        at = edge.from;
        break;
      }
    }
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), at));
  std::string text = step_name(record, at);
  for (auto it = path.rbegin(); it != path.rend(); ++it) text += " -> " + step_name(record, *it);
  throw CycleError({.what = "schedule: order edges form a cycle",
                    .where = {},
                    .expected = "an order in which every step follows what it waits for",
                    .got = text});
}

/// The given order, with steps moved back only as far as their edges demand.
std::vector<StepId> topological_order(const ScheduleRecord& record) {
  const std::size_t count = record.steps.size();
  std::vector<std::vector<StepId>> successors(count);
  std::vector<std::size_t> unmet(count, 0);
  for (StepId step = 0; step < count; ++step) {
    for (const ir::PlanEdge& edge : record.steps[step].edges) {
      successors[edge.from].push_back(step);
      ++unmet[step];
    }
  }
  std::priority_queue<StepId, std::vector<StepId>, std::greater<>> ready;
  for (StepId step = 0; step < count; ++step) {
    if (unmet[step] == 0) ready.push(step);
  }
  std::vector<StepId> order;
  std::vector<bool> placed(count, false);
  while (!ready.empty()) {
    const StepId step = ready.top();
    ready.pop();
    order.push_back(step);
    placed[step] = true;
    for (const StepId next : successors[step]) {
      if (--unmet[next] == 0) ready.push(next);
    }
  }
  if (order.size() != count) {
    const auto open = std::find(placed.begin(), placed.end(), false);
    fail_cycle(record, placed, static_cast<StepId>(open - placed.begin()));
  }
  return order;
}

/// Whether one of the two writes bytes that the other one touches.
bool conflict(const PlanStep& a, const PlanStep& b, std::span<const BufferId> roots) {
  const auto touches = [&](const PlanStep& step, BufferId root) {
    const auto same = [&](BufferId buffer) { return roots[buffer] == root; };
    return std::any_of(step.reads.begin(), step.reads.end(), same) ||
           std::any_of(step.writes.begin(), step.writes.end(), same);
  };
  const auto writes_into = [&](const PlanStep& from, const PlanStep& to) {
    return std::any_of(from.writes.begin(), from.writes.end(),
                       [&](BufferId buffer) { return touches(to, roots[buffer]); });
  };
  return writes_into(a, b) || writes_into(b, a);
}

/// Stages of the steps of `record` as they come in `order`, which all edges agree with.
/// `fences`: by step, whether it begins a stage; may be empty.
std::vector<Stage> cut_into_stages(const ScheduleRecord& record, std::span<const StepId> order,
                                   bool parallel, const std::vector<bool>& fences) {
  const std::vector<BufferId> roots = alias_roots(record);
  const auto nested = [&](StepId step) {
    return record.kernels[record.steps[step].kernel].kind == ir::PlanKernel::Kind::Nested;
  };
  std::vector<Stage> stages;
  for (const StepId step : order) {
    const bool joins =
        parallel && !stages.empty() && stages.back().size() < kMaxStageSteps && !nested(step) &&
        !nested(stages.back().front()) && (fences.empty() || !fences[step]) &&
        std::none_of(
            stages.back().begin(), stages.back().end(),
            [&](StepId member) {
              const auto& edges = record.steps[step].edges;
              return std::any_of(edges.begin(), edges.end(),
                                 [&](const ir::PlanEdge& edge) { return edge.from == member; }) ||
                     conflict(record.steps[step], record.steps[member], roots);
            });
    if (joins)
      stages.back().push_back(step);
    else
      stages.push_back({step});
  }
  return stages;
}

/// The same for steps in the order of the record.
std::vector<Stage> cut_into_stages(const ScheduleRecord& record, bool parallel,
                                   const std::vector<bool>& fences) {
  std::vector<StepId> order(record.steps.size());
  std::iota(order.begin(), order.end(), 0);
  return cut_into_stages(record, order, parallel, fences);
}

}  // namespace

namespace {

std::vector<StepId> order_by(Method method, const StepMemory& memory,
                             const std::vector<StepId>& given) {
  switch (method) {
    case Method::Given:
      return given;
    case Method::Lpmf:
      return lpmf_order(memory);
    case Method::Bfs:
      return bfs_order(memory);
    case Method::Dfs:
      break;
  }
  return dfs_order(memory);
}

/// `record` with its steps in `order`.
ScheduleRecord in_order(const ScheduleRecord& record, const std::vector<StepId>& order) {
  std::vector<StepId> position(order.size());
  for (StepId k = 0; k < order.size(); ++k) position[order[k]] = k;
  ScheduleRecord result = record;
  for (StepId k = 0; k < order.size(); ++k) {
    result.steps[k] = record.steps[order[k]];
    for (ir::PlanEdge& edge : result.steps[k].edges) edge.from = position[edge.from];
  }
  return result;
}

/// Which places in `order` begin a stage.
std::vector<bool> fences_in(const std::vector<StepId>& order, std::span<const StepId> fences) {
  if (fences.empty()) return {};
  std::vector<bool> is_fence(order.size(), false);
  for (const StepId fence : fences) is_fence[fence] = true;
  std::vector<bool> result;
  for (const StepId step : order) result.push_back(is_fence[step]);
  return result;
}

std::int64_t staged_peak(const StepMemory& memory, const std::vector<StepId>& order,
                         std::span<const StepId> fences) {
  std::vector<bool> is_fence(fences.empty() ? 0 : order.size(), false);
  for (const StepId fence : fences) is_fence[fence] = true;
  std::vector<std::uint32_t> sizes;
  for (const Stage& stage : cut_into_stages(memory.record(), order, true, is_fence))
    sizes.push_back(static_cast<std::uint32_t>(stage.size()));
  return memory.peak(order, sizes);
}

/// The first of the methods with the smallest peak.
void choose_order(Schedule& result, const StepMemory& memory, const ScheduleOptions& options) {
  const std::vector<StepId> given = result.given;
  for (const Method method : {Method::Given, Method::Lpmf, Method::Bfs, Method::Dfs}) {
    std::vector<StepId> order = order_by(method, memory, given);
    const std::int64_t peak =
        options.parallel_steps ? staged_peak(memory, order, options.fences) : memory.peak(order);
    const bool best = std::all_of(result.peaks.begin(), result.peaks.end(),
                                  [&](const auto& other) { return peak < other.second; });
    result.peaks.emplace_back(method, peak);
    if (!best) continue;
    result.method = method;
    result.given = std::move(order);
  }
}

}  // namespace

Schedule schedule(ScheduleRecord record, const ScheduleOptions& options) {
  Schedule result;
  result.given = topological_order(record);
  const StepMemory memory(record, options.hints);
  if (options.reorder) {
    choose_order(result, memory, options);
  } else {
    result.method = options.method;
    result.given = order_by(options.method, memory, result.given);
  }
  std::vector<StepId> position(result.given.size());
  for (StepId k = 0; k < result.given.size(); ++k) position[result.given[k]] = k;
  std::vector<PlanStep> steps;
  for (const StepId old : result.given) {
    steps.push_back(std::move(record.steps[old]));
    for (ir::PlanEdge& edge : steps.back().edges) edge.from = position[edge.from];
  }
  record.steps = std::move(steps);
  result.stages =
      cut_into_stages(record, options.parallel_steps, fences_in(result.given, options.fences));
  result.record = std::move(record);
  return result;
}

Schedule in_order(Schedule schedule, const std::vector<StepId>& order) {
  schedule.record = in_order(schedule.record, order);
  std::vector<StepId> given;
  for (const StepId step : order) given.push_back(schedule.given[step]);
  schedule.given = std::move(given);
  schedule.stages = cut_into_stages(schedule.record, false, {});
  return schedule;
}

std::vector<std::uint32_t> stage_numbers(const Schedule& schedule) {
  std::vector<std::uint32_t> numbers(schedule.record.steps.size());
  for (std::uint32_t stage = 0; stage < schedule.stages.size(); ++stage)
    for (const StepId step : schedule.stages[stage]) numbers[step] = stage;
  return numbers;
}

void check(const Schedule& schedule) {
  const ScheduleRecord& record = schedule.record;
  std::vector<std::uint32_t> stage_of(record.steps.size(), ir::kNone);
  const auto fail = [&](std::string what, StepId a, StepId b) {
    throw InvariantError(
        {.what = "schedule: " + what,
         .where = fmt::format("{} and {}", step_name(record, a), step_name(record, b)),
         .expected = {},
         .got = {}});
  };
  StepId next = 0;
  for (std::uint32_t s = 0; s < schedule.stages.size(); ++s) {
    for (const StepId step : schedule.stages[s]) {
      if (step != next) fail("stages do not list the steps in order", step, next);
      stage_of[step] = s;
      ++next;
    }
  }
  if (next != record.steps.size()) fail("a step is in no stage", next, next);
  const std::vector<BufferId> roots = alias_roots(record);
  std::vector<bool> written(record.buffers.size(), false);
  for (BufferId b = 0; b < record.buffers.size(); ++b) {
    const auto role = record.buffers[b].role;
    written[b] = role == ir::PlanBuffer::Role::Input || role == ir::PlanBuffer::Role::Parameter ||
                 role == ir::PlanBuffer::Role::Constant;
  }
  for (const Stage& stage : schedule.stages) {
    for (const StepId step : stage) {
      for (const ir::PlanEdge& edge : record.steps[step].edges) {
        if (stage_of[edge.from] >= stage_of[step])
          fail(edge.weak ? "a weak edge does not hold" : "a strong edge does not hold", edge.from,
               step);
      }
      for (const BufferId b : record.steps[step].reads) {
        if (!written[roots[b]])
          fail("nothing wrote " + record.buffers[b].value + " before its reader", step, step);
      }
      for (const StepId other : stage) {
        if (other < step && conflict(record.steps[step], record.steps[other], roots))
          fail("steps of one stage touch the same bytes", other, step);
      }
    }
    for (const StepId step : stage) {
      for (const BufferId b : record.steps[step].writes) written[roots[b]] = true;
    }
  }
}

}  // namespace heddle::scheduler
