// packed_bf16_matmul against matmul of the matrix that its panels hold, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;

OneOp packed_bf16(const Literal& a, const Literal& panels, std::int64_t columns) {
  return {"packed_bf16_matmul", {a, panels}, {{"columns", columns}}};
}

Literal narrowed_to_bf16(const Literal& tensor) {
  return value_of({"convert", {tensor}, {{"dtype", bf16}}});
}
Literal in_f32(const Literal& tensor) { return value_of({"convert", {tensor}, {{"dtype", f32}}}); }

TEST(PackedBf16Matmul, IsMatmulOfWhatThePanelsHold) {
  // Panels of 2 columns of 3 rows, the last column of the second is none of the matrix:
  //   1  2  3
  //   4  5  6
  //   7  8  0.125
  const Literal panels = narrowed_to_bf16(doubles(f32, {2, 2, 2, 2},
                                                  {1, 4, 2, 5, 7, 0, 8, 0,  //
                                                   3, 6, 9, 9, 0.125, 0, 9, 9}));
  const Literal a = narrowed_to_bf16(doubles(f32, {2, 3}, {1, 0, 0, 256, 1, 0.5}));
  // In f32: 256 + 4 + 3.5 is no bf16.
  expect_same(value_of(packed_bf16(a, panels, 3)),
              doubles(f32, {2, 3}, {1, 2, 3, 263.5, 521, 774.0625}));
}

TEST(PackedBf16Matmul, KeepsLeadingDimensions) {
  const Literal matrix = narrowed_to_bf16(noise(f32, {8, 3}));
  Literal panels(bf16, {1, 4, 3, 2});
  for (std::int64_t k = 0; k < 8; ++k)
    for (std::int64_t j = 0; j < 3; ++j)
      panels.set((k / 2 * 3 + j) * 2 + k % 2, matrix.at(k * 3 + j));
  const Literal a = narrowed_to_bf16(noise(f32, {2, 3, 4, 8}, 2));
  const Literal result = value_of(packed_bf16(a, panels, 3));
  EXPECT_EQ(result.sizes(), (ir::Sizes{2, 3, 4, 3}));
  expect_same(result, value_of({"matmul", {in_f32(a), in_f32(matrix)}}));
}

TEST(PackedBf16Matmul, packed_bf16_matmul_c1) {
  EXPECT_EQ(error_of("packed_bf16_matmul", {meta(f32, {2, 4}), meta(bf16, {1, 2, 8, 2})},
                     {{"columns", std::int64_t{8}}}),
            "packed_bf16_matmul: C1 a and panels are bf16: expected bf16, got f32");
  EXPECT_EQ(error_of("packed_bf16_matmul", {meta(bf16, {2, 4}), meta(f16, {1, 2, 8, 2})},
                     {{"columns", std::int64_t{8}}}),
            "packed_bf16_matmul: C1 a and panels are bf16: expected bf16, got f16");
}

std::string error_of_sizes(std::initializer_list<std::int64_t> a,
                           std::initializer_list<std::int64_t> panels, std::int64_t columns = 8) {
  return error_of("packed_bf16_matmul",
                  {meta(bf16, {a.begin(), a.end()}), meta(bf16, {panels.begin(), panels.end()})},
                  {{"columns", columns}});
}

TEST(PackedBf16Matmul, packed_bf16_matmul_c2) {
  constexpr const char* kC2 =
      "packed_bf16_matmul: C2 a has at least two dimensions, panels have four, or four behind all "
      "but two of a: expected sizes "
      "[..., m, k] and [p, q, w, 2]";
  EXPECT_EQ(error_of_sizes({4}, {1, 2, 8, 2}).find(kC2), 0u);
  EXPECT_EQ(error_of_sizes({2, 4}, {2, 8, 2}).find(kC2), 0u);
}

TEST(PackedBf16Matmul, packed_bf16_matmul_c3) {
  EXPECT_EQ(error_of_sizes({2, 4}, {1, 2, 8, 4}),
            "packed_bf16_matmul: C3 the last dimension of panels is 2: expected 2, got 4");
}

TEST(PackedBf16Matmul, packed_bf16_matmul_c4) {
  EXPECT_EQ(
      error_of_sizes({2, 5}, {1, 2, 8, 2}),
      "packed_bf16_matmul: C4 q groups of 2 hold k rows, and q - 1 do not: expected 3, got 2");
}

TEST(PackedBf16Matmul, packed_bf16_matmul_c5) {
  for (const std::int64_t columns : {8, 17}) {
    const std::string error = error_of_sizes({2, 4}, {2, 2, 8, 2}, columns);
    EXPECT_EQ(error.find("packed_bf16_matmul: C5 p panels of w columns hold n columns, and p - 1 "
                         "do not: "),
              0u)
        << error;
  }
}

}  // namespace
}  // namespace heddle::testing
