#include "engine/run_events.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <map>

#include "engine/engine_impl.h"
#include "heddle/error.h"

namespace heddle {

namespace engine {

namespace {

/// What freed bytes are overwritten with: a NaN in every floating dtype.
constexpr int kFreed = 0xff;

/// Buffers of the arena that own their bytes, in the order in which they are numbered.
std::vector<ir::BufferId> owners(const BoundPlan& plan) {
  const auto roots = plan.executable->planner().roots();
  std::vector<ir::BufferId> buffers;
  for (ir::BufferId b = 0; b < roots.size(); ++b)
    if (roots[b] == b && plan.memory.offsets[b] != memory::kNotInArena) buffers.push_back(b);
  return buffers;
}

std::int64_t bytes_of(const BoundPlan& plan, ir::BufferId buffer) {
  return plan.executable->schedule().record.buffers[buffer].bytes.evaluate(plan.sizes);
}

/// Whether other live buffers lie in the bytes of `freed`: a result took its place in the same step.
bool in_use(const BoundPlan& plan, ir::BufferId freed, std::size_t step) {
  const auto lifetimes = plan.executable->planner().lifetimes();
  const std::int64_t begin = plan.memory.offsets[freed];
  const std::int64_t end = begin + bytes_of(plan, freed);
  const auto all = owners(plan);
  return std::any_of(all.begin(), all.end(), [&](ir::BufferId other) {
    const bool live = lifetimes[other].first_step <= step && lifetimes[other].last_step > step;
    const std::int64_t offset = plan.memory.offsets[other];
    return other != freed && live && offset < end && begin < offset + bytes_of(plan, other);
  });
}

}  // namespace

std::vector<std::string> names_of_kernels(const ir::ScheduleRecord& record) {
  std::map<std::string, int> seen;
  std::vector<std::string> names;
  for (const ir::PlanKernel& kernel : record.kernels) {
    const int before = seen[kernel.name]++;
    names.push_back(before == 0 ? kernel.name : fmt::format("{}_{}", kernel.name, before));
  }
  return names;
}

namespace {

/// An event and the buffer that it is about; kNone for a launch.
struct PlannedEvent {
  RunEvent event;
  ir::BufferId buffer = ir::kNone;
};

std::vector<PlannedEvent> planned_events(const BoundPlan& plan) {
  const ir::ScheduleRecord& record = plan.executable->schedule().record;
  const auto lifetimes = plan.executable->planner().lifetimes();
  std::vector<std::vector<ir::BufferId>> taken(record.steps.size());
  std::vector<std::vector<ir::BufferId>> freed(record.steps.size());
  for (const ir::BufferId b : owners(plan)) {
    taken[lifetimes[b].first_step].push_back(b);
    freed[lifetimes[b].last_step].push_back(b);
  }
  const std::vector<std::string> names = names_of_kernels(record);
  std::vector<PlannedEvent> events;
  const auto add = [&](RunEvent::Kind kind, std::size_t step, const auto& buffers) {
    for (const ir::BufferId b : buffers)
      events.push_back({{kind, step, record.buffers[b].value, bytes_of(plan, b)}, b});
  };
  for (std::size_t step = 0; step < record.steps.size(); ++step) {
    add(RunEvent::Kind::Alloc, step, taken[step]);
    events.push_back({{RunEvent::Kind::Launch, step, names[record.steps[step].kernel], 0}});
    add(RunEvent::Kind::Free, step, freed[step]);
  }
  return events;
}

}  // namespace

std::vector<RunEvent> events_of(const BoundPlan& plan) {
  std::vector<RunEvent> events;
  for (PlannedEvent& planned : planned_events(plan)) events.push_back(std::move(planned.event));
  return events;
}

}  // namespace engine

std::vector<RunEvent> Engine::Impl::run_traced(const engine::BoundPlan& plan,
                                               std::span<const Tensor> inputs,
                                               std::span<const Tensor> outputs) {
  std::vector<RunEvent> events;
  execute_with(plan, inputs, outputs, [&](engine::ExecutionContext& context) {
    std::int32_t status = 0;
    for (engine::PlannedEvent& planned : engine::planned_events(plan)) {
      const auto step = static_cast<std::uint32_t>(planned.event.step);
      if (planned.event.kind == RunEvent::Kind::Launch) {
        const scheduler::BoundStage alone{step, 1};
        status = executor.run(context.steps(), {&alone, 1});
      } else if (planned.event.kind == RunEvent::Kind::Free &&
                 !engine::in_use(plan, planned.buffer, step)) {
        std::memset(context.arena() + plan.memory.offsets[planned.buffer], engine::kFreed,
                    static_cast<std::size_t>(planned.event.bytes));
      }
      events.push_back(std::move(planned.event));
      if (status != 0) break;
    }
    return status;
  });
  return events;
}

std::vector<RunEvent> Engine::run_trace(std::span<const Tensor> inputs,
                                        std::vector<Tensor>* outputs) {
  if (impl_->options.device.kind() != Device::Kind::Cpu)
    throw DeviceError({.what = "run_trace",
                       .where = {},
                       .expected = "cpu, whose steps run one by one in memory of the host",
                       .got = impl_->options.device.to_string()});
  const engine::Reclaimer::Reader reader(impl_->plans.reclaimer());
  const engine::BoundPlan& plan = impl_->plan_for(inputs);
  std::vector<Tensor> results = impl_->make_outputs(plan);
  std::vector<RunEvent> events = impl_->run_traced(plan, inputs, results);
  if (outputs != nullptr) *outputs = std::move(results);
  return events;
}

}  // namespace heddle
