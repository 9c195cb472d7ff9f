// gather_elements: one element picked by position along an axis for each entry of indices.
//
//   x        T[d0 .. dn-1]
//   indices  I[q0 .. qn-1], integers; negative ones count from the end of the axis
//   axis     int = 0; negative counts from the end
//   result   T[q0 .. qn-1]; result[i…] is x at i…, with i_axis replaced by indices[i…]
//
// Constraints. infer() checks them in this order; tests are named gather_elements_c1 ...
//   C1  axis lies in [-n, n); so x has at least one dimension
//   C2  indices has an integer dtype
//   C3  indices has the rank of x
//   C4  q_k <= d_k for every k but axis
// At run time an index outside [-d_axis, d_axis) is an IndexError.
//
// Memory: fresh.
// Source: ONNX GatherElements-13; PyTorch gather.
#include "ir/ops/common.h"
#include "ir/ops/gather_ops.h"
#include "ir/ops/host_scalar.h"
#include "ir/ops/indexing.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_gather_elements(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  const TensorMeta& indices = ctx.meta(1);
  const std::int64_t axis = ctx.axis(ctx.integer("axis"), x.rank(), "C1 axis");
  require_integer_indices(ctx, 1, "C2 indices");
  if (indices.rank() != x.rank()) {
    ctx.fail_shape("C3 rank", "indices of rank " + std::to_string(x.rank()),
                   text_of(seen(ctx.env, indices.sizes)));
  }
  for (std::int64_t d = 0; d < x.rank(); ++d) {
    if (d == axis) continue;
    require_le(
        ctx, indices.sizes[d], x.sizes[d], "C4 sizes",
        "at most " + seen(ctx.env, x.sizes[d]).to_string() + " in dimension " + std::to_string(d),
        seen(ctx.env, indices.sizes[d]).to_string());
  }
  return one(fresh(ctx, x.dtype, indices.sizes));
}

std::vector<Literal> evaluate_gather_elements(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const Literal& indices = ctx.inputs[1];
  const std::int64_t axis = from_front(ctx.node.integer("axis"), x.rank());
  Literal result(x.dtype(), indices.sizes());
  for (std::int64_t p = 0; p < result.count(); ++p) {
    Sizes at = index_at(p, result.sizes());
    at[axis] = wrapped_index(ctx.node, indices.at_int(p), x.sizes()[axis]);
    store(result, p, load(x, position_of(at, x.sizes())));
  }
  return {std::move(result)};
}

Scalar element_gather_elements(ElementBuilder& builder, const Node& node, std::uint32_t,
                               std::span<const SymExpr> index) {
  const TensorMeta& x = node.input(0).meta();
  const std::int64_t axis = from_front(node.integer("axis"), x.rank());
  std::vector<SymExpr> at(index.begin(), index.end());
  at[axis] = wrapped_index(builder, builder.operand(1, index), x.sizes[axis]);
  return builder.operand(0, at);
}

}  // namespace

OpDef gather_elements_op() {
  return {
      .name = "gather_elements",
      .takes_float8 = true,
      .operands = {{"x"}, {"indices"}},
      .attrs = {{"axis", AttrKind::Int, Attr(std::int64_t{0})}},
      .infer = infer_gather_elements,
      .evaluate = evaluate_gather_elements,
      .lowering = {.element = element_gather_elements},
  };
}

}  // namespace heddle::ir::ops
