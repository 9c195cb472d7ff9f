// Row groups: reductions with what surrounds them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jit/lower_support.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using ::testing::HasSubstr;
using ::testing::Not;
using Ints = std::vector<std::int64_t>;

TEST(LowerRow, ReductionsOverEachAxis) {
  for (const char* op : {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_mean"}) {
    for (const Ints& axes :
         {Ints{0}, Ints{1}, Ints{2}, Ints{0, 1}, Ints{0, 2}, Ints{1, 2}, Ints{0, 1, 2}, Ints{}}) {
      for (const bool keepdims : {false, true}) {
        GraphBuilder b("main");
        const Value x = b.input(tensor(f32, {"s0", "s1", "20"}));
        b.output(b.emit(op, {x}, {{"axes", axes}, {"keepdims", keepdims}}));
        SCOPED_TRACE(std::string(op) + " over " + std::to_string(axes.size()));
        expect_right_at(b.finish(), {3, 5});
      }
    }
  }
}

/// Few results of long reductions: first those of each row, in parallel, then over the rows.
TEST(LowerRow, LongReductionsAcrossRunInTwoSteps) {
  for (const char* op : {"reduce_sum", "reduce_max", "reduce_mean"}) {
    for (const bool keepdims : {false, true}) {
      GraphBuilder b("main");
      const Value image = b.input(tensor(f32, {"s0", "s1", "s2", "24"}));
      const Value rows = b.input(tensor(f32, {"8192", "20"}));
      b.output(b.emit(op, {image}, {{"axes", Ints{1, 2}}, {"keepdims", keepdims}}));
      b.output(b.emit(op, {rows}, {{"axes", Ints{0}}, {"keepdims", keepdims}}));
      const ir::Graph graph = b.finish();
      const jit::Program program = lowered(graph);
      EXPECT_EQ(program.kernels.size(), 4u) << nests_of(program);
      const jit::LowerOptions cuda{.target = jit::LowerOptions::Target::Cuda};
      EXPECT_EQ(jit::lower(graph, cuda).kernels.size(), 4u);
      expect_right_at(graph, {2, 3, 5});
      expect_right_at(graph, {1, 40, 33});
    }
  }
}

/// f16 is not rounded on the way.
TEST(LowerRow, LongReductionsAcrossKeepTheirPrecision) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f16, {"16384", "8"}));
  b.output(b.emit("reduce_sum", {x}, {{"axes", Ints{0}}}));
  expect_right_at(b.finish(), {}, 1e-3);
}

/// A norm, a short reduction, one of many rows and one whose results lie apart stay one kernel each.
TEST(LowerRow, OtherReductionsAcrossStayWhole) {
  const auto kernels_of = [](const ir::Dims& sizes, Ints axes, bool normalises) {
    GraphBuilder b("main");
    const Value x = b.input(ir::TensorMeta::of(f32, sizes));
    const Value sum = b.emit("reduce_sum", {x}, {{"axes", std::move(axes)}, {"keepdims", true}});
    b.output(normalises ? b.emit("sub", {x, b.emit("mul", {sum, b.scalar(f32, 0.01)})}) : sum);
    return kernels(b.finish()).size();
  };
  EXPECT_EQ(kernels_of({1, 64, 64, 32}, {1, 2}, false), 2u);
  EXPECT_EQ(kernels_of({1, 64, 64, 32}, {1, 2}, true), 1u);
  EXPECT_EQ(kernels_of({1, 16, 16, 32}, {1, 2}, false), 1u);
  EXPECT_EQ(kernels_of({8, 64, 64, 32}, {1, 2}, false), 1u);
  EXPECT_EQ(kernels_of({1, 64, 64, 2048}, {1, 2}, false), 1u);
  EXPECT_EQ(kernels_of({64, 2, 64, 32}, {0, 2}, false), 1u);
  EXPECT_EQ(kernels_of({8191, 32}, {0}, false), 1u);
}

/// Rows that lie side by side in memory are the lanes, whatever the order of dimensions that they are read in.
TEST(LowerRow, RowsThatLieSideBySideAreTheLanes) {
  for (const bool softmax : {false, true}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {"s0", "s1", "48"}));
    const Value bias = b.input(tensor(f32, {"48", "1"}));
    const Value turned = b.emit("permute", {x}, {{"perm", Ints{0, 2, 1}}});
    const Value y = b.emit("tanh", {b.emit("add", {turned, bias})});
    b.output(softmax ? b.emit("softmax", {y}) : b.emit("reduce_max", {y}, {{"axes", Ints{2}}}));
    const ir::Graph graph = b.finish();
    const std::string nest = nests_of(lowered(graph));
    EXPECT_EQ(nest.find("vector i1 < 48 {") != std::string::npos, !softmax) << nest;
    expect_right_at(graph, {2, 5});
    expect_right_at(graph, {1, 37});
  }
}

TEST(LowerRow, OfEveryDType) {
  for (const DType dtype : kArithmeticDTypes) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(dtype, {"s0", "20"}));
    if (dtype == boolean) {
      b.output(b.emit("reduce_and", {x}, {{"axes", Ints{1}}}));
      b.output(b.emit("reduce_or", {x}, {{"axes", Ints{0}}}));
    } else {
      b.output(b.emit("reduce_sum", {x}, {{"axes", Ints{1}}}));
      b.output(b.emit("reduce_max", {x}, {{"axes", Ints{0}}}));
    }
    expect_right_at(b.finish(), {3});
  }
}

TEST(LowerRow, OfNoElements) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "s1"}));
  b.output(b.emit("reduce_sum", {x}, {{"axes", Ints{1}}}));
  b.output(b.emit("reduce_max", {x}, {{"axes", Ints{0}}}));
  const ir::Graph graph = b.finish();
  expect_right_at(graph, {3, 0});
  expect_right_at(graph, {0, 3});
}

TEST(LowerRow, ArgMaxFirstAndLast) {
  for (const char* op : {"argmax", "argmin"}) {
    for (const std::int64_t axis : {0, 1}) {
      for (const bool last : {false, true}) {
        GraphBuilder b("main");
        const Value x = b.input(tensor(i32, {"s0", "20"}));
        b.output(b.emit(op, {x}, {{"axis", axis}, {"last", last}}));
        expect_right_at(b.finish(), {6});
      }
    }
  }
}

TEST(LowerRow, SoftmaxIsOneKernel) {
  for (const char* op : {"softmax", "log_softmax"}) {
    for (const std::int64_t axis : {0, 1, 2}) {
      GraphBuilder b("main");
      const Value x = b.input(tensor(f32, {"s0", "s1", "33"}));
      const Value scaled = b.emit("mul", {x, b.scalar(f32, 0.5)});
      b.output(b.emit(op, {scaled}, {{"axis", axis}}));
      const ir::Graph graph = b.finish();
      EXPECT_EQ(kernels(graph).size(), 1u) << nests_of(lowered(graph));
      expect_right_at(graph, {2, 3});
    }
  }
}

TEST(LowerRow, SoftmaxKeepsItsExponentials) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "64"}));
  b.output(b.emit("softmax", {x}));
  const jit::Program program = lowered(b.finish());
  const std::string text = nests_of(program);
  std::size_t count = 0;
  for (std::size_t at = text.find("= exp"); at != std::string::npos;
       at = text.find("= exp", at + 1))
    ++count;
  EXPECT_EQ(count, 1u) << text;
}

TEST(LowerRow, SoftmaxKeepsItsExponentialsWhereItsResultWillLie) {
  for (const DType dtype : {f32, f16}) {
    GraphBuilder b("main");
    b.output(b.emit("softmax", {b.input(tensor(dtype, {"s0", "s1"}))}));
    const ir::Graph graph = b.finish();
    const jit::Program program = lowered(graph);
    ASSERT_EQ(program.kernels.size(), 1u);
    const jit::Nest& nest = *program.kernels[0].nest;
    // Of f16 the exponentials are f32, which do not fit there.
    EXPECT_EQ(nest.buffers.size() - nest.global_count(), dtype == f32 ? 0u : 1u) << print(nest);
    EXPECT_EQ(program.record.steps[0].may_reuse.size(), 1u) << "the result may overwrite x";
    expect_right_at(graph, {3, 70});
  }
}

TEST(LowerRow, AResultThatHoldsElementsOverwritesNothingThatIsReadLater) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "s1"}));
  b.output(b.emit("add", {b.emit("softmax", {x}), x}));
  const ir::Graph graph = b.finish();
  const jit::Program program = lowered(graph);
  ASSERT_EQ(program.kernels.size(), 1u);
  EXPECT_TRUE(program.record.steps[0].may_reuse.empty());
  expect_right_at(graph, {3, 70});
}

TEST(LowerRow, NormsAreOneKernel) {
  for (const char* op : {"layer_norm", "rms_norm"}) {
    for (const DType dtype : {f32, f16, bf16}) {
      GraphBuilder b("main");
      const Value x = b.input(tensor(dtype, {"s0", "s1", "24"}));
      const Value residual = b.input(tensor(dtype, {"s0", "s1", "24"}));
      const Value scale = b.input(tensor(dtype, {"24"}));
      const Value bias = b.input(tensor(dtype, {"24"}));
      const Value sum = b.emit("add", {x, residual});
      const Value normed = std::string(op) == "layer_norm" ? b.emit(op, {sum, scale, bias})
                                                           : b.emit(op, {sum, scale});
      b.output(b.emit("relu", {normed}));
      b.output(sum);
      const ir::Graph graph = b.finish();
      EXPECT_EQ(kernels(graph).size(), 1u) << nests_of(lowered(graph));
      expect_right_at(graph, {2, 3}, 1e-4);
    }
  }
}

TEST(LowerRow, GroupAndBatchNorm) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "6", "4", "5"}));
  const Value c = b.input(tensor(f32, {"6"}));
  const Value d = b.input(tensor(f32, {"6"}));
  b.output(b.emit("group_norm", {x, c, d}, {{"groups", std::int64_t{3}}}));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(kernels(graph).size(), 1u) << nests_of(lowered(graph));
  expect_right_at(graph, {2}, 1e-4);
}

/// Channels are runs of a group's columns: each has a loop of its own, without a division for every column.
TEST(LowerRow, RunsOfColumnsHaveLoopsOfTheirOwn) {
  for (const auto& [height, width] : {std::pair{"4", "5"}, {"s1", "s2"}}) {
    SCOPED_TRACE(height);
    const std::string group = std::string("9*") + height + "*" + width;
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {"s0", "18", height, width}));
    const Value scale = b.input(tensor(f32, {"18", "1", "1"}));
    const Value groups = b.emit("reshape", {x}, {{"sizes", dims({"s0", "2", group.c_str()})}});
    const Value sum = b.emit("reduce_sum", {groups}, {{"axes", Ints{2}}, {"keepdims", true}});
    const Value whole = b.emit("reshape", {b.emit("div", {groups, sum})},
                               {{"sizes", dims({"s0", "18", height, width})}});
    b.output(b.emit("mul", {whole, scale}));
    const ir::Graph graph = b.finish();
    EXPECT_THAT(nests_of(lowered(graph)), Not(HasSubstr("floor(")));
    expect_right_at(graph, {2, 7, 9}, 1e-4);
    expect_right_at(graph, {1, 0, 3}, 1e-4);
  }
}

TEST(LowerRow, Variance) {
  for (const Ints& axes : {Ints{1}, Ints{0}, Ints{0, 1}}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {"s0", "20"}));
    b.output(b.emit("variance", {x}, {{"axes", axes}, {"correction", std::int64_t{1}}}));
    expect_right_at(b.finish(), {6}, 1e-4);
  }
}

TEST(LowerRow, WholeTensorsAreReducedInBlocks) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"700", "100"}));
  b.output(b.emit("reduce_sum", {b.emit("exp", {x})}, {{"axes", Ints{0, 1}}}));
  b.output(b.emit("reduce_max", {x}, {{"axes", Ints{0, 1}}}));
  const ir::Graph graph = b.finish();
  EXPECT_GE(lowered(graph).record.steps.size(), 2u);
  EXPECT_THAT(kernels(graph), ::testing::Not(::testing::Contains(::testing::HasSubstr("pad"))))
      << "elements of a block that is filled up are asked for one by one";
  expect_right_at(graph, {});
}

TEST(LowerRow, WholeTensorsOfUnknownSize) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "s1"}));
  b.output(b.emit("reduce_mean", {b.emit("exp", {x})}, {{"axes", Ints{0, 1}}}));
  b.output(b.emit("variance", {x}, {{"axes", Ints{0, 1}}}));
  b.output(b.emit("reduce_min", {x}, {{"axes", Ints{0, 1}}}));
  const ir::Graph graph = b.finish();
  expect_right_at(graph, {3, 5});
  expect_right_at(graph, {200, 100});
  expect_right_at(graph, {0, 5});
}

TEST(LowerRow, SeveralReductionsOfOneInputShareAKernel) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "40"}));
  const Value sum = b.emit("reduce_sum", {x}, {{"axes", Ints{1}}});
  const Value max = b.emit("reduce_max", {x}, {{"axes", Ints{1}}});
  b.output(b.emit("add", {sum, max}));
  b.output(b.emit("log", {b.emit("abs", {sum})}));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(kernels(graph).size(), 1u) << nests_of(lowered(graph));
  expect_right_at(graph, {4});
}

TEST(LowerRow, ReductionsOverDifferentAxesDoNotMerge) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "40"}));
  const Value a = b.emit("reduce_sum", {x}, {{"axes", Ints{1}}, {"keepdims", true}});
  const Value c = b.emit("reduce_sum", {x}, {{"axes", Ints{0}}, {"keepdims", true}});
  b.output(b.emit("add", {b.emit("mul", {x, a}), c}));
  expect_right_at(b.finish(), {4});
}

}  // namespace
}  // namespace heddle::test
