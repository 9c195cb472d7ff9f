// scatter_nd: a copy of x in which slices named by index vectors are replaced or joined.
//
//   x           T[d0 .. dn-1]
//   indices     any integer dtype [b0 .. bm-1, k]: vectors of k coordinates; negative ones count
//               from the end
//   updates     T[b0 .. bm-1, dk .. dn-1]
//   reduction   none, add, mul, max or min: how an update joins what is there
//   result      T[d0 .. dn-1]
//
//   for each j in [b0 .. bm-1], in row-major order, and each r in [dk .. dn-1]:
//     result[indices[j, 0], …, indices[j, k-1], r] = reduction(result[the same], updates[j, r])
//
// Repeated destinations, NaN and indices out of range: as scatter_elements.
//
// Constraints. infer() checks them in this order; tests are named scatter_nd_c1 ...
//   C1  updates have the dtype of x
//   C2  indices are integers
//   C3  reduction is none, add, mul, max or min; none for bool and 8-bit floats
//   C4  indices have at least one dimension
//   C5  the last size of indices is known and at most the rank of x
//   C6  updates have the leading sizes of indices and the trailing sizes of x
//
// Memory: the result may take the bytes of x; after reinplace it may overwrite x, updates only.
// Source: ONNX ScatterND-18.
#include "ir/known_sizes.h"
#include "ir/ops/common.h"
#include "ir/ops/indexing.h"
#include "ir/ops/scatter_ops.h"

namespace heddle::ir::ops {
namespace {

Dims update_sizes(const InferContext& ctx, std::int64_t coordinates) {
  const Dims& x = ctx.meta(0).sizes;
  const Dims& indices = ctx.meta(1).sizes;
  Dims sizes(indices.begin(), indices.end() - 1);
  sizes.insert(sizes.end(), x.begin() + coordinates, x.end());
  return sizes;
}

void check_updates(const InferContext& ctx, const Dims& wanted) {
  constexpr std::string_view kC6 =
      "C6 updates have the leading sizes of indices and the trailing sizes of x";
  const Dims& updates = ctx.meta(2).sizes;
  if (updates.size() != wanted.size())
    ctx.fail_shape(kC6, text_of(seen(ctx.env, wanted)), text_of(seen(ctx.env, updates)));
  for (std::size_t d = 0; d < wanted.size(); ++d) ctx.require_equal(wanted[d], updates[d], kC6);
}

std::vector<TensorMeta> infer_scatter_nd(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  const Dims& indices = ctx.meta(1).sizes;
  check_update_dtype(ctx, 2, "C1 updates have the dtype of x");
  require_integer_indices(ctx, 1, "C2 indices are integers");
  check_reduction(ctx, "C3 reduction is none, add, mul, max or min; none for bool");
  if (indices.empty()) {
    ctx.fail_shape("C4 indices have at least one dimension", "sizes [..., k]",
                   text_of(seen(ctx.env, indices)));
  }
  const auto coordinates =
      number_of(ctx.env, indices.back(), "scatter_nd: C5 the last size of indices", ctx.location);
  if (!coordinates || *coordinates > x.rank()) {
    ctx.fail_shape("C5 the last size of indices is known and at most the rank of x",
                   "at most " + std::to_string(x.rank()), indices.back().to_string());
  }
  check_updates(ctx, update_sizes(ctx, *coordinates));
  return one(fresh(ctx, x.dtype, x.sizes));
}

std::vector<Literal> evaluate_scatter_nd(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const Literal& indices = ctx.inputs[1];
  const std::int64_t coordinates = indices.sizes().back();
  const Sizes slice(x.sizes().begin() + coordinates, x.sizes().end());
  const std::int64_t slice_count = element_count(slice);
  const std::vector<std::int64_t> numbers = dense<std::int64_t>(indices);
  std::vector<std::int64_t> destinations;
  for (std::int64_t p = 0; p < ctx.inputs[2].count(); ++p) {
    std::int64_t to = 0;
    for (std::int64_t d = 0; d < coordinates; ++d) {
      const std::int64_t size = x.sizes()[static_cast<std::size_t>(d)];
      const auto at = static_cast<std::size_t>(p / slice_count * coordinates + d);
      to = to * size + wrapped_index(ctx.node, numbers[at], size);
    }
    destinations.push_back(to * slice_count + p % slice_count);
  }
  return {joined(x, ctx.inputs[2], destinations, ctx.node.string("reduction"))};
}

}  // namespace

OpDef scatter_nd_op() {
  return {.name = "scatter_nd",
          .takes_float8 = true,
          .operands = {{"x"}, {"indices"}, {"updates"}},
          .attrs = {reduction_attr(), in_place_attr()},
          .infer = infer_scatter_nd,
          .alias = reuse_first,
          .evaluate = evaluate_scatter_nd,
          .lowering = {.nest = "scatter"},
          .in_place = {{0, 0}}};
}

}  // namespace heddle::ir::ops
