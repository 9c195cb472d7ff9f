// What the matrix products share.
#pragma once

#include "ir/op.h"

namespace heddle::ir::ops {

OpDef int8_matmul_op();
OpDef packed_int8_matmul_op();
OpDef packed_matmul_op();

/// a times b, both of `dtype`, as the contract of matmul says.
Literal matrix_product(const Literal& a, const Literal& b, const Sizes& result);

}  // namespace heddle::ir::ops
