// int8_matmul against matmul of the widened bytes, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;

OneOp int8_product(const Literal& a, const Literal& b) { return {"int8_matmul", {a, b}}; }

Literal wide_bytes(const Literal& bytes) {
  return value_of({"convert", {bytes}, {{"dtype", i32}}});
}

TEST(Int8Matmul, IsTheProductInWideIntegers) {
  const Literal a = ints(u8, {2, 3}, {1, 0, 0, 255, 1, 2});
  const Literal b = ints(i8, {3, 2}, {1, -128, 3, 4, 6, 127});
  expect_same(value_of(int8_product(a, b)), ints(i32, {2, 2}, {1, -128, 270, -32382}));
}

TEST(Int8Matmul, TakesBytesOfBothKindsAndBroadcasts) {
  for (const DType left : {u8, i8})
    for (const DType right : {u8, i8}) {
      const Literal a = any_bytes(left, {2, 1, 3, 9});
      const Literal b = any_bytes(right, {4, 9, 5}, 2);
      const Literal result = value_of(int8_product(a, b));
      EXPECT_EQ(result.sizes(), (ir::Sizes{2, 4, 3, 5}));
      expect_same(result, value_of({"matmul", {wide_bytes(a), wide_bytes(b)}}));
    }
}

TEST(Int8Matmul, OfNoProductsIsZero) {
  expect_same(value_of(int8_product(any_bytes(i8, {2, 0}), any_bytes(i8, {0, 1}))),
              ints(i32, {2, 1}, {0, 0}));
}

TEST(Int8Matmul, int8_matmul_c1) {
  EXPECT_EQ(error_of("int8_matmul", {meta(i8, {2, 4}), meta(i16, {4, 2})}),
            "int8_matmul: C1 a and b are u8 or i8: expected u8 or i8, got i16");
}

TEST(Int8Matmul, int8_matmul_c2) {
  const std::string error = error_of("int8_matmul", {meta(i8, {4}), meta(i8, {4, 2})});
  EXPECT_EQ(error.find("int8_matmul: C2 a and b have at least two dimensions: expected sizes "
                       "[..., m, k] and [..., k, n]"),
            0u)
      << error;
}

TEST(Int8Matmul, int8_matmul_c3) {
  EXPECT_EQ(error_of("int8_matmul", {meta(i8, {2, 4}), meta(i8, {3, 2})}),
            "int8_matmul: C3 the inner sizes agree: expected 4, got 3");
}

TEST(Int8Matmul, int8_matmul_c4) {
  const std::string error = error_of("int8_matmul", {meta(i8, {2, 2, 4}), meta(i8, {3, 4, 2})});
  EXPECT_EQ(error.find("int8_matmul: C4 the leading dimensions broadcast: "), 0u) << error;
}

}  // namespace
}  // namespace heddle::testing
