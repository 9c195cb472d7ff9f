#include "engine/plan_check.h"

#include <cstdlib>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "engine/cuda_unit.h"
#include "engine/effect_check.h"
#include "ir/analysis/plan_checker.h"
#include "ir/analysis/plan_nodes.h"
#include "ir/op.h"
#include "jit/lower/region.h"

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

namespace {

/// The steps in the order in which they run, those that are repeated twice, for one half of the entries each, with the bytes that their
/// buffers take: what is there once must not be overwritten in between.
void check_repeats(const Unit& unit, const ir::ScheduleRecord& placed, const BoundSteps& plan) {
  const std::vector<std::uint32_t> numbers = scheduler::stage_numbers(unit.schedule());
  ir::ScheduleRecord record = placed;
  record.steps.clear();
  std::vector<std::uint32_t> stage_of;
  std::vector<memory::EntryPart> parts;
  std::uint32_t stage = 0;
  const auto add = [&](ir::StepId first, ir::StepId last, memory::EntryPart part) {
    for (ir::StepId step = first; step <= last; ++step) {
      if (step != first && numbers[step] != numbers[step - 1]) ++stage;
      record.steps.push_back(placed.steps[step]);
      stage_of.push_back(stage);
      parts.push_back(part);
    }
    ++stage;
  };
  ir::StepId step = 0;
  const auto last = static_cast<ir::StepId>(placed.steps.size());
  for (const memory::Repeat& repeat : plan.repeats) {
    if (step < repeat.first_step) add(step, repeat.first_step - 1, {});
    add(repeat.first_step, repeat.last_step, {0, 2});
    add(repeat.first_step, repeat.last_step, {1, 2});
    step = repeat.last_step + 1;
  }
  if (step < last) add(step, last - 1, {});
  memory::check(record, stage_of, plan.sizes, plan.memory, parts);
}

/// With the bytes that buffers of repeated steps take.
ir::ScheduleRecord as_placed(ir::ScheduleRecord record, const memory::MemoryPlan& memory) {
  for (ir::BufferId b = 0; b < record.buffers.size(); ++b)
    if (const auto once = memory.once_of(b); once.bytes != 0) record.buffers[b].bytes = once.bytes;
  return record;
}

}  // namespace

void check_steps(const Unit& unit, const BoundSteps& plan) {
  const scheduler::Schedule& schedule = unit.schedule();
  const ir::ScheduleRecord record = as_placed(schedule.record, plan.memory);
  if (!plan.repeats.empty()) check_repeats(unit, record, plan);
  std::vector<ir::StepRange> lifetimes;
  for (const memory::Lifetime& life : unit.planner().lifetimes())
    lifetimes.push_back({life.first_step, life.last_step});
  const ir::HappensBefore before = executed_order(unit);
  ir::check_plan({.graph = unit.program().graph,
                  .record = record,
                  .before = before,
                  .sizes = plan.sizes,
                  .outputs = unit.program().outputs,
                  .offsets = plan.memory.offsets,
                  .arena_bytes = plan.memory.peak_bytes,
                  .lifetimes = lifetimes,
                  .shared = unit.shared_places()});
}

namespace {

/// Graphs that were compared with units.
using Compared = std::set<std::pair<const ir::Graph*, const Unit*>>;

/// The step of `unit` that runs the graphs nested in `node`; none where its name has become another node's.
std::optional<std::uint32_t> nested_kernel(const ir::Node& node, const Unit& unit,
                                           const ir::PlanNodes& nodes) {
  const ir::Node* now = nodes.named(node.name());
  if (now == nullptr || &now->op() != &node.op()) return std::nullopt;
  for (const ir::StepId step : nodes.computing(now)) {
    const std::uint32_t kernel = unit.schedule().record.steps[step].kernel;
    if (!unit.nested(kernel).empty()) return kernel;
  }
  return std::nullopt;
}

/// Order of `graph` and of what is nested in it, in `unit` and what is nested in that.
void check_order(const ir::Graph& graph, const Unit& unit, Compared& done) {
  if (!done.emplace(&graph, &unit).second) return;
  const ir::ScheduleRecord& record = unit.schedule().record;
  const ir::PlanNodes nodes(unit.program().graph, record);
  ir::check_order(graph, unit.program().graph, record, executed_order(unit));
  for (const ir::NodePtr& node : graph.nodes()) {
    if (!node->op().lowering.region) continue;
    const auto kernel = nested_kernel(*node, unit, nodes);
    if (!kernel) continue;
    const auto names = jit::region_names(*node->op().lowering.region);
    for (std::size_t k = 0; k < names.size(); ++k)
      check_order(node->graph(names[k]), *unit.nested(*kernel)[k], done);
  }
}

}  // namespace

void check_orders(const Executable& executable, bool as_traced) {
  Compared done;
  check_effects(executable.optimised(), executable.unit());
  if (as_traced) check_effects(executable.traced(), executable.unit());
  for (const ir::Graph* graph : {&executable.traced(), &executable.optimised()})
    check_order(*graph, executable.unit(), done);
}

}  // namespace heddle::engine
