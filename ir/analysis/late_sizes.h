// Sizes that only the run tells, where they must be known before.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Checks that what `graph` needs to know before the run is known then.
///
/// @throws TraceError for an assumption about sizes that only the run tells, naming its reason; for a node that
///         uses such a size though no node before it finds it, naming its op and the size.
void check_late_sizes(const Graph& graph);

}  // namespace heddle::ir
