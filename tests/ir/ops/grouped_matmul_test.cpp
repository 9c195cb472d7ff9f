// grouped_matmul against matmul of each group's rows, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;

Literal grouped(const Literal& x, const Literal& w, const Literal& ends) {
  return value_of({"grouped_matmul", {x, w, ends}});
}

/// Rows [begin, end) of `x`.
Literal rows_of(const Literal& x, std::int64_t begin, std::int64_t end) {
  return value_of({"slice",
                   {x},
                   {{"start", ir::Dims{begin, 0}},
                    {"limit", ir::Dims{end, x.sizes()[1]}},
                    {"stride", ir::Dims{1, 1}}}});
}

Literal matrix_of(const Literal& w, std::int64_t g) {
  const std::int64_t k = w.sizes()[1];
  const std::int64_t m = w.sizes()[2];
  return w.contiguous().view({k, m}, {m, 1}, g * k * m);
}

TEST(GroupedMatmul, EachGroupIsAProductOfItsOwn) {
  for (const DType dtype : kNumbers) {
    const Literal x = noise(dtype, {7, 3});
    const Literal w = noise(dtype, {3, 3, 4}, 2);
    const Literal result = grouped(x, w, ints(i64, {3}, {2, 3, 7}));
    std::int64_t begin = 0;
    for (const auto& [group, end] : {std::pair<std::int64_t, std::int64_t>{0, 2}, {1, 3}, {2, 7}}) {
      expect_same(rows_of(result, begin, end),
                  value_of({"matmul", {rows_of(x, begin, end), matrix_of(w, group)}}));
      begin = end;
    }
  }
}

TEST(GroupedMatmul, RowsOfNoGroupAreZeros) {
  const Literal x = ints(i32, {4, 1}, {1, 2, 3, 4});
  const Literal w = ints(i32, {2, 1, 2}, {10, 20, 100, 200});
  expect_same(grouped(x, w, ints(i64, {2}, {1, 3})),
              ints(i32, {4, 2}, {10, 20, 200, 400, 300, 600, 0, 0}));
}

TEST(GroupedMatmul, AGroupThatEndsNoLaterThanOneBeforeItIsEmpty) {
  const Literal x = ints(i32, {4, 1}, {1, 2, 3, 4});
  const Literal w = ints(i32, {4, 1, 1}, {10, 100, 1000, 10000});
  expect_same(grouped(x, w, ints(i64, {4}, {2, 1, 2, 4})),
              ints(i32, {4, 1}, {10, 20, 30000, 40000}));
  expect_same(grouped(x, w, ints(i64, {4}, {-5, 1, 90, 2})),
              ints(i32, {4, 1}, {100, 2000, 3000, 4000}));
}

TEST(GroupedMatmul, OfNothing) {
  const Literal none = ints(i64, {0}, {});
  expect_same(grouped(noise(i32, {2, 3}), noise(i32, {0, 3, 2}), none),
              ints(i32, {2, 2}, {0, 0, 0, 0}));
  expect_same(grouped(noise(i32, {2, 0}), noise(i32, {1, 0, 1}), ints(i64, {1}, {2})),
              ints(i32, {2, 1}, {0, 0}));
  EXPECT_EQ(grouped(noise(f32, {0, 3}), noise(f32, {2, 3, 5}), ints(i64, {2}, {0, 0})).sizes(),
            (ir::Sizes{0, 5}));
}

TEST(GroupedMatmul, PromotesAndTakesNarrowEnds) {
  const Literal result = grouped(noise(f16, {3, 2}), noise(f32, {1, 2, 2}), ints(i32, {1}, {3}));
  EXPECT_EQ(result.dtype(), f32);
}

TEST(GroupedMatmul, grouped_matmul_c1) {
  EXPECT_EQ(
      error_of("grouped_matmul", {meta(boolean, {4, 2}), meta(f32, {3, 2, 5}), meta(i64, {3})}),
      "grouped_matmul: C1 x and w are numbers: expected a number, got bool");
}

TEST(GroupedMatmul, grouped_matmul_c2) {
  EXPECT_EQ(error_of("grouped_matmul", {meta(f32, {4, 2}), meta(f32, {2, 5}), meta(i64, {3})}),
            "grouped_matmul: C2 x has two dimensions, w three: expected sizes [n, k] and [groups, "
            "k, m], got [4, 2] and [2, 5]");
}

TEST(GroupedMatmul, grouped_matmul_c3) {
  EXPECT_EQ(
      error_of("grouped_matmul", {meta(f32, {4, 2}), meta(f32, {3, 2, 5}), meta(f32, {3})}),
      "grouped_matmul: C3 ends is i32 or i64 with one dimension: expected i32 or i64, got f32");
  EXPECT_EQ(
      error_of("grouped_matmul", {meta(f32, {4, 2}), meta(f32, {3, 2, 5}), meta(i64, {3, 1})}),
      "grouped_matmul: C3 ends is i32 or i64 with one dimension: expected [groups], got [3, 1]");
}

TEST(GroupedMatmul, grouped_matmul_c4) {
  EXPECT_EQ(error_of("grouped_matmul", {meta(f32, {4, 2}), meta(f32, {3, 4, 5}), meta(i64, {3})}),
            "grouped_matmul: C4 the inner sizes agree: expected 2, got 4");
}

TEST(GroupedMatmul, grouped_matmul_c5) {
  EXPECT_EQ(error_of("grouped_matmul", {meta(f32, {4, 2}), meta(f32, {3, 2, 5}), meta(i64, {2})}),
            "grouped_matmul: C5 there is an end for each matrix: expected 3, got 2");
}

TEST(GroupedMatmul, grouped_matmul_c6) {
  EXPECT_EQ(error_of("grouped_matmul", {meta(f16, {4, 2}), meta(f16, {3, 2, 5}), meta(i64, {3})},
                     {{"tf32", true}}),
            "grouped_matmul: C6 tf32 is for a result of f32: expected f32, got f16");
}

TEST(PackedGroupedMatmul, IsGroupedMatmulOfWhatThePanelsHold) {
  // Panels of 2 columns; the last column of each second one is no column of its matrix:
  //   1 2 3      10 20 30
  //   4 5 6      40 50 60
  const Literal panels =
      ints(i32, {2, 2, 2, 2}, {1, 2, 4, 5, 3, 77, 6, 77, 10, 20, 40, 50, 30, 77, 60, 77});
  const Literal w = ints(i32, {2, 2, 3}, {1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 60});
  const Literal x = ints(i32, {4, 2}, {1, 0, 10, 1, 2, 3, 4, 5});
  for (const Literal& ends : {ints(i64, {2}, {1, 3}), ints(i64, {2}, {4, 0})})
    expect_same(
        value_of({"packed_grouped_matmul", {x, panels, ends}, {{"columns", std::int64_t{3}}}}),
        grouped(x, w, ends));
}

std::string packed_error(const ir::TensorMeta& x, const ir::TensorMeta& panels,
                         const ir::TensorMeta& ends, std::int64_t columns = 70) {
  return error_of("packed_grouped_matmul", {x, panels, ends}, {{"columns", columns}});
}

TEST(PackedGroupedMatmul, packed_grouped_matmul_c1) {
  EXPECT_EQ(
      packed_error(meta(f32, {4, 5}), meta(f16, {3, 2, 5, 64}), meta(i64, {3})),
      "packed_grouped_matmul: C1 x and panels are numbers of one dtype: expected f32, got f16");
}

TEST(PackedGroupedMatmul, packed_grouped_matmul_c2) {
  EXPECT_EQ(
      packed_error(meta(f32, {4, 5}), meta(f32, {2, 5, 64}), meta(i64, {3})),
      "packed_grouped_matmul: C2 x has two dimensions, panels four: expected sizes [n, k] and "
      "[groups, p, k, width], got [4, 5] and [2, 5, 64]");
}

TEST(PackedGroupedMatmul, packed_grouped_matmul_c3) {
  EXPECT_EQ(packed_error(meta(f32, {4, 5}), meta(f32, {3, 2, 5, 64}), meta(i32, {3})),
            "packed_grouped_matmul: C3 ends is i64 with one dimension: expected i64, got i32");
}

TEST(PackedGroupedMatmul, packed_grouped_matmul_c4) {
  EXPECT_EQ(packed_error(meta(f32, {4, 6}), meta(f32, {3, 2, 5, 64}), meta(i64, {3})),
            "packed_grouped_matmul: C4 the inner sizes agree: expected 6, got 5");
}

TEST(PackedGroupedMatmul, packed_grouped_matmul_c5) {
  EXPECT_EQ(packed_error(meta(f32, {4, 5}), meta(f32, {3, 2, 5, 64}), meta(i64, {4})),
            "packed_grouped_matmul: C5 there is an end for each matrix: expected 3, got 4");
}

TEST(PackedGroupedMatmul, packed_grouped_matmul_c6) {
  EXPECT_EQ(packed_error(meta(f32, {4, 5}), meta(f32, {3, 2, 5, 64}), meta(i64, {3}), 64),
            "packed_grouped_matmul: C6 p panels of width columns hold m columns, and p - 1 do not: "
            "expected 1, got 2");
}

}  // namespace
}  // namespace heddle::testing
