// Removal of ops that change nothing.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Replaces an op whose result is its operand, element for element, by the operand.
///
///   %1 = convert(%0) {dtype = f32}        (%0 is f32)
///   %2 = slice(%1) {start = [0], limit = [8], stride = [1]}     (%1 has 8 elements)
///   %3 = exp(%2)
///     ==>
///   %3 = exp(%0)
///
/// Candidates: clone, alias, convert to the same dtype, reshape and expand to the same sizes, permute by
/// the identity, slice of everything, reverse of no axis, pad by nothing, concat of one, reductions over no
/// axis, ceil, floor, round and trunc of integers, pow by the integer 1.
///
/// Needs:   sizes, strides, dtype and device of result and operand statically equal.
/// Leaves:  no candidate, but those whose removal would make an output share storage with an input or
///          another output that it did not share before, or be the very same value.
/// Order:   before cse and merge-views, which see more without no-ops.
/// Cost:    linear in nodes.
Graph remove_noops(const Graph& graph);

}  // namespace heddle::ir
