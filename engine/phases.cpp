#include "engine/phases.h"

#include <algorithm>

namespace heddle::engine {

Phases::Phases(const jit::Program& program, const scheduler::Schedule& schedule)
    : steps_(static_cast<ir::StepId>(schedule.record.steps.size())) {
  for (ir::StepId step = 0; step < steps_; ++step) {
    const jit::Launch& launch = program.launches[schedule.given[step]];
    if (launch.late_sizes.empty()) continue;
    begin_.push_back(step);
    for (const base::Symbol& symbol : launch.late_sizes) made_in_.emplace(symbol, count() - 1);
  }
  for (const ir::PlanBuffer& buffer : schedule.record.buffers)
    arena_of_.push_back(known_in(buffer.bytes));
  // How much its step needs to work is known when the step is bound.
  for (ir::StepId step = 0; step < steps_; ++step)
    for (const ir::BufferId written : schedule.record.steps[step].writes)
      if (schedule.record.buffers[written].role == ir::PlanBuffer::Role::Workspace)
        arena_of_[written] = phase_of(step);
}

std::uint32_t Phases::phase_of(ir::StepId step) const {
  const auto after = std::upper_bound(begin_.begin(), begin_.end(), step);
  return static_cast<std::uint32_t>(after - begin_.begin()) - 1;
}

std::uint32_t Phases::known_in(const base::SymExpr& size) const {
  std::vector<base::Symbol> symbols;
  if (!made_in_.empty()) size.collect_symbols(symbols);
  std::uint32_t phase = 0;
  for (const base::Symbol& symbol : symbols)
    if (const auto made = made_in_.find(symbol); made != made_in_.end())
      phase = std::max(phase, made->second);
  return phase;
}

std::uint32_t Phases::known_in(const ir::Dims& sizes) const {
  std::uint32_t phase = 0;
  for (const base::SymExpr& size : sizes) phase = std::max(phase, known_in(size));
  return phase;
}

std::vector<ir::StepId> steps_that_make_sizes(const jit::Program& program) {
  std::vector<ir::StepId> steps;
  for (ir::StepId step = 0; step < program.launches.size(); ++step)
    if (!program.launches[step].late_sizes.empty()) steps.push_back(step);
  return steps;
}

}  // namespace heddle::engine
