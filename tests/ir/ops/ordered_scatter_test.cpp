// ordered_scatter against scatter_nd of the same updates, and its constraints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Attrs;
using ir::Literal;

Attrs ordered(std::string reduction, std::int64_t coordinates = 1) {
  return {{"coordinates", coordinates}, {"reduction", std::move(reduction)}};
}

TEST(OrderedScatter, IsScatterNdOfSortedUpdates) {
  const Literal places = ints(i64, {5, 1}, {2, 0, 2, 1, 0});
  const Literal sorted = ints(i64, {5}, {0, 0, 1, 2, 2});
  const Literal order = ints(i64, {5}, {1, 4, 3, 0, 2});
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = noise(dtype, {4, 3});
    const Literal updates = noise(dtype, {5, 3}, 2);
    for (const char* how : {"none", "add", "mul", "max", "min"}) {
      const OneOp call{"ordered_scatter", {x, sorted, order, updates}, ordered(how)};
      expect_same(
          value_of(call),
          value_of({"scatter_nd", {x, places, updates}, {{"reduction", std::string(how)}}}));
      expect_decomposition_agrees(call, 0);
    }
  }
}

TEST(OrderedScatter, ElementsAndTheWholeOfX) {
  const Literal x = ints(f32, {2, 2}, {1, 2, 3, 4});
  expect_same(value_of({"ordered_scatter",
                        {x, ints(i64, {3}, {1, 3, 3}), ints(i64, {3}, {2, 0, 1}),
                         ints(f32, {3}, {10, 20, 30})},
                        ordered("add", 2)}),
              ints(f32, {2, 2}, {1, 32, 3, 34}));
  expect_same(value_of({"ordered_scatter",
                        {x, ints(i64, {2}, {0, 0}), ints(i64, {2}, {0, 1}),
                         ints(f32, {2, 2, 2}, {1, 1, 1, 1, 2, 2, 2, 2})},
                        ordered("none", 0)}),
              ints(f32, {2, 2}, {2, 2, 2, 2}));
}

TEST(OrderedScatter, ADestinationThatIsNoSliceIsAnError) {
  for (const std::int64_t wrong : {-1, 4}) {
    const OneOp call{
        "ordered_scatter",
        {noise(f32, {4}), ints(i64, {1}, {wrong}), ints(i64, {1}, {0}), noise(f32, {1})},
        ordered("add")};
    EXPECT_THAT(error_of([&] { evaluate(call); }), ::testing::HasSubstr("ordered_scatter"));
  }
}

std::string scatter_error(const std::vector<ir::TensorMeta>& operands,
                          Attrs attrs = ordered("add")) {
  return error_of("ordered_scatter", operands, std::move(attrs));
}

TEST(OrderedScatter, ordered_scatter_c1) {
  EXPECT_EQ(scatter_error({meta(f32, {4}), meta(i64, {2}), meta(i64, {2}), meta(f16, {2})}),
            "ordered_scatter: C1 updates have the dtype of x: expected f32, got f16");
}

TEST(OrderedScatter, ordered_scatter_c2) {
  const std::string c2 = "ordered_scatter: C2 destinations and order are i64[u]: ";
  EXPECT_EQ(scatter_error({meta(f32, {4}), meta(i32, {2}), meta(i64, {2}), meta(f32, {2})}),
            c2 + "expected i64, got i32");
  EXPECT_EQ(scatter_error({meta(f32, {4}), meta(i64, {2}), meta(i64, {2, 1}), meta(f32, {2})}),
            c2 + "expected one dimension, got [2, 1]");
  EXPECT_EQ(scatter_error({meta(f32, {4}), meta(i64, {2}), meta(i64, {3}), meta(f32, {2})}),
            c2 + "expected 2, got 3");
}

TEST(OrderedScatter, ordered_scatter_c3) {
  EXPECT_EQ(
      scatter_error({meta(f32, {4}), meta(i64, {2}), meta(i64, {2}), meta(f32, {2})},
                    ordered("sum")),
      "ordered_scatter: C3 reduction is none, add, mul, max or min; none for bool: expected none, "
      "add, mul, max or min, got sum");
}

TEST(OrderedScatter, ordered_scatter_c4) {
  EXPECT_EQ(
      scatter_error({meta(f32, {4}), meta(i64, {2}), meta(i64, {2}), meta(f32, {2})},
                    ordered("add", 2)),
      "ordered_scatter: C4 coordinates is at least 0 and at most the rank of x: expected 0 to 1, "
      "got 2");
}

TEST(OrderedScatter, ordered_scatter_c5) {
  const std::string c5 = "ordered_scatter: C5 updates have u and the trailing sizes of x: ";
  EXPECT_EQ(scatter_error({meta(f32, {4, 3}), meta(i64, {2}), meta(i64, {2}), meta(f32, {2})}),
            c5 + "expected [2, 3], got [2]");
  EXPECT_EQ(scatter_error({meta(f32, {4, 3}), meta(i64, {2}), meta(i64, {2}), meta(f32, {2, 4})}),
            c5 + "expected 3, got 4");
}

}  // namespace
}  // namespace heddle::testing
