// What of a graph its caller can see.
#pragma once

#include <set>

#include "ir/graph.h"

namespace heddle::ir {

/// Storages of outputs and of what is written back to inputs. No pass may make one of them shared
/// where it was not, or lay out an output otherwise.
std::set<StorageId> visible_storages(const Graph& graph);

}  // namespace heddle::ir
