// ordered_scatter: slices of x replaced or joined, by updates that are named in the order of where
// they go.
//
//   x             T[d0 .. dn-1], seen as D slices, one for each index of the first `coordinates`
//                 dimensions
//   destinations  i64[u]: numbers of slices, ascending
//   order         i64[u]: the updates that go there, each once; those of one slice ascend
//   updates       T[u, d_coordinates .. dn-1]
//   coordinates   leading dimensions of x that destinations count
//   reduction     none, add, mul, max or min: how an update joins what is there
//   what          the op in errors
//   result        T[d0 .. dn-1]
//
//   for k = 0 .. u-1:
//     result[destinations[k]] = reduction(result[destinations[k]], updates[order[k]])
//
// Joins of one slice happen one after the other, each rounding to T; with none the last stays. So
// this is scatter_nd, in the same order, of updates sorted by where they go: what is done in a slice
// depends on its own updates only. An update with a destination that is no slice is an IndexError;
// on CUDA it is dropped and reported. Destinations that do not ascend, and an order that names an update
// twice, give slices of unspecified elements.
//
// Constraints. infer() checks them in this order; tests are named ordered_scatter_c1 ...
//   C1  updates have the dtype of x
//   C2  destinations and order are i64[u]
//   C3  reduction is none, add, mul, max or min; none for bool
//   C4  coordinates is at least 0 and at most the rank of x
//   C5  updates have u and the trailing sizes of x
//
// Memory: the result may take the bytes of x; with in_place it overwrites x.
// Lowering: nest "ordered_scatter" in place; decompose gives clone and that.
// Source: what jit/lower/order_scatters.h makes of a scatter.
#include "ir/ops/common.h"
#include "ir/ops/indexing.h"
#include "ir/ops/scatter_ops.h"

namespace heddle::ir::ops {
namespace {

void check_lists(const InferContext& ctx) {
  constexpr std::string_view kC2 = "C2 destinations and order are i64[u]";
  for (const std::size_t k : {1u, 2u}) {
    const TensorMeta& list = ctx.meta(k);
    if (list.dtype != DType::I64) ctx.fail_dtype(kC2, "i64", text_of(list.dtype));
    if (list.rank() != 1) ctx.fail_shape(kC2, "one dimension", text_of(list.sizes));
  }
  ctx.require_equal(ctx.meta(1).sizes[0], ctx.meta(2).sizes[0], kC2);
}

std::size_t check_coordinates(const InferContext& ctx) {
  const std::int64_t coordinates = ctx.integer("coordinates");
  if (coordinates < 0 || coordinates > ctx.meta(0).rank())
    fail_argument(ctx, "C4 coordinates is at least 0 and at most the rank of x",
                  "0 to " + std::to_string(ctx.meta(0).rank()), std::to_string(coordinates));
  return static_cast<std::size_t>(coordinates);
}

std::vector<TensorMeta> infer_ordered_scatter(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  check_update_dtype(ctx, 3, "C1 updates have the dtype of x");
  check_lists(ctx);
  check_reduction(ctx, "C3 reduction is none, add, mul, max or min; none for bool");
  const std::size_t coordinates = check_coordinates(ctx);
  Dims wanted{ctx.meta(1).sizes[0]};
  wanted.insert(wanted.end(), x.sizes.begin() + static_cast<std::ptrdiff_t>(coordinates),
                x.sizes.end());
  constexpr std::string_view kC5 = "C5 updates have u and the trailing sizes of x";
  const Dims& updates = ctx.meta(3).sizes;
  if (updates.size() != wanted.size()) ctx.fail_shape(kC5, text_of(wanted), text_of(updates));
  for (std::size_t d = 0; d < wanted.size(); ++d) ctx.require_equal(wanted[d], updates[d], kC5);
  return one(fresh(ctx, x.dtype, x.sizes));
}

std::vector<Literal> evaluate_ordered_scatter(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const auto coordinates = static_cast<std::size_t>(ctx.node.integer("coordinates"));
  const std::span<const std::int64_t> sizes(x.sizes());
  const std::int64_t slices = element_count(sizes.first(coordinates));
  const std::int64_t width = element_count(sizes.subspan(coordinates));
  const std::vector<std::int64_t> numbers = dense<std::int64_t>(ctx.inputs[1]);
  const std::vector<std::int64_t> order = dense<std::int64_t>(ctx.inputs[2]);
  const auto updates = static_cast<std::int64_t>(numbers.size());
  std::vector<std::int64_t> destinations(static_cast<std::size_t>(ctx.inputs[3].count()));
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    const std::int64_t number =
        numbers[k] < 0 ? slices : numbers[k];  // none is counted from the end
    const std::int64_t to = wrapped_index(ctx.node, number, slices) * width;
    const std::int64_t named = order[k] < 0 ? updates : order[k];
    const std::int64_t update = wrapped_index(ctx.node, named, updates);
    for (std::int64_t c = 0; c < width; ++c)
      destinations[static_cast<std::size_t>(update * width + c)] = to + c;
  }
  return {joined(x, ctx.inputs[3], destinations, ctx.node.string("reduction"))};
}

/// The nest overwrites x: of another call a copy.
std::vector<Value> decompose_ordered_scatter(DecomposeContext& ctx) {
  if (overwrites(ctx.node, 0)) return {};
  Attrs attrs = ctx.node.attrs();
  attrs["in_place"] = std::vector<std::int64_t>{0};
  return {ctx.emit(
      "ordered_scatter",
      {ctx.emit("clone", {ctx.inputs[0]}), ctx.inputs[1], ctx.inputs[2], ctx.inputs[3]}, attrs)};
}

}  // namespace

OpDef ordered_scatter_op() {
  return {.name = "ordered_scatter",
          .takes_float8 = true,
          .operands = {{"x"}, {"destinations"}, {"order"}, {"updates"}},
          .attrs = {{"coordinates", AttrKind::Int, {}},
                    reduction_attr(),
                    {"what", AttrKind::String, std::string("ordered_scatter")},
                    in_place_attr()},
          .infer = infer_ordered_scatter,
          .alias = reuse_first,
          .evaluate = evaluate_ordered_scatter,
          .lowering = {.decompose = decompose_ordered_scatter, .nest = "ordered_scatter"},
          .in_place = {{0, 0}}};
}

}  // namespace heddle::ir::ops
