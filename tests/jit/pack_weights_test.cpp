// Constant weights become panels; what changes from run to run does not.
#include "jit/lower/pack_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jit/lower_support.h"
#include "tests/support/one_op.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using ::testing::ElementsAre;
using testing::ops_of;
using Ints = std::vector<std::int64_t>;

Value weights(GraphBuilder& b, DType dtype, ir::Sizes sizes) {
  return b.constant(random_literal(dtype, std::move(sizes), 7));
}

TEST(PackWeights, PadsToWholePanels) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "s1", "70"}), "x");
  b.output(b.emit("matmul", {x, weights(b, f32, {70, 100})}));
  const ir::Graph graph = b.finish();
  const ir::Graph packed = jit::pack_weights(graph, {});
  const Value result = packed.outputs()[0];
  EXPECT_EQ(result.node->op_name(), "packed_matmul");
  EXPECT_EQ(result.node->integer("columns"), 100);
  EXPECT_EQ(result.meta().to_string(), "f32[s0, s1, 100]");
  EXPECT_EQ(result.node->input(1).meta().to_string(), "f32[2, 70, 64]");
  for (const std::int64_t rows : {1, 2, 3, 32, 45}) expect_right_at(graph, {3, rows}, 1e-4);
}

TEST(PackWeights, OfFewColumnsInNarrowPanels) {
  for (const auto& [dtype, depth, columns, width] :
       {std::tuple{f32, 900, 5, 16}, {f32, 150, 40, 48}, {f64, 900, 5, 8}, {bf16, 900, 5, 32}}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(dtype, {"s0", std::to_string(depth).c_str()}));
    b.output(b.emit("matmul", {x, weights(b, dtype, {depth, columns})}));
    const ir::Graph graph = b.finish();
    const ir::Graph packed = jit::pack_weights(graph, {});
    EXPECT_EQ(packed.outputs()[0].node->input(1).meta().sizes, (ir::Dims{1, depth, width}))
        << name_of(dtype) << " " << columns;
    for (const std::int64_t rows : {1, 3, 16}) expect_right_at(graph, {rows}, 1e-4);
  }
}

TEST(PackWeights, OfEachDType) {
  for (const DType dtype : {f32, f64, f16, bf16, i32}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(dtype, {"s0", "300"}));
    b.output(b.emit("matmul", {x, weights(b, dtype, {300, 64})}));
    const ir::Graph graph = b.finish();
    EXPECT_EQ(ops_of(jit::pack_weights(graph, {})).back(), "packed_matmul");
    for (const std::int64_t rows : {1, 7, 33}) expect_right_at(graph, {rows}, 1e-4);
  }
}

TEST(PackWeights, OfEachGroupByItself) {
  for (const DType dtype : {f32, f64, f16, bf16, i32}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(dtype, {"s0", "150"}));
    const Value ends = b.input(tensor(i64, {"3"}));
    const Value w = weights(b, dtype, {3, 150, 70});
    b.output(b.emit("grouped_matmul", {x, w, ends}));
    const ir::Graph graph = b.finish();
    const ir::Graph packed = jit::pack_weights(graph, {});
    const Value result = packed.outputs()[0];
    EXPECT_EQ(result.node->op_name(), "packed_grouped_matmul");
    EXPECT_EQ(result.node->input(1).meta().sizes, (ir::Dims{3, 2, 150, 64}));
    for (const std::int64_t rows : {1, 7, 40}) {
      std::vector<ir::Literal> arguments = random_arguments(graph, {rows});
      arguments[1] = testing::ints(i64, {3}, {rows / 3, rows / 3, rows - 1});
      expect_right(graph, arguments, 1e-4);
    }
  }
}

TEST(PackWeights, OfNarrowGroups) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "150"}));
  const Value ends = b.input(tensor(i64, {"3"}));
  b.output(b.emit("grouped_matmul", {x, weights(b, f32, {3, 150, 20}), ends}));
  const ir::Graph graph = b.finish();
  const ir::Graph packed = jit::pack_weights(graph, {});
  EXPECT_EQ(packed.outputs()[0].node->input(1).meta().sizes, (ir::Dims{3, 1, 150, 32}));
  for (const std::int64_t rows : {1, 7, 40}) {
    std::vector<ir::Literal> arguments = random_arguments(graph, {rows});
    arguments[1] = testing::ints(i64, {3}, {rows / 3, rows / 3, rows - 1});
    expect_right(graph, arguments, 1e-4);
  }
}

/// Weights that are converted from 16 or 8 bits stay so in the panels; the product is that of the converted ones.
TEST(PackWeights, KeepsFloatsOfFewerBits) {
  for (const DType dtype : {f16, bf16, f8e4m3fn}) {
    for (const auto& [depth, columns] : {std::pair{300, 64}, {70, 130}, {97, 100}}) {
      GraphBuilder b("main");
      const Value x = b.input(tensor(f32, {"s0", std::to_string(depth).c_str()}));
      const Value wide = b.emit("convert", {weights(b, dtype, {depth, columns})}, {{"dtype", f32}});
      b.output(b.emit("relu", {b.emit("matmul", {x, wide})}));
      const ir::Graph graph = b.finish();
      const ir::Graph packed = jit::pack_weights(graph, {});
      const Value product = packed.outputs()[0].node->input(0);
      ASSERT_EQ(product.node->op_name(), "packed_matmul");
      EXPECT_EQ(product.node->input(1).meta().dtype, dtype);
      EXPECT_EQ(product.meta().dtype, f32);
      for (const std::int64_t rows : {0, 1, 7, 33}) expect_right_at(graph, {rows}, 1e-4);
    }
  }
}

/// With vectors of 32 bytes parts of panels are shorter, and rows of 16 bits are widened once for all blocks of columns.
TEST(PackWeights, WithSixteenRegisters) {
  const jit::LowerOptions options{.vector_bytes = 32};
  for (const DType dtype : {f32, f64, f16, bf16}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(dtype, {"s0", "300"}));
    b.output(b.emit("matmul", {x, weights(b, dtype, {300, 100})}));
    const ir::Graph graph = b.finish();
    const jit::Program program = jit::lower(graph, options);
    // Parts of a panel are as many bytes of either.
    const char* part = dtype == f64 ? "+300,32)" : "+300,64)";
    EXPECT_NE(nests_of(program).find(part), std::string::npos) << nests_of(program);
    for (const std::int64_t rows : {0, 1, 2, 3, 7, 33})
      expect_program_right(graph, program, random_arguments(graph, {rows}), {}, 1e-4);
  }
}

TEST(PackWeights, ThroughWhatIsComputedFromConstants) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "80"}));
  const Value turned = b.emit("permute", {weights(b, f16, {90, 80})}, {{"perm", Ints{1, 0}}});
  const Value wide = b.emit("convert", {turned}, {{"dtype", f32}});
  b.output(b.emit("relu", {b.emit("matmul", {x, wide})}));
  const ir::Graph graph = b.finish();
  EXPECT_THAT(kernels(graph), ElementsAre("clone", "packed_matmul_relu"));
  expect_right_at(graph, {5}, 1e-4);
}

TEST(PackWeights, OnceForAllThatReadThem) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "128"}));
  const Value w = weights(b, f32, {128, 128});
  b.output(b.emit("matmul", {b.emit("tanh", {b.emit("matmul", {x, w})}), w}));
  const ir::Graph graph = b.finish();
  EXPECT_THAT(kernels(graph), ElementsAre("clone", "packed_matmul_tanh", "packed_matmul"));
  expect_right_at(graph, {5}, 1e-3);
}

TEST(PackWeights, RowsOfABatchAreRowsOfOneMatrix) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "s1", "128"}));
  const Value bias = b.input(tensor(f32, {"s1", "128"}));
  const Value y = b.emit("matmul", {x, weights(b, f32, {128, 128})});
  b.output(b.emit("add", {y, bias}));
  const ir::Graph graph = b.finish();
  const jit::Program program = lowered(graph);
  const jit::Nest& nest = *program.kernels.back().nest;
  EXPECT_EQ(nest.parallel_extent.to_string(), "2*floor((s0*s1+31)/32)") << jit::print(nest);
  expect_right_at(graph, {5, 9}, 1e-4);
  expect_right_at(graph, {40, 1}, 1e-4);
}

/// Dimensions of size 1 lie anywhere: the input of a recurrent layer with a batch of one is one matrix of all steps.
TEST(PackWeights, RowsWithDimensionsOfSizeOneAmongThemAreOneMatrix) {
  GraphBuilder b("main");
  const Value steps = b.input(tensor(f32, {"s0", "1", "72"}));
  const Value apart = b.input(tensor(f32, {"3", "1", "s1", "1", "72"}));
  const Value w = weights(b, f32, {72, 64});
  b.output(b.emit("matmul", {steps, w}));
  b.output(b.emit("matmul", {apart, w}));
  const ir::Graph graph = b.finish();
  const jit::Program program = lowered(graph);
  ASSERT_EQ(program.kernels.size(), 3u);
  EXPECT_EQ(program.kernels[1].nest->parallel_extent.to_string(), "floor((s0+31)/32)");
  EXPECT_EQ(program.kernels[2].nest->parallel_extent.to_string(), "floor((3*s0+31)/32)");
  expect_right_at(graph, {40, 1}, 1e-4);
  expect_right_at(graph, {1, 23}, 1e-4);
}

TEST(PackWeights, RowsThatDoNotLieEvenlyStayABatch) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "9", "128"}));
  const Value part = b.emit("slice", {x},
                            {{"start", dims({"0", "2", "0"})},
                             {"limit", dims({"s0", "7", "128"})},
                             {"stride", dims({"1", "1", "1"})}});
  b.output(b.emit("matmul", {part, weights(b, f32, {128, 128})}));
  const ir::Graph graph = b.finish();
  const jit::Program program = lowered(graph);
  EXPECT_EQ(program.kernels.back().nest->parallel_extent.to_string(), "2*s0");
  expect_right_at(graph, {4}, 1e-4);
}

TEST(PackWeights, LeavesWhatChangesSmallOnesAndCuda) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "64"}));
  const Value y = b.input(tensor(f32, {"64", "100"}));
  b.output(b.emit("matmul", {x, y}));
  b.output(b.emit("matmul", {x, weights(b, f32, {64, 64})}));
  const Value large = b.emit("matmul", {x, weights(b, f32, {64, 65})});
  b.output(large);
  const ir::Graph graph = b.finish();
  const ir::Graph packed = jit::pack_weights(graph, {});
  EXPECT_EQ(packed.outputs()[0].node->op_name(), "matmul");
  EXPECT_EQ(packed.outputs()[1].node->op_name(), "matmul");
  EXPECT_EQ(packed.outputs()[2].node->op_name(), "packed_matmul");
  EXPECT_TRUE(
      jit::pack_weights(graph, {.target = jit::LowerOptions::Target::Cuda}).identical(graph));
  EXPECT_TRUE(jit::pack_weights(graph, {.rest = {.fuse = false}}).identical(graph));
  expect_right_at(graph, {5}, 1e-4);
}

ir::Graph recurrent_body() {
  GraphBuilder b("step");
  const Value state = b.input(tensor(f32, {"2", "70"}));
  const Value slice = b.input(tensor(f32, {"2", "70"}));
  const Value weights = b.input(tensor(f32, {"70", "70"}));
  const Value turned = b.emit("matmul", {state, weights});
  const Value next = b.emit("tanh", {b.emit("add", {b.emit("matmul", {turned, weights}), slice})});
  b.output(next);
  b.output(next);
  return b.finish();
}

ir::Graph recurrent(Value (*matrix)(GraphBuilder&)) {
  GraphBuilder b("main");
  const Value state = b.input(tensor(f32, {"2", "70"}));
  const Value slices = b.input(tensor(f32, {"s0", "2", "70"}));
  const ir::Node* scan = emit_scan(b, {state, slices, matrix(b)}, recurrent_body());
  for (std::uint32_t k = 0; k < 2; ++k) b.output(scan->value(k));
  return b.finish();
}

TEST(PackWeights, BeforeTheLoopThatReadsThemInEachIteration) {
  const ir::Graph graph = recurrent([](GraphBuilder& b) { return weights(b, f32, {70, 70}); });
  const ir::Graph packed = jit::pack_weights(graph, {});
  const ir::Node& scan = *packed.outputs()[0].node;
  ASSERT_EQ(scan.op_name(), "scan");
  ASSERT_EQ(scan.inputs().size(), 3u);  // nothing reads the matrix any more
  EXPECT_EQ(scan.input(2).node->op_name(), "clone");
  EXPECT_EQ(scan.input(2).meta().to_string(), "f32[2, 70, 64]");
  EXPECT_THAT(ops_of(scan.graph("body")),
              ::testing::IsSupersetOf({"packed_matmul", "packed_matmul", "tanh"}));
  EXPECT_THAT(ops_of(scan.graph("body")), ::testing::Not(::testing::Contains("matmul")));
  EXPECT_EQ(packed.outputs()[1].node, &scan);
}

TEST(PackWeights, BeforeALoopThatItsConditionEnds) {
  const auto inputs = [](GraphBuilder& b) {
    return std::vector<Value>{b.input(tensor(f32, {"2", "70"})),
                              b.input(tensor(f32, {"70", "70"}))};
  };
  GraphBuilder again("again");
  again.output(
      again.emit("gt", {again.emit("reduce_sum", {inputs(again)[0]}, {{"axes", Ints{0, 1}}}),
                        again.scalar(f32, 1)}));
  GraphBuilder step("step");
  const std::vector<Value> given = inputs(step);
  step.output(step.emit("tanh", {step.emit("matmul", {given[0], given[1]})}));
  GraphBuilder b("main");
  const std::vector<Value> operands{b.input(tensor(f32, {"2", "70"})), weights(b, f32, {70, 70})};
  const auto nested = [](GraphBuilder& graph, const char* name) {
    return ir::GraphRef{name, std::make_shared<const ir::Graph>(graph.finish())};
  };
  b.output(b.call("while_loop", operands,
                  {{"carried", std::int64_t{1}},
                   {"condition", nested(again, "@again")},
                   {"body", nested(step, "@step")}})
               ->value());
  const ir::Graph packed = jit::pack_weights(b.finish(), {});
  const ir::Node& loop = *packed.outputs()[0].node;
  ASSERT_EQ(loop.inputs().size(), 2u);
  EXPECT_EQ(loop.input(1).meta().to_string(), "f32[2, 70, 64]");
  EXPECT_THAT(ops_of(loop.graph("body")), ::testing::Contains("packed_matmul"));
  EXPECT_EQ(loop.graph("condition").inputs().size(), 2u);
}

TEST(PackWeights, NotBeforeALoopWhereTheyChangeFromRunToRun) {
  const ir::Graph graph =
      recurrent([](GraphBuilder& b) { return b.input(tensor(f32, {"70", "70"})); });
  EXPECT_TRUE(jit::pack_weights(graph, {}).identical(graph));
}

}  // namespace
}  // namespace heddle::test
