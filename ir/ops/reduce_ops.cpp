// Reductions: reduce_sum, reduce_prod, reduce_max, reduce_min, reduce_and, reduce_or.
//
//   x         T[d0 .. dn-1]
//   axes      int[]; negative entries count from the end; none reduces nothing
//   keepdims  bool = false: reduced dimensions stay, with size 1
//   result    T[d without the axes]
//
// f16 and bf16 are accumulated in f32 and integers in i64, rounded or wrapped once at the end; the
// order of combination is the compiler's. max and min give NaN if any element is NaN. Of no
// elements: sum 0, prod 1, max the lowest value of T (-inf), min the highest (inf), reduce_and
// true, reduce_or false.
//
// Constraints. infer() checks them in this order; tests are named <op>_c1 ...
//   C1  each axis lies in [-n, n)
//   C2  no axis is named twice
//   C3  T is bool for and, or; anything else for the others
//
// Memory: fresh.
// Source: ONNX ReduceSum-13 and its kin; NumPy's empty reductions.
#include "ir/ops/reduce_ops.h"

#include <limits>

#include "ir/ops/common.h"
#include "ir/ops/families.h"
#include "ir/ops/host_scalar.h"

namespace heddle::ir {
namespace {

struct Kind {
  std::string_view name;
  ReduceOp reduce;
  ScalarOp combine;
};

constexpr Kind kKinds[] = {
    {"reduce_sum", ReduceOp::Sum, ScalarOp::Add}, {"reduce_prod", ReduceOp::Prod, ScalarOp::Mul},
    {"reduce_max", ReduceOp::Max, ScalarOp::Max}, {"reduce_min", ReduceOp::Min, ScalarOp::Min},
    {"reduce_and", ReduceOp::And, ScalarOp::And}, {"reduce_or", ReduceOp::Or, ScalarOp::Or},
};

const Kind& kind_of_op(ReduceOp reduce) {
  const Kind* kind = kKinds;
  while (kind->reduce != reduce) ++kind;
  return *kind;
}

std::vector<TensorMeta> infer_reduce(const InferContext& ctx) {
  const DType dtype = ctx.meta(0).dtype;
  TensorMeta result = ops::infer_reduction(ctx, dtype);
  const ReduceOp reduce = *ctx.op.lowering.reduce;
  const bool logical = reduce == ReduceOp::And || reduce == ReduceOp::Or;
  if (logical != (dtype == DType::Bool)) {
    ctx.fail_dtype("C3 dtype", logical ? "bool" : "a number dtype", ops::text_of(dtype));
  }
  return ops::one(std::move(result));
}

/// What a reduction of no elements gives, in a dtype that the elements are combined in.
ops::HostScalar identity(ReduceOp reduce, DType element, DType dtype) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto number = [&](double value) {
    return ops::convert(ops::HostScalar::of_real(DType::F64, value), dtype);
  };
  // Through T, so that infinity becomes the extreme value of an integer T.
  const auto extreme = [&](double value) {
    return ops::convert(ops::convert(ops::HostScalar::of_real(DType::F64, value), element), dtype);
  };
  switch (reduce) {
    case ReduceOp::Prod:
      return number(1.0);
    case ReduceOp::Max:
      return extreme(-kInfinity);
    case ReduceOp::Min:
      return extreme(kInfinity);
    case ReduceOp::And:
      return ops::HostScalar::of_bool(true);
    default:
      return number(0.0);
  }
}

/// The dtype that the definition combines in: wide enough that only the last rounding shows.
DType wide(DType dtype) {
  if (dtype == DType::Bool) return dtype;
  if (dtype == DType::U64) return dtype;
  return is_floating(dtype) ? DType::F64 : DType::I64;
}

std::vector<Literal> evaluate_reduce(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const Kind& kind = kind_of_op(*ctx.node.op().lowering.reduce);
  const auto axes = ops::sorted_axes(ctx.node.ints("axes"), x.rank());
  Literal result(x.dtype(), ops::without_axes(x.sizes(), axes, ctx.node.flag("keepdims")));
  std::int64_t position = 0;
  for (const auto& group : ops::groups_of(x.sizes(), axes)) {
    ops::HostScalar value = identity(kind.reduce, x.dtype(), wide(x.dtype()));
    for (const std::int64_t p : group) {
      value = ops::apply(kind.combine, {value, ops::convert(ops::load(x, p), wide(x.dtype()))});
    }
    ops::store(result, position++, ops::convert(value, x.dtype()));
  }
  return {std::move(result)};
}

OpDef reduction(const Kind& kind) {
  return {
      .name = kind.name,
      .operands = {{"x"}},
      .attrs = {{"axes", AttrKind::Ints}, {"keepdims", AttrKind::Bool, Attr(false)}},
      .infer = infer_reduce,
      .evaluate = evaluate_reduce,
      .lowering = {.reduce = kind.reduce},
      .reorder = ops::reorder_reduction,
  };
}

}  // namespace

std::span<const OpDef> reduce_ops() {
  static const std::vector<OpDef> ops = [] {
    std::vector<OpDef> made;
    for (const Kind& kind : kKinds) made.push_back(reduction(kind));
    made.push_back(ops::reduce_mean_op());
    made.push_back(ops::variance_op());
    return made;
  }();
  return ops;
}

}  // namespace heddle::ir
