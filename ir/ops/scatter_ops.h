// Scattering: the definitions, and what they share: where updates go and how they join.
#pragma once

#include "ir/ops/dense.h"

namespace heddle::ir::ops {

OpDef scatter_elements_op();
OpDef scatter_nd_op();
OpDef index_put_op();
OpDef ordered_scatter_op();
OpDef slice_scatter_op();

AttrSpec reduction_attr();
/// Checks that the attribute "reduction" is known, and none where x is a bool; that operand
/// `updates` has the dtype of x.
void check_reduction(const InferContext& ctx, std::string_view label);
void check_update_dtype(const InferContext& ctx, std::size_t updates, std::string_view label);

/// x with update p joined into element destinations[p], for p = 0, 1, …: each join rounds to the
/// dtype.
Literal joined(const Literal& x, const Literal& updates,
               const std::vector<std::int64_t>& destinations, std::string_view reduction);

}  // namespace heddle::ir::ops
