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

/// Checks the rules
///   V1  operands are defined before their use
///   V2  after(...) names nodes above
///   V3  names are unique
///   V4  attributes follow the schema
///   V5  metadata is what inference gives, under the graph's assumptions
///   V6  nothing mutates before Stage::Reinplaced
///   V7  a view has its operand's storage, everything else one of its own
///   V8  outputs are defined
///   V9  write-backs go from values of the graph to inputs that they fit
///   V10 inference assumes nothing that the graph does not record
///   V11 a value is not read once its storage was overwritten, but by the call that overwrites it
///   V12 what is overwritten is an intermediate value or an argument, whole and row-major
/// here and in nested graphs.
/// @param known  a graph that obeys them, null for none: the metadata of nodes that it has is not inferred again.
/// @throws InvariantError naming `after_pass`, the node and the rule.
void verify(const Graph& graph, Stage stage, std::string_view after_pass = {},
            const Graph* known = nullptr);

/// The same without V5 and V10, which take most of the time: for nodes whose metadata a builder inferred.
void verify_structure(const Graph& graph, Stage stage, std::string_view after_pass = {});

}  // namespace heddle::ir
