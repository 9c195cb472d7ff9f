// Reductions of few long rows in parts, as CUDA has them, against the definitions.
#include "jit/lower/split_rows.h"

#include <cmath>

#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ::testing::_;
using ::testing::ElementsAre;
using ::testing::Gt;

const jit::LowerOptions kRowsOnCuda{.target = jit::LowerOptions::Target::Cuda};

jit::Program expect_rows_right(const OneOp& call) {
  SCOPED_TRACE(std::string(call.op));
  const ir::Graph graph = testing::graph_of(call);
  jit::Program program = jit::lower(graph, kRowsOnCuda);
  expect_program_right(graph, program, call.operands, as_code(), 1e-5);
  return program;
}

ir::Attrs reducing(std::vector<std::int64_t> axes, bool keepdims = false) {
  return {{"axes", std::move(axes)}, {"keepdims", keepdims}};
}

TEST(SplitRows, EveryReductionOfAWholeNumberOfParts) {
  for (const char* op : {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod"}) {
    expect_rows_right({op, {noise(f32, {3, 40000})}, reducing({1})});
    expect_rows_right({op, {noise(i32, {3, 200, 200})}, reducing({1, 2}, true)});
  }
  const ir::Literal bits = noise(boolean, {2, 40000});
  for (const char* op : {"reduce_and", "reduce_or"})
    expect_rows_right({op, {bits}, reducing({-1})});
  expect_rows_right({"reduce_sum", {noise(f16, {1, 40000})}, reducing({0, 1})});
}

TEST(SplitRows, PartsThatDoNotMakeUpARow) {
  constexpr std::int64_t kPrime = 40009;
  for (const char* op : {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod"})
    for (const DType dtype : {f32, u8})
      expect_rows_right({op, {noise(dtype, {2, kPrime})}, reducing({1})});
  for (const char* op : {"argmax", "argmin"})
    for (const DType dtype : {f32, u8})
      expect_rows_right({op, {noise(dtype, {2, kPrime})}, {{"axis", std::int64_t{1}}}});
}

TEST(SplitRows, ThePlaceOfTheFirstOfEqualElements) {
  for (const char* op : {"argmax", "argmin"}) {
    ir::Literal x = noise(f32, {4, 40000});
    for (std::int64_t k = 0; k < x.count(); ++k) x.set(k, std::round(x.at(k)));
    x.set(40000 + 39000, NAN);
    x.set(40000 + 39999, NAN);
    for (std::int64_t k = 80000; k < 120000; ++k) x.set(k, -INFINITY);
    for (const bool last : {false, true})
      expect_rows_right(
          {op, {x}, {{"axis", std::int64_t{-1}}, {"keepdims", true}, {"last", last}}});
  }
}

TEST(SplitRows, NormsOfLongRows) {
  const jit::Program softmax =
      expect_rows_right({"softmax", {noise(f32, {2, 65536})}, {{"axis", std::int64_t{1}}}});
  std::vector<std::int64_t> blocks;
  for (const auto& kernel : softmax.kernels)
    blocks.push_back(kernel.nest->parallel_extent.as_constant().value_or(0));
  EXPECT_THAT(blocks, ElementsAre(32, _, 32, _, Gt(32)));
  expect_rows_right({"log_softmax", {noise(bf16, {3, 40000})}, {{"axis", std::int64_t{1}}}});
  expect_rows_right({"variance", {noise(f32, {2, 40000})}, reducing({1})});
}

TEST(SplitRows, RowsWhoseNumberIsNotKnown) {
  ir::GraphBuilder b("main");
  const ir::Value x = b.input(tensor(f32, {"s0", "40000"}));
  b.output(b.emit("softmax", {x}, {{"axis", std::int64_t{1}}}));
  const ir::Graph graph = b.finish();
  const jit::Program program = jit::lower(graph, kRowsOnCuda);
  for (const std::int64_t rows : {0, 1, 3})
    expect_program_right(graph, program, {noise(f32, {rows, 40000})}, as_code(), 1e-5);
}

TEST(SplitRows, TheLastOfEqualElementsIsNoPadding) {
  ir::Literal x(f32, {2, 40009});
  for (std::int64_t k = 0; k < x.count(); ++k) x.set(k, -INFINITY);
  expect_rows_right({"argmax", {x}, {{"axis", std::int64_t{1}}, {"last", true}}});
}

TEST(SplitRows, OthersStayAsTheyAre) {
  const auto stays = [](const ir::Sizes& sizes, std::vector<std::int64_t> axes,
                        const jit::LowerOptions& options) {
    const ir::Graph graph =
        testing::graph_of({"reduce_sum", {ir::Literal(f32, sizes)}, reducing(std::move(axes))});
    return jit::split_rows(graph, options).identical(graph);
  };
  EXPECT_FALSE(stays({2, 32768}, {1}, kRowsOnCuda));
  EXPECT_TRUE(stays({2, 32768}, {1}, {}));
  EXPECT_TRUE(stays({2, 32767}, {1}, kRowsOnCuda));
  EXPECT_TRUE(stays({264, 32768}, {1}, kRowsOnCuda));
  EXPECT_TRUE(stays({2, 32768, 3}, {1}, kRowsOnCuda));
}

}  // namespace
}  // namespace heddle::test
