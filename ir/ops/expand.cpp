// expand: dimensions of size 1 repeated, and new ones put in front, without a copy.
//
//   x       T[d0 .. dn-1]
//   sizes   symint[m], m >= n, in elements
//   result  T[sizes]; x's dimensions are aligned with the last n
//
// Constraints. infer() checks them in this order; tests are named expand_c1 ...
//   C1  there are at least as many sizes as x has dimensions, and none is negative
//   C2  each dimension of x has size 1 or the size asked for
//
// Memory: a view of the operand; repeated dimensions have stride 0.
// Source: NumPy broadcast_to; ONNX Expand-13 once sizes are resolved.
#include "ir/ops/common.h"
#include "ir/ops/result_sizes.h"
#include "ir/ops/view_ops.h"

namespace heddle::ir::ops {
namespace {

void check_expansion(const InferContext& ctx, const Dims& sizes) {
  const TensorMeta& x = ctx.meta(0);
  if (sizes.size() < x.sizes.size()) {
    ctx.fail_shape("C1 sizes", "at least " + std::to_string(x.rank()) + " sizes", text_of(sizes));
  }
  require_sizes(ctx, sizes, "C1 sizes");
}

/// Whether a dimension of size `from` repeats to make one of size `to`.
bool repeats(const InferContext& ctx, const SymExpr& from, const SymExpr& to) {
  if (from == to) return false;
  const base::Predicate is_one{base::Predicate::Op::Eq, from, 1};
  if (from.is_constant(1)) return true;
  if (!from.is_constant() && ctx.env.decide(is_one, "repeated dimension of expand", ctx.location)) {
    return true;
  }
  ctx.require_equal(from, to, "C2 repeatable sizes");
  return false;
}

std::vector<TensorMeta> infer_expand(const InferContext& ctx) {
  const Dims& sizes = ctx.symints("sizes");
  check_expansion(ctx, sizes);
  TensorMeta result = ctx.meta(0);
  const std::size_t added = sizes.size() - result.sizes.size();
  Dims strides(sizes.size(), 0);
  for (std::size_t d = 0; d < result.sizes.size(); ++d) {
    if (!repeats(ctx, result.sizes[d], sizes[added + d])) strides[added + d] = result.strides[d];
  }
  result.sizes = sizes;
  result.strides = std::move(strides);
  return one(std::move(result));
}

std::vector<Literal> evaluate_expand(const EvalContext& ctx) {
  return {broadcast_to(ctx.inputs[0], ctx.concrete_attr("sizes"))};
}

std::vector<SymExpr> view_expand(const Node& node, std::span<const SymExpr> index) {
  return broadcast_index(node.input(0).meta().sizes, node.output(0).sizes, index);
}

}  // namespace

OpDef expand_op() {
  return {
      .name = "expand",
      .takes_float8 = true,
      .operands = {{"x"}},
      .attrs = {{"sizes", AttrKind::SymInts}},
      .infer = infer_expand,
      .alias = view_of_first,
      .evaluate = evaluate_expand,
      .lowering = {.view = view_expand},
      .reorder = reorder_entries,
  };
}

}  // namespace heddle::ir::ops
