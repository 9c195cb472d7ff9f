// slice: a strided window of one operand, without a copy.
//
//   x                    T[d0 .. dn-1]
//   start, limit, stride symint[n], in elements
//   result               T[ceil((limit_k - start_k) / stride_k)];
//                        element i_k is x's start_k + i_k * stride_k
//
// Constraints. infer() checks them in this order; tests are named slice_c1 ...
//   C1  start, limit and stride have n entries each
//   C2  stride_k >= 1
//   C3  0 <= start_k <= limit_k <= d_k
//
// Memory: a view of the operand that owns nothing.
// Source: StableHLO spec, "slice"; ONNX Slice-13 once negative positions are resolved.
#include "ir/ops/common.h"
#include "ir/ops/view_ops.h"

namespace heddle::ir::ops {
namespace {

void check_bounds(const InferContext& ctx, std::string_view attr) {
  const Dims& entries = ctx.symints(attr);
  if (entries.size() == ctx.meta(0).sizes.size()) return;
  ctx.fail_shape("C1 entries",
                 std::to_string(ctx.meta(0).rank()) + " entries in " + std::string(attr),
                 text_of(entries));
}

void check_window(const InferContext& ctx, std::size_t d) {
  const SymExpr& start = ctx.symints("start")[d];
  const SymExpr& limit = ctx.symints("limit")[d];
  const SymExpr& stride = ctx.symints("stride")[d];
  const SymExpr& size = ctx.meta(0).sizes[d];
  const std::string where = " in dimension " + std::to_string(d);
  require_le(ctx, 1, stride, "C2 stride", "stride >= 1" + where, seen(ctx.env, stride).to_string());
  const std::string expected = "0 <= start <= limit <= " + seen(ctx.env, size).to_string() + where;
  const std::string got =
      "start " + seen(ctx.env, start).to_string() + ", limit " + seen(ctx.env, limit).to_string();
  require_le(ctx, 0, start, "C3 window", expected, got);
  require_le(ctx, start, limit, "C3 window", expected, got);
  require_le(ctx, limit, size, "C3 window", expected, got);
}

std::vector<TensorMeta> infer_slice(const InferContext& ctx) {
  for (const std::string_view attr : {"start", "limit", "stride"}) check_bounds(ctx, attr);
  TensorMeta result = ctx.meta(0);
  for (std::size_t d = 0; d < result.sizes.size(); ++d) {
    check_window(ctx, d);
    const SymExpr& stride = ctx.symints("stride")[d];
    result.sizes[d] = ceildiv(ctx.symints("limit")[d] - ctx.symints("start")[d], stride);
    result.strides[d] *= stride;
  }
  return one(std::move(result));
}

std::vector<Literal> evaluate_slice(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const Sizes start = ctx.concrete_attr("start");
  const Sizes limit = ctx.concrete_attr("limit");
  const Sizes stride = ctx.concrete_attr("stride");
  Sizes sizes;
  Sizes strides;
  std::int64_t offset = 0;
  for (std::size_t d = 0; d < start.size(); ++d) {
    sizes.push_back((limit[d] - start[d] + stride[d] - 1) / stride[d]);
    strides.push_back(x.strides()[d] * stride[d]);
    offset += x.strides()[d] * start[d];
  }
  return {x.view(sizes, strides, offset)};
}

std::vector<SymExpr> view_slice(const Node& node, std::span<const SymExpr> index) {
  std::vector<SymExpr> mapped;
  for (std::size_t d = 0; d < index.size(); ++d) {
    mapped.push_back(node.symints("start")[d] + index[d] * node.symints("stride")[d]);
  }
  return mapped;
}

}  // namespace

OpDef slice_op() {
  return {
      .name = "slice",
      .takes_float8 = true,
      .operands = {{"x"}},
      .attrs = {{"start", AttrKind::SymInts},
                {"limit", AttrKind::SymInts},
                {"stride", AttrKind::SymInts}},
      .infer = infer_slice,
      .alias = view_of_first,
      .evaluate = evaluate_slice,
      .lowering = {.view = view_slice},
      .reorder = reorder_entries,
  };
}

}  // namespace heddle::ir::ops
