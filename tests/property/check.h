// Runs a random program through the engine's parts, with a fault between them if wanted, and judges it.
#pragma once

#include <optional>
#include <string>

#include "engine/executable.h"
#include "tests/property/program.h"

namespace heddle::property {

/// A deliberate mistake.
struct Fault {
  const char* name = "";
  ir::Graph (*graph)(const ir::Graph&) = nullptr;      ///< a pass that is wrong
  ir::Graph (*optimised)(const ir::Graph&) = nullptr;  ///< one behind all others
  void (*program)(jit::Program&) = nullptr;            ///< what lowering got wrong
};

/// The first property that does not hold, with the graph; nothing when all do.
///
///   values      outputs and written inputs have the bits that the reference evaluator gives
///   partition   each marked node is in one region, no region mixes marks, the quotient graph has no
///               cycle, and no two regions of one mark could be merged
///   kernels     no kernel holds nodes of two regions, and a node equal to one of another region stays
///   order       kernels run after what their nodes must run after
///   effects     ops with effects run as often, and in the order, in which the reference evaluator runs them
///   schedule    every edge holds and no step reads what was not written
///   plan        the independent checker proves the plan, and the order of the traced graph (`prove`)
///   memory      no two buffers in use share bytes; freed bytes may be overwritten (step by step, filled)
///   peak        that of the chosen order is not above that of the given one, where all sizes are known before the run
std::optional<std::string> check_program(Program& program, const Fault& fault = {},
                                         bool prove = true);

}  // namespace heddle::property
