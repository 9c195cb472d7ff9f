// Reductions over axes, and what they share.
#pragma once

#include "ir/op.h"

namespace heddle::ir::ops {

OpDef reduce_mean_op();
OpDef variance_op();

/// The dtype that a variance of `dtype` is computed in: f64 for f32 too, whose distances from the mean lose their bits
/// where the mean is large (mean 1e6, deviation 1: 1 % off); f32 for f16 and bf16, which have none to lose.
DType variance_dtype(DType dtype);

/// `sizes` without the axes, or with 1 in their places.
template <typename T>
std::vector<T> without_axes(const std::vector<T>& sizes, std::span<const std::int64_t> sorted_axes,
                            bool keepdims) {
  std::vector<T> kept;
  std::size_t next = 0;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const bool reduced =
        next < sorted_axes.size() && sorted_axes[next] == static_cast<std::int64_t>(d);
    if (reduced) ++next;
    if (!reduced) kept.push_back(sizes[d]);
    if (reduced && keepdims) kept.push_back(T(1));
  }
  return kept;
}

/// Result of a reduction over attribute "axes", as "keepdims" says; constraints C1 (range), C2
/// (repeats).
TensorMeta infer_reduction(const InferContext& ctx, DType dtype);

/// For each element of the result of reducing `sizes` over `sorted_axes`, in row-major order, the
/// row-major positions of the elements it combines, ascending.
std::vector<std::vector<std::int64_t>> groups_of(const Sizes& sizes,
                                                 std::span<const std::int64_t> sorted_axes);

/// The number of elements that each result of the reduction `node` combines.
SymExpr combined_count(const Node& node);

/// A scalar of `dtype` that holds the size `value`.
Value size_as(DecomposeContext& ctx, const SymExpr& value, DType dtype);

/// `x` converted to `dtype`; itself when it has that dtype.
Value converted(DecomposeContext& ctx, Value x, DType dtype);

}  // namespace heddle::ir::ops
