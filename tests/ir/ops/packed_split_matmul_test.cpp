// packed_split_matmul against the matrices that its panels hold, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;

TEST(PackedSplitMatmul, EachResultIsTheProductByOneMatrix) {
  // Panels of 2 columns of each of two matrices:
  //   1 2 3 4     5 6 7 8
  //   0 1 0 1     1 0 1 0
  const Literal panels = doubles(f32, {2, 2, 4}, {1, 2, 5, 6, 0, 1, 1, 0, 3, 4, 7, 8, 0, 1, 1, 0});
  const Literal a = doubles(f32, {2, 2}, {1, 0, 2, 1});
  const std::vector<Literal> results =
      evaluate({"packed_split_matmul",
                {a, panels},
                {{"parts", std::int64_t{2}}, {"width", std::int64_t{2}}}});
  ASSERT_EQ(results.size(), 2u);
  expect_same(results[0], doubles(f32, {2, 4}, {1, 2, 3, 4, 2, 5, 6, 9}));
  expect_same(results[1], doubles(f32, {2, 4}, {5, 6, 7, 8, 11, 12, 15, 16}));
}

std::string error_for(const ir::TensorMeta& a, const ir::TensorMeta& panels, std::int64_t parts = 2,
                      std::int64_t width = 4) {
  return error_of("packed_split_matmul", {a, panels}, {{"parts", parts}, {"width", width}});
}

TEST(PackedSplitMatmul, packed_split_matmul_c1) {
  const std::string c1 = "packed_split_matmul: C1 a and panels are both f32 or both f64: expected ";
  EXPECT_EQ(error_for(meta(i32, {2, 2}), meta(i32, {1, 2, 8})), c1 + "f32 or f64, got i32");
  EXPECT_EQ(error_for(meta(f32, {2, 2}), meta(f16, {1, 2, 8})), c1 + "f32, got f16");
}

TEST(PackedSplitMatmul, packed_split_matmul_c2) {
  EXPECT_EQ(
      error_for(meta(f32, {2}), meta(f32, {1, 2, 8})),
      "packed_split_matmul: C2 a has at least two dimensions, panels have three: expected sizes "
      "[..., m, k] and [p, k, w], got [2] and [1, 2, 8]");
}

TEST(PackedSplitMatmul, packed_split_matmul_c3) {
  EXPECT_EQ(error_for(meta(f32, {2, 3}), meta(f32, {1, 2, 8})),
            "packed_split_matmul: C3 the inner sizes agree: expected 3, got 2");
}

TEST(PackedSplitMatmul, packed_split_matmul_c4) {
  const std::string c4 =
      "packed_split_matmul: C4 parts and width are at least 1, and parts * width is at most 128: "
      "expected two such numbers, got ";
  const ir::TensorMeta a = meta(f32, {2, 2});
  EXPECT_EQ(error_for(a, meta(f32, {1, 2, 8}), 0), c4 + "0 and 4");
  EXPECT_EQ(error_for(a, meta(f32, {1, 2, 8}), 2, 0), c4 + "2 and 0");
  EXPECT_EQ(error_for(a, meta(f32, {1, 2, 130}), 2, 65), c4 + "2 and 65");
}

TEST(PackedSplitMatmul, packed_split_matmul_c5) {
  EXPECT_EQ(error_for(meta(f32, {2, 2}), meta(f32, {1, 2, 9})),
            "packed_split_matmul: C5 panels have parts * width columns: expected 8, got 9");
}

}  // namespace
}  // namespace heddle::testing
