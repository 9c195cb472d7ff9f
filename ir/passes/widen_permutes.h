// Permutes of as many dimensions as there are.
#pragma once

#include "ir/graph.h"

namespace heddle::ir {

/// Moves permutes to the side of a reshape that has more dimensions, where they meet those of convolutions, resizes and pools:
///
///   %1 = permute(%0: f32[s0, 4096, 256]) {perm = [0, 2, 1]}
///   %2 = reshape(%1) {sizes = [s0, 256, 64, 64]}
///     ==>
///   %1 = reshape(%0) {sizes = [s0, 64, 64, 256]}
///   %2 = permute(%1) {perm = [0, 3, 1, 2]}
///
/// and, of a reshape that joins dimensions, the other way round:
///
///   %1 = reshape(%0: f32[s0, 256, 64, 64]) {sizes = [s0, 256, 4096]}
///   %2 = permute(%1) {perm = [0, 2, 1]}
///     ==>
///   %1 = permute(%0) {perm = [0, 2, 3, 1]}
///   %2 = reshape(%1) {sizes = [s0, 4096, 256]}
///
/// Pointwise ops of one tensor and numbers between the two, as those of tensors that are quantised, are done with more dimensions too.
///
/// Needs:   any verified graph.
/// Leaves:  reshapes that take dimensions apart and join others, and those whose storage the caller sees.
/// Order:   before channels-last and push-permutes.
/// Cost:    linear in nodes.
Graph widen_permutes(const Graph& graph);

}  // namespace heddle::ir
