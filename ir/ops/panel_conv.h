// What packed_int8_conv and packed_bf16_conv share: windows of x times panels [p, q, w, group].
#pragma once

#include "ir/op.h"

namespace heddle::ir::ops {

std::vector<AttrSpec> panel_conv_attrs();
/// C3 to C9 of either op, whose operands 0 and 1 are x [n, in..., c] and panels.
std::vector<TensorMeta> panel_conv(const InferContext& ctx, std::int64_t group, DType result);
/// What the windows of x hold, `outside` where they reach beyond it: [n, out..., taps * c], of the result's dtype.
Literal panel_conv_windows(const EvalContext& ctx, std::int64_t outside);

}  // namespace heddle::ir::ops
