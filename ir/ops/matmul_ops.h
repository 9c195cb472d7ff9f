// What the matrix products share.
#pragma once

#include "ir/op.h"

namespace heddle::ir::ops {

OpDef byte_panels_op();
OpDef dequantised_matmul_op();
OpDef fixed_bits_matmul_op();
OpDef grouped_matmul_op();
OpDef int8_matmul_op();
OpDef packed_bf16_conv_op();
OpDef packed_bf16_matmul_op();
OpDef packed_bits_matmul_op();
OpDef packed_grouped_matmul_op();
OpDef packed_int8_conv_op();
OpDef packed_int8_matmul_op();
OpDef packed_matmul_op();
OpDef packed_split_matmul_op();
OpDef split_byte_pairs_op();

/// Sizes of all dimensions of matrices but the last two.
inline Dims batch_sizes(const TensorMeta& matrices) {
  return {matrices.sizes.begin(), matrices.sizes.end() - 2};
}
/// Whether `dtype` is one that scales of numbers of few bits, and rows beside them, may have.
inline bool is_scale(DType dtype) {
  return dtype == DType::F16 || dtype == DType::BF16 || dtype == DType::F32;
}

/// Of a product a [..., m, k] by panels [p, q, w, group], those of one matrix for all or of one for each: all of infer() but the dtypes
/// of the operands (C1).
std::vector<TensorMeta> panel_product(const InferContext& ctx, std::int64_t group, DType result);
/// Operand k, where there is one, is a bool scalar.
void require_pairs_fit(const InferContext& ctx, std::size_t k, std::string_view constraint);
/// The matrix [depth, columns] that panels [p, q, w, group] hold, converted to `dtype`.
Literal matrix_of_panels(const Literal& panels, DType dtype, std::int64_t depth,
                         std::int64_t columns);
/// a times what the panels hold, both converted to `result` first. `sizes`: of the result.
Literal panel_product(const Literal& a, const Literal& panels, DType result, const Sizes& sizes);
/// a times b, both of `dtype`, as the contract of matmul says.
Literal matrix_product(const Literal& a, const Literal& b, const Sizes& result);

}  // namespace heddle::ir::ops
