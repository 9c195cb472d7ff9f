// Indices that are values of a tensor: negative ones count from the end.
#pragma once

#include "ir/op.h"

namespace heddle::ir::ops {

/// Throws a DTypeError with `label` unless operand k holds integers.
void require_integer_indices(const InferContext& ctx, std::size_t k, std::string_view label);

/// `value` as a position in a dimension of `size`: checked, negative ones counted from the end.
SymExpr wrapped_index(ElementBuilder& builder, Scalar value, const SymExpr& size);

/// The same on the host. @throws IndexError naming the op, the range and the value.
std::int64_t wrapped_index(const Node& node, std::int64_t value, std::int64_t size);

}  // namespace heddle::ir::ops
