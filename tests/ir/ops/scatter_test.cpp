// scatter_elements, scatter_nd, index_put and slice_scatter against results written out, and their constraints.
#include <cmath>
#include <gtest/gtest.h>

#include "ir/op.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Attrs;
using ir::Literal;
using ir::Sizes;

Attrs reduction(std::string name, std::int64_t axis = 0) {
  return {{"reduction", std::move(name)}, {"axis", axis}};
}

Attrs nd(std::string name) { return {{"reduction", std::move(name)}}; }

Literal scatter(const Literal& x, const Literal& indices, const Literal& updates,
                const Attrs& attrs) {
  return value_of({"scatter_elements", {x, indices, updates}, attrs});
}

TEST(ScatterElements, ReplacesAlongAnAxisInEveryDType) {
  for (const DType dtype : kAllDTypes) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = ints(dtype, {2, 3}, {1, 0, 1, 0, 1, 0});
    const Literal updates = ints(dtype, {1, 2}, {0, 1});
    for (const DType index : {i32, i64}) {
      const Literal indices = ints(index, {1, 2}, {2, -2});
      const Literal want = ints(dtype, {2, 3}, {1, 1, 0, 0, 1, 0});
      expect_same(scatter(x, indices, updates, reduction("none", 1)), want);
      expect_same(
          scatter(spread_out(x), spread_out(indices), spread_out(updates), reduction("none", -1)),
          want);
    }
    const Literal down = ints(i64, {1, 2}, {1, -1});
    expect_same(scatter(x, down, updates, reduction("none", 0)),
                ints(dtype, {2, 3}, {1, 0, 1, 0, 1, 0}));
  }
}

TEST(ScatterElements, JoinsRepeatedDestinations) {
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = ints(dtype, {3}, {5, 2, 7});
    const Literal at = ints(i64, {4}, {0, 1, 0, -2});
    const Literal updates = ints(dtype, {4}, {3, 6, 2, 1});
    const auto joined = [&](const char* name) { return scatter(x, at, updates, reduction(name)); };
    expect_same(joined("none"), ints(dtype, {3}, {2, 1, 7}));
    expect_same(joined("add"), ints(dtype, {3}, {10, 9, 7}));
    expect_same(joined("mul"), ints(dtype, {3}, {30, 12, 7}));
    expect_same(joined("max"), ints(dtype, {3}, {5, 6, 7}));
    expect_same(joined("min"), ints(dtype, {3}, {2, 1, 7}));
  }
}

TEST(ScatterElements, NaNWinsAndIntegersWrap) {
  for (const DType dtype : kFloats) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = with_nan(ints(dtype, {2}, {0, 1}), 0);
    const Literal updates = with_nan(ints(dtype, {2}, {1, 0}), 1);
    for (const char* name : {"add", "mul", "max", "min"}) {
      const Literal y = scatter(x, ints(i64, {2}, {0, 1}), updates, reduction(name));
      EXPECT_TRUE(std::isnan(y.at(0)) && std::isnan(y.at(1))) << name;
    }
  }
  expect_same(
      scatter(ints(i8, {1}, {100}), ints(i64, {1}, {0}), ints(i8, {1}, {100}), reduction("add")),
      ints(i8, {1}, {-56}));
}

TEST(ScatterElements, EmptyOperands) {
  for (const DType dtype : kAllDTypes) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = noise(dtype, {2, 3});
    expect_same(scatter(x, Literal(i64, {0, 3}), Literal(dtype, {0, 3}), reduction("none")), x);
    EXPECT_EQ(scatter(Literal(dtype, {0, 3}), Literal(i64, {0, 3}), Literal(dtype, {0, 3}),
                      reduction("none"))
                  .sizes(),
              (Sizes{0, 3}));
  }
}

TEST(ScatterElements, DoesNotTouchItsOperand) {
  const Literal x = ints(f32, {2}, {1, 2});
  scatter(x, ints(i64, {1}, {0}), ints(f32, {1}, {9}), reduction("none"));
  expect_same(x, ints(f32, {2}, {1, 2}));
}

TEST(ScatterElements, ReportsAnIndexOutOfRange) {
  const auto text = [](std::int64_t index) {
    return error_of([=] {
      scatter(ints(f32, {3}, {1, 2, 3}), ints(i64, {1}, {index}), ints(f32, {1}, {9}),
              reduction("none"));
    });
  };
  EXPECT_EQ(text(3), "scatter_elements: index out of range: expected [-3, 3), got 3");
  EXPECT_EQ(text(-4), "scatter_elements: index out of range: expected [-3, 3), got -4");
}

TEST(Scatter, MayTakeTheBytesOfX) {
  const ir::Graph graph = graph_of({"scatter_elements",
                                    {ints(f32, {1}, {1}), ints(i64, {1}, {0}), ints(f32, {1}, {2})},
                                    reduction("none")});
  const ir::Alias alias = ir::alias_of(*graph.outputs()[0].node, 0);
  EXPECT_EQ(alias.kind, ir::Alias::Kind::MayReuse);
  EXPECT_EQ(alias.operand, 0u);
}

std::string elements_error(const ir::TensorMeta& x, const ir::TensorMeta& indices,
                           const ir::TensorMeta& updates, const Attrs& attrs = reduction("none")) {
  return error_of("scatter_elements", {x, indices, updates}, attrs);
}

TEST(ScatterElements, scatter_elements_c1) {
  EXPECT_EQ(elements_error(meta(f32, {2}), meta(i64, {1}), meta(f16, {1})),
            "scatter_elements: C1 updates have the dtype of x: expected f32, got f16");
}

TEST(ScatterElements, scatter_elements_c2) {
  EXPECT_EQ(elements_error(meta(f32, {2}), meta(f32, {1}), meta(f32, {1})),
            "scatter_elements: C2 indices are integers: expected an integer dtype, got f32");
}

TEST(ScatterElements, scatter_elements_c3) {
  EXPECT_EQ(elements_error(meta(f32, {2}), meta(i64, {1}), meta(f32, {1}), reduction("sum")),
            "scatter_elements: C3 reduction is none, add, mul, max or min; none for bool: "
            "expected none, add, mul, max or min, got sum");
  EXPECT_EQ(
      elements_error(meta(boolean, {2}), meta(i64, {1}), meta(boolean, {1}), reduction("add")),
      "scatter_elements: C3 reduction is none, add, mul, max or min; none for bool: "
      "expected none for bool, got add");
}

TEST(ScatterElements, scatter_elements_c4) {
  EXPECT_EQ(elements_error(meta(f32, {}), meta(i64, {}), meta(f32, {})),
            "scatter_elements: C4 x, indices and updates have the same number of dimensions, at "
            "least one: expected three equal ranks of 1 or more, got 0, 0 and 0");
  EXPECT_EQ(elements_error(meta(f32, {2}), meta(i64, {1, 1}), meta(f32, {1})),
            "scatter_elements: C4 x, indices and updates have the same number of dimensions, at "
            "least one: expected three equal ranks of 1 or more, got 1, 2 and 1");
}

TEST(ScatterElements, scatter_elements_c5) {
  EXPECT_EQ(
      elements_error(meta(f32, {2}), meta(i64, {1}), meta(f32, {1}), reduction("none", 1)),
      "scatter_elements: C5 axis lies within the rank of x: expected an axis in [-1, 1), got 1");
}

TEST(ScatterElements, scatter_elements_c6) {
  EXPECT_EQ(elements_error(meta(f32, {2}), meta(i64, {1}), meta(f32, {2})),
            "scatter_elements: C6 indices and updates have the same sizes: expected 1, got 2");
}

TEST(ScatterElements, scatter_elements_c7) {
  EXPECT_EQ(elements_error(meta(f32, {2, 2}), meta(i64, {5, 3}), meta(f32, {5, 3})),
            "scatter_elements: C7 but along axis, no size of indices exceeds that of x: expected "
            "at most 2, got 3");
}

TEST(ScatterNd, ReplacesSlicesAndElementsInEveryDType) {
  for (const DType dtype : kAllDTypes) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = ints(dtype, {3, 2}, {0, 0, 1, 1, 0, 0});
    const OneOp slices{"scatter_nd",
                       {x, ints(i64, {2, 1}, {2, -3}), ints(dtype, {2, 2}, {1, 0, 0, 1})},
                       nd("none")};
    expect_same(value_of(slices), ints(dtype, {3, 2}, {0, 1, 1, 1, 1, 0}));
    const Literal indices = ints(i32, {2, 2}, {0, 1, 1, -2});
    const Literal updates = ints(dtype, {2}, {1, 0});
    const Literal want = ints(dtype, {3, 2}, {0, 1, 0, 1, 0, 0});
    expect_same(value_of({"scatter_nd", {x, indices, updates}, nd("none")}), want);
    expect_same(
        value_of(
            {"scatter_nd", {spread_out(x), spread_out(indices), spread_out(updates)}, nd("none")}),
        want);
  }
}

TEST(ScatterNd, JoinsRepeatedDestinations) {
  for (const DType dtype : kNumbers) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = ints(dtype, {2, 2}, {1, 2, 3, 4});
    const Literal at = ints(i64, {2, 1}, {1, 1});
    const Literal updates = ints(dtype, {2, 2}, {5, 1, 2, 6});
    const auto joined = [&](const char* name) {
      return value_of({"scatter_nd", {x, at, updates}, nd(name)});
    };
    expect_same(joined("none"), ints(dtype, {2, 2}, {1, 2, 2, 6}));
    expect_same(joined("add"), ints(dtype, {2, 2}, {1, 2, 10, 11}));
    expect_same(joined("mul"), ints(dtype, {2, 2}, {1, 2, 30, 24}));
    expect_same(joined("max"), ints(dtype, {2, 2}, {1, 2, 5, 6}));
    expect_same(joined("min"), ints(dtype, {2, 2}, {1, 2, 2, 1}));
  }
}

TEST(ScatterNd, EmptyAndCoordinatelessIndices) {
  const Literal x = noise(f32, {2, 3});
  expect_same(value_of({"scatter_nd", {x, Literal(i64, {0, 1}), Literal(f32, {0, 3})}, nd("none")}),
              x);
  const Literal whole = noise(f32, {1, 2, 3}, 2);
  const Literal y = value_of({"scatter_nd", {x, Literal(i64, {1, 0}), whole}, nd("none")});
  expect_same(y, whole.view({2, 3}, {3, 1}, 0));
}

TEST(ScatterNd, ReportsAnIndexOutOfRange) {
  EXPECT_EQ(error_of([] {
              value_of({"scatter_nd",
                        {ints(f32, {2, 3}, {1, 2, 3, 4, 5, 6}), ints(i64, {1, 2}, {1, 3}),
                         ints(f32, {1}, {0})},
                        nd("none")});
            }),
            "scatter_nd: index out of range: expected [-3, 3), got 3");
}

std::string nd_error(const ir::TensorMeta& x, const ir::TensorMeta& indices,
                     const ir::TensorMeta& updates, const Attrs& attrs = nd("none")) {
  return error_of("scatter_nd", {x, indices, updates}, attrs);
}

TEST(ScatterNd, scatter_nd_c1_to_c3) {
  EXPECT_EQ(nd_error(meta(f32, {2}), meta(i64, {1, 1}), meta(i32, {1})),
            "scatter_nd: C1 updates have the dtype of x: expected f32, got i32");
  EXPECT_EQ(nd_error(meta(f32, {2}), meta(boolean, {1, 1}), meta(f32, {1})),
            "scatter_nd: C2 indices are integers: expected an integer dtype, got bool");
  EXPECT_EQ(nd_error(meta(f32, {2}), meta(i64, {1, 1}), meta(f32, {1}), nd("mean")),
            "scatter_nd: C3 reduction is none, add, mul, max or min; none for bool: expected none, "
            "add, mul, max or min, got mean");
}

TEST(ScatterNd, scatter_nd_c4) {
  EXPECT_EQ(nd_error(meta(f32, {2}), meta(i64, {}), meta(f32, {1})),
            "scatter_nd: C4 indices have at least one dimension: expected sizes [..., k], got []");
}

TEST(ScatterNd, scatter_nd_c5) {
  EXPECT_EQ(nd_error(meta(f32, {2}), meta(i64, {1, 2}), meta(f32, {1})),
            "scatter_nd: C5 the last size of indices is known and at most the rank of x: expected "
            "at most 1, got 2");
  EXPECT_EQ(nd_error(meta(f32, {2}), meta(i64, {1, base::SymExpr::size(0)}), meta(f32, {1})),
            "scatter_nd: C5 the last size of indices is known and at most the rank of x: expected "
            "at most 1, got s0");
}

TEST(ScatterNd, scatter_nd_c6) {
  EXPECT_EQ(nd_error(meta(f32, {4, 3}), meta(i64, {2, 1}), meta(f32, {2, 4})),
            "scatter_nd: C6 updates have the leading sizes of indices and the trailing sizes of x: "
            "expected 3, got 4");
  EXPECT_EQ(nd_error(meta(f32, {4, 3}), meta(i64, {2, 1}), meta(f32, {2})),
            "scatter_nd: C6 updates have the leading sizes of indices and the trailing sizes of x: "
            "expected [2, 3], got [2]");
}

Attrs accumulate(bool value) { return {{"accumulate", value}}; }

TEST(IndexPut, ReplacesAndAddsInEveryDType) {
  for (const DType dtype : kAllDTypes) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = ints(dtype, {2, 3}, {0, 1, 0, 1, 0, 1});
    const Literal rows = ints(i64, {2, 1}, {0, -1});
    const Literal columns = ints(i32, {2}, {0, 2});
    const Literal one = ints(dtype, {}, {1});
    const Literal want = ints(dtype, {2, 3}, {1, 1, 1, 1, 0, 1});
    const OneOp call{"index_put", {x, one, rows, columns}, accumulate(false)};
    expect_same(value_of(call), want);
    expect_same(value_of({"index_put", {spread_out(x), one, spread_out(rows), columns}}), want);
    expect_decomposition_agrees(call, 0);
    if (dtype == boolean || is_float8(dtype)) continue;
    const OneOp twice{
        "index_put", {x, ints(dtype, {2, 1}, {2, 3}), ints(i64, {2}, {1, 1})}, accumulate(true)};
    expect_same(value_of(twice), ints(dtype, {2, 3}, {0, 1, 0, 6, 5, 6}));
    expect_decomposition_agrees(twice, 0);
  }
}

TEST(IndexPut, Float8IsNotAdded) {
  const std::vector<ir::TensorMeta> metas{meta(f8e4m3fn, {2}), meta(f8e4m3fn, {}), meta(i64, {1})};
  EXPECT_EQ(error_of("index_put", metas, accumulate(true)),
            "index_put: C3 x is a number where accumulate is set: expected a number, got f8e4m3fn");
  EXPECT_EQ(
      error_of("scatter_elements", {metas[0], metas[2], meta(f8e4m3fn, {1})}, reduction("add")),
      "scatter_elements: C3 reduction is none, add, mul, max or min; none for bool: expected "
      "none for 8-bit floats, got add");
}

TEST(IndexPut, DecompositionTakesEveryShapeOfIndex) {
  const Literal x = noise(f32, {4, 5, 6});
  const Literal i = ints(i64, {3}, {0, -1, 2});
  const Literal j = ints(i64, {1}, {4});
  const Literal k = ints(i64, {2, 1}, {0, 1});
  expect_decomposition_agrees({"index_put", {x, noise(f32, {6}, 2), i, j}}, 0);
  expect_decomposition_agrees({"index_put", {x, noise(f32, {2, 3}, 2), i, j, k}}, 0);
  expect_decomposition_agrees({"index_put", {x, noise(f32, {5, 6}, 2), ints(i64, {}, {3})}}, 0);
  expect_decomposition_agrees({"index_put", {x, Literal(f32, {0, 5, 6}), Literal(i64, {0})}}, 0);
}

TEST(IndexPut, NaNAndIndexOutOfRange) {
  const Literal x = noise(f32, {3});
  const Literal nan = with_nan(ints(f32, {}, {0}), 0);
  EXPECT_TRUE(std::isnan(value_of({"index_put", {x, nan, ints(i64, {1}, {1})}}).at(1)));
  EXPECT_EQ(error_of([&] { value_of({"index_put", {x, nan, ints(i64, {1}, {-4})}}); }),
            "index_put: index out of range: expected [-3, 3), got -4");
}

TEST(IndexPut, index_put_c1_to_c3) {
  EXPECT_EQ(error_of("index_put", {meta(f32, {2}), meta(f64, {}), meta(i64, {1})}),
            "index_put: C1 values have the dtype of x: expected f32, got f64");
  EXPECT_EQ(error_of("index_put", {meta(f32, {2}), meta(f32, {}), meta(boolean, {2})}),
            "index_put: C2 indices are integers: expected an integer dtype, got bool");
  EXPECT_EQ(error_of("index_put", {meta(boolean, {2}), meta(boolean, {}), meta(i64, {2})},
                     accumulate(true)),
            "index_put: C3 x is a number where accumulate is set: expected a number, got bool");
}

TEST(IndexPut, index_put_c4) {
  EXPECT_EQ(error_of("index_put", {meta(f32, {2}), meta(f32, {}), meta(i64, {1}), meta(i64, {1})}),
            "index_put: C4 there are between one and rank-of-x index operands: expected 1 to 1, "
            "got 2");
}

TEST(IndexPut, index_put_c5) {
  EXPECT_EQ(
      error_of("index_put", {meta(f32, {4, 4}), meta(f32, {}), meta(i64, {2}), meta(i64, {3})}),
      "index_put: C5 the index operands broadcast together: expected sizes that are equal or 1, "
      "got 2 and 3 in dimension 0");
}

TEST(IndexPut, index_put_c6) {
  EXPECT_EQ(error_of("index_put", {meta(f32, {4, 5}), meta(f32, {4}), meta(i64, {2})}),
            "index_put: C6 values broadcast to the sizes of x at the indices: expected 5, got 4");
  EXPECT_EQ(error_of("index_put", {meta(f32, {4, 5}), meta(f32, {1, 2, 5}), meta(i64, {2})}),
            "index_put: C6 values broadcast to the sizes of x at the indices: expected [2, 5], got "
            "[1, 2, 5]");
}

Attrs window(std::int64_t axis, const ir::SymExpr& start) {
  return {{"axis", axis}, {"start", start}};
}

TEST(SliceScatter, ReplacesAWindowInEveryDType) {
  for (const DType dtype : kAllDTypes) {
    SCOPED_TRACE(name_of(dtype));
    const Literal x = ints(dtype, {2, 3}, {1, 0, 1, 0, 1, 0});
    const Literal update = ints(dtype, {2, 2}, {1, 1, 1, 0});
    const Literal want = ints(dtype, {2, 3}, {1, 1, 1, 0, 1, 0});
    for (const std::int64_t axis : {1, -1})
      expect_same(value_of({"slice_scatter", {x, update}, window(axis, 1)}), want);
    expect_same(value_of({"slice_scatter", {spread_out(x), spread_out(update)}, window(1, 1)}),
                want);
  }
  const Literal x = ints(f32, {3}, {1, 2, 3});
  expect_same(value_of({"slice_scatter", {x, ints(f32, {0}, {})}, window(0, 3)}), x);
}

std::string window_error(const ir::TensorMeta& x, const ir::TensorMeta& update,
                         const Attrs& attrs = window(0, 0)) {
  return error_of("slice_scatter", {x, update}, attrs);
}

TEST(SliceScatter, slice_scatter_c1) {
  EXPECT_EQ(window_error(meta(f32, {2}), meta(f16, {1})),
            "slice_scatter: C1 update has the dtype of x: expected f32, got f16");
}

TEST(SliceScatter, slice_scatter_c2) {
  EXPECT_EQ(window_error(meta(f32, {2}), meta(f32, {1}), window(1, 0)),
            "slice_scatter: C2 axis lies within the rank of x: expected an axis in [-1, 1), got 1");
}

TEST(SliceScatter, slice_scatter_c3) {
  EXPECT_EQ(window_error(meta(f32, {2}), meta(f32, {1, 1})),
            "slice_scatter: C3 x and update have one rank: expected rank 1, got rank 2");
}

TEST(SliceScatter, slice_scatter_c4) {
  EXPECT_EQ(window_error(meta(f32, {2, 3}), meta(f32, {1, 4})),
            "slice_scatter: C4 sizes other than along axis are equal: expected 4, got 3");
}

TEST(SliceScatter, slice_scatter_c5) {
  EXPECT_EQ(window_error(meta(f32, {4}), meta(f32, {3}), window(0, 2)),
            "slice_scatter: C5 window: expected 0 <= start <= end <= 4, got start 2, end 5");
  EXPECT_EQ(window_error(meta(f32, {4}), meta(f32, {3}), window(0, -1)),
            "slice_scatter: C5 window: expected 0 <= start <= end <= 4, got start -1, end 2");
}

}  // namespace
}  // namespace heddle::testing
