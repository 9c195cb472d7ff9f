// packed_bits_matmul and fixed_bits_matmul against matmul of the matrices that they stand for, and their constraints.
#include <gtest/gtest.h>

#include "tests/support/bits_products.h"

namespace heddle::testing {
namespace {

using ir::Literal;

constexpr double kRounding = 1e-5;

TEST(PackedBitsMatmul, WrittenOut) {
  // Rows 1 to 4 and -1 to -4, zero point 1 and scale 0.5; the panel's second column is none of the matrix.
  const Literal words = ints(i32, {1, 1, 2}, {static_cast<std::int32_t>(0xc4d3e2f1), -1});
  const Literal a = doubles(f32, {1, 8}, {1, 0, 0, 10, 0, 100, 0, 0});
  expect_same(
      value_of({"packed_bits_matmul",
                {a, words, doubles(f32, {1, 1, 2}, {0.5, kNan}), ints(i8, {1, 1, 2}, {1, 0})},
                {{"bits", std::int64_t{4}}, {"columns", std::int64_t{1}}}}),
      doubles(f32, {1, 1}, {0 + 15 - 150}));
}

TEST(PackedBitsMatmul, IsMatmulOfWhatTheWordsHold) {
  for (const std::int64_t bits : {2, 4, 8})
    for (const std::int64_t group : {0, 32})
      for (const DType zero : {DType::Bool, i8, i16, f16, f32})
        for (const DType dtype : {f16, bf16, f32}) {
          const BitsMatrixNoise matrix{.depth = 96,
                                       .columns = 70,
                                       .bits = bits,
                                       .group = group,
                                       .zero = zero,
                                       .scale = dtype};
          const Literal a = noise(dtype, {2, 3, 96});
          const Literal wide = value_of({"convert", {a}, {{"dtype", f32}}});
          const Literal want = value_of({"matmul", {wide, matrix.reals()}});
          expect_close(value_of(packed_bits_product(a, matrix)),
                       value_of({"convert", {want}, {{"dtype", dtype}}}),
                       dtype == f32 ? kRounding : tolerance_of(dtype));
        }
}

TEST(FixedBitsMatmul, IsMatmulOfWhatDigitsAndWordsStandFor) {
  for (const std::int64_t digits : {1, 2, 3})
    for (const std::int64_t bits : {2, 4, 8})
      for (const DType zero : {DType::Bool, i8, f32})
        for (const auto& [group, block] : {std::pair{0, 16}, {32, 32}, {64, 16}}) {
          const BitsMatrixNoise matrix{
              .depth = 128, .columns = 70, .bits = bits, .group = group, .zero = zero};
          const FixedNoise rows(3, 128, digits, block);
          expect_close(value_of(fixed_bits_product(rows, block, matrix)),
                       value_of({"matmul", {rows.reals, matrix.reals()}}), kRounding);
        }
}

TEST(PackedBitsMatmul, OfNoRowsIsEmpty) {
  const BitsMatrixNoise matrix{.depth = 32, .columns = 5};
  EXPECT_EQ(value_of(packed_bits_product(noise(f32, {0, 32}), matrix)).sizes(), (ir::Sizes{0, 5}));
}

/// Operands of a product of f32[2, 64] by [64, 70] in 4 bits and groups of 32, one of them replaced.
std::string error_of_product(std::string_view op, std::size_t replaced, const ir::TensorMeta& by,
                             const ir::Attrs& changed = {}) {
  std::vector<ir::TensorMeta> all{meta(f32, {2, 64}), meta(i32, {2, 8, 64}), meta(f32, {2, 2, 64})};
  if (op == "fixed_bits_matmul") {
    all[0] = meta(i8, {2, 3, 64});
    all.push_back(meta(f32, {2, 2}));
    all.push_back(meta(i32, {2, 3, 2}));
  }
  all.push_back(meta(i8, {2, 2, 64}));
  all[replaced] = by;
  ir::Attrs attrs{
      {"bits", std::int64_t{4}}, {"columns", std::int64_t{70}}, {"group", std::int64_t{32}}};
  if (op == "fixed_bits_matmul") {
    attrs["block"] = std::int64_t{32};
    attrs["digits"] = std::int64_t{3};
  }
  for (const auto& [name, value] : changed) attrs[name] = value;
  return error_of(op, all, attrs);
}
std::string with_attr(std::string_view op, const std::string& name, std::int64_t value) {
  const bool fixed = op == "fixed_bits_matmul";
  return error_of_product(op, 0, fixed ? meta(i8, {2, 3, 64}) : meta(f32, {2, 64}),
                          {{name, value}});
}
std::size_t zero_of(std::string_view op) { return op == "fixed_bits_matmul" ? 5 : 3; }

/// Of both ops.
void expect_error(const std::function<std::string(std::string_view)>& error,
                  const std::string& text) {
  for (const std::string op : {"packed_bits_matmul", "fixed_bits_matmul"})
    EXPECT_EQ(error(op), op + ": " + text);
}

TEST(PackedBitsMatmul, packed_bits_matmul_c1) {
  EXPECT_EQ(error_of_product("packed_bits_matmul", 0, meta(f64, {2, 64})),
            "packed_bits_matmul: C1 a is f16, bf16 or f32: expected f16, bf16 or f32, got f64");
}
TEST(PackedBitsMatmul, packed_bits_matmul_c2) {
  EXPECT_EQ(error_of_product("packed_bits_matmul", 0, meta(f32, {64})),
            "packed_bits_matmul: C2 a has at least two dimensions: expected sizes [..., m, k], got "
            "[64]");
}
TEST(PackedBitsMatmul, packed_bits_matmul_c3) {
  expect_error([](std::string_view op) { return error_of_product(op, 1, meta(u8, {2, 8, 64})); },
               "C3 words are i32: expected i32, got u8");
}
TEST(PackedBitsMatmul, packed_bits_matmul_c4) {
  const std::string label = "C4 scale is f16, bf16 or f32, and zero one of these, i8 or i16: ";
  expect_error([](std::string_view op) { return error_of_product(op, 2, meta(i8, {2, 2, 64})); },
               label + "expected f16, bf16 or f32, got i8");
  expect_error(
      [](std::string_view op) { return error_of_product(op, zero_of(op), meta(i32, {2, 2, 64})); },
      label + "expected f16, bf16, f32, i8 or i16, got i32");
}
TEST(PackedBitsMatmul, packed_bits_matmul_c5) {
  const std::string label =
      "C5 words, scale and zero have three dimensions: expected three "
      "dimensions, got ";
  expect_error([](std::string_view op) { return error_of_product(op, 1, meta(i32, {8, 64})); },
               label + "[8, 64]");
  expect_error([](std::string_view op) { return error_of_product(op, 2, meta(f32, {2})); },
               label + "[2]");
  expect_error(
      [](std::string_view op) { return error_of_product(op, zero_of(op), meta(i8, {70})); },
      label + "[70]");
}
TEST(PackedBitsMatmul, packed_bits_matmul_c6) {
  expect_error([](std::string_view op) { return with_attr(op, "bits", 3); },
               "C6 bits is 2, 4 or 8: expected 2, 4 or 8, got 3");
}
TEST(PackedBitsMatmul, packed_bits_matmul_c7) {
  expect_error([](std::string_view op) { return error_of_product(op, 1, meta(i32, {2, 9, 64})); },
               "C7 q words of r rows are k rows: expected 64, got 72");
}
TEST(PackedBitsMatmul, packed_bits_matmul_c8) {
  const std::string label = "C8 p panels of w columns hold n columns, and p - 1 do not: expected ";
  expect_error([](std::string_view op) { return error_of_product(op, 1, meta(i32, {2, 8, 0})); },
               label + "at least 1 column a panel, got 0");
  expect_error([](std::string_view op) { return with_attr(op, "columns", 64); },
               label + "1, got 2");
  expect_error([](std::string_view op) { return with_attr(op, "columns", 129); },
               label + "3, got 2");
}
TEST(PackedBitsMatmul, packed_bits_matmul_c9) {
  const std::string label = "C9 group is 0, or a multiple of r of which k is one: expected ";
  expect_error([](std::string_view op) { return with_attr(op, "group", -8); },
               label + "0 or a multiple of 8, got -8");
  expect_error([](std::string_view op) { return with_attr(op, "group", 12); },
               label + "0 or a multiple of 8, got 12");
  expect_error([](std::string_view op) { return with_attr(op, "group", 24); },
               label + "a multiple of 24, got 64");
}
TEST(PackedBitsMatmul, packed_bits_matmul_c10) {
  const std::string label =
      "C10 scale and zero have p panels of g rows, k / group or one, and w columns: expected ";
  expect_error([](std::string_view op) { return error_of_product(op, 2, meta(f32, {2, 1, 64})); },
               label + "2, got 1");
  expect_error(
      [](std::string_view op) { return error_of_product(op, zero_of(op), meta(i8, {2, 2, 32})); },
      label + "64, got 32");
}

TEST(FixedBitsMatmul, fixed_bits_matmul_c1) {
  EXPECT_EQ(error_of_product("fixed_bits_matmul", 0, meta(u8, {2, 3, 64})),
            "fixed_bits_matmul: C1 digits are i8: expected i8, got u8");
}
TEST(FixedBitsMatmul, fixed_bits_matmul_c2) {
  EXPECT_EQ(error_of_product("fixed_bits_matmul", 0, meta(i8, {2, 64})),
            "fixed_bits_matmul: C2 digits have three dimensions: expected sizes [m, D, k], got "
            "[2, 64]");
}
TEST(FixedBitsMatmul, fixed_bits_matmul_c11) {
  const std::string label =
      "fixed_bits_matmul: C11 row_scale is f32, row_sums are i32: expected "
      "f32 and i32, got ";
  EXPECT_EQ(error_of_product("fixed_bits_matmul", 3, meta(f16, {2, 2})), label + "f16 and i32");
  EXPECT_EQ(error_of_product("fixed_bits_matmul", 4, meta(f32, {2, 3, 2})), label + "f32 and f32");
}
TEST(FixedBitsMatmul, fixed_bits_matmul_c12) {
  const std::string label =
      "fixed_bits_matmul: C12 block is a multiple of r and at most 128, and group, or k where that "
      "is 0, is one of block: expected ";
  for (const std::int64_t block : {0, 12, 64, 256})
    EXPECT_EQ(with_attr("fixed_bits_matmul", "block", block),
              label + "a multiple of 8, got " + std::to_string(block));
  EXPECT_EQ(error_of_product("fixed_bits_matmul", 2, meta(f32, {2, 1, 64}),
                             {{"group", std::int64_t{0}}, {"block", std::int64_t{24}}}),
            "fixed_bits_matmul: C10 scale and zero have p panels of g rows, k / group or one, and "
            "w columns: expected 1, got 2");
}
TEST(FixedBitsMatmul, fixed_bits_matmul_c13) {
  EXPECT_EQ(error_of_product("fixed_bits_matmul", 0, meta(i8, {2, 4, 64})),
            "fixed_bits_matmul: C13 digits is 1 to 3, and a row of the operand has so many: "
            "expected 3, got 4");
  for (const std::int64_t digits : {0, 4})
    EXPECT_EQ(with_attr("fixed_bits_matmul", "digits", digits),
              "fixed_bits_matmul: C13 digits is 1 to 3, and a row of the operand has so many: "
              "expected 1 to 3, got " +
                  std::to_string(digits));
}
TEST(FixedBitsMatmul, fixed_bits_matmul_c14) {
  const std::string label =
      "fixed_bits_matmul: C14 row_scale has m rows, row_sums have m rows of D "
      "digits, each of k / block: expected ";
  EXPECT_EQ(error_of_product("fixed_bits_matmul", 3, meta(f32, {2})), label + "[2, 2], got [2]");
  EXPECT_EQ(error_of_product("fixed_bits_matmul", 3, meta(f32, {2, 1})), label + "2, got 1");
  EXPECT_EQ(error_of_product("fixed_bits_matmul", 4, meta(i32, {2, 2, 2})), label + "3, got 2");
}

}  // namespace
}  // namespace heddle::testing
