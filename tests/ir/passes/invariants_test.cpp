// What passes may rely on: metadata follows a change and nothing else does.
#include <gtest/gtest.h>

#include "heddle/error.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "ir/text.h"

namespace heddle::testing {
namespace {

using ir::Graph;
using ir::Value;

/// 1,000 nodes; the one in place 990 is a slice of half of its operand.
Graph chain() {
  ir::GraphBuilder builder("main");
  Value value = builder.input(ir::TensorMeta::of(f32, {64}), "x");
  for (int k = 0; k < 999; ++k) value = builder.emit("neg", {value});
  builder.output(value);
  return builder.finish();
}

TEST(Metadata, AChangeNearTheEndReinfersWhatFollowsIt) {
  const Graph graph = chain();
  int number = 0;
  std::size_t reinferred = 0;
  const Graph after = ir::rewrite(
      graph,
      [&](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<std::vector<Value>> {
        reinferred = rewriter.reinferred();
        if (++number != 990) return {};
        return std::vector<Value>{rewriter.builder().emit(
            "slice", {rewriter.map(node->input(0))},
            {{"start", ir::Dims{0}}, {"limit", ir::Dims{32}}, {"stride", ir::Dims{1}}})};
      });
  EXPECT_EQ(number, 999);
  EXPECT_EQ(reinferred, 8u) << "nodes 991 to 998, counted before 999";
  EXPECT_EQ(after.outputs()[0].meta().to_string(), "f32[32]");
  for (std::size_t k = 0; k < 989; ++k) EXPECT_EQ(after.nodes()[k], graph.nodes()[k]);
}

TEST(Metadata, OfANodeWithOrderFollowsItsOperands) {
  const Graph graph = ir::parse(R"(graph @main(%x: f32[8], %y: f32[8]) {
  %a = neg(%x)
  %b = exp(%y)
  %c = abs(%a) after(%b)
  return %c, %b
}
)");
  const Graph after = ir::rewrite(
      graph,
      [](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<std::vector<Value>> {
        if (node->op_name() != "neg") return {};
        return std::vector<Value>{rewriter.builder().emit("convert", {rewriter.map(node->input(0))},
                                                          {{"dtype", DType::F64}})};
      });
  const ir::Node& ordered = *after.outputs()[0].node;
  EXPECT_EQ(ordered.output().to_string(), "f64[8]");
  ASSERT_EQ(ordered.after().size(), 1u);
  EXPECT_EQ(ordered.after()[0], after.outputs()[1]);
}

// S2-5: what calls a graph follows its operands as what computes itself does, through the sizes that the graph speaks of; a
// graph for one size refuses another.
TEST(Metadata, OfACallFollowsItsOperands) {
  const auto after = [](const std::string& size) {
    const Graph graph = ir::parse(
        "graph @main(%p: bool[], %x: f32[8], %y: f32[6]) {\n"
        "  %n = neg(%x)\n"
        "  %i = invoke(%n) {body = @twice}\n"
        "  %c = cond(%p, %i) {then = @half, else = @half}\n"
        "  %r = tanh(%c)\n"
        "  return %r\n}\n"
        "graph @twice(%t: f32[" +
        size +
        "]) {\n  %u = concat(%t, %t) {axis = 0}\n  return %u\n}\n"
        "graph @half(%t: f32[s0]) {\n  %u = exp(%t)\n  return %u\n}\n");
    return ir::rewrite(graph,
                       [](ir::Rewriter& rewriter,
                          const ir::NodePtr& node) -> std::optional<std::vector<Value>> {
                         if (node->op_name() != "neg") return {};
                         return std::vector{
                             rewriter.builder().emit("neg", {rewriter.builder().inputs()[2]})};
                       })
        .outputs()[0]
        .meta()
        .to_string();
  };
  EXPECT_EQ(after("s0"), "f32[12]");
  EXPECT_THROW(after("8"), ShapeError);
}

}  // namespace
}  // namespace heddle::testing
