// clamp: every element moved into an interval.
//
//   x          X[…]
//   low, high  L[…], H[…], each optional; the sizes of all operands broadcast together
//   result     T[broadcast sizes] with T = promote of the operands present; min(max(x, low), high),
//              so that high wins where low > high, and NaN in any of the three gives NaN
//
// Constraints. infer() checks them in this order; tests are named clamp_c1 ...
//   C1  the sizes broadcast
//   C2  T is not bool
//
// Memory: fresh; may take the bytes of an operand of the result's own layout.
// Source: ONNX Clip-13; NumPy clip.
#include "ir/ops/common.h"
#include "ir/ops/composite_ops.h"
#include "ir/ops/pointwise.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_clamp(const InferContext& ctx) {
  Dims sizes = broadcast_all(ctx, "C1 sizes broadcast");
  const DType dtype = promoted(ctx);
  if (dtype == DType::Bool) ctx.fail_dtype("C2 dtype", "a number dtype", text_of(dtype));
  return one(fresh(ctx, dtype, std::move(sizes)));
}

HostScalar clamped(const Node& node, std::span<const HostScalar> operands) {
  const DType dtype = node.output(0).dtype;
  HostScalar value = convert(operands[0], dtype);
  const bool has_low = node.inputs().size() > 1 && node.input(1);
  const bool has_high = node.inputs().size() > 2 && node.input(2);
  if (has_low) value = apply(ScalarOp::Max, {value, convert(operands[1], dtype)});
  if (has_high) value = apply(ScalarOp::Min, {value, convert(operands[2], dtype)});
  return value;
}

std::vector<Literal> evaluate_clamp(const EvalContext& ctx) {
  return evaluate_points(ctx, clamped);
}

Scalar element_clamp(ElementBuilder& builder, const Node& node, std::uint32_t,
                     std::span<const SymExpr> index) {
  const DType dtype = promoted(node);
  Scalar value = operand_as(builder, node, 0, index, dtype);
  constexpr ScalarOp kBounds[] = {ScalarOp::Max, ScalarOp::Min};
  for (std::size_t k = 1; k < node.inputs().size(); ++k) {
    if (!node.input(k)) continue;
    value = builder.apply2(kBounds[k - 1], value, operand_as(builder, node, k, index, dtype));
  }
  return value;
}

}  // namespace

OpDef clamp_op() {
  return {
      .name = "clamp",
      .operands = {{"x"},
                   {"low", OperandSpec::Arity::Optional},
                   {"high", OperandSpec::Arity::Optional}},
      .infer = infer_clamp,
      .alias = reuse_if_same_layout,
      .evaluate = evaluate_clamp,
      .lowering = {.element = element_clamp},
      .reorder = reorder_pointwise,
  };
}

}  // namespace heddle::ir::ops
