#include "engine/plan_check.h"

#include <cstdlib>
#include <string_view>

#include "engine/cuda_unit.h"
#include "ir/analysis/plan_checker.h"

namespace heddle::engine {

namespace {

ir::HappensBefore executed_order(const Unit& unit) {
  const scheduler::Schedule& schedule = unit.schedule();
  if (unit.cuda() != nullptr)
    return ir::HappensBefore::on_streams(schedule.record, unit.cuda()->streams().waits_for);
  return ir::HappensBefore::in_stages(scheduler::stage_numbers(schedule));
}

}  // namespace

bool wants_check(const EngineOptions& options) {
  if (options.check_plans) return true;
  const char* text = std::getenv("HEDDLE_CHECK_PLANS");
  return text != nullptr && *text != '\0' && std::string_view(text) != "0";
}

void check_steps(const Unit& unit, const BoundSteps& plan) {
  const scheduler::Schedule& schedule = unit.schedule();
  std::vector<ir::StepRange> lifetimes;
  for (const memory::Lifetime& life : unit.planner().lifetimes())
    lifetimes.push_back({life.first_step, life.last_step});
  const ir::HappensBefore before = executed_order(unit);
  ir::check_plan({.graph = unit.program().graph,
                  .record = schedule.record,
                  .before = before,
                  .sizes = plan.sizes,
                  .outputs = unit.program().outputs,
                  .offsets = plan.memory.offsets,
                  .arena_bytes = plan.memory.peak_bytes,
                  .lifetimes = lifetimes,
                  .shared = unit.shared_places()});
}

void check_orders(const Executable& executable) {
  const scheduler::Schedule& schedule = executable.schedule();
  const ir::HappensBefore before = executed_order(executable.unit());
  for (const ir::Graph* graph : {&executable.traced(), &executable.optimised()})
    ir::check_order(*graph, schedule.record, before);
}

}  // namespace heddle::engine
