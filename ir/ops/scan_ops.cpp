// cumsum: running sums along one axis.
//
//   x           a number T[...], one dimension or more
//   axis        the dimension summed along; negative counts from the end
//   exclusive   element k holds the sum before x_k instead of up to it; the first is 0
//   reverse     sums run from the end of the axis
//   result      T[...], the sizes of x
//
// Sums are carried in f32 for f16 and bf16 and rounded where they are stored; integers wrap. The order in which elements of
// a sum are added is the compiler's, so sums in between may overflow in one order and not in another. From a NaN on, every
// sum is NaN.
//
// Constraints. infer() checks them in this order; tests are named cumsum_c1 ...
//   C1  x is a number
//   C2  axis lies within the rank of x
//
// Memory: the result is fresh.
// Source: ONNX CumSum-14.
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/families.h"

namespace heddle::ir {
namespace ops {
namespace {

std::vector<TensorMeta> infer_running(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  require_number(ctx, 0, "C1 x is a number");
  ctx.axis(ctx.integer("axis"), x.rank(), "C2 axis lies within the rank of x");
  return one(fresh(ctx, x.dtype, x.sizes));
}

template <typename T>
void accumulate(std::vector<T>& values, const AxisCut& cut, bool exclusive, bool reverse) {
  for (std::int64_t o = 0; o < cut.outer; ++o) {
    for (std::int64_t i = 0; i < cut.inner; ++i) {
      T sum = 0;
      for (std::int64_t k = 0; k < cut.length; ++k) {
        T& value = values[cut.at(o, reverse ? cut.length - 1 - k : k, i)];
        const T before = sum;
        sum = plus(sum, value);
        value = exclusive ? before : sum;
      }
    }
  }
}

std::vector<Literal> evaluate_running(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const AxisCut cut = cut_at(x.sizes(), from_front(ctx.node.integer("axis"), x.rank()));
  return with_number(x.dtype(), [&]<typename T>() {
    std::vector<T> values = dense<T>(x);
    accumulate(values, cut, ctx.node.flag("exclusive"), ctx.node.flag("reverse"));
    return std::vector<Literal>{literal_of(x.dtype(), x.sizes(), values)};
  });
}

}  // namespace
}  // namespace ops

std::span<const OpDef> scan_ops() {
  static const OpDef defs[] = {{
      .name = "cumsum",
      .operands = {{"x"}},
      .attrs = {{"axis", AttrKind::Int, {}},
                {"exclusive", AttrKind::Bool, false},
                {"reverse", AttrKind::Bool, false}},
      .infer = ops::infer_running,
      .evaluate = ops::evaluate_running,
      .lowering = {.nest = "scan"},
      .reorder = ops::reorder_axes,
  }};
  return defs;
}

}  // namespace heddle::ir
