// Steps of a unit that are run for some entries of a batch after others (engine/batch_runs.h).
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/batch_choice.h"
#include "engine/batch_runs.h"
#include "engine/chains.h"
#include "engine/unit.h"

namespace heddle::engine {

using ir::BufferId;
using ir::PlanBuffer;

/// Where an argument's memory may be overwritten, steps keep the order of the schedule.
void Unit::find_batches() {
  const ir::ScheduleRecord& record = schedule_.record;
  if (record.batch && cuda_ == nullptr && cache_bytes_ != 0 &&
      std::ranges::none_of(record.buffers, &PlanBuffer::donated))
    batch_choice_ = std::make_unique<BatchChoice>(schedule_, phases_, *planner_,
                                                  program_.graph.assumptions(), cache_bytes_);
}

void Unit::bind_batch(const memory::Repeat& repeat, BoundSteps& plan) const {
  auto batch = std::make_unique<BoundBatch>();
  batch->first = repeat.first_step - plan.first_step;
  batch->times = plan.sizes.at(*schedule_.record.batch) / repeat.sizes.at(*schedule_.record.batch);
  batch->steps = std::make_unique<BoundSteps>();
  BoundSteps& inside = *batch->steps;
  const std::size_t count = repeat.last_step + 1 - repeat.first_step;
  inside.unit = this;
  inside.threads = plan.threads;
  inside.first_step = repeat.first_step;
  inside.sizes = plan.sizes;
  inside.sizes[*schedule_.record.batch] = repeat.sizes.at(*schedule_.record.batch);
  inside.step_sizes.resize(count);
  inside.library.resize(count);
  inside.custom.resize(count);
  inside.regions.resize(count);
  const base::ExprTable::Values numbers = values(inside.sizes);
  bind_library(repeat.first_step, repeat.last_step + 1, numbers, batch->times, inside);
  scheduler::BoundStep all{};
  all.run_alone = run_batch;
  all.extent = 0;
  const std::size_t first_address = plan.table.size();
  for (ir::StepId step = repeat.first_step; step <= repeat.last_step; ++step) {
    inside.steps.push_back(bind_step(step, numbers, inside));
    all.work += inside.steps.back().work * batch->times;
    all.scratch_bytes = std::max(all.scratch_bytes, inside.steps.back().scratch_bytes);
    inside.table_start.push_back(static_cast<std::uint32_t>(plan.table.size() - first_address));
    bind_addresses(step, plan);
    for (std::uint32_t k = recipes_[step].first_address; k < recipes_[step + 1].first_address; ++k)
      batch->moves.push_back(move_of(addresses_[k].root, numbers, plan));
  }
  HD_CHECK(plan.table.size() - first_address == batch->moves.size());
  inside.table.assign(plan.table.begin() + static_cast<std::ptrdiff_t>(first_address),
                      plan.table.end());
  for (std::uint32_t k = repeat.first_stage; k <= repeat.last_stage; ++k)
    if (const scheduler::Stage& stage = schedule_.stages[k]; !stage.empty())
      inside.stages.push_back(
          {stage.front() - repeat.first_step, static_cast<std::uint32_t>(stage.size())});
  make_library_ready(inside);
  batch->workers = static_cast<int>(repeat.workers);
  tile_alone(*batch);
  plan.steps.push_back(all);
  plan.steps.resize(plan.steps.size() + count - 1, {.extent = 0});  // the first one runs them
  plan.batches.push_back(std::move(batch));
}

/// Steps of one worker take turns for the entries of one time, too.
void Unit::tile_alone(BoundBatch& batch) const {
  BoundSteps& inside = *batch.steps;
  const std::vector<scheduler::BoundStage> shared = inside.stages;
  const int threads = std::exchange(inside.threads, 1);
  tile_chains(inside, cache_bytes_);
  if (check_plans_) check_chains(inside);
  make_library_ready(inside);
  inside.threads = threads;
  batch.alone = std::exchange(inside.stages, shared);
}

/// Where the bytes of a buffer that repeated steps use lie the next time, and for the next worker.
BoundBatch::Move Unit::move_of(BufferId root, const base::ExprTable::Values& once,
                               const BoundSteps& plan) const {
  const PlanBuffer& buffer = schedule_.record.buffers[root];
  if (!buffer.bytes.mentions(*schedule_.record.batch)) return {};
  const memory::MemoryPlan::Once own = plan.memory.once_of(root);
  return own.bytes != 0 ? BoundBatch::Move{0, own.worker_bytes}
                        : BoundBatch::Move{buffer_bytes(root, once), 0};
}

}  // namespace heddle::engine
