// Binary pointwise ops: one scalar instruction on every pair of elements.
//
//   a, b    A[…], B[…], whose sizes broadcast together (NumPy's rule: trailing dimensions aligned,
//           a dimension of size 1 repeats)
//   result  T[broadcast sizes] with T = promote(A, B); of eq ne lt le gt ge: bool
//
// Both operands are converted to T first. The instructions are those of ir/scalar.h by name. In
// short: integers wrap; integer div truncates and gives 0 for a divisor of 0; mod has the sign of
// the divisor, rem that of the dividend; max and min give NaN if either is NaN; integer pow wraps,
// and truncates the real power for negative exponents; shifts by the width or more, or by a
// negative count, shift everything out.
//
// Constraints. infer() checks them in this order; tests are named <op>_c1 ...
//   C1  the sizes broadcast
//   C2  the instruction is defined on T
//
// Memory: fresh; may take the bytes of an operand of the result's own layout.
// Source: NumPy ufuncs; Python's % for mod.
#include "ir/ops/common.h"
#include "ir/ops/families.h"
#include "ir/ops/pointwise.h"

namespace heddle::ir {
namespace {

constexpr ScalarOp kBinaryInstructions[] = {
    ScalarOp::Add, ScalarOp::Sub,   ScalarOp::Mul, ScalarOp::Div, ScalarOp::Mod, ScalarOp::Rem,
    ScalarOp::Pow, ScalarOp::Atan2, ScalarOp::Max, ScalarOp::Min, ScalarOp::And, ScalarOp::Or,
    ScalarOp::Xor, ScalarOp::Shl,   ScalarOp::Shr, ScalarOp::Eq,  ScalarOp::Ne,  ScalarOp::Lt,
    ScalarOp::Le,  ScalarOp::Gt,    ScalarOp::Ge,
};

std::vector<TensorMeta> infer_binary(const InferContext& ctx) {
  Dims sizes = ops::broadcast_all(ctx, "C1 sizes broadcast");
  const DType dtype = ops::promoted(ctx);
  if (!defined_on(*ctx.op.scalar, dtype)) {
    ctx.fail_dtype("C2 dtype", "a dtype that " + std::string(ctx.op.name) + " is defined on",
                   ops::text_of(dtype));
  }
  return ops::one(ops::fresh(ctx, result_of(*ctx.op.scalar, dtype), std::move(sizes)));
}

std::vector<Literal> evaluate_binary(const EvalContext& ctx) {
  return ops::evaluate_points(ctx, [](const Node& node, std::span<const ops::HostScalar> operands) {
    const DType dtype = promote(operands[0].dtype, operands[1].dtype);
    return ops::apply(*node.op().scalar,
                      {ops::convert(operands[0], dtype), ops::convert(operands[1], dtype)});
  });
}

Scalar element_binary(ElementBuilder& builder, const Node& node, std::uint32_t,
                      std::span<const SymExpr> index) {
  const DType dtype = ops::promoted(node);
  const Scalar a = ops::operand_as(builder, node, 0, index, dtype);
  const Scalar b = ops::operand_as(builder, node, 1, index, dtype);
  return builder.apply2(*node.op().scalar, a, b);
}

OpDef binary(ScalarOp op) {
  return {
      .name = name_of(op),
      .operands = {{"a"}, {"b"}},
      .infer = infer_binary,
      .alias = ops::reuse_if_same_layout,
      .evaluate = evaluate_binary,
      .lowering = {.element = element_binary},
      .expensive = op == ScalarOp::Pow || op == ScalarOp::Atan2,
      .scalar = op,
      .reorder = ops::reorder_pointwise,
  };
}

}  // namespace

std::span<const OpDef> binary_ops() {
  static const std::vector<OpDef> ops = [] {
    std::vector<OpDef> made;
    for (const ScalarOp op : kBinaryInstructions) made.push_back(binary(op));
    return made;
  }();
  return ops;
}

}  // namespace heddle::ir
