// sort: the elements along one axis in order. topk: the first k of them.
//
//   x                      a number T[...], one dimension or more
//   axis                   the dimension put in order; negative counts from the end
//   descending (sort)      largest first
//   largest (topk)         the k largest, largest first; otherwise the k smallest, smallest first
//   k (topk)               a symbolic integer
//   sorted (topk)          false: the caller does not need the order; it gets it all the same
//   values                 T[...]; topk: size k along axis
//   indices                i64, as values: positions along axis in x
//
// The order is stable: of equal elements the smaller index comes first, descending too. NaN comes
// after every number in either direction, so topk gives a NaN only when it runs out of numbers. -0
// equals 0.
//
// Constraints. infer() checks them in this order; tests are named sort_c1 ... and topk_c1 ...
//   C1  x is a number
//   C2  axis lies within the rank of x
//   C3  (topk) k is at least 0 and at most the size of x along axis
//
// Memory: the results are fresh.
// Source: ONNX TopK-11; PyTorch, "sort" with stable=True.
#include "ir/ops/sort_ops.h"

#include <algorithm>
#include <numeric>

#include "ir/ops/common.h"
#include "ir/ops/families.h"

namespace heddle::ir {
namespace ops {
namespace {

std::int64_t check_x(const InferContext& ctx) {
  require_number(ctx, 0, "C1 x is a number");
  return ctx.axis(ctx.integer("axis"), ctx.meta(0).rank(), "C2 axis lies within the rank of x");
}

std::vector<TensorMeta> infer_sort(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  check_x(ctx);
  return {fresh(ctx, x.dtype, x.sizes), fresh(ctx, DType::I64, x.sizes)};
}

std::vector<TensorMeta> infer_topk(const InferContext& ctx) {
  constexpr std::string_view kC3 = "C3 k is at least 0 and at most the size of x along axis";
  const TensorMeta& x = ctx.meta(0);
  const auto axis = static_cast<std::size_t>(check_x(ctx));
  const SymExpr& k = std::get<SymExpr>(ctx.attrs.find("k")->second);
  const std::string expected = "0 to " + seen(ctx.env, x.sizes[axis]).to_string();
  require_le(ctx, 0, k, kC3, expected, seen(ctx.env, k).to_string());
  require_le(ctx, k, x.sizes[axis], kC3, expected, seen(ctx.env, k).to_string());
  Dims sizes = x.sizes;
  sizes[axis] = k;
  return {fresh(ctx, x.dtype, sizes), fresh(ctx, DType::I64, sizes)};
}

/// Positions 0 … length - 1 of one run of x, in order.
template <typename T>
std::vector<std::int64_t> ordered(const std::vector<T>& xs, const AxisCut& cut, std::int64_t o,
                                  std::int64_t i, bool descending) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(cut.length));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return comes_before(xs[cut.at(o, a, i)], xs[cut.at(o, b, i)], descending);
  });
  return order;
}

/// The first elements in order: as many as the outputs hold along the axis.
std::vector<Literal> first_in_order(const EvalContext& ctx, bool descending) {
  const Literal& x = ctx.inputs[0];
  const std::int64_t axis = from_front(ctx.node.integer("axis"), x.rank());
  const Sizes sizes = ctx.output_sizes();
  const AxisCut in = cut_at(x.sizes(), axis);
  const AxisCut out = cut_at(sizes, axis);
  return with_number(x.dtype(), [&]<typename T>() {
    const std::vector<T> xs = dense<T>(x);
    std::vector<T> values(static_cast<std::size_t>(element_count(sizes)));
    std::vector<std::int64_t> indices(values.size());
    for (std::int64_t o = 0; o < in.outer; ++o) {
      for (std::int64_t i = 0; i < in.inner; ++i) {
        const std::vector<std::int64_t> order = ordered(xs, in, o, i, descending);
        for (std::int64_t k = 0; k < out.length; ++k) {
          const std::int64_t from = order[static_cast<std::size_t>(k)];
          values[out.at(o, k, i)] = xs[in.at(o, from, i)];
          indices[out.at(o, k, i)] = from;
        }
      }
    }
    return std::vector<Literal>{literal_of(x.dtype(), sizes, values),
                                literal_of(DType::I64, sizes, indices)};
  });
}

std::vector<Literal> evaluate_sort(const EvalContext& ctx) {
  return first_in_order(ctx, ctx.node.flag("descending"));
}

std::vector<Literal> evaluate_topk(const EvalContext& ctx) {
  return first_in_order(ctx, ctx.node.flag("largest"));
}

OpDef sort_op() {
  return {
      .name = "sort",
      .operands = {{"x"}},
      .attrs = {{"axis", AttrKind::Int, std::int64_t{-1}}, {"descending", AttrKind::Bool, false}},
      .outputs = 2,
      .infer = infer_sort,
      .evaluate = evaluate_sort,
      .lowering = {.nest = "sort"}};
}

OpDef topk_op() {
  return {.name = "topk",
          .operands = {{"x"}},
          .attrs = {{"k", AttrKind::SymInt, {}},
                    {"axis", AttrKind::Int, std::int64_t{-1}},
                    {"largest", AttrKind::Bool, true},
                    {"sorted", AttrKind::Bool, true}},
          .outputs = 2,
          .infer = infer_topk,
          .evaluate = evaluate_topk,
          .lowering = {.nest = "sort"}};
}

}  // namespace
}  // namespace ops

std::span<const OpDef> sort_ops() {
  static const OpDef defs[] = {ops::sort_op(), ops::topk_op(), ops::merge_runs_op()};
  return defs;
}

}  // namespace heddle::ir
