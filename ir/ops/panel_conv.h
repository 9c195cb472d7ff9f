// What packed_int8_conv and packed_bf16_conv share: windows of x times panels [p, q, w, group].
#pragma once

#include "ir/op.h"

namespace heddle::ir::ops {

std::vector<AttrSpec> panel_conv_attrs();
/// C3 to C10 of either op, whose operands 0 and 1 are x [n, in..., c] and panels.
std::vector<TensorMeta> panel_conv(const InferContext& ctx, std::int64_t group, DType result);
/// The result of either op, x being `outside` where windows reach beyond it.
Literal panel_conv_sums(const EvalContext& ctx, std::int64_t outside);

}  // namespace heddle::ir::ops
