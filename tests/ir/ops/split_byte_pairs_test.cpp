// split_byte_pairs: what it takes from which pairs, and its constraints.
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;

OneOp split(const Literal& panels, std::int64_t most) {
  return {"split_byte_pairs", {panels}, {{"most", most}}};
}

/// 3 groups of a column: pairs of 128 and -128 fit, 129 and -129 do not, and elements of both signs always do.
const Literal& panel() {
  static const Literal value = ints(i8, {1, 3, 1, 4},
                                    {64, 64, -64, -64,    //
                                     127, 127, -1, -128,  //
                                     -128, 127, 65, 64});
  return value;
}

TEST(SplitBytePairs, TakesWhatIsTooMuchFromTheFirstOfAPair) {
  const std::vector<Literal> results = evaluate(split(panel(), 2));
  ASSERT_EQ(results.size(), 4u);
  expect_same(results[0], ints(i8, {1, 3, 1, 4},
                               {64, 64, -64, -64,  //
                                1, 127, 0, -128,   //
                                -128, 127, 64, 64}));
  expect_same(results[1], ints(i8, {1, 2, 1, 4}, {126, 0, -1, 0, 0, 0, 1, 0}));
  expect_same(results[2], ints(i32, {1, 2}, {1, 2}));
  expect_same(results[3], ints(i32, {1}, {2}));
}

TEST(SplitBytePairs, LeavesPanelsWithTooManyAsTheyAre) {
  const std::vector<Literal> results = evaluate(split(panel(), 1));
  expect_same(results[0], panel());
  expect_same(results[1], ints(i8, {1, 1, 1, 4}, {0, 0, 0, 0}));
  expect_same(results[2], ints(i32, {1, 1}, {0}));
  expect_same(results[3], ints(i32, {1}, {-1}));
}

TEST(SplitBytePairs, PutTogetherIsWhatItWas) {
  const Literal panels = any_bytes(i8, {3, 9, 5, 4});
  const Literal a = any_bytes(u8, {7, 36}, 2);
  const ir::Attrs columns{{"columns", std::int64_t{14}}};
  const Literal wanted = value_of({"packed_int8_matmul", {a, panels}, columns});
  for (const std::int64_t most : {1, 9}) {
    const std::vector<Literal> parts = evaluate(split(panels, most));
    expect_same(value_of({"packed_int8_matmul",
                          {a, parts[0], Literal(), parts[1], parts[2], parts[3]},
                          columns}),
                wanted);
  }
}

TEST(SplitBytePairs, split_byte_pairs_c1) {
  EXPECT_EQ(error_of("split_byte_pairs", {meta(u8, {1, 2, 3, 4})}, {{"most", std::int64_t{1}}}),
            "split_byte_pairs: C1 panels are i8: expected i8, got u8");
}

TEST(SplitBytePairs, split_byte_pairs_c2) {
  EXPECT_EQ(error_of("split_byte_pairs", {meta(i8, {2, 3, 4})}, {{"most", std::int64_t{1}}}),
            "split_byte_pairs: C2 panels have four dimensions: expected sizes [p, q, w, 4], got "
            "[2, 3, 4]");
}

TEST(SplitBytePairs, split_byte_pairs_c3) {
  EXPECT_EQ(error_of("split_byte_pairs", {meta(i8, {1, 2, 3, 2})}, {{"most", std::int64_t{1}}}),
            "split_byte_pairs: C3 the last dimension of panels is 4: expected 4, got 2");
}

TEST(SplitBytePairs, split_byte_pairs_c4) {
  EXPECT_EQ(error_of("split_byte_pairs", {meta(i8, {1, 2, 3, 4})}, {{"most", std::int64_t{0}}}),
            "split_byte_pairs: C4 most is at least 1: expected 1 or more, got 0");
}

}  // namespace
}  // namespace heddle::testing
