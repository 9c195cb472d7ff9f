// Chains of views become one view.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Replaces a view of a view of the same kind by one view of the first operand.
///
///   %1 = slice(%0) {start = [2], limit = [10], stride = [2]}
///   %2 = slice(%1) {start = [1], limit = [4], stride = [1]}
///     ==>
///   %2 = slice(%0) {start = [4], limit = [9], stride = [2]}
///
/// reshape of reshape, permute of permute, expand of expand and slice of slice; of slices, dimensions where
/// one of the two takes all, or where both have constant windows. An empty slice stays empty: its limit is
/// its start.
///
/// Needs:   any verified graph.
/// Leaves:  no view whose operand is a view of the same kind with the same annotations, but those where a
///          reshape between them copies and the caller sees the result: it must not come to share storage.
/// Order:   before regions are formed, so that a boundary never cuts a chain of views.
/// Cost:    linear in nodes.
Graph merge_views(const Graph& graph);

}  // namespace heddle::ir
