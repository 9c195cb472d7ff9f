// clone: the same elements in bytes of their own. alias: the same elements in the same bytes, as
// another value.
//
//   x       T[d0 .. dn-1]
//   result  T[d0 .. dn-1]
//
// Constraints: none.
//
// Memory: clone is fresh and row-major; alias is a view of the operand with its strides.
// Source: StableHLO's optimization_barrier is the nearest relative of alias.
#include "ir/ops/common.h"
#include "ir/ops/view_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_clone(const InferContext& ctx) {
  return one(fresh(ctx, ctx.meta(0).dtype, ctx.meta(0).sizes));
}

std::vector<Literal> evaluate_clone(const EvalContext& ctx) { return {ctx.inputs[0].clone()}; }

Scalar element_clone(ElementBuilder& builder, const Node&, std::uint32_t,
                     std::span<const SymExpr> index) {
  return builder.operand(0, index);
}

std::vector<TensorMeta> infer_alias(const InferContext& ctx) { return one(ctx.meta(0)); }

std::vector<Literal> evaluate_alias(const EvalContext& ctx) { return {ctx.inputs[0]}; }

std::vector<SymExpr> view_clone(const Node&, std::span<const SymExpr> index) {
  return {index.begin(), index.end()};
}

}  // namespace

OpDef clone_op() {
  return {
      .name = "clone",
      .takes_float8 = true,
      .operands = {{"x"}},
      .infer = infer_clone,
      .evaluate = evaluate_clone,
      .lowering = {.element = element_clone},
      .reorder = reorder_pointwise,
  };
}

OpDef alias_op() {
  return {
      .name = "alias",
      .takes_float8 = true,
      .operands = {{"x"}},
      .infer = infer_alias,
      .alias = view_of_first,
      .evaluate = evaluate_alias,
      .lowering = {.view = view_clone},
  };
}

}  // namespace heddle::ir::ops
