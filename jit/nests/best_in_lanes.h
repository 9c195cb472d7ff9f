// The first few elements of many rows on the CPU: a row a lane of a vector, so that no lane waits for another.
//
// A number of 64 bits stands for an element: its key (radix_sort.h) and, below that, its position, so that smaller ones come
// first and no two are equal. Of each row there is a list of the best so far, in order, through which each element
// passes: at each place the smaller of the two stays and the other one goes on.
//
//   for part of the rows (serial)
//     turned[c, r] = x[r, c]                            where rows lie side by side
//     for r (vector)
//       for c (serial)
//         e = element turned[c, r]
//         for place: list[place, r], e = min(list[place, r], e), max(list[place, r], e)
//
// Long lists are passed in groups of places that stay in registers; what goes on from one waits for the next.
#pragma once

#include "jit/lower/nest_context.h"

namespace heddle::jit {

/// Whether that is the fastest way to the first elements, on the CPU. Rows that lie side by side are then to be those of a
/// matrix.
bool takes_best_in_lanes(const ir::Node& node);

/// The nest of such a node.
void build_best_in_lanes(NestContext& ctx);

}  // namespace heddle::jit
