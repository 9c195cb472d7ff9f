#include "engine/run_events.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <map>

#include "base/check.h"
#include "engine/engine_impl.h"
#include "heddle/error.h"

namespace heddle {

namespace engine {

namespace {

/// What freed bytes are overwritten with: a NaN in every floating dtype.
constexpr unsigned char kFreed = 0xff;

/// Buffers of arenas that own their bytes, in the order in which they are numbered; not those that take another's in
/// place.
std::vector<ir::BufferId> owners(const Unit& unit) {
  const auto roots = unit.planner().roots();
  const auto& record = unit.schedule().record;
  std::vector<ir::BufferId> buffers;
  for (ir::BufferId b = 0; b < roots.size(); ++b) {
    const ir::PlanBuffer::Role role = record.buffers[b].role;
    const bool in_arena =
        role == ir::PlanBuffer::Role::Intermediate || role == ir::PlanBuffer::Role::Workspace;
    const bool owns = roots[b] == b && unit.planner().taken_from()[b] == ir::kNone;
    if (owns && in_arena && unit.planner().lifetimes()[b].first_step != ir::kNone)
      buffers.push_back(b);
  }
  return buffers;
}

bool is_placed(const BoundSteps& plan, ir::BufferId buffer) {
  return plan.memory.offsets[buffer] != memory::kNotInArena;
}

std::int64_t bytes_of(const BoundSteps& plan, ir::BufferId buffer) {
  const ir::PlanBuffer& planned = plan.unit->schedule().record.buffers[buffer];
  if (!planned.donated && !is_placed(plan, buffer)) return kUnknownSize;
  if (const auto once = plan.memory.once_of(buffer); once.bytes != 0) return once.bytes;
  return planned.bytes.evaluate(plan.sizes);
}

/// What a run gives back: buffers of arenas, and donated arguments.
std::vector<ir::BufferId> freed_buffers(const Unit& unit) {
  std::vector<ir::BufferId> buffers = owners(unit);
  const auto& record = unit.schedule().record;
  for (ir::BufferId b = 0; b < record.buffers.size(); ++b)
    if (record.buffers[b].donated) buffers.push_back(b);
  std::ranges::sort(buffers);
  return buffers;
}

/// Whether other live buffers lie in the bytes of `freed`.
bool in_use(const BoundSteps& plan, ir::BufferId freed, std::size_t step) {
  const memory::Planner& planner = plan.unit->planner();
  const std::int64_t begin = plan.memory.offsets[freed];
  const std::int64_t end = begin + bytes_of(plan, freed);
  const auto all = owners(*plan.unit);
  return std::any_of(all.begin(), all.end(), [&](ir::BufferId other) {
    const memory::Lifetime life = planner.chain_lifetime(other);
    const bool live = life.first_step <= step && life.last_step > step;
    const std::int64_t offset = plan.memory.offsets[other];
    return other != freed && live && is_placed(plan, other) && offset < end &&
           begin < offset + bytes_of(plan, other);
  });
}

}  // namespace

const ir::Node* argument_of(const ir::Graph& graph, std::uint32_t position) {
  for (const ir::Value& input : graph.inputs())
    if (input.node->op_name() == "input" && position-- == 0) return input.node;
  HD_CHECK(false, graph.name());
  return nullptr;
}

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

/// Of the steps of `plan` from `begin` to before `end`, which may be of later phases.
std::vector<PlannedEvent> planned_events(const BoundSteps& plan, std::size_t begin,
                                         std::size_t end) {
  const ir::ScheduleRecord& record = plan.unit->schedule().record;
  const memory::Planner& planner = plan.unit->planner();
  std::vector<std::vector<ir::BufferId>> taken(record.steps.size());
  std::vector<std::vector<ir::BufferId>> freed(record.steps.size());
  std::vector<ir::BufferId> unused;
  for (const ir::BufferId b : owners(*plan.unit))
    taken[planner.chain_lifetime(b).first_step].push_back(b);
  for (const ir::BufferId b : freed_buffers(*plan.unit)) {
    const std::uint32_t last = planner.chain_lifetime(b).last_step;
    (last != ir::kNone ? freed[last] : unused).push_back(b);
  }
  const std::vector<std::string> names = names_of_kernels(record);
  std::vector<PlannedEvent> events;
  const auto add = [&](RunEvent::Kind kind, std::size_t step, const auto& buffers) {
    for (const ir::BufferId b : buffers)
      events.push_back({{kind, step, record.buffers[b].value, bytes_of(plan, b)}, b});
  };
  if (begin == 0) add(RunEvent::Kind::Free, 0, unused);
  for (std::size_t step = begin; step < end; ++step) {
    add(RunEvent::Kind::Alloc, step, taken[step]);
    events.push_back({{RunEvent::Kind::Launch, step, names[record.steps[step].kernel], 0}});
    add(RunEvent::Kind::Free, step, freed[step]);
  }
  return events;
}

}  // namespace

std::vector<RunEvent> events_of(const BoundPlan& plan) {
  std::vector<RunEvent> events;
  const std::size_t steps = plan.unit->schedule().record.steps.size();
  for (PlannedEvent& planned : planned_events(plan, 0, steps))
    events.push_back(std::move(planned.event));
  return events;
}

namespace {

/// Where the bytes of a buffer lie that is given back; null where others lie there, or they are not known to be all its own.
void* place_to_overwrite(const Frame& frame, const PlannedEvent& planned) {
  const BoundSteps& plan = frame.plan();
  const ir::PlanBuffer& buffer = plan.unit->schedule().record.buffers[planned.buffer];
  if (!buffer.donated)
    return in_use(plan, planned.buffer, planned.event.step)
               ? nullptr
               : frame.at(plan.memory.offsets[planned.buffer]);
  const ir::Node* argument = argument_of(plan.unit->program().graph, buffer.position);
  return argument->output().is_row_major() ? frame.input(buffer.position) : nullptr;
}

}  // namespace

std::int32_t run_step_by_step(Frame& frame, StepRunner& runner, std::vector<RunEvent>& events) {
  const BoundSteps& plan = frame.plan();
  std::int32_t status = 0;
  const std::size_t end = plan.first_step + plan.steps.size();
  for (PlannedEvent& planned : planned_events(plan, plan.first_step, end)) {
    if (planned.event.kind == RunEvent::Kind::Launch) {
      status = runner.run_step(frame, planned.event.step - plan.first_step);
    } else if (planned.event.kind == RunEvent::Kind::Free) {
      if (void* place = place_to_overwrite(frame, planned))
        runner.overwrite(place, kFreed, static_cast<std::size_t>(planned.event.bytes));
    }
    events.push_back(std::move(planned.event));
    if (status != 0) break;
  }
  return status;
}

namespace {

class HostRunner : public StepRunner {
 public:
  explicit HostRunner(scheduler::Executor& executor) : executor_(executor) {}
  std::int32_t run_step(Frame& frame, std::size_t step) override {
    const scheduler::BoundStage alone{static_cast<std::uint32_t>(step), 1};
    return executor_.run(frame.steps(), {&alone, 1});
  }
  void overwrite(void* memory, unsigned char value, std::size_t bytes) override {
    if (bytes != 0) std::memset(memory, value, bytes);
  }

 private:
  scheduler::Executor& executor_;
};

}  // namespace
}  // namespace engine

std::vector<RunEvent> Engine::Impl::run_traced(const engine::BoundPlan& plan,
                                               std::span<const Tensor> inputs,
                                               std::span<Tensor> outputs) {
  std::vector<RunEvent> events;
  if (cuda != nullptr) {
    execute_on_device(plan, inputs, outputs, &events);
    return events;
  }
  engine::HostRunner runner(executor);
  execute_with(plan, inputs, outputs, [&](engine::ExecutionContext& context) {
    return engine::run_phases(context.frame(), executor, [&](engine::Frame& frame) {
      return engine::run_step_by_step(frame, runner, events);
    });
  });
  return events;
}

std::vector<RunEvent> Engine::run_trace(std::span<const Tensor> inputs,
                                        std::vector<Tensor>* outputs) {
  if (impl_->options.device.kind() == Device::Kind::Reference)
    throw DeviceError({.what = "run_trace",
                       .where = {},
                       .expected = "a device whose steps are compiled: cpu or cuda",
                       .got = impl_->options.device.to_string()});
  const engine::Reclaimer::Reader reader(impl_->plans.reclaimer());
  std::vector<RunEvent> events;
  std::vector<Tensor> results = impl_->run_by(
      inputs, nullptr,
      [&](const engine::BoundPlan& plan, std::span<const Tensor> given, std::vector<Tensor>*) {
        std::vector<Tensor> made = impl_->make_outputs(plan, nullptr);
        events = impl_->run_traced(plan, given, made);
        return made;
      });
  if (outputs != nullptr) *outputs = std::move(results);
  return events;
}

}  // namespace heddle
