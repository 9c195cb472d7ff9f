// Order edges for sizes that nodes use without reading the tensors that have them.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Makes what uses a size known only at run time wait for the node that finds it, where no data leads there.
///
///   %a = nonzero(%x) : i64[u0]
///   %b = iota() {sizes = [u0]}
///     ==>
///   %a = nonzero(%x) : i64[u0]
///   %b = iota() {sizes = [u0]} after(%a)
///
/// Needs:   a verified graph.
/// Leaves:  the same nodes under the same names. The same graph when there is nothing to add.
/// Order:   first, so that all passes keep the order, and before lowering for the nodes that they made.
/// Cost:    linear in nodes where no size is found at run time, else times the nodes that find some.
Graph order_sizes(const Graph& graph);

}  // namespace heddle::ir
