// merge_runs: neighbouring runs of a dimension, each in order, joined into longer ones.
//
//   keys         a number T[d0 .. dn-1]; along the last dimension each `run` elements from the first
//                on are in the order of sort, and so are those that are left
//   order        i64, as keys: goes where its key goes
//   run          elements of a run
//   count        a symbolic integer: so many neighbouring runs become one
//   descending   largest first
//   values       T, as keys
//   indices      i64, as keys
//
// Equal keys stay in their order, and NaN comes after every number, as in sort. Runs that are not in
// order give any permutation of their group.
//
// Constraints. infer() checks them in this order; tests are named merge_runs_c1 ...
//   C1  keys are numbers
//   C2  keys have a dimension
//   C3  order is i64 and has the sizes of keys
//   C4  run is at least 1
//
// Memory: the results are fresh.
// Source: what jit/lower/split_sorts.h makes of a long sort.
#include <algorithm>
#include <numeric>

#include "ir/ops/common.h"
#include "ir/ops/sort_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_merge_runs(const InferContext& ctx) {
  require_number(ctx, 0, "C1 keys are numbers");
  const TensorMeta& keys = ctx.meta(0);
  const TensorMeta& order = ctx.meta(1);
  if (keys.rank() == 0)
    ctx.fail_shape("C2 keys have a dimension", "a rank of 1 or more", text_of(keys.sizes));
  constexpr std::string_view kC3 = "C3 order is i64 and has the sizes of keys";
  if (order.dtype != DType::I64) ctx.fail_dtype(kC3, "i64", text_of(order.dtype));
  if (order.rank() != keys.rank()) ctx.fail_shape(kC3, text_of(keys.sizes), text_of(order.sizes));
  for (std::size_t d = 0; d < keys.sizes.size(); ++d)
    ctx.require_equal(keys.sizes[d], order.sizes[d], kC3);
  if (ctx.integer("run") < 1)
    fail_argument(ctx, "C4 run is at least 1", "1 or more", std::to_string(ctx.integer("run")));
  return {fresh(ctx, keys.dtype, keys.sizes), fresh(ctx, DType::I64, keys.sizes)};
}

/// Positions 0 … n - 1 of one row of keys, in the order that they have afterwards.
template <typename T>
std::vector<std::int64_t> merged(const T* keys, std::int64_t n, std::int64_t group,
                                 bool descending) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (std::int64_t begin = 0; begin < n; begin += group)
    std::stable_sort(
        order.begin() + begin, order.begin() + std::min(n, begin + group),
        [&](std::int64_t a, std::int64_t b) { return comes_before(keys[a], keys[b], descending); });
  return order;
}

std::vector<Literal> evaluate_merge_runs(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const std::int64_t n = x.sizes().back();
  const std::int64_t count = ctx.concrete({&std::get<SymExpr>(ctx.node.attr("count")), 1})[0];
  const std::int64_t group = std::max<std::int64_t>(1, ctx.node.integer("run") * count);
  const std::vector<std::int64_t> order = dense<std::int64_t>(ctx.inputs[1]);
  return with_number(x.dtype(), [&]<typename T>() {
    const std::vector<T> keys = dense<T>(x);
    std::vector<T> values(keys.size());
    std::vector<std::int64_t> indices(keys.size());
    for (std::size_t row = 0; row < keys.size(); row += static_cast<std::size_t>(n)) {
      const auto places = merged(keys.data() + row, n, group, ctx.node.flag("descending"));
      for (std::size_t k = 0; k < places.size(); ++k) {
        values[row + k] = keys[row + static_cast<std::size_t>(places[k])];
        indices[row + k] = order[row + static_cast<std::size_t>(places[k])];
      }
    }
    return std::vector<Literal>{literal_of(x.dtype(), x.sizes(), values),
                                literal_of(DType::I64, x.sizes(), indices)};
  });
}

}  // namespace

OpDef merge_runs_op() {
  return {.name = "merge_runs",
          .operands = {{"keys"}, {"order"}},
          .attrs = {{"run", AttrKind::Int, {}},
                    {"count", AttrKind::SymInt, {}},
                    {"descending", AttrKind::Bool, false}},
          .outputs = 2,
          .infer = infer_merge_runs,
          .evaluate = evaluate_merge_runs,
          .lowering = {.nest = "merge_runs"}};
}

}  // namespace heddle::ir::ops
