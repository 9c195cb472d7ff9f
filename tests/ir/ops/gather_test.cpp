#include <gtest/gtest.h>

#include "heddle/error.h"
#include "tests/support/element_interpreter.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Literal;
using ir::Sizes;
using ir::SymExpr;

const SymExpr s0 = SymExpr::size(0);
const Literal kTable = ints(i32, {3, 2}, {10, 11, 20, 21, 30, 31});

ir::Attrs along(std::int64_t axis) { return {{"axis", axis}}; }

// gather

TEST(Gather, PicksSlices) {
  expect_same(value_of({"gather", {kTable, ints(i64, {2}, {2, 0})}}),
              ints(i32, {2, 2}, {30, 31, 10, 11}));
  expect_same(value_of({"gather", {kTable, ints(i64, {1, 2}, {1, -1})}, along(-1)}),
              ints(i32, {3, 1, 2}, {11, 11, 21, 21, 31, 31}));
  expect_same(value_of({"gather", {kTable, ints(u8, {}, {1})}}), ints(i32, {2}, {20, 21}));
}

TEST(Gather, TakesNoIndices) {
  EXPECT_EQ(value_of({"gather", {kTable, ints(i64, {0}, {})}}).sizes(), (Sizes{0, 2}));
  EXPECT_EQ(type_of("gather", {meta(f16, {s0, 8}), meta(i64, {4, s0})}), "f16[4, s0, 8]");
}

TEST(Gather, AnIndexOutOfRangeIsAnIndexError) {
  for (const std::int64_t index : {3, -4}) {
    const OneOp call{"gather", {kTable, ints(i64, {1}, {index})}};
    EXPECT_EQ(error_of([&] { evaluate(call); }),
              "gather: index out of range: expected [-3, 3), got " + std::to_string(index));
    const ir::Graph graph = graph_of(call);
    EXPECT_THROW(interpret(*graph.outputs()[0].node, call.operands, {}), IndexError);
  }
}

TEST(Gather, C1RefusesAnAxisOutOfRange) {
  EXPECT_EQ(error_of("gather", {meta(f32, {2}), meta(i64, {1})}, along(1)),
            "gather: C1 axis: expected an axis in [-1, 1), got 1");
}

TEST(Gather, C2RefusesIndicesThatAreNotIntegers) {
  EXPECT_EQ(error_of("gather", {meta(f32, {2}), meta(f32, {1})}),
            "gather: C2 indices: expected an integer dtype, got f32");
  EXPECT_EQ(error_of("gather", {meta(f32, {2}), meta(boolean, {1})}),
            "gather: C2 indices: expected an integer dtype, got bool");
}

// gather_elements

TEST(GatherElements, PicksOneElementForEachIndex) {
  expect_same(value_of({"gather_elements", {kTable, ints(i64, {2, 2}, {2, 0, -1, 1})}}),
              ints(i32, {2, 2}, {30, 11, 30, 21}));
  expect_same(value_of({"gather_elements", {kTable, ints(i32, {3, 1}, {1, 0, -1})}, along(1)}),
              ints(i32, {3, 1}, {11, 20, 31}));
}

TEST(GatherElements, AnIndexOutOfRangeIsAnIndexError) {
  EXPECT_EQ(
      error_of([] { evaluate({"gather_elements", {kTable, ints(i64, {1, 1}, {2})}, along(1)}); }),
      "gather_elements: index out of range: expected [-2, 2), got 2");
}

TEST(GatherElements, C1RefusesAnAxisOutOfRange) {
  EXPECT_EQ(error_of("gather_elements", {meta(f32, {2}), meta(i64, {1})}, along(-2)),
            "gather_elements: C1 axis: expected an axis in [-1, 1), got -2");
}

TEST(GatherElements, C2RefusesIndicesThatAreNotIntegers) {
  EXPECT_EQ(error_of("gather_elements", {meta(f32, {2}), meta(f32, {1})}),
            "gather_elements: C2 indices: expected an integer dtype, got f32");
}

TEST(GatherElements, C3RefusesAnotherRank) {
  EXPECT_EQ(error_of("gather_elements", {meta(f32, {2, 2}), meta(i64, {2})}),
            "gather_elements: C3 rank: expected indices of rank 2, got [2]");
}

TEST(GatherElements, C4RefusesMoreIndicesThanElements) {
  EXPECT_EQ(error_of("gather_elements", {meta(f32, {2, 2}), meta(i64, {5, 3})}),
            "gather_elements: C4 sizes: expected at most 2 in dimension 1, got 3");
}

// gather_nd

TEST(GatherNd, PicksByTuples) {
  expect_same(value_of({"gather_nd", {kTable, ints(i64, {2, 2}, {0, 1, -1, 0})}}),
              ints(i32, {2}, {11, 30}));
  expect_same(value_of({"gather_nd", {kTable, ints(i64, {2, 1}, {2, 1})}}),
              ints(i32, {2, 2}, {30, 31, 20, 21}));
}

TEST(GatherNd, GoesThroughBatchDimensionsTogether) {
  expect_same(value_of({"gather_nd",
                        {kTable, ints(i64, {3, 1}, {1, 0, -1})},
                        {{"batch_dims", std::int64_t{1}}}}),
              ints(i32, {3}, {11, 20, 31}));
}

TEST(GatherNd, OfEmptyTuplesRepeatsTheOperand) {
  expect_same(value_of({"gather_nd", {ints(i32, {2}, {7, 8}), ints(i64, {2, 0}, {})}}),
              ints(i32, {2, 2}, {7, 8, 7, 8}));
}

TEST(GatherNd, AnIndexOutOfRangeIsAnIndexError) {
  EXPECT_EQ(error_of([] { evaluate({"gather_nd", {kTable, ints(i64, {1, 2}, {0, 2})}}); }),
            "gather_nd: index out of range: expected [-2, 2), got 2");
}

TEST(GatherNd, C1RefusesIndicesThatAreNotIntegers) {
  EXPECT_EQ(error_of("gather_nd", {meta(f32, {2}), meta(f32, {1, 1})}),
            "gather_nd: C1 indices: expected an integer dtype, got f32");
}

TEST(GatherNd, C2RefusesBatchDimsOutOfRange) {
  EXPECT_EQ(
      error_of("gather_nd", {meta(f32, {2}), meta(i64, {2, 1})}, {{"batch_dims", std::int64_t{2}}}),
      "gather_nd: C2 batch_dims: expected 0 <= batch_dims < 2 and batch_dims <= 1, got 2");
}

TEST(GatherNd, C3RefusesATupleThatIsUnknownOrTooLong) {
  const std::string expected =
      "gather_nd: C3 tuple length: expected a last size of indices that is a number of at most 1";
  EXPECT_EQ(error_of("gather_nd", {meta(f32, {2}), meta(i64, {3, 2})}), expected + ", got 2");
  EXPECT_EQ(error_of("gather_nd", {meta(f32, {2}), meta(i64, {3, s0})}), expected + ", got s0");
}

TEST(GatherNd, C4RefusesOtherBatchSizes) {
  EXPECT_EQ(error_of("gather_nd", {meta(f32, {2, 4}), meta(i64, {3, 1})},
                     {{"batch_dims", std::int64_t{1}}}),
            "gather_nd: C4 batch sizes: expected 2, got 3");
}

}  // namespace
}  // namespace heddle::testing
