// packed_int8_matmul against matmul of the matrix that its panels hold, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;

OneOp packed_int8(const Literal& a, const Literal& panels, std::int64_t columns) {
  return {"packed_int8_matmul", {a, panels}, {{"columns", columns}}};
}

Literal widened(const Literal& bytes) { return value_of({"convert", {bytes}, {{"dtype", i32}}}); }

TEST(PackedInt8Matmul, IsMatmulOfWhatThePanelsHold) {
  // Panels of 2 columns of 3 rows, the last column of the second and the fourth row are none of the matrix:
  //   1  2 -128
  //   3  4    5
  //   6  7    8
  const Literal panels = ints(i8, {2, 1, 2, 4},
                              {1, 3, 6, 77, 2, 4, 7, 77,  //
                               -128, 5, 8, 77, 77, 77, 77, 77});
  const Literal a = ints(u8, {2, 3}, {1, 0, 0, 255, 1, 2});
  expect_same(value_of(packed_int8(a, panels, 3)),
              ints(i32, {2, 3}, {1, 2, -128, 270, 528, -32619}));
}

TEST(PackedInt8Matmul, KeepsLeadingDimensionsAndTheWholeRange) {
  const Literal matrix = any_bytes(i8, {8, 3});
  Literal panels(i8, {1, 2, 3, 4});
  for (std::int64_t k = 0; k < 8; ++k)
    for (std::int64_t j = 0; j < 3; ++j)
      panels.set_int((k / 4 * 3 + j) * 4 + k % 4, matrix.at_int(k * 3 + j));
  const Literal a = any_bytes(u8, {2, 3, 4, 8}, 2);
  const Literal result = value_of(packed_int8(a, panels, 3));
  EXPECT_EQ(result.sizes(), (ir::Sizes{2, 3, 4, 3}));
  expect_same(result, value_of({"matmul", {widened(a), widened(matrix)}}));
}

TEST(PackedInt8Matmul, packed_int8_matmul_c1) {
  EXPECT_EQ(error_of("packed_int8_matmul", {meta(i8, {2, 4}), meta(i8, {1, 1, 8, 4})},
                     {{"columns", std::int64_t{8}}}),
            "packed_int8_matmul: C1 a is u8 and panels are i8: expected u8, got i8");
  EXPECT_EQ(error_of("packed_int8_matmul", {meta(u8, {2, 4}), meta(u8, {1, 1, 8, 4})},
                     {{"columns", std::int64_t{8}}}),
            "packed_int8_matmul: C1 a is u8 and panels are i8: expected i8, got u8");
}

TEST(PackedInt8Matmul, packed_int8_matmul_c2) {
  for (const auto& [a, panels] :
       {std::pair{ir::Dims{4}, ir::Dims{1, 1, 8, 4}}, {{2, 4}, {1, 8, 4}}}) {
    const std::string error = error_of("packed_int8_matmul", {meta(u8, a), meta(i8, panels)},
                                       {{"columns", std::int64_t{8}}});
    EXPECT_EQ(error.find("packed_int8_matmul: C2 a has at least two dimensions, panels have four, "
                         "or four behind all but two of a: "
                         "expected sizes [..., m, k] and [p, q, w, 4]"),
              0u)
        << error;
  }
}

TEST(PackedInt8Matmul, packed_int8_matmul_c3) {
  EXPECT_EQ(error_of("packed_int8_matmul", {meta(u8, {2, 4}), meta(i8, {1, 1, 8, 2})},
                     {{"columns", std::int64_t{8}}}),
            "packed_int8_matmul: C3 the last dimension of panels is 4: expected 4, got 2");
}

TEST(PackedInt8Matmul, packed_int8_matmul_c4) {
  EXPECT_EQ(
      error_of("packed_int8_matmul", {meta(u8, {2, 5}), meta(i8, {1, 1, 8, 4})},
               {{"columns", std::int64_t{8}}}),
      "packed_int8_matmul: C4 q groups of 4 hold k rows, and q - 1 do not: expected 2, got 1");
}

TEST(PackedInt8Matmul, packed_int8_matmul_c5) {
  for (const std::int64_t columns : {8, 17}) {
    const std::string error = error_of(
        "packed_int8_matmul", {meta(u8, {2, 4}), meta(i8, {2, 1, 8, 4})}, {{"columns", columns}});
    EXPECT_EQ(error.find("packed_int8_matmul: C5 p panels of w columns hold n columns, and p - 1 "
                         "do not: "),
              0u)
        << error;
  }
}

TEST(PackedInt8Matmul, packed_int8_matmul_c6) {
  for (const ir::TensorMeta& flag : {meta(i32, {}), meta(boolean, {1})}) {
    const std::string error =
        error_of("packed_int8_matmul", {meta(u8, {2, 4}), meta(i8, {1, 1, 8, 4}), flag},
                 {{"columns", std::int64_t{8}}});
    EXPECT_EQ(error.find("packed_int8_matmul: C6 pairs_fit is a bool without dimensions: "), 0u)
        << error;
  }
}

TEST(PackedInt8Matmul, packed_int8_matmul_c7) {
  EXPECT_EQ(error_of("packed_int8_matmul",
                     {meta(u8, {2, 4}), meta(i8, {1, 1, 8, 4}), meta(boolean, {}),
                      meta(i8, {1, 2, 8, 4}), meta(i32, {1, 2})},
                     {{"columns", std::int64_t{8}}}),
            "packed_int8_matmul: C7 rest, places and counts are there together: expected all of "
            "them or none, got some of them");
}

/// A product with these beside the panels.
std::string error_with(const ir::TensorMeta& rest, const ir::TensorMeta& places,
                       const ir::TensorMeta& counts) {
  return error_of(
      "packed_int8_matmul",
      {meta(u8, {2, 4}), meta(i8, {1, 1, 8, 4}), meta(boolean, {}), rest, places, counts},
      {{"columns", std::int64_t{8}}});
}

TEST(PackedInt8Matmul, packed_int8_matmul_c8) {
  EXPECT_EQ(error_with(meta(u8, {1, 2, 8, 4}), meta(i32, {1, 2}), meta(i32, {1})),
            "packed_int8_matmul: C8 rest is i8, places and counts are i32: expected i8, got u8");
  EXPECT_EQ(error_with(meta(i8, {1, 2, 8, 4}), meta(i32, {1, 2}), meta(i64, {1})),
            "packed_int8_matmul: C8 rest is i8, places and counts are i32: expected i32, got i64");
}

TEST(PackedInt8Matmul, packed_int8_matmul_c9) {
  const std::string error =
      "packed_int8_matmul: C9 rest is [p, m, w, 4], places [p, m] and counts [p]: ";
  EXPECT_EQ(error_with(meta(i8, {1, 2, 7, 4}), meta(i32, {1, 2}), meta(i32, {1})),
            error + "expected 8, got 7");
  EXPECT_EQ(error_with(meta(i8, {1, 2, 8, 4}), meta(i32, {1, 3}), meta(i32, {1})),
            error + "expected 2, got 3");
  EXPECT_EQ(error_with(meta(i8, {1, 2, 8, 4}), meta(i32, {1, 2}), meta(i32, {})),
            error + "expected [1], got []");
}

}  // namespace
}  // namespace heddle::testing
