// byte_digits: integers as digits of base 256, each a byte of its own.
//
//   x        i32[..., k]
//   count    D, 1 to 4: digits
//   result   i8[..., D, k], the lowest digit first: x = sum over d of digit d times 256^d, of digits from -128 to 127, where
//            D digits hold x; else what the lowest 8D bits hold
//
// Constraints. infer() checks them in this order; tests are named byte_digits_c1 ...
//   C1  x is i32
//   C2  x has at least one dimension
//   C3  count is 1 to 4
//
// Memory: fresh.
// Source: balanced digits, Knuth, "The Art of Computer Programming", 4.1.
#include "ir/ops/bit_ops.h"
#include "ir/ops/common.h"
#include "ir/ops/dense.h"

namespace heddle::ir::ops {
namespace {

constexpr std::int64_t kBits = 8;
/// 128 * (1 + 256 + 256^2): what is added before all digits below the fourth are dropped, so that the next one is rounded.
constexpr std::int64_t kHalves = 0x808080;

std::vector<TensorMeta> infer_byte_digits(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  if (x.dtype != DType::I32) ctx.fail_dtype("C1 x is i32", "i32", std::string(name_of(x.dtype)));
  if (x.rank() < 1)
    ctx.fail_shape("C2 x has at least one dimension", "sizes [..., k]", text_of(x.sizes));
  const std::int64_t count = ctx.integer("count");
  if (count < 1 || count > 4)
    fail_argument(ctx, "C3 count is 1 to 4", "1 to 4", std::to_string(count));
  Dims sizes = x.sizes;
  sizes.insert(sizes.end() - 1, SymExpr(count));
  return one(fresh(ctx, DType::I8, std::move(sizes)));
}

std::vector<Literal> evaluate_byte_digits(const EvalContext& ctx) {
  const std::vector<std::int64_t> numbers = dense<std::int64_t>(ctx.inputs[0]);
  const Sizes sizes = ctx.output_sizes();
  const std::int64_t width = sizes.back();
  const std::int64_t count = ctx.node.integer("count");
  std::vector<std::int64_t> digits(static_cast<std::size_t>(element_count(sizes)));
  for (std::size_t k = 0; k < digits.size(); ++k) {
    const auto at = static_cast<std::int64_t>(k);
    std::int64_t rest =
        numbers[static_cast<std::size_t>(at / (width * count) * width + at % width)];
    for (std::int64_t d = at / width % count; d > 0; --d)
      rest = (rest - signed_bits(rest, kBits)) / (std::int64_t{1} << kBits);
    digits[k] = signed_bits(rest, kBits);
  }
  return {literal_of(DType::I8, sizes, digits)};
}

Scalar element_byte_digits(ElementBuilder& builder, const Node&, std::uint32_t,
                           std::span<const SymExpr> index) {
  std::vector<SymExpr> at(index.begin(), index.end() - 2);
  at.push_back(index.back());
  const SymExpr& digit = index[index.size() - 2];
  const Scalar shift = builder.convert(builder.from_index(digit * kBits), DType::I32);
  const Scalar ones = builder.constant_int(DType::I32, -1);
  const Scalar below = builder.apply1(ScalarOp::Not, builder.apply2(ScalarOp::Shl, ones, shift));
  const Scalar half =
      builder.apply2(ScalarOp::And, below, builder.constant_int(DType::I32, kHalves));
  const Scalar moved = builder.apply2(ScalarOp::Add, builder.operand(0, at), half);
  return builder.convert(builder.apply2(ScalarOp::Shr, moved, shift), DType::I8);
}

}  // namespace

OpDef byte_digits_op() {
  return {
      .name = "byte_digits",
      .operands = {{"x"}},
      .attrs = {{"count", AttrKind::Int, {}}},
      .infer = infer_byte_digits,
      .evaluate = evaluate_byte_digits,
      .lowering = {.element = element_byte_digits},
  };
}

}  // namespace heddle::ir::ops
