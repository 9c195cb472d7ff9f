// What pointwise ops share: operands broadcast together, element by element.
#pragma once

#include <span>
#include <vector>

#include "ir/op.h"
#include "ir/ops/host_scalar.h"

namespace heddle::ir::ops {

/// Broadcast of the sizes of all operands present, failing with `label`.
Dims broadcast_all(const InferContext& ctx, std::string_view label);

/// The dtype that the operands from `first` on promote to.
DType promoted(const InferContext& ctx, std::size_t first = 0);
DType promoted(const Node& node, std::size_t first = 0);

/// Operand k at the result element `index`, broadcast and converted to `dtype`.
Scalar operand_as(ElementBuilder& builder, const Node& node, std::size_t k,
                  std::span<const SymExpr> index, DType dtype);

/// What a pointwise op does with one element of each operand; an absent optional operand is a
/// default HostScalar.
using PointFn = HostScalar (*)(const Node& node, std::span<const HostScalar> operands);

/// Applies `point` to each element of the operands broadcast together.
std::vector<Literal> evaluate_points(const EvalContext& ctx, PointFn point);

}  // namespace heddle::ir::ops
