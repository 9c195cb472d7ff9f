// merge_runs against sort, and its constraints.
#include <cmath>
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Attrs;
using ir::Literal;

Attrs merging(std::int64_t run, std::int64_t count, bool descending = false) {
  return {{"run", run}, {"count", ir::SymExpr(count)}, {"descending", descending}};
}

void expect_merged(const OneOp& call, const Literal& values, const Literal& indices) {
  const std::vector<Literal> results = evaluate(call);
  ASSERT_EQ(results.size(), 2u);
  expect_same(results[0], values);
  expect_same(results[1], indices);
}

TEST(MergeRuns, JoinsTheRunsOfAGroupAndNoMore) {
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    const Literal keys = ints(dtype, {7}, {1, 3, 0, 3, 2, 5, 1});
    const Literal order = ints(i64, {7}, {10, 11, 12, 13, 14, 15, 16});
    expect_merged({"merge_runs", {keys, order}, merging(2, 2)},
                  ints(dtype, {7}, {0, 1, 3, 3, 1, 2, 5}),
                  ints(i64, {7}, {12, 10, 11, 13, 16, 14, 15}));
    expect_merged({"merge_runs", {keys, order}, merging(2, 4)},
                  ints(dtype, {7}, {0, 1, 1, 2, 3, 3, 5}),
                  ints(i64, {7}, {12, 10, 16, 14, 11, 13, 15}));
  }
}

TEST(MergeRuns, LargestFirstAndNaNLast) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal keys = with_nan(ints(dtype, {2, 4}, {3, 0, 5, 3, 2, 1, 9, 8}), 1);
    const Literal order = ints(i64, {2, 4}, {0, 1, 2, 3, 0, 1, 2, 3});
    expect_merged({"merge_runs", {keys, order}, merging(2, 2, true)},
                  with_nan(ints(dtype, {2, 4}, {5, 3, 3, 0, 9, 8, 2, 1}), 3),
                  ints(i64, {2, 4}, {2, 0, 3, 1, 2, 3, 0, 1}));
  }
}

TEST(MergeRuns, merge_runs_c1) {
  EXPECT_EQ(error_of("merge_runs", {meta(boolean, {4}), meta(i64, {4})}, merging(2, 2)),
            "merge_runs: C1 keys are numbers: expected a number, got bool");
}

TEST(MergeRuns, merge_runs_c2) {
  EXPECT_EQ(error_of("merge_runs", {meta(f32, {}), meta(i64, {})}, merging(2, 2)),
            "merge_runs: C2 keys have a dimension: expected a rank of 1 or more, got []");
}

TEST(MergeRuns, merge_runs_c3) {
  const std::string c3 = "merge_runs: C3 order is i64 and has the sizes of keys: ";
  EXPECT_EQ(error_of("merge_runs", {meta(f32, {4}), meta(i32, {4})}, merging(2, 2)),
            c3 + "expected i64, got i32");
  EXPECT_EQ(error_of("merge_runs", {meta(f32, {4}), meta(i64, {4, 1})}, merging(2, 2)),
            c3 + "expected [4], got [4, 1]");
  EXPECT_EQ(error_of("merge_runs", {meta(f32, {4}), meta(i64, {5})}, merging(2, 2)),
            c3 + "expected 4, got 5");
}

TEST(MergeRuns, merge_runs_c4) {
  EXPECT_EQ(error_of("merge_runs", {meta(f32, {4}), meta(i64, {4})}, merging(0, 2)),
            "merge_runs: C4 run is at least 1: expected 1 or more, got 0");
}

}  // namespace
}  // namespace heddle::testing
