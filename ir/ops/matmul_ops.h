// What the matrix products share.
#pragma once

#include "ir/op.h"

namespace heddle::ir::ops {

OpDef dequantised_matmul_op();
OpDef grouped_matmul_op();
OpDef int8_matmul_op();
OpDef packed_grouped_matmul_op();
OpDef packed_int8_conv_op();
OpDef packed_int8_matmul_op();
OpDef packed_matmul_op();

/// The matrix i32[depth, columns] that panels [p, q, w, 4] of packed_int8_matmul hold.
Literal matrix_of_panels(const Literal& panels, std::int64_t depth, std::int64_t columns);
/// a times b, both of `dtype`, as the contract of matmul says.
Literal matrix_product(const Literal& a, const Literal& b, const Sizes& result);

}  // namespace heddle::ir::ops
