// Updates overwrite what they update.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Lets calls overwrite an operand with their result (OpDef::in_place) where nobody can tell.
///
///   %t = cos(%x)
///   %u = index_put(%t, %v, %i)
///   return %u
///     ==>
///   %t = cos(%x)
///   %u = index_put(%t, %v, %i) {in_place = [0]}
///   return %u
///
/// and of an argument that the result is written back to, when nothing reads it in between:
///
///   %u = index_put(%cache, %v, %i)
///   write_back %cache = %u
///     ==>
///   %u = index_put(%cache, %v, %i) {in_place = [0]}
///
/// and of an argument that is donated, when nothing reads it later and the result is not returned.
///
/// The operand must be the whole of its memory in row-major order (a reshape of it is), and no constant or
/// parameter. No other operand of the call, no later node, no output and no write-back may read the memory of
/// the operand; order edges read nothing. Memory that a view reaches counts as its operand's, of a reshape that
/// copies too: lowering looks through it. Of an argument, a write-back must follow, and the result must not be
/// an output, which would share the argument's memory. When the operand is a reshape of the argument, what is
/// written back must be this result.
///
/// Needs:   functional ops; what is unused is gone.
/// Leaves:  Stage::Reinplaced. Calls that could not be let are counted when they are lowered.
/// Order:   last.
/// Cost:    linear in nodes and uses of what is overwritten.
Graph reinplace(const Graph& graph);

}  // namespace heddle::ir
