// The view ops, one a file, and the layout of reshapes.
#pragma once

#include <optional>

#include "ir/op.h"

namespace heddle::ir::ops {

OpDef reshape_op();
OpDef permute_op();
OpDef expand_op();
OpDef slice_op();
OpDef unfold_op();
OpDef reverse_op();
OpDef clone_op();
OpDef alias_op();

/// A run of dimensions of one shape that holds the same elements as a run of another: [begin, end)
/// of each, in both shapes' numbering. Dimensions of size 1 belong to no run, or to any.
struct DimGroup {
  std::vector<std::size_t> from;
  std::vector<std::size_t> to;
};

/// Splits two shapes of equal counts into the smallest runs of dimensions with equal products, in
/// order, leaving out dimensions that are the constant 1.
///
///   [4, 6, s0] and [24, 1, s0]  ==>  {0, 1}-{0}  {2}-{2}
std::vector<DimGroup> group_dims(std::span<const SymExpr> from, std::span<const SymExpr> to);

/// Strides under which `to` sizes name the elements of a tensor of `from` sizes and strides in
/// row-major order; nothing when no strides do (a reshape that must copy).
std::optional<Dims> reshape_strides(std::span<const SymExpr> from, std::span<const SymExpr> strides,
                                    std::span<const SymExpr> to);

}  // namespace heddle::ir::ops
