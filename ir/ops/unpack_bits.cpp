// unpack_bits: numbers of 2 or 4 bits that lie side by side in bytes.
//
//   packed   u8[d0 .. dn-1, b]
//   bits     2 or 4
//   signed   bool = false: in two's complement
//   count    numbers of the last dimension: the last byte of a row may hold some that are none of them
//   result   i8 (signed) or u8 [d0 .. dn-1, count]; the first number of a byte is in its lowest bits
//
// Constraints. infer() checks them in this order; tests are named unpack_bits_c1 ...
//   C1  packed is u8
//   C2  packed has at least one dimension
//   C3  bits is 2 or 4
//   C4  count is at least 0, and takes b bytes
//
// Memory: fresh. Kernels that read the numbers read the bytes.
// Source: ONNX, "Int4 types": two to a byte, the first in the lower half, the last byte of an odd count padded.
#include "ir/ops/bit_ops.h"
#include "ir/ops/common.h"
#include "ir/ops/dense.h"

namespace heddle::ir::ops {
namespace {

DType result_dtype(bool is_signed) { return is_signed ? DType::I8 : DType::U8; }

std::vector<TensorMeta> infer_unpack_bits(const InferContext& ctx) {
  const TensorMeta& packed = ctx.meta(0);
  if (packed.dtype != DType::U8)
    ctx.fail_dtype("C1 packed is u8", "u8", std::string(name_of(packed.dtype)));
  if (packed.rank() < 1)
    ctx.fail_shape("C2 packed has at least one dimension", "sizes [..., b]", text_of(packed.sizes));
  const std::int64_t bits = ctx.integer("bits");
  if (bits != 2 && bits != 4)
    fail_argument(ctx, "C3 bits is 2 or 4", "2 or 4", std::to_string(bits));
  const std::int64_t count = ctx.integer("count");
  constexpr std::string_view kC4 = "C4 count is at least 0, and takes b bytes";
  if (count < 0) fail_argument(ctx, kC4, "0 or more", std::to_string(count));
  ctx.require_equal(count / (8 / bits) + (count % (8 / bits) != 0), packed.sizes.back(), kC4);
  Dims sizes(packed.sizes.begin(), packed.sizes.end() - 1);
  sizes.push_back(count);
  return one(fresh(ctx, result_dtype(ctx.flag("signed")), std::move(sizes)));
}

std::vector<Literal> evaluate_unpack_bits(const EvalContext& ctx) {
  const std::int64_t bits = ctx.node.integer("bits");
  const std::int64_t count = ctx.node.integer("count");
  const bool is_signed = ctx.node.flag("signed");
  const Sizes sizes = ctx.output_sizes();
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(element_count(sizes)));
  const std::vector<std::int64_t> bytes = dense<std::int64_t>(ctx.inputs[0]);
  const std::int64_t row_bytes = ctx.inputs[0].sizes().back();
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    const std::int64_t row = static_cast<std::int64_t>(k) / count;
    const std::int64_t bit = static_cast<std::int64_t>(k) % count * bits;
    const std::int64_t word =
        bytes[static_cast<std::size_t>(row * row_bytes + bit / 8)] >> (bit % 8);
    numbers[k] = is_signed ? signed_bits(word, bits) : word & ((1 << bits) - 1);
  }
  return {literal_of(result_dtype(is_signed), sizes, numbers)};
}

/// The bits go to the top of the byte and from there to its bottom, with or without their sign.
Scalar element_unpack_bits(ElementBuilder& builder, const Node& node, std::uint32_t,
                           std::span<const SymExpr> index) {
  const std::int64_t bits = node.integer("bits");
  const DType dtype = result_dtype(node.flag("signed"));
  std::vector<SymExpr> at(index.begin(), index.end());
  const SymExpr place = mod(at.back(), 8 / bits);
  at.back() = floordiv(at.back(), 8 / bits);
  const Scalar byte = builder.convert(builder.operand(0, at), dtype);
  const Scalar up = builder.convert(builder.from_index(SymExpr(8 - bits) - place * bits), dtype);
  return builder.apply2(ScalarOp::Shr, builder.apply2(ScalarOp::Shl, byte, up),
                        builder.constant_int(dtype, 8 - bits));
}

}  // namespace

OpDef unpack_bits_op() {
  return {
      .name = "unpack_bits",
      .operands = {{"packed"}},
      .attrs = {{"bits", AttrKind::Int, {}},
                {"count", AttrKind::Int, {}},
                {"signed", AttrKind::Bool, false}},
      .infer = infer_unpack_bits,
      .evaluate = evaluate_unpack_bits,
      .lowering = {.element = element_unpack_bits},
  };
}

}  // namespace heddle::ir::ops
