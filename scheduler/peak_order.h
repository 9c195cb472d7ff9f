// Orders of steps that keep the peak of memory low. Each follows every strong and weak edge.
//
//   LPMF  the ready step that raises the peak least, then the one that leaves least behind, then the first
//   BFS   the ready step whose predecessors ran earliest, then the first
//   DFS   steps by bytes touched, each right after what it needs
#pragma once

#include <vector>

#include "scheduler/step_memory.h"

namespace heddle::scheduler {

enum class Method : std::uint8_t { Given, Lpmf, Bfs, Dfs };
const char* name_of(Method method);

/// The record's edges must be acyclic. Cost: n log n in steps and edges.
std::vector<ir::StepId> lpmf_order(const StepMemory& memory);
std::vector<ir::StepId> bfs_order(const StepMemory& memory);
std::vector<ir::StepId> dfs_order(const StepMemory& memory);

}  // namespace heddle::scheduler
