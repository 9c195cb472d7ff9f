// Lanes along short rows, each with a whole row.
#include <gtest/gtest.h>

#include "tests/jit/nests_support.h"
#include "tests/support/nightly.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;

/// In all modes, and as machine code for vectors of every length.
void expect_columns_right(const ir::Graph& graph, const std::vector<std::int64_t>& sizes) {
  expect_right_at(graph, sizes, 0);
#if HEDDLE_WITH_LLVM
  for (const std::int64_t vector_bytes : {16, 32, 64}) {
    RunOptions options = as_code_of(vector_bytes);
    for (const bool in_place : {false, true}) {
      options.in_place = in_place;
      expect_program_right(graph, lowered(graph), random_arguments(graph, sizes), options, 0);
    }
  }
#endif
}

TEST(Columns, ConcatenatedComparesNothing) {
  GraphBuilder b("main");
  const Value operands[] = {b.input(tensor(f32, {"s0", "4"})), b.input(tensor(f32, {"s0", "1"})),
                            b.input(tensor(f32, {"s0", "1"}))};
  b.output(b.call("concat", operands, {{"axis", std::int64_t{1}}})->value());
  const ir::Graph graph = b.finish();
  const std::string text = nests_of(lowered(graph));
  EXPECT_EQ(text.find("lt("), std::string::npos) << text;
  EXPECT_EQ(text.find("floor(i"), std::string::npos) << text;
  for (const std::int64_t rows : {1, 16, 17, 6000}) expect_columns_right(graph, {rows});
}

TEST(Columns, OfEveryWidthAndType) {
  for (const DType dtype : {f32, u8, i64, f16, boolean}) {
    for (const int width :
         few_by_day<int>({2, 3, 4, 5, 6, 7, 8, 9}, 3, static_cast<std::size_t>(dtype))) {
      SCOPED_TRACE(width);
      const std::string columns = std::to_string(width);
      GraphBuilder b("main");
      const Value x = b.input(tensor(dtype, {"s0", columns.c_str()}));
      const Value y = b.input(tensor(dtype, {columns.c_str(), "s0"}));
      const Value turned = b.emit("permute", {y}, {{"perm", Ints{1, 0}}});
      const Value back = b.emit("reverse", {x}, {{"axes", Ints{1}}});
      const Value both[] = {turned, back};
      b.output(b.call("concat", both, {{"axis", std::int64_t{1}}})->value());
      b.output(b.emit("where", {b.emit("eq", {turned, x}), back, x}));
      const ir::Graph graph = b.finish();
      expect_columns_right(graph, {dtype == u8 ? 130 : 37});
    }
  }
}

TEST(Columns, StoreOverWhatTheyRead) {
  GraphBuilder b("main");
  const Value x = b.emit("neg", {b.input(tensor(f32, {"s0", "3"}))});
  const Value sum = b.emit("add", {x, b.input(tensor(f32, {"3"}))});
  b.output(b.emit("neg", {sum}));
  const ir::Graph graph = b.finish();
  const jit::Program program = lowered(graph);
  ASSERT_EQ(program.record.kernels.size(), 1u);
  EXPECT_FALSE(program.record.steps[0].may_reuse.empty());
  for (const std::int64_t rows : {1, 40, 20000}) expect_columns_right(graph, {rows});
}

/// Rows of two dimensions that lie as one are no columns of the last of them.
TEST(Columns, OfDimensionsThatAreWalkedAsOne) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "2", "3", "s1"}));
  const Value y = b.input(tensor(f32, {"s0", "1", "1", "1"}));
  const Value turned = b.emit("permute", {x}, {{"perm", Ints{0, 3, 1, 2}}});
  b.output(b.emit("div", {turned, y}));
  const ir::Graph graph = b.finish();
  for (const Ints& sizes : {Ints{4, 3}, Ints{1, 40}, Ints{5, 1}})
    expect_columns_right(graph, sizes);
}

TEST(Columns, OfSeveralResults) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "s1", "2"}));
  const Value y = b.input(tensor(f32, {"s1", "2"}));
  const Value sum = b.emit("add", {x, y});
  b.output(sum);
  b.output(b.emit("mul", {b.emit("reverse", {sum}, {{"axes", Ints{2}}}), y}));
  const ir::Graph graph = b.finish();
  expect_columns_right(graph, {3, 50});
  expect_columns_right(graph, {1, 1});
}

TEST(Columns, EveryStepThElementOfRowsThatEndBetweenVectors) {
  for (const std::int64_t step : {2, 3, 5, 8}) {
    SCOPED_TRACE(step);
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {"s0", "s1"}));
    b.output(
        b.emit("slice", {x},
               {{"start", Ints{0, 1}}, {"limit", dims({"s0", "s1"})}, {"stride", Ints{1, step}}}));
    const Value one =
        b.emit("slice", {x},
               {{"start", Ints{0, 1}}, {"limit", dims({"s0", "s1"})}, {"stride", Ints{1, step}}});
    b.output(b.emit("neg", {one}));
    const ir::Graph graph = b.finish();
    for (const std::int64_t width : {2, 30, 57, 200}) expect_columns_right(graph, {3, width});
  }
}

}  // namespace
}  // namespace heddle::test
