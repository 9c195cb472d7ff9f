#include "ir/ops/indexing.h"

#include <limits>

#include "heddle/error.h"
#include "ir/ops/common.h"

namespace heddle::ir::ops {

void require_integer_indices(const InferContext& ctx, std::size_t k, std::string_view label) {
  const DType dtype = ctx.meta(k).dtype;
  if (!is_integer(dtype)) ctx.fail_dtype(label, "an integer dtype", text_of(dtype));
}

namespace {

/// Of 32 bits where numbers of the dtype and the size have no more: vectors have twice as many lanes of these.
DType index_dtype(DType dtype, const SymExpr& size) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const bool narrow = size_of(dtype) < 4 || dtype == DType::I32;
  return narrow && size.is_constant() && size.constant() <= kMost ? DType::I32 : DType::I64;
}

/// Whether every number of the dtype is an index of so many elements.
bool always_within(DType dtype, const SymExpr& size) {
  if (is_signed(dtype) || size_of(dtype) > 2) return false;
  const std::int64_t values = std::int64_t{1} << (8 * size_of(dtype));
  return size.is_constant() && size.constant() >= values;
}

}  // namespace

SymExpr wrapped_index(ElementBuilder& builder, Scalar value, const SymExpr& size) {
  const DType dtype = index_dtype(value.dtype, size);
  Scalar index = value.dtype == dtype ? value : builder.convert(value, dtype);
  if (is_signed(value.dtype)) {
    const Scalar zero = builder.constant_int(dtype, 0);
    const Scalar negative = builder.apply2(ScalarOp::Lt, index, zero);
    const Scalar whole = dtype == DType::I32 ? builder.constant_int(dtype, size.constant())
                                             : builder.from_index(size);
    const Scalar from_end = builder.apply2(ScalarOp::Add, index, whole);
    index = builder.select(negative, from_end, index);
  }
  return builder.to_index(index, 0, size - 1, /*checked=*/!always_within(value.dtype, size));
}

std::int64_t wrapped_index(const Node& node, std::int64_t value, std::int64_t size) {
  if (value >= -size && value < size) return from_front(value, size);
  throw IndexError({.what = std::string(node.op_name()) + ": index out of range",
                    .where = node.location().to_string(),
                    .expected = "[" + std::to_string(-size) + ", " + std::to_string(size) + ")",
                    .got = std::to_string(value)});
}

}  // namespace heddle::ir::ops
