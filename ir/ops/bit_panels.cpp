// bit_panels: a matrix of small numbers in panels of columns, several rows side by side in a word.
//
//   x        U[k, n], U being u8 or i8
//   bits     2, 4 or 8: of a number
//   width    w, the columns of a panel
//   result   i32[ceil(n / w), ceil(k / r), w], r = 32 / bits: element (row, column) of x is number row % r of word
//            (column / w, row / r, column % w), in two's complement; less 2^(bits - 1) where U is u8. Number i lies in byte
//            i % 4, from bit i / 4 * bits on, so that a shift and a mask give four rows as bytes side by side.
//            Higher bits of x are dropped, and what is missing to whole words and panels is 0 of x
//
// The lowering makes such calls from constant weights; they run once, when the program is built.
//
// Constraints. infer() checks them in this order; tests are named bit_panels_c1 ...
//   C1  x is u8 or i8
//   C2  x has two dimensions
//   C3  bits is 2, 4 or 8
//   C4  width is at least 1
//
// Memory: fresh.
// Source: as packed_matmul; that a vector of words gives a row of numbers by one shift.
#include "ir/ops/bit_ops.h"
#include "ir/ops/common.h"
#include "ir/ops/dense.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> infer_bit_panels(const InferContext& ctx) {
  const TensorMeta& x = ctx.meta(0);
  if (x.dtype != DType::U8 && x.dtype != DType::I8)
    ctx.fail_dtype("C1 x is u8 or i8", "u8 or i8", std::string(name_of(x.dtype)));
  if (x.rank() != 2)
    ctx.fail_shape("C2 x has two dimensions", "sizes [k, n]", text_of(seen(ctx.env, x.sizes)));
  const std::int64_t bits = ctx.integer("bits");
  if (bits != 2 && bits != 4 && bits != 8)
    fail_argument(ctx, "C3 bits is 2, 4 or 8", "2, 4 or 8", std::to_string(bits));
  const std::int64_t width = ctx.integer("width");
  if (width < 1) fail_argument(ctx, "C4 width is at least 1", "1 or more", std::to_string(width));
  return one(
      fresh(ctx, DType::I32,
            {ceildiv(x.sizes[1], width), ceildiv(x.sizes[0], kWordBits / bits), SymExpr(width)}));
}

std::vector<Literal> evaluate_bit_panels(const EvalContext& ctx) {
  const Literal& x = ctx.inputs[0];
  const std::int64_t bits = ctx.node.integer("bits");
  const std::int64_t rows = kWordBits / bits;
  const std::int64_t half = x.dtype() == DType::U8 ? std::int64_t{1} << (bits - 1) : 0;
  const std::vector<std::int64_t> numbers = dense<std::int64_t>(x);
  const Sizes sizes = ctx.output_sizes();
  std::vector<std::int64_t> words;
  Sizes at(3, 0);
  if (element_count(sizes) != 0) do {
      std::int64_t word = 0;
      for (std::int64_t r = 0; r < rows; ++r) {
        const std::int64_t row = at[1] * rows + r;
        const std::int64_t column = at[0] * sizes[2] + at[2];
        const bool inside = row < x.sizes()[0] && column < x.sizes()[1];
        const std::int64_t number =
            inside ? numbers[static_cast<std::size_t>(row * x.sizes()[1] + column)] : 0;
        word |= ((number - half) & ((std::int64_t{1} << bits) - 1)) << bit_of_row(r, bits);
      }
      words.push_back(word);
    } while (next_index(at, sizes));
  return {literal_of(DType::I32, sizes, words)};
}

/// Number `r` of the word at `index`, in the lowest bits of an i32.
Scalar number(ElementBuilder& builder, const Node& node, std::span<const SymExpr> index,
              std::int64_t r) {
  const TensorMeta& x = node.input(0).meta();
  const std::int64_t bits = node.integer("bits");
  const SymExpr row = index[1] * (kWordBits / bits) + r;
  const SymExpr column = index[0] * node.integer("width") + index[2];
  const Scalar inside =
      builder.apply2(ScalarOp::And, builder.predicate({base::Predicate::Op::Lt, row, x.sizes[0]}),
                     builder.predicate({base::Predicate::Op::Lt, column, x.sizes[1]}));
  builder.begin_guard(inside);
  const SymExpr at[] = {row, column};
  Scalar value = builder.operand(0, at);
  builder.end_guard();
  value = builder.select(inside, value, builder.constant_int(x.dtype, 0));
  value = builder.convert(value, DType::I32);
  if (x.dtype == DType::U8)
    value = builder.apply2(ScalarOp::Sub, value,
                           builder.constant_int(DType::I32, std::int64_t{1} << (bits - 1)));
  const std::int64_t mask = (std::int64_t{1} << bits) - 1;
  return builder.apply2(ScalarOp::And, value, builder.constant_int(DType::I32, mask));
}

Scalar element_bit_panels(ElementBuilder& builder, const Node& node, std::uint32_t,
                          std::span<const SymExpr> index) {
  const std::int64_t bits = node.integer("bits");
  Scalar word = number(builder, node, index, 0);
  for (std::int64_t r = 1; r < kWordBits / bits; ++r) {
    const Scalar up = builder.constant_int(DType::I32, bit_of_row(r, bits));
    const Scalar part = builder.apply2(ScalarOp::Shl, number(builder, node, index, r), up);
    word = builder.apply2(ScalarOp::Or, word, part);
  }
  return word;
}

}  // namespace

OpDef bit_panels_op() {
  return {
      .name = "bit_panels",
      .operands = {{"x"}},
      .attrs = {{"bits", AttrKind::Int, {}}, {"width", AttrKind::Int, {}}},
      .infer = infer_bit_panels,
      .evaluate = evaluate_bit_panels,
      .lowering = {.element = element_bit_panels},
      .expensive = true,
  };
}

}  // namespace heddle::ir::ops
