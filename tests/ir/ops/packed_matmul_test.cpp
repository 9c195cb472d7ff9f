// packed_matmul against matmul of the matrix that its panels hold, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;

OneOp packed(const Literal& a, const Literal& panels, std::int64_t columns) {
  return {"packed_matmul", {a, panels}, {{"columns", columns}}};
}

TEST(PackedMatmul, IsMatmulOfWhatThePanelsHold) {
  // Panels of 2 columns, the last column of the second is no column of the matrix:
  //   1 2 3
  //   4 5 6
  const Literal panels = ints(i32, {2, 2, 2}, {1, 2, 4, 5, 3, 77, 6, 77});
  const Literal a = ints(i32, {2, 2}, {1, 0, 10, 1});
  expect_same(value_of(packed(a, panels, 3)), ints(i32, {2, 3}, {1, 2, 3, 14, 25, 36}));
  expect_same(value_of(packed(a, panels, 4)), ints(i32, {2, 4}, {1, 2, 3, 77, 14, 25, 36, 847}));
}

TEST(PackedMatmul, KeepsLeadingDimensions) {
  const Literal panels = noise(f32, {1, 5, 8});
  const Literal a = noise(f32, {2, 3, 4, 5}, 2);
  const Literal result = value_of(packed(a, panels, 8));
  EXPECT_EQ(result.sizes(), (ir::Sizes{2, 3, 4, 8}));
  expect_same(result, value_of({"matmul", {a, panels.view({5, 8}, {8, 1}, 0)}}));
}

TEST(PackedMatmul, PanelsOf16BitsAreConverted) {
  for (const DType dtype : {f16, bf16}) {
    const Literal panels = noise(dtype, {1, 5, 8});
    const Literal a = noise(f32, {3, 5}, 2);
    const Literal result = value_of(packed(a, panels, 8));
    EXPECT_EQ(result.dtype(), f32);
    const OneOp wide{"convert", {panels.view({5, 8}, {8, 1}, 0)}, {{"dtype", f32}}};
    expect_same(result, value_of({"matmul", {a, value_of(wide)}}));
  }
}

TEST(PackedMatmul, packed_matmul_c1) {
  EXPECT_EQ(error_of("packed_matmul", {meta(boolean, {2, 2}), meta(boolean, {1, 2, 8})},
                     {{"columns", std::int64_t{8}}}),
            "packed_matmul: C1 a and panels are numbers of one dtype, but for panels of f16, bf16 "
            "and 8-bit "
            "floats with f32: expected a number, got bool");
  EXPECT_EQ(error_of("packed_matmul", {meta(bf16, {2, 2}), meta(f16, {1, 2, 8})},
                     {{"columns", std::int64_t{8}}}),
            "packed_matmul: C1 a and panels are numbers of one dtype, but for panels of f16, bf16 "
            "and 8-bit "
            "floats with f32: expected bf16, got f16");
}

TEST(PackedMatmul, Float8PanelsAreThoseOfF32Alone) {
  EXPECT_EQ(error_of("packed_matmul", {meta(f8e5m2, {2, 2}), meta(f8e5m2, {1, 2, 8})},
                     {{"columns", std::int64_t{8}}}),
            "packed_matmul: C1 a and panels are numbers of one dtype, but for panels of f16, bf16 "
            "and 8-bit floats with f32: expected a number, got f8e5m2");
  EXPECT_EQ(error_of("packed_matmul", {meta(f16, {2, 2}), meta(f8e5m2, {1, 2, 8})},
                     {{"columns", std::int64_t{8}}}),
            "packed_matmul: C1 a and panels are numbers of one dtype, but for panels of f16, bf16 "
            "and 8-bit floats with f32: expected f16, got f8e5m2");
}

TEST(PackedMatmul, packed_matmul_c2) {
  EXPECT_EQ(error_of("packed_matmul", {meta(f32, {2}), meta(f32, {1, 2, 8})},
                     {{"columns", std::int64_t{8}}}),
            "packed_matmul: C2 a has at least two dimensions, panels have three: expected sizes "
            "[..., m, k] and [p, k, w], got [2] and [1, 2, 8]");
}

TEST(PackedMatmul, packed_matmul_c3) {
  EXPECT_EQ(error_of("packed_matmul", {meta(f32, {2, 3}), meta(f32, {1, 2, 8})},
                     {{"columns", std::int64_t{8}}}),
            "packed_matmul: C3 the inner sizes agree: expected 3, got 2");
}

TEST(PackedMatmul, packed_matmul_c4) {
  for (const std::int64_t columns : {8, 17}) {
    const std::string error = error_of("packed_matmul", {meta(f32, {2, 2}), meta(f32, {2, 2, 8})},
                                       {{"columns", columns}});
    EXPECT_EQ(error,
              "packed_matmul: C4 p panels of w columns hold n columns, and p - 1 do not: "
              "expected " +
                  std::to_string((columns + 7) / 8) + ", got 2");
  }
}

}  // namespace
}  // namespace heddle::testing
