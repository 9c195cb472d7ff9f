// A proof that a plan computes what its graph says, made from the graph and the schedule record alone: it
// shares no code with what ordered the steps and placed their buffers.
//
//   P1  each edge of the record holds: its first step has ended when the second begins
//   P2  a step finds in a buffer what was written to that buffer last
//   P3  steps that may run together touch no same bytes, unless all of them read
//   P4  a step overwrites an operand only where its kernel may, at the very same address
//   P5  what a step finds is what its nodes read in the graph: the version of it that they mean
//   P6  each after(...) of the graph holds, and lies in one kernel only where data leads to its second node from the first,
//       or from another node that the kernel computes
//   P7  buffers are aliases only of what shares storage in the graph, or of what a custom op writes where its operand lies
//   P8  parameters and constants are never written, arguments only where the graph writes to them or they are donated
//   P9  at the end outputs, and arguments that are written back, hold their values
//   P10 bytes are taken before their first use and given back after the last one, those of donated arguments too
//   P11 the arena holds every buffer
//   P12 collectives begin one after another, in the order of the graph
//   P13 an output lies where an argument does only if that is donated and all its accesses have ended when those of the
//       output begin, but for a kernel that may overwrite the one with the other
//   P14 each node with effects runs in one step, whether anybody reads its results or not
#pragma once

#include <cstdint>
#include <span>

#include "base/symexpr.h"
#include "ir/analysis/happens_before.h"
#include "ir/graph.h"
#include "ir/schedule.h"

namespace heddle::ir {

/// First and last step between which a buffer has its bytes, inclusive; kNone: never.
struct StepRange {
  std::uint32_t first = kNone;
  std::uint32_t last = kNone;
};

/// A plan for concrete sizes, as it is going to be executed.
struct PlanUnderCheck {
  const Graph& graph;            ///< what the steps were made from: kernels name its nodes
  const ScheduleRecord& record;  ///< steps in the order in which they are issued
  const HappensBefore& before;   ///< what the executor guarantees
  const base::SymbolValues& sizes;
  std::span<const BufferId> outputs;  ///< of the graph, in order
  std::span<const std::int64_t>
      offsets;  ///< by buffer: in the arena, in bytes; negative: elsewhere
  std::int64_t arena_bytes = 0;
  std::span<const StepRange> lifetimes{};  ///< by buffer; empty: not checked
  std::span<const SharedPlace> shared{};   ///< what the caller may do
};

/// Cost: n log n in accesses of buffers, and a walk over the inlined nodes of each step.
/// @throws InvariantError with the label, the steps, and the buffers or nodes.
void check_plan(const PlanUnderCheck& plan);

/// P6 of `graph`, another version of `planned` from before some pass: between the nodes whose names kernels still bear.
/// Names that end in a digit are skipped, since passes may have given them to other nodes, but for those of effects,
/// which no pass makes; and so are views.
/// @throws InvariantError.
void check_order(const Graph& graph, const Graph& planned, const ScheduleRecord& record,
                 const HappensBefore& before);

}  // namespace heddle::ir
