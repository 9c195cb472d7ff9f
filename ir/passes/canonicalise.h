// One spelling for what can be said in several ways.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Arithmetic that changes nothing goes, and constants stand on the right.
///
///   %1 = mul(2.0: f32, %0)
///   %2 = div(%1, 1.0: f32)
///   %3 = neg(%2)
///   %4 = neg(%3)
///     ==>
///   %1 = mul(%0, 2.0: f32)
///
/// x*1, x/1, x-0, integer x+0, neg of neg, not of not. Floating x+0 stays: it turns -0 into +0.
///
/// Needs:   any verified graph.
/// Leaves:  none of the forms above, when removing them keeps dtype, sizes and what the caller can see.
/// Order:   after fold-constants.
/// Cost:    linear in nodes.
Graph canonicalise(const Graph& graph);

}  // namespace heddle::ir
