// Unary pointwise ops: one scalar instruction on every element.
//
//   x       T[d0 .. dn-1]
//   result  T[d0 .. dn-1]; of is_nan and is_inf: bool[d0 .. dn-1]
//
// The instructions are those of ir/scalar.h by name. In short: ceil, floor, round and trunc leave
// integers as they are; round goes to the nearest even; sign of NaN is NaN; neg and abs of the
// lowest integer wrap; not is bitwise on integers and logical on bool;
// sigmoid is 1 / (1 + exp(-x)).
//
// Constraints. infer() checks them; tests are named <op>_c1 ...
//   C1  the instruction is defined on T: exp, sqrt, sin, … on floating dtypes only, not on integers
//       and bool
//
// Memory: fresh; may take the operand's bytes when T and the result's dtype are equally wide.
// Source: ISO C <math.h>; NumPy ufuncs of the same names.
#include "base/check.h"
#include "ir/ops/common.h"
#include "ir/ops/families.h"
#include "ir/ops/pointwise.h"

namespace heddle::ir {
namespace {

constexpr ScalarOp kUnaryInstructions[] = {
    ScalarOp::Neg,   ScalarOp::Abs,   ScalarOp::Sign,  ScalarOp::Ceil,  ScalarOp::Floor,
    ScalarOp::Round, ScalarOp::Trunc, ScalarOp::Sqrt,  ScalarOp::Rsqrt, ScalarOp::Reciprocal,
    ScalarOp::Exp,   ScalarOp::Exp2,  ScalarOp::Expm1, ScalarOp::Log,   ScalarOp::Log2,
    ScalarOp::Log1p, ScalarOp::Sin,   ScalarOp::Cos,   ScalarOp::Tan,   ScalarOp::Asin,
    ScalarOp::Acos,  ScalarOp::Atan,  ScalarOp::Sinh,  ScalarOp::Cosh,  ScalarOp::Asinh,
    ScalarOp::Acosh, ScalarOp::Atanh, ScalarOp::Tanh,  ScalarOp::Erf,   ScalarOp::Sigmoid,
    ScalarOp::Not,   ScalarOp::IsNan, ScalarOp::IsInf,
};

/// Instructions that take tens of machine instructions: the transcendental ones.
bool is_expensive(ScalarOp op) { return op >= ScalarOp::Exp && op <= ScalarOp::Sigmoid; }

std::vector<TensorMeta> infer_unary(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  if (!defined_on(*ctx.op.scalar, x.dtype)) {
    ctx.fail_dtype("C1 dtype", "a dtype that " + std::string(ctx.op.name) + " is defined on",
                   ops::text_of(x.dtype));
  }
  return ops::one(ops::fresh(ctx, result_of(*ctx.op.scalar, x.dtype), x.sizes));
}

std::vector<Literal> evaluate_unary(const EvalContext& ctx) {
  return ops::evaluate_points(ctx, [](const Node& node, std::span<const ops::HostScalar> operands) {
    return ops::apply(*node.op().scalar, operands);
  });
}

Scalar element_unary(ElementBuilder& builder, const Node& node, std::uint32_t,
                     std::span<const SymExpr> index) {
  return builder.apply1(*node.op().scalar, builder.operand(0, index));
}

OpDef unary(ScalarOp op) {
  return {
      .name = name_of(op),
      .operands = {{"x"}},
      .infer = infer_unary,
      .alias = ops::reuse_if_same_layout,
      .evaluate = evaluate_unary,
      .lowering = {.element = element_unary},
      .expensive = is_expensive(op),
      .scalar = op,
      .reorder = ops::reorder_pointwise,
  };
}

}  // namespace

std::span<const OpDef> unary_ops() {
  static const std::vector<OpDef> ops = [] {
    std::vector<OpDef> made;
    for (const ScalarOp op : kUnaryInstructions) made.push_back(unary(op));
    return made;
  }();
  return ops;
}

}  // namespace heddle::ir
