// where: elements of one operand where a condition holds, of the other elsewhere.
//
//   cond    bool[…]
//   a, b    A[…], B[…]; the sizes of all three broadcast together
//   result  T[broadcast sizes] with T = promote(A, B)
//
// Constraints. infer() checks them in this order; tests are named where_c1 ...
//   C1  the sizes broadcast
//   C2  cond is bool
//
// Memory: fresh; may take the bytes of an operand of the result's own layout.
// Source: NumPy where; ONNX Where-16.
#include "ir/ops/common.h"
#include "ir/ops/families.h"
#include "ir/ops/pointwise.h"

namespace heddle::ir {
namespace {

std::vector<TensorMeta> infer_select(const InferContext& ctx) {
  Dims sizes = ops::broadcast_all(ctx, "C1 sizes broadcast");
  if (ctx.meta(0).dtype != DType::Bool) {
    ctx.fail_dtype("C2 condition", "bool", ops::text_of(ctx.meta(0).dtype));
  }
  return ops::one(ops::fresh(ctx, ops::promoted(ctx, 1), std::move(sizes)));
}

std::vector<Literal> evaluate_select(const EvalContext& ctx) {
  return ops::evaluate_points(ctx, [](const Node& node, std::span<const ops::HostScalar> operands) {
    const ops::HostScalar& chosen = operands[0].truth() ? operands[1] : operands[2];
    return ops::convert(chosen, node.output(0).dtype);
  });
}

Scalar element_select(ElementBuilder& builder, const Node& node, std::uint32_t,
                      std::span<const SymExpr> index) {
  const DType dtype = ops::promoted(node, 1);
  const Scalar condition = ops::operand_as(builder, node, 0, index, DType::Bool);
  const Scalar a = ops::operand_as(builder, node, 1, index, dtype);
  const Scalar b = ops::operand_as(builder, node, 2, index, dtype);
  return builder.select(condition, a, b);
}

}  // namespace

std::span<const OpDef> select_ops() {
  static const OpDef ops[] = {{
      .name = "where",
      .takes_float8 = true,
      .operands = {{"cond"}, {"a"}, {"b"}},
      .infer = infer_select,
      .alias = ops::reuse_if_same_layout,
      .evaluate = evaluate_select,
      .lowering = {.element = element_select},
      .scalar = ScalarOp::Select,
      .reorder = ops::reorder_pointwise,
  }};
  return ops;
}

}  // namespace heddle::ir
