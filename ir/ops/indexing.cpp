#include "ir/ops/indexing.h"

#include "heddle/error.h"
#include "ir/ops/common.h"

namespace heddle::ir::ops {

void require_integer_indices(const InferContext& ctx, std::size_t k, std::string_view label) {
  const DType dtype = ctx.meta(k).dtype;
  if (!is_integer(dtype)) ctx.fail_dtype(label, "an integer dtype", text_of(dtype));
}

SymExpr wrapped_index(ElementBuilder& builder, Scalar value, const SymExpr& size) {
  Scalar index = value.dtype == DType::I64 ? value : builder.convert(value, DType::I64);
  if (is_signed(value.dtype)) {
    const Scalar zero = builder.constant_int(DType::I64, 0);
    const Scalar negative = builder.apply2(ScalarOp::Lt, index, zero);
    const Scalar from_end = builder.apply2(ScalarOp::Add, index, builder.from_index(size));
    index = builder.select(negative, from_end, index);
  }
  return builder.to_index(index, 0, size - 1, /*checked=*/true);
}

std::int64_t wrapped_index(const Node& node, std::int64_t value, std::int64_t size) {
  if (value >= -size && value < size) return from_front(value, size);
  throw IndexError({.what = std::string(node.op_name()) + ": index out of range",
                    .where = node.location().to_string(),
                    .expected = "[" + std::to_string(-size) + ", " + std::to_string(size) + ")",
                    .got = std::to_string(value)});
}

}  // namespace heddle::ir::ops
