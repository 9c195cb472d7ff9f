// Where a schedule waits for sizes: steps whose results have sizes known only at run time part it into phases.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "jit/program.h"
#include "scheduler/order.h"

namespace heddle::engine {

/// The steps of a unit in phases. A phase begins with a step that makes sizes known: they are found from what is
/// there when the phase before has run, and then the steps of the phase are bound.
class Phases {
 public:
  /// One phase, of everything.
  Phases() = default;
  Phases(const jit::Program& program, const scheduler::Schedule& schedule);

  std::uint32_t count() const { return static_cast<std::uint32_t>(begin_.size()); }
  bool is_last(std::uint32_t phase) const { return phase + 1 == count(); }
  /// First step of a phase; of the one after the last: the number of steps.
  ir::StepId begin(std::uint32_t phase) const {
    return phase < begin_.size() ? begin_[phase] : steps_;
  }
  std::uint32_t phase_of(ir::StepId step) const;
  /// The first phase in which all of these sizes are known.
  std::uint32_t known_in(const base::SymExpr& size) const;
  std::uint32_t known_in(const ir::Dims& sizes) const;
  /// By buffer: the phase in whose arena it lies, the first that knows its bytes.
  std::span<const std::uint32_t> arena_of() const { return arena_of_; }

 private:
  std::vector<ir::StepId> begin_{0};
  ir::StepId steps_ = 0;
  std::map<base::Symbol, std::uint32_t> made_in_;
  std::vector<std::uint32_t> arena_of_;
};

/// Steps of the program that make sizes known.
std::vector<ir::StepId> steps_that_make_sizes(const jit::Program& program);

}  // namespace heddle::engine
