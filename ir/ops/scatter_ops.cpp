#include "ir/ops/scatter_ops.h"

#include "base/check.h"
#include "ir/ops/common.h"
#include "ir/ops/families.h"
#include "ir/ops/host_scalar.h"

namespace heddle::ir {
namespace ops {
namespace {

HostScalar combined(std::string_view reduction, const HostScalar& old, const HostScalar& update) {
  if (reduction == "add") return apply(ScalarOp::Add, {old, update});
  if (reduction == "mul") return apply(ScalarOp::Mul, {old, update});
  if (reduction == "max") return apply(ScalarOp::Max, {old, update});
  if (reduction == "min") return apply(ScalarOp::Min, {old, update});
  HD_CHECK(reduction == "none");
  return update;
}

}  // namespace

AttrSpec reduction_attr() { return {"reduction", AttrKind::String, std::string("none")}; }

void check_reduction(const InferContext& ctx, std::string_view label) {
  const std::string& reduction = ctx.string("reduction");
  if (reduction == "none") return;
  if (reduction != "add" && reduction != "mul" && reduction != "max" && reduction != "min") {
    fail_argument(ctx, label, "none, add, mul, max or min", reduction);
  }
  if (ctx.meta(0).dtype == DType::Bool) {
    fail_argument(ctx, label, "none for bool", reduction);
  }
  if (is_float8(ctx.meta(0).dtype)) fail_argument(ctx, label, "none for 8-bit floats", reduction);
}

void check_update_dtype(const InferContext& ctx, std::size_t updates, std::string_view label) {
  if (ctx.meta(updates).dtype == ctx.meta(0).dtype) return;
  ctx.fail_dtype(label, text_of(ctx.meta(0).dtype), text_of(ctx.meta(updates).dtype));
}

Literal joined(const Literal& x, const Literal& updates,
               const std::vector<std::int64_t>& destinations, std::string_view reduction) {
  Literal result = x.clone();
  for (std::size_t p = 0; p < destinations.size(); ++p) {
    const HostScalar update = load(updates, static_cast<std::int64_t>(p));
    const std::int64_t to = destinations[p];
    store(result, to, combined(reduction, load(result, to), update));
  }
  return result;
}

}  // namespace ops

std::span<const OpDef> scatter_ops() {
  static const OpDef defs[] = {ops::scatter_elements_op(), ops::scatter_nd_op(),
                               ops::index_put_op(), ops::ordered_scatter_op(),
                               ops::slice_scatter_op()};
  return defs;
}

}  // namespace heddle::ir
