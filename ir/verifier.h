// Rules that graphs obey between passes.
#pragma once

#include <string_view>

#include "ir/graph.h"

namespace heddle::ir {

/// How far a graph has come; later stages allow what earlier ones forbid.
enum class Stage : std::uint8_t {
  Traced,      ///< as traced: functional; writes only as write_backs
  Functional,  ///< between passes: as traced, composite ops may be gone
  Reinplaced,  ///< after reinplace: ops may overwrite dying operands
};

/// Checks order, schema, metadata (as infer would give), names, order edges without cycles, storage ids
/// (views share, others do not), and that nothing mutates before Stage::Reinplaced.
/// @throws InvariantError naming the node and the rule (V1 …); CycleError listing the cycle.
void verify(const Graph& graph, Stage stage, std::string_view after_pass = {});

}  // namespace heddle::ir
