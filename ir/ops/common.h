// What op definitions share: metadata of fresh results, axes, broadcasting, host indices.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "ir/known_sizes.h"
#include "ir/op.h"

namespace heddle::ir::ops {

/// "an integer dtype", "f32": short texts for error messages.
std::string text_of(DType dtype);
std::string text_of(std::span<const SymExpr> dims);       ///< "[s0, 4]"
std::string text_of(std::span<const std::int64_t> ints);  ///< "[0, 2]"

/// A row-major result of its own on the device of the first operand present.
TensorMeta fresh(const InferContext& ctx, DType dtype, Dims sizes);
inline std::vector<TensorMeta> one(TensorMeta meta) { return {std::move(meta)}; }

/// `axis` counted from the front. Of a node that infer() accepted.
inline std::int64_t from_front(std::int64_t axis, std::int64_t rank) {
  return axis < 0 ? axis + rank : axis;
}
/// The axes counted from the front, in ascending order. Of a node that infer() accepted.
std::vector<std::int64_t> sorted_axes(std::span<const std::int64_t> axes, std::int64_t rank);
/// The same while inferring: each in range, else `range_label`; no repeats, else `repeat_label`.
std::vector<std::int64_t> check_axes(const InferContext& ctx, std::int64_t rank,
                                     std::string_view range_label, std::string_view repeat_label);
/// Requires left <= right; fails with `label`, `expected` and the value of `got` when it cannot
/// hold.
void require_le(const InferContext& ctx, const SymExpr& left, const SymExpr& right,
                std::string_view label, const std::string& expected, const std::string& got);

/// Alias of an output that is a view of operand 0.
Alias view_of_first(const Node& node, std::uint32_t output);
/// Alias of a pointwise result: it may take the bytes of the first operand of its own size and
/// layout.
Alias reuse_if_same_layout(const Node& node, std::uint32_t output);

/// OpDef::reorder of pointwise ops; of ops that name axes in "axis" or "axes"; the same where these axes
/// leave the result unless "keepdims" is set; of ops with one entry a dimension in symint lists.
std::optional<Reordered> reorder_pointwise(const Node& node, std::span<const std::int64_t> perm);
std::optional<Reordered> reorder_axes(const Node& node, std::span<const std::int64_t> perm);
std::optional<Reordered> reorder_reduction(const Node& node, std::span<const std::int64_t> perm);
std::optional<Reordered> reorder_entries(const Node& node, std::span<const std::int64_t> perm);

/// The element of an operand of `operand` sizes that broadcasts to the result element `index` of
/// `result` sizes: trailing dimensions are aligned, a dimension of size 1 is read at 0.
std::vector<SymExpr> broadcast_index(std::span<const SymExpr> operand,
                                     std::span<const SymExpr> result,
                                     std::span<const SymExpr> index);

/// Sizes that all of `shapes` broadcast to. HD_CHECKs that they do.
Sizes broadcast_sizes(std::span<const Sizes> shapes);
/// `tensor` seen with `sizes`: repeated dimensions have stride 0.
Literal broadcast_to(const Literal& tensor, const Sizes& sizes);

/// Row-major position ↔ index of a host tensor.
Sizes index_at(std::int64_t position, std::span<const std::int64_t> sizes);
std::int64_t position_of(std::span<const std::int64_t> index, std::span<const std::int64_t> sizes);

}  // namespace heddle::ir::ops
