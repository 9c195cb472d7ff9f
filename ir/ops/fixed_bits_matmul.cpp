// fixed_bits_matmul: packed_bits_matmul of rows of fixed-point numbers, so that kernels multiply bytes.
//
//   digits     i8[m, D, k]: number j of row i is the sum over d of digits[i, d, j] * 256^d, as byte_digits makes them
//   words      i32[p, q, w], scale [p, g, w]: as in packed_bits_matmul
//   row_scale  f32[m, k / block]: what numbers of a block of a row are multiplied by
//   row_sums   i32[m, D, k / block]: the sum of each digit over the block
//   zero       optional, bits, columns, group: as in packed_bits_matmul
//   digits     D, 1 to 3
//   block      columns of a row that share a scale
//   result     f32[m, n] = matmul(a, d), where a[i, j] = row_scale[i, j / block] * number j of row i
//
// The sum of the products of each digit with a block's numbers is exact; the sum of the digits with their weights, its product
// with both scales and the sum over blocks are rounded as f32. Sums of fewer than 2^31 in magnitude, D <= 3 and block <= 128
// see to, are right. With other row_sums than said the result is unspecified.
//
// Constraints. infer() checks them in this order; tests are named fixed_bits_matmul_c1 ...
//   C1           digits are i8
//   C2           digits have three dimensions
//   C3 .. C10    those of packed_bits_matmul
//   C11          row_scale is f32, row_sums are i32
//   C12          block is a multiple of r and at most 128, and group, or k where that is 0, is one of block
//   C13          digits is 1 to 3, and a row of the operand has so many
//   C14          row_scale has m rows, row_sums have m rows of D digits, each of k / block
//
// Memory: the result is fresh.
// Source: exact products of bytes of split operands: the Ozaki scheme; ONNX Runtime's contrib op "MatMulNBits" at accuracy level
// 4 is the case of one digit.
#include "ir/ops/bit_ops.h"
#include "ir/ops/bits_matrix.h"
#include "ir/ops/common.h"
#include "ir/ops/dense.h"
#include "ir/ops/matmul_ops.h"

namespace heddle::ir::ops {
namespace {

constexpr std::size_t kRowScale = 3;
constexpr std::size_t kRowSums = 4;
constexpr BitsMatrix kFixedMatrix{.zero = 5};
constexpr std::int64_t kMostDigits = 3;
constexpr std::int64_t kMostBlock = 128;
constexpr double kBase = 256;

void require_rows(const InferContext& ctx, const SymExpr& depth) {
  const DType scale = ctx.meta(kRowScale).dtype;
  const DType sums = ctx.meta(kRowSums).dtype;
  if (scale != DType::F32 || sums != DType::I32)
    ctx.fail_dtype("C11 row_scale is f32, row_sums are i32", "f32 and i32",
                   std::string(name_of(scale)) + " and " + std::string(name_of(sums)));
  const std::int64_t block = ctx.integer("block");
  const std::int64_t group = ctx.integer("group");
  constexpr std::string_view kC12 =
      "C12 block is a multiple of r and at most 128, and group, or k where that is 0, is one of "
      "block";
  const std::int64_t rows = kWordBits / ctx.integer("bits");
  if (block < rows || block > kMostBlock || block % rows != 0 || group % block != 0)
    fail_argument(ctx, kC12, "a multiple of " + std::to_string(rows), std::to_string(block));
  require_multiple(ctx, depth, block, kC12);
  const Dims& digits = ctx.meta(0).sizes;
  constexpr std::string_view kC13 = "C13 digits is 1 to 3, and a row of the operand has so many";
  const std::int64_t count = ctx.integer("digits");
  if (count < 1 || count > kMostDigits) fail_argument(ctx, kC13, "1 to 3", std::to_string(count));
  ctx.require_equal(SymExpr(count), digits[1], kC13);
  constexpr std::string_view kC14 =
      "C14 row_scale has m rows, row_sums have m rows of D digits, each of k / block";
  const SymExpr blocks = floordiv(depth, block);
  for (const auto& [k, wanted] : {std::pair{kRowScale, Dims{digits[0], blocks}},
                                  std::pair{kRowSums, Dims{digits[0], digits[1], blocks}}}) {
    const Dims& got = ctx.meta(k).sizes;
    if (got.size() != wanted.size())
      ctx.fail_shape(kC14, text_of(seen(ctx.env, wanted)), text_of(seen(ctx.env, got)));
    for (std::size_t d = 0; d < wanted.size(); ++d) ctx.require_equal(wanted[d], got[d], kC14);
  }
}

std::vector<TensorMeta> infer_fixed_bits_matmul(const InferContext& ctx) {
  const TensorMeta& digits = ctx.meta(0);
  if (digits.dtype != DType::I8)
    ctx.fail_dtype("C1 digits are i8", "i8", std::string(name_of(digits.dtype)));
  if (digits.rank() != 3)
    ctx.fail_shape("C2 digits have three dimensions", "sizes [m, D, k]",
                   text_of(seen(ctx.env, digits.sizes)));
  kFixedMatrix.require(ctx, digits.sizes.back());
  require_rows(ctx, digits.sizes.back());
  return one(fresh(ctx, DType::F32, {digits.sizes[0], SymExpr(ctx.integer("columns"))}));
}

/// a, row-major.
std::vector<double> rows_of(const EvalContext& ctx) {
  const Sizes& sizes = ctx.inputs[0].sizes();
  const std::vector<double> digits = dense<double>(ctx.inputs[0]);
  const std::vector<double> scales = dense<double>(ctx.inputs[kRowScale]);
  const std::int64_t block = ctx.node.integer("block");
  std::vector<double> rows;
  for (std::int64_t i = 0; i < sizes[0]; ++i)
    for (std::int64_t j = 0; j < sizes[2]; ++j) {
      double number = 0;
      for (std::int64_t d = sizes[1]; d-- > 0;)
        number =
            number * kBase + digits[static_cast<std::size_t>((i * sizes[1] + d) * sizes[2] + j)];
      rows.push_back(number * scales[static_cast<std::size_t>(i * (sizes[2] / block) + j / block)]);
    }
  return rows;
}

std::vector<Literal> evaluate_fixed_bits_matmul(const EvalContext& ctx) {
  const Sizes& sizes = ctx.inputs[0].sizes();
  const Literal a = literal_of(DType::F64, {sizes[0], sizes[2]}, rows_of(ctx));
  const Literal d =
      literal_of(DType::F64, {sizes[2], ctx.node.integer("columns")}, kFixedMatrix.values(ctx));
  return {converted(matrix_product(a, d, ctx.output_sizes()), DType::F32)};
}

}  // namespace

OpDef fixed_bits_matmul_op() {
  return {
      .name = "fixed_bits_matmul",
      .operands = {{"digits"},
                   {"words"},
                   {"scale"},
                   {"row_scale"},
                   {"row_sums"},
                   {"zero", OperandSpec::Arity::Optional}},
      .attrs = {{"bits", AttrKind::Int, {}},
                {"columns", AttrKind::Int, {}},
                {"digits", AttrKind::Int, {}},
                {"block", AttrKind::Int, {}},
                {"group", AttrKind::Int, std::int64_t{0}}},
      .infer = infer_fixed_bits_matmul,
      .evaluate = evaluate_fixed_bits_matmul,
      .lowering = {.nest = "fixed_bits_matmul"},
  };
}

}  // namespace heddle::ir::ops
