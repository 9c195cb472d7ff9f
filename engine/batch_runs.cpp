#include "engine/batch_runs.h"

#include <algorithm>
#include <optional>
#include <span>

#include "base/check.h"
#include "engine/failure.h"
#include "engine/nested_clock.h"
#include "engine/unit.h"
#include "heddle/error.h"
#include "jit/footprint.h"
#include "scheduler/stop.h"

namespace heddle::engine {

using ir::BufferId;
using ir::StepId;

BatchFrame::BatchFrame(const BoundBatch& batch) : batch_(batch) {
  workers_.resize(static_cast<std::size_t>(batch.workers));
  for (Worker& worker : workers_) {
    worker.table.resize(batch.moves.size());
    worker.steps = batch.steps->steps;
    for (std::size_t k = 0; k < worker.steps.size(); ++k)
      worker.steps[k].buffers = worker.table.data() + batch.steps->table_start[k];
  }
}

/// Where the addresses of the steps begin, and their scratch memory.
void BatchFrame::begin(const scheduler::BoundStep& step) {
  stopped_.store(false, std::memory_order_relaxed);
  addresses_ = step.buffers;
  for (Worker& worker : workers_) {
    for (scheduler::BoundStep& own : worker.steps) {
      own.scratch = step.scratch;
      own.scratch_stride = step.scratch_stride;
      own.request = step.request;
    }
  }
}

void BatchFrame::put(std::int64_t time, std::size_t worker) {
  Worker& own = workers_[worker];
  for (std::size_t k = 0; k < own.table.size(); ++k) {
    const BoundBatch::Move& move = batch_.moves[k];
    own.table[k] = static_cast<char*>(addresses_[k]) + move.time_bytes * time +
                   move.worker_bytes * static_cast<std::int64_t>(worker);
  }
}

/// Runs the steps on this thread.
std::int32_t BatchFrame::run_time(std::int64_t time, int worker) {
  put(time, static_cast<std::size_t>(worker));
  std::int32_t status = 0;
  const std::vector<scheduler::BoundStep>& steps = workers_[static_cast<std::size_t>(worker)].steps;
  for (const scheduler::BoundStage& stage : batch_.alone) {
    for (std::uint32_t k = stage.first; k < stage.first + stage.count; ++k) {
      const scheduler::Iterations part = scheduler::piece_of(steps[k].extent, stage, 0, 1);
      if (part.size() > 0) steps[k].run(steps[k], part.begin, part.end, worker, &status);
      if (status != 0) return status;
    }
  }
  return 0;
}

void BatchFrame::run_times(const scheduler::BoundStep& step, std::int64_t begin, std::int64_t end,
                           int worker, std::int32_t* status) {
  auto& frame = *static_cast<BatchFrame*>(step.state);
  for (std::int64_t time = begin; time < end && *status == 0; ++time) {
    // The caller's thread, which has the number 0, knows what asks it to stop.
    if (const std::stop_token* stop = scheduler::watched_stop();
        stop != nullptr && stop->stop_requested())
      frame.stopped_.store(true, std::memory_order_relaxed);
    if (frame.stopped_.load(std::memory_order_relaxed)) return;
    *status = frame.run_time(time, worker);
  }
}

/// As many times as workers share evenly, each by one of them; then what is left, one after another by all.
std::int32_t BatchFrame::run(const scheduler::BoundStep& step, scheduler::Executor& executor) {
  begin(step);
  const auto workers = static_cast<std::int64_t>(workers_.size());
  const std::span<const scheduler::BoundStep> steps = workers_[0].steps;
  if (NestedClock* clock = NestedClock::current()) [[unlikely]] {
    for (std::int64_t time = 0; time < batch_.times; ++time) {
      put(time, 0);
      if (const std::int32_t status = clock->run(*batch_.steps, steps, executor)) return status;
    }
    return 0;
  }
  scheduler::BoundStep all{};
  all.run = run_times;
  all.state = this;
  all.extent = batch_.times - batch_.times % workers;
  all.work = step.work / batch_.times * all.extent;
  const scheduler::BoundStage stage{0, 1};
  if (const std::int32_t status = executor.run({&all, 1}, {&stage, 1})) return status;
  scheduler::end_if_stopped();
  for (std::int64_t time = all.extent; time < batch_.times; ++time) {
    put(time, 0);
    if (const std::int32_t status = executor.run(steps, batch_.steps->stages)) return status;
  }
  return 0;
}

void run_batch(const scheduler::BoundStep& step, scheduler::Executor& executor,
               std::int32_t* status) {
  try {
    *status = static_cast<BatchFrame*>(step.state)->run(step, executor);
  } catch (...) {
    static_cast<Failure*>(step.request)->store(std::current_exception());
    *status = kFailed;
  }
}

namespace {

/// Each step's bytes lie one entry behind the other, and a time touches those of its own alone.
void check_entries(const BoundBatch& batch, const base::ExprTable::Values& all) {
  const BoundSteps& once = *batch.steps;
  const Unit& unit = *once.unit;
  const base::ExprTable::Values values = unit.values(once.sizes);
  std::size_t at = 0;
  for (std::uint32_t k = 0; k < once.steps.size(); ++k) {
    const StepId step = once.first_step + k;
    const ir::PlanStep& planned = unit.schedule().record.steps[step];
    const jit::Launch& launch = unit.program().launches[unit.schedule().given[step]];
    const jit::Interval whole{0, once.steps[k].extent - 1};
    std::optional<std::vector<jit::Touched>> touched;
    if (unit.program().kernels[planned.kernel].nest != nullptr)
      touched = unit.footprints(step).at(once.step_sizes[k]).of({&whole, 1});
    else
      touched = once.library[k]->touched(0, once.steps[k].extent);
    for (std::size_t b = 0; b < launch.buffers.size(); ++b, ++at) {
      const BoundBatch::Move& move = batch.moves[at];
      const std::int64_t bytes = unit.buffer_bytes(launch.buffers[b], values);
      const bool moves = move.time_bytes != 0 || move.worker_bytes != 0;
      HD_CHECK(unit.buffer_bytes(launch.buffers[b], all) == bytes * (moves ? batch.times : 1),
               "entries of a batch do not lie one behind the other");
      HD_CHECK(!moves || move.worker_bytes >= bytes || move.time_bytes == bytes,
               "an entry's bytes are where another one's are");
      if (!touched) continue;
      HD_CHECK(moves || (*touched)[b].written.is_empty(), "every time writes the same bytes");
      for (const jit::Interval& part : {(*touched)[b].read, (*touched)[b].written})
        HD_CHECK(part.is_empty() || !moves || (part.low >= 0 && part.high < bytes),
                 "a time touches bytes of another one");
    }
  }
}

/// The workers' arenas hold what is theirs, and nothing else while the steps run.
void check_arenas(const memory::Repeat& repeat, const BoundSteps& plan,
                  const base::ExprTable::Values& all) {
  const Unit& unit = *plan.unit;
  const memory::MemoryPlan& memory = plan.memory;
  std::vector<BufferId> inside, others;
  for (BufferId b = 0; b < memory.offsets.size(); ++b) {
    if (memory.offsets[b] == memory::kNotInArena || unit.planner().roots()[b] != b) continue;
    const memory::Lifetime life = unit.planner().chain_lifetime(b);
    if (life.last_step < repeat.first_step || life.first_step > repeat.last_step) continue;
    (memory.once_of(b).bytes != 0 ? inside : others).push_back(b);
  }
  if (inside.empty()) return;
  const std::int64_t begin = memory.offsets[*std::ranges::min_element(
      inside, {}, [&](BufferId b) { return memory.offsets[b]; })];
  const std::int64_t worker_bytes = memory.once_of(inside[0]).worker_bytes;
  for (const BufferId b : inside)
    HD_CHECK(memory.once_of(b).worker_bytes == worker_bytes &&
                 memory.offsets[b] + memory.once_of(b).bytes <= begin + worker_bytes,
             "a worker's bytes are another one's");
  for (const BufferId b : others)
    HD_CHECK(memory.offsets[b] >= begin + worker_bytes * repeat.workers ||
                 memory.offsets[b] + unit.buffer_bytes(b, all) <= begin,
             "a worker's bytes are used by others");
}

}  // namespace

void check_batches(const BoundSteps& plan) {
  const base::ExprTable::Values all = plan.unit->values(plan.sizes);
  for (const auto& batch : plan.batches) check_entries(*batch, all);
  const auto end = plan.first_step + static_cast<StepId>(plan.steps.size());
  for (const memory::Repeat& repeat : plan.repeats)
    if (repeat.first_step >= plan.first_step && repeat.first_step < end)
      check_arenas(repeat, plan, all);
}

}  // namespace heddle::engine
