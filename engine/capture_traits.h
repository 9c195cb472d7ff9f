// What the capture partitioner asks about the steps of a lowered graph.
#pragma once

#include <vector>

#include "ir/meta.h"
#include "jit/program.h"
#include "scheduler/capture.h"

namespace heddle::engine {

/// Traits of each step of `program.record`, from the nodes that it computes.
///
/// @param device  the one that captures: steps whose results lie elsewhere are not on it.
std::vector<scheduler::StepTraits> capture_traits(const jit::Program& program,
                                                  ir::DeviceTag device);

}  // namespace heddle::engine
