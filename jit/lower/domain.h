// Iteration spaces: unit axes joined into long ones, and loops put around what was emitted with them.
#pragma once

#include <cstdint>
#include <vector>

#include "jit/lower/index.h"
#include "jit/nest_builder.h"
#include "jit/program.h"

namespace heddle::jit {

/// What a thread of CUDA loads at a time, at least: of narrower elements it takes several neighbours (jit/cuda/column_lanes.h).
inline constexpr std::int64_t kCudaWordBytes = 4;

/// One axis of an iteration space.
struct AxisRun {
  Symbol axis;
  SymExpr extent;
};

/// Axes for the dimensions of `sizes` that are not 1. `index` gets one entry a dimension.
std::vector<AxisRun> make_axes(NestBuilder& builder, const ir::Dims& sizes, Index& index);

/// Joins neighbouring axes (outermost first) wherever every expression in `body` walks over them as over
/// one: an access a*w + b with a in [0, n), b in [0, w) becomes c in [0, n*w). Rewrites `body`.
std::vector<AxisRun> collapse(NestBuilder& builder, Block& body, std::vector<AxisRun> axes);

/// Puts loops around `body`, which is emitted for one point of `axes` (outermost first): a parallel axis
/// over blocks of points, a vector loop inside. Becomes the nest's body. A point stands for so many elements.
void wrap_points(NestBuilder& builder, Block body, std::vector<AxisRun> axes,
                 const LowerOptions& options, std::int64_t elements = 1);

/// Whether the last axis is so short that lanes do well along the one before it, each with a row of the last.
bool has_columns(const std::vector<AxisRun>& axes);

/// Makes the parallel axis run over all points of `axes`, and `body` the nest's.
void wrap_parallel(NestBuilder& builder, Block body, const std::vector<AxisRun>& axes);

/// Makes tiles of the points of `axes` parallel, with a vector loop over the points of a tile around `body`.
void wrap_lanes(NestBuilder& builder, Block body, const std::vector<AxisRun>& axes,
                const LowerOptions& options);

/// Scalar operations that one run of `block` does, loops inside it counted by their extents.
SymExpr work_of(const Block& block);

}  // namespace heddle::jit
