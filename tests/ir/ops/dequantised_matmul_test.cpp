// dequantised_matmul against matmul of the numbers that its bytes stand for, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;

Literal narrowed(const Literal& value, DType dtype) {
  return value_of({"convert", {value}, {{"dtype", dtype}}});
}

TEST(DequantisedMatmul, IsTheProductOfBytesLessZeroPointsTimesScales) {
  const Literal a = doubles(f32, {1, 2}, {1, 10});
  const Literal b = ints(u8, {2, 2}, {0, 255, 3, 4});
  expect_same(value_of({"dequantised_matmul", {a, b, doubles(f32, {1, 2}, {0.5, 2})}}),
              doubles(f32, {1, 2}, {15, 590}));
  expect_same(value_of({"dequantised_matmul",
                        {a, b, doubles(f16, {1, 1}, {0.5}), ints(i32, {1, 2}, {2, 4})}}),
              doubles(f32, {1, 2}, {4, 125.5}));
}

TEST(DequantisedMatmul, GroupsOfRowsHaveScalesOfTheirOwn) {
  const Literal a = doubles(f32, {1, 4}, {1, 1, 1, 1});
  const Literal b = ints(i8, {4, 1}, {-1, -2, 3, 4});
  expect_same(value_of({"dequantised_matmul",
                        {a, b, doubles(f32, {2, 1}, {1, 10})},
                        {{"group", std::int64_t{2}}}}),
              doubles(f32, {1, 1}, {67}));
  expect_same(value_of({"dequantised_matmul",
                        {a, b, doubles(f32, {1, 1}, {1}), ints(i8, {2, 1}, {1, 2})},
                        {{"group", std::int64_t{2}}}}),
              doubles(f32, {1, 1}, {-2}));
}

TEST(DequantisedMatmul, RoundsNumbersToTheProductsDtype) {
  const Literal a = narrowed(doubles(f32, {2, 8}, std::vector<double>(16, 1)), bf16);
  const Literal b = any_bytes(i8, {3, 8, 5});
  const Literal scale = noise(f32, {1, 1, 5}, 3);
  const Literal wide = value_of({"mul", {narrowed(b, f32), scale}});
  expect_same(value_of({"dequantised_matmul", {a, b, scale}}),
              value_of({"matmul", {a, narrowed(wide, bf16)}}));
}

TEST(DequantisedMatmul, OfNoProductsIsZero) {
  expect_same(value_of({"dequantised_matmul",
                        {noise(f16, {2, 0}), any_bytes(i8, {0, 1}), noise(f16, {1, 1})}}),
              narrowed(doubles(f32, {2, 1}, {0, 0}), f16));
}

TEST(DequantisedMatmul, DecomposesIntoWhatItIs) {
  for (const std::int64_t groups : {1, 4})
    for (const DType dtype : {f16, f32}) {
      OneOp call{"dequantised_matmul",
                 {noise(dtype, {2, 3, 16}), any_bytes(u8, {16, 5}), noise(f16, {groups, 5}, 2)},
                 {{"group", groups == 1 ? std::int64_t{0} : 16 / groups}}};
      expect_decomposition_agrees(call, tolerance_of(dtype));
      call.operands.push_back(any_bytes(u8, {1, 5}, 3));
      expect_decomposition_agrees(call, tolerance_of(dtype));
    }
}

std::string error(DType a, DType b, DType scale, std::vector<ir::TensorMeta> zero = {}) {
  std::vector<ir::TensorMeta> all{meta(a, {2, 8}), meta(b, {8, 3}), meta(scale, {1, 3})};
  all.insert(all.end(), zero.begin(), zero.end());
  return error_of("dequantised_matmul", all);
}

TEST(DequantisedMatmul, dequantised_matmul_c1) {
  EXPECT_EQ(error(f64, i8, f32),
            "dequantised_matmul: C1 a is f16, bf16 or f32: expected f16, bf16 or f32, got f64");
}
TEST(DequantisedMatmul, dequantised_matmul_c2) {
  EXPECT_EQ(error(f16, i16, f32),
            "dequantised_matmul: C2 b is u8 or i8: expected u8 or i8, got i16");
}
TEST(DequantisedMatmul, dequantised_matmul_c3) {
  EXPECT_EQ(error(f16, i8, i8),
            "dequantised_matmul: C3 scale is f16, bf16 or f32: expected f16, bf16 or f32, got i8");
}
TEST(DequantisedMatmul, dequantised_matmul_c4) {
  EXPECT_EQ(error(f16, i8, f32, {meta(u8, {1, 3})}),
            "dequantised_matmul: C4 zero is of b's dtype or i32: expected i8 or i32, got u8");
}

/// What is wrong with f16 and i8 operands of these sizes.
std::string wrong(ir::Dims a, ir::Dims b, ir::Dims scale, std::vector<ir::Dims> zero = {},
                  std::int64_t group = 0) {
  std::vector<ir::TensorMeta> all{meta(f16, a), meta(i8, b), meta(f32, scale)};
  for (const ir::Dims& one : zero) all.push_back(meta(i8, one));
  return error_of("dequantised_matmul", all, {{"group", group}});
}

TEST(DequantisedMatmul, dequantised_matmul_c5) {
  const std::string text = wrong({8}, {8, 3}, {1, 3});
  EXPECT_EQ(text.find("dequantised_matmul: C5 a and b have at least two dimensions: "), 0u) << text;
}
TEST(DequantisedMatmul, dequantised_matmul_c6) {
  EXPECT_EQ(wrong({2, 8}, {7, 3}, {1, 3}),
            "dequantised_matmul: C6 the inner sizes agree: expected 8, got 7");
}
TEST(DequantisedMatmul, dequantised_matmul_c7) {
  const std::string text = wrong({2, 2, 8}, {3, 8, 3}, {1, 1, 3});
  EXPECT_EQ(text.find("dequantised_matmul: C7 the leading dimensions broadcast: "), 0u) << text;
}
TEST(DequantisedMatmul, dequantised_matmul_c8) {
  for (const std::string& text : {wrong({2, 8}, {8, 3}, {3}), wrong({2, 8}, {8, 3}, {1, 2}),
                                  wrong({2, 8}, {8, 3}, {1, 3}, {{1, 4}})})
    EXPECT_EQ(text.find("dequantised_matmul: C8 scale and zero have b's rank"), 0u) << text;
}
TEST(DequantisedMatmul, dequantised_matmul_c9) {
  for (const std::string& text :
       {wrong({2, 8}, {8, 3}, {1, 3}, {}, 3), wrong({2, 8}, {8, 3}, {1, 3}, {}, -1),
        wrong({2, 8}, {8, 3}, {2, 3}), wrong({2, 8}, {8, 3}, {4, 3}, {{2, 3}}, 2)})
    EXPECT_EQ(text.find("dequantised_matmul: C9 group is at least 0"), 0u) << text;
}

}  // namespace
}  // namespace heddle::testing
