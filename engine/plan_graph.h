// Graphs as parts of the plan document.
#pragma once

#include "base/json.h"
#include "ir/nested_graphs.h"

namespace heddle::engine {

/// The graph and all that are nested in it, the outermost first:
/// [{name, inputs[value], outputs[{value, label}], write_backs[{target, source}],
///   nodes[{name, names[value], op, inputs[value], after[value], region, text, label}]}].
/// `text` is the node's line in IR text, with types; inputs that have a label have `label`.
/// @param nested  what lies in `graph`
base::Json graphs_json(const ir::Graph& graph, const ir::NestedGraphs& nested);

}  // namespace heddle::engine
