// Scatters and sorts as nests, against the definitions of their ops.
#include <cmath>

#include "heddle/error.h"
#include "jit/nests/best_in_lanes.h"
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

TEST(ScatterNest, ElementsAlongEachAxis) {
  const ir::Literal x = noise(f32, {4, 5, 6});
  for (const char* how : {"none", "add", "mul", "max", "min"}) {
    for (const std::int64_t axis : {0, 1, -1}) {
      expect_nest_right({"scatter_elements",
                         {x, drawn_places({3, 4, 6}, -4, 3), noise(f32, {3, 4, 6}, 2)},
                         {{"axis", axis}, {"reduction", std::string(how)}}});
    }
  }
}

TEST(ScatterNest, ElementsOfEveryDType) {
  for (const DType dtype : testing::kNumbers) {
    for (const DType index : {i64, i32, u8}) {
      const ir::Literal indices = drawn_places({3, 4}, 0, 4, index);
      expect_nest_right({"scatter_elements",
                         {noise(dtype, {5, 4}), indices, noise(dtype, {3, 4}, 2)},
                         {{"reduction", std::string("add")}}});
    }
  }
  expect_nest_right(
      {"scatter_elements",
       {noise(boolean, {5, 4}), drawn_places({3, 4}, 0, 4), noise(boolean, {3, 4}, 2)}});
}

TEST(ScatterNest, ManyColumns) {
  expect_nest_right({"scatter_elements",
                     {noise(f32, {3, 600}), drawn_places({7, 600}, 0, 2), noise(f32, {7, 600}, 2)},
                     {{"reduction", std::string("add")}}});
  expect_nest_right({"scatter_nd",
                     {noise(f32, {3, 600}), drawn_places({7, 1}, 0, 2), noise(f32, {7, 600}, 2)},
                     {{"reduction", std::string("add")}}});
}

TEST(ScatterNest, Slices) {
  const ir::Literal x = noise(f32, {4, 3, 5});
  for (const char* how : {"none", "add", "max"}) {
    const ir::Attrs attrs{{"reduction", std::string(how)}};
    expect_nest_right(
        {"scatter_nd", {x, drawn_places({2, 3, 1}, -3, 2), noise(f32, {2, 3, 3, 5}, 2)}, attrs});
    expect_nest_right(
        {"scatter_nd", {x, drawn_places({6, 2}, -3, 2), noise(f32, {6, 5}, 2)}, attrs});
    expect_nest_right({"scatter_nd", {x, drawn_places({9, 3}, -3, 2), noise(f32, {9}, 2)}, attrs});
  }
}

TEST(ScatterNest, IndexPut) {
  const ir::Literal x = noise(f32, {4, 5, 6});
  for (const bool accumulate : {false, true}) {
    const ir::Attrs attrs{{"accumulate", accumulate}};
    expect_nest_right({"index_put",
                       {x, noise(f32, {6}, 2), drawn_places({3}, -4, 3), drawn_places({1}, 0, 4)},
                       attrs});
    expect_nest_right(
        {"index_put", {x, noise(f32, {2, 3, 5, 6}, 2), drawn_places({2, 3}, 0, 3)}, attrs});
    expect_nest_right({"index_put",
                       {x, noise(f32, {}, 2), drawn_places({2, 1}, 0, 3), drawn_places({3}, 0, 4),
                        drawn_places({2, 3}, 0, 5)},
                       attrs});
  }
}

TEST(ScatterNest, SizesThatAreNotKnownOrZero) {
  const ir::Graph graph = scatter_of_any_sizes();
  const std::vector<Ints> cases{{4, 300, 5}, {4, 0, 5}, {4, 3, 0}};
  for (const Ints& sizes : cases) expect_fast_code_right(graph, random_arguments(graph, sizes));
}

TEST(ScatterNest, AnIndexOutOfRangeIsReported) {
  const OneOp call{"scatter_elements",
                   {noise(f32, {4, 3}), drawn_places({2, 3}, 4, 4), noise(f32, {2, 3})}};
  const ir::Graph graph = testing::graph_of(call);
  EXPECT_THROW(run_program(graph, lowered(graph), call.operands), IndexError);
}

ir::Literal with_ties(DType dtype, const ir::Sizes& sizes) {
  ir::Literal x = random_literal(dtype, sizes, 9, 0, 5);
  for (std::int64_t k = 0; k < x.count(); ++k)
    if (is_floating(dtype)) x.set(k, std::round(4 * x.at(k)));
  return x;
}

TEST(SortNest, EveryDType) {
  for (const DType dtype : testing::kNumbers) {
    for (const bool descending : {false, true})
      expect_nest_right({"sort", {with_ties(dtype, {2, 9})}, {{"descending", descending}}});
  }
}

TEST(SortNest, EachAxisAndLength) {
  for (const std::int64_t axis : {0, 1, -1}) {
    expect_nest_right({"sort", {with_ties(f32, {4, 3, 5})}, {{"axis", axis}}});
    expect_nest_right(
        {"topk", {with_ties(f32, {4, 3, 5})}, {{"axis", axis}, {"k", ir::SymExpr(3)}}});
  }
  for (const std::int64_t length : {0, 1, 2, 129}) {
    ir::Literal x = with_ties(f32, {2, length});
    if (length > 3) x = testing::with_nan(x, 3);
    for (const bool descending : {false, true}) {
      expect_nest_right({"sort", {x}, {{"descending", descending}}});
      expect_nest_right(
          {"topk",
           {x},
           {{"largest", descending}, {"k", ir::SymExpr(std::min<std::int64_t>(length, 5))}}});
    }
  }
}

TEST(SortNest, NanComesLast) {
  ir::Literal x = with_ties(f32, {1, 20});
  for (const std::int64_t k : {0, 5, 6}) x.set(k, NAN);
  x.set(7, INFINITY);
  x.set(8, -INFINITY);
  for (const bool descending : {false, true})
    expect_nest_right({"sort", {x}, {{"descending", descending}}});
}

TEST(SortNest, SizesThatAreNotKnown) {
  for (const std::int64_t axis : {0, 1}) {
    ir::GraphBuilder b("main");
    const ir::Value x = b.input(tensor(f32, {"s0", "s1"}));
    const ir::Node* sorted = b.call("sort", {x}, {{"axis", axis}});
    b.output(sorted->value(0));
    b.output(sorted->value(1));
    const ir::Graph graph = b.finish();
    for (const std::int64_t size : {0, 1, 5, 33}) {
      expect_fast_code_right(graph, {with_ties(f32, {3, size})});
      expect_fast_code_right(graph, {with_ties(f32, {size, 3})});
    }
  }
}

TEST(SortNest, OnlyTheIndices) {
  ir::GraphBuilder b("main");
  const ir::Value x = b.input(tensor(f32, {"s0", "9"}));
  b.output(b.call("topk", {x}, {{"k", ir::SymExpr(2)}})->value(1));
  expect_code_right_at(b.finish(), {4});
}

OneOp topk_of(const ir::Literal& x, std::int64_t k, std::int64_t axis, bool largest) {
  return {"topk", {x}, {{"k", ir::SymExpr(k)}, {"axis", axis}, {"largest", largest}}};
}

/// Rows long enough to be ordered by their digits, whose numbers differ in all of them, in few or in none.
TEST(SortByDigits, EveryDType) {
  for (const DType dtype : testing::kNumbers) {
    const ir::Literal narrow = with_ties(dtype, {2, 150});
    const ir::Literal wide = noise(dtype, {2, 150});
    for (const bool descending : {false, true}) {
      for (const ir::Literal& x : {narrow, wide}) {
        expect_fast_nest_right({"sort", {x}, {{"descending", descending}}});
        expect_fast_nest_right(topk_of(x, 100, -1, descending));
      }
    }
  }
}

/// Rows of up to 128, and the few best of long ones, are ordered by comparing.
TEST(SortByDigits, OrdersLongRowsOnTheCpu) {
  const auto has_digits = [](const OneOp& call) {
    return nests_of(lowered(testing::graph_of(call))).find("bits(") != std::string::npos;
  };
  const ir::Literal row = noise(f32, {1, 150});
  EXPECT_TRUE(has_digits({"sort", {row}}));
  EXPECT_TRUE(has_digits(topk_of(row, 100, -1, true)));
  EXPECT_FALSE(has_digits(topk_of(row, 5, -1, true)));
  EXPECT_FALSE(has_digits({"sort", {noise(f32, {1, 128})}}));
}

TEST(SortByDigits, LimitsZerosAndNan) {
  for (const DType dtype : {f32, f64, f16, bf16}) {
    ir::Literal x = noise(dtype, {1, 300});
    const double special[] = {0.0, -0.0, NAN, -NAN, INFINITY, -INFINITY};
    for (std::int64_t k = 0; k < 60; ++k) x.set(5 * k, special[k % 6]);
    for (const bool descending : {false, true}) {
      expect_fast_nest_right({"sort", {x}, {{"descending", descending}}});
      for (const std::int64_t k : {0, 80, 295, 300})
        expect_fast_nest_right(topk_of(x, k, -1, descending));
    }
  }
  constexpr double kLeast = std::numeric_limits<std::int64_t>::min();
  ir::Literal x = noise(i64, {1, 300});
  for (std::int64_t k = 0; k < 9; ++k) x.set(31 * k, k % 2 == 0 ? kLeast : 1 + kLeast / 3);
  for (const bool descending : {false, true})
    expect_fast_nest_right({"sort", {x}, {{"descending", descending}}});
}

TEST(SortByDigits, EqualElementsStay) {
  const ir::Literal x = random_literal(f32, {2, 200}, 9, 3, 3);
  for (const bool descending : {false, true}) {
    expect_nest_right({"sort", {x}, {{"descending", descending}}});
    expect_nest_right(topk_of(x, 70, -1, descending));
  }
}

TEST(SortByDigits, LongRowsHaveWideDigits) {
  for (const DType dtype : {f32, i64, f16, u8}) {
    expect_fast_nest_right({"sort", {noise(dtype, {2, 5000})}});
    expect_fast_nest_right({"sort", {noise(dtype, {5000, 2})}, {{"axis", std::int64_t{0}}}});
    expect_fast_nest_right(topk_of(noise(dtype, {2, 5000}), 300, -1, true));
  }
}

TEST(SortByDigits, SizesThatAreNotKnown) {
  ir::GraphBuilder b("main");
  const ir::Value x = b.input(tensor(f32, {"s0", "s1"}));
  const ir::Node* best = b.call("topk", {x}, {{"k", x.meta().sizes[0]}});
  b.output(best->value(0));
  b.output(best->value(1));
  const ir::Graph graph = b.finish();
  for (const ir::Sizes& sizes : {ir::Sizes{3, 3}, ir::Sizes{3, 400}, ir::Sizes{100, 101}})
    expect_fast_code_right(graph, {noise(f32, sizes)});
}

TEST(TopkInLanes, OfEachLengthAndCount) {
  for (const std::int64_t length : {4, 8, 33, 64, 70, 150}) {
    for (const std::int64_t k : {1, 2, 8, 9, 20}) {
      if (k > length) continue;
      for (const std::int64_t rows : {3, 32, 75}) {
        ir::Literal x = with_ties(f32, {rows, length});
        const double special[] = {0.0, -0.0, NAN, -NAN, INFINITY, -INFINITY};
        for (std::int64_t at = 0; at < x.count(); at += 7) x.set(at, special[at % 6]);
        for (const bool largest : {false, true}) expect_fast_nest_right(topk_of(x, k, -1, largest));
      }
    }
  }
}

TEST(TopkInLanes, EveryDType) {
  for (const DType dtype : testing::kNumbers) {
    const ir::Literal narrow = with_ties(dtype, {40, 40});
    const ir::Literal wide = noise(dtype, {40, 40});
    for (const bool largest : {false, true}) {
      expect_fast_nest_right(topk_of(narrow, 6, -1, largest));
      expect_fast_nest_right(topk_of(wide, 6, -1, largest));
    }
  }
  expect_nest_right(topk_of(with_ties(f32, {18, 12}), 3, -1, true));
}

TEST(TopkInLanes, EachAxis) {
  for (const std::int64_t axis : {0, 1, 2, 3}) {
    expect_fast_nest_right(topk_of(with_ties(f32, {9, 10, 11, 37}), 3, axis, true));
    expect_fast_nest_right(topk_of(with_ties(f32, {33, 9, 9, 17}), 9, axis, false));
  }
}

TEST(TopkInLanes, WhereThatIsFaster) {
  const auto by_lanes = [](DType dtype, const ir::Sizes& sizes, std::int64_t k) {
    const ir::Graph graph = testing::graph_of(topk_of(noise(dtype, sizes), k, 1, true));
    return jit::takes_best_in_lanes(*graph.nodes().back());
  };
  EXPECT_TRUE(by_lanes(f32, {100, 64}, 6));
  EXPECT_TRUE(by_lanes(f16, {50, 200}, 50));
  EXPECT_TRUE(by_lanes(f32, {2, 200, 30}, 5));
  EXPECT_TRUE(by_lanes(f32, {16, 8}, 1));
  EXPECT_FALSE(by_lanes(f32, {1, 5000}, 5)) << "one row";
  EXPECT_FALSE(by_lanes(i64, {100, 64}, 6)) << "no room beside the key";
  EXPECT_FALSE(by_lanes(f32, {100, 200}, 65)) << "a long list";
}

TEST(TopkInLanes, RowsThatAreNotKnown) {
  for (const std::int64_t axis : {1, 2}) {
    ir::GraphBuilder b("main");
    const ir::Value x = b.input(tensor(f32, {"s0", "20", "40"}));
    const ir::Node* best = b.call("topk", {x}, {{"k", ir::SymExpr(4)}, {"axis", axis}});
    b.output(best->value(0));
    b.output(best->value(1));
    const ir::Graph graph = b.finish();
    for (const std::int64_t size : {0, 1, 5})
      expect_fast_code_right(graph, {with_ties(f32, {size, 20, 40})});
  }
}

TEST(TopkList, OfEachLengthAndCount) {
  for (const std::int64_t length : {129, 257, 700}) {
    for (const std::int64_t k : {1, 5, 63, 64, 65}) {
      ir::Literal x = with_ties(f32, {2, length});
      for (const std::int64_t at : {std::int64_t{0}, std::int64_t{4}, length - 1}) x.set(at, NAN);
      x.set(length, INFINITY);
      for (const bool largest : {false, true}) {
        expect_fast_nest_right(topk_of(x, k, -1, largest));
        expect_fast_nest_right(topk_of(random_literal(f32, {2, length}, 3), k, -1, largest));
      }
    }
  }
}

TEST(TopkList, OfMoreNanThanNumbers) {
  ir::Literal x = random_literal(f32, {1, 200}, 3);
  for (std::int64_t k = 0; k < 200; ++k)
    if (k % 50 != 7) x.set(k, NAN);
  for (const bool largest : {false, true}) expect_nest_right(topk_of(x, 9, -1, largest));
}

TEST(TopkList, OfRowsThatGrowAndShrink) {
  ir::Literal x(f32, {2, 600});
  for (std::int64_t k = 0; k < 1200; ++k) x.set(k, static_cast<double>(k < 600 ? k : -k));
  for (const bool largest : {false, true}) expect_fast_nest_right(topk_of(x, 20, -1, largest));
}

TEST(TopkList, EveryDTypeAndAxis) {
  for (const DType dtype : testing::kNumbers) {
    expect_fast_nest_right(topk_of(with_ties(dtype, {2, 150}), 7, -1, true));
    expect_fast_nest_right(topk_of(with_ties(dtype, {150, 3}), 7, 0, false));
  }
}

TEST(TopkList, HoldsNoMoreThanItsEntries) {
  ir::GraphBuilder b("main");
  const ir::Node* best =
      b.call("topk", {b.input(tensor(f32, {"s0", "s1"}))}, {{"k", ir::SymExpr(8)}});
  b.output(best->value(0));
  b.output(best->value(1));
  const ir::Graph graph = b.finish();
  const jit::Nest nest = *lowered(graph).kernels[0].nest;
  ASSERT_EQ(nest.buffers.size(), nest.global_count() + 2u) << print(nest);
  for (std::size_t k = nest.global_count(); k < nest.buffers.size(); ++k)
    EXPECT_EQ(nest.buffers[k].max_count, 8);
  for (const std::int64_t length : {8, 9, 300})
    expect_fast_code_right(graph, {with_ties(f32, {3, length})});
}

}  // namespace
}  // namespace heddle::test
