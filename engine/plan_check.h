// Bound plans handed to the independent checker.
#pragma once

#include "engine/executable.h"

namespace heddle::engine {

/// Whether each plan is to be proved when it is bound: EngineOptions::check_plans, or HEDDLE_CHECK_PLANS=1.
bool wants_check(const EngineOptions& options);

/// Proves the steps of `unit` as `plan` is going to run them, some again and again; those nested in them prove themselves.
/// @throws InvariantError (ir/analysis/plan_checker.h).
void check_steps(const Unit& unit, const BoundSteps& plan);

/// Proves that order edges of the graph as traced, and after its passes, hold between what is left of it, also in nested
/// bodies; and that the steps have all its effects.
/// @param as_traced  no pass of the embedder's may have changed what the traced graph does
/// @throws InvariantError.
void check_orders(const Executable& executable, bool as_traced);

}  // namespace heddle::engine
