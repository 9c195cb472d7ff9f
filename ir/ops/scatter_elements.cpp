// scatter_elements: a copy of x in which elements named along one axis are replaced or joined.
//
//   x           T[d0 .. dn-1]
//   indices     any integer dtype [e0 .. en-1]; negative ones count from the end of the axis
//   updates     T[e0 .. en-1]
//   axis        the dimension that indices address; negative counts from the end
//   reduction   none, add, mul, max or min: how an update joins what is there
//   result      T[d0 .. dn-1]
//
//   for each index j of indices, in row-major order:
//     result[j with j_axis replaced by indices[j]] = reduction(result[the same], updates[j])
//
// Repeated destinations: joins happen one after the other, each rounding to T; with none the last
// update stays. max and min give NaN if either is NaN. An index out of range is an IndexError on
// the CPU, and clamped, or its update dropped, and reported on CUDA.
//
// Constraints. infer() checks them in this order; tests are named scatter_elements_c1 ...
//   C1  updates have the dtype of x
//   C2  indices are integers
//   C3  reduction is none, add, mul, max or min; none for bool and 8-bit floats
//   C4  x, indices and updates have the same number of dimensions, at least one
//   C5  axis lies within the rank of x
//   C6  indices and updates have the same sizes
//   C7  but along axis, no size of indices exceeds that of x
//
// Memory: the result may take the bytes of x; after reinplace it may overwrite x, updates only.
// Source: ONNX ScatterElements-18.
#include "ir/ops/common.h"
#include "ir/ops/indexing.h"
#include "ir/ops/scatter_ops.h"

namespace heddle::ir::ops {
namespace {

void check_places(const InferContext& ctx, std::int64_t axis) {
  const Dims& x = ctx.meta(0).sizes;
  const Dims& indices = ctx.meta(1).sizes;
  for (std::size_t d = 0; d < x.size(); ++d) {
    ctx.require_equal(indices[d], ctx.meta(2).sizes[d],
                      "C6 indices and updates have the same sizes");
  }
  for (std::size_t d = 0; d < x.size(); ++d) {
    if (static_cast<std::int64_t>(d) == axis) continue;
    require_le(ctx, indices[d], x[d], "C7 but along axis, no size of indices exceeds that of x",
               "at most " + seen(ctx.env, x[d]).to_string(), seen(ctx.env, indices[d]).to_string());
  }
}

std::vector<TensorMeta> infer_scatter_elements(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  check_update_dtype(ctx, 2, "C1 updates have the dtype of x");
  require_integer_indices(ctx, 1, "C2 indices are integers");
  check_reduction(ctx, "C3 reduction is none, add, mul, max or min; none for bool");
  if (x.rank() == 0 || ctx.meta(1).rank() != x.rank() || ctx.meta(2).rank() != x.rank()) {
    ctx.fail_shape("C4 x, indices and updates have the same number of dimensions, at least one",
                   "three equal ranks of 1 or more",
                   std::to_string(x.rank()) + ", " + std::to_string(ctx.meta(1).rank()) + " and " +
                       std::to_string(ctx.meta(2).rank()));
  }
  check_places(ctx, ctx.axis(ctx.integer("axis"), x.rank(), "C5 axis lies within the rank of x"));
  return one(fresh(ctx, x.dtype, x.sizes));
}

std::vector<Literal> evaluate_scatter_elements(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const Literal& indices = ctx.inputs[1];
  const auto axis = static_cast<std::size_t>(from_front(ctx.node.integer("axis"), x.rank()));
  std::vector<std::int64_t> destinations;
  for (std::int64_t p = 0; p < indices.count(); ++p) {
    Sizes at = index_at(p, indices.sizes());
    at[axis] = wrapped_index(ctx.node, indices.at_int(p), x.sizes()[axis]);
    destinations.push_back(position_of(at, x.sizes()));
  }
  return {joined(x, ctx.inputs[2], destinations, ctx.node.string("reduction"))};
}

}  // namespace

OpDef scatter_elements_op() {
  return {.name = "scatter_elements",
          .takes_float8 = true,
          .operands = {{"x"}, {"indices"}, {"updates"}},
          .attrs = {{"axis", AttrKind::Int, std::int64_t{0}}, reduction_attr(), in_place_attr()},
          .infer = infer_scatter_elements,
          .alias = reuse_first,
          .evaluate = evaluate_scatter_elements,
          .lowering = {.nest = "scatter"},
          .in_place = {{0, 0}}};
}

}  // namespace heddle::ir::ops
