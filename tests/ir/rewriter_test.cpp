#include <gtest/gtest.h>

#include "heddle/error.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "tests/support/one_op.h"
#include "tests/support/round_trip.h"

namespace heddle::testing {
namespace {

using ir::Graph;
using ir::NodePtr;
using ir::Rewriter;
using ir::Value;
using Replacement = std::optional<std::vector<Value>>;

constexpr const char* kText = R"(graph @main(%x: f32[s0, 8], %y: f32[s0, 8]) {
  %a = exp(%x)
  %b = add(%a, %y) after(%a)
  %c = neg(%b) @{stage = 2}
  %d = reduce_sum(%y) {axes = [1]}
  return %c "out", %d
}
)";

/// Replaces the node called `name` by what `make` gives.
template <typename F>
Graph replace(const Graph& graph, std::string_view name, F&& make) {
  return ir::rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> Replacement {
    if (node->name() != name) return {};
    return std::vector<Value>{make(rewriter, *node)};
  });
}

TEST(Rewriter, ReturnsTheSameGraphWhenNothingChanged) {
  const Graph graph = ir::parse(kText);
  const Graph same =
      ir::rewrite(graph, [](Rewriter&, const NodePtr&) -> Replacement { return {}; });
  EXPECT_TRUE(same.identical(graph));
}

/// The new graph is made when a visitor first asks for it, wherever that is.
TEST(Rewriter, MakesTheNewGraphWhenItIsAskedFor) {
  const Graph graph = ir::parse(kText);
  for (std::size_t asked = 0; asked < 4; ++asked) {
    std::size_t visited = 0;
    const Graph same =
        ir::rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> Replacement {
          if (visited++ != asked) return {};
          EXPECT_EQ(rewriter.builder().nodes().size(), 2 + asked);
          EXPECT_EQ(rewriter.builder().context.origin, node->name());
          EXPECT_EQ(rewriter.map(node->input(0)), node->input(0));
          return {};
        });
    EXPECT_TRUE(same.identical(graph)) << asked;
  }
  std::size_t visited = 0;
  const Graph after =
      ir::rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> Replacement {
        // What is made and not used stays in front of the node.
        if (visited++ == 1) rewriter.builder().emit("abs", {rewriter.map(node->input(0))});
        if (node->name() != "d") return {};
        return std::vector<Value>{
            rewriter.builder().call(node->op(), node->inputs(), node->attrs())->value()};
      });
  EXPECT_EQ(ir::print(after), R"(graph @main(%x: f32[s0, 8], %y: f32[s0, 8]) {
  %a = exp(%x)
  %b.abs = abs(%a) after(%a)
  %b = add(%a, %y) after(%a)
  %c = neg(%b) @{stage = 2}
  %d = reduce_sum(%y) {axes = [1]}
  return %c "out", %d
}
)");
  EXPECT_NE(after.outputs()[1].node, graph.outputs()[1].node);
  EXPECT_EQ(after.outputs()[0].node, graph.outputs()[0].node);
}

TEST(Rewriter, SharesWhatItLeavesAloneAndInfersNothingAnew) {
  const Graph graph = ir::parse(kText);
  std::size_t reinferred = 99;
  const Graph after =
      ir::rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> Replacement {
        reinferred = rewriter.reinferred();
        if (node->name() != "a") return {};
        return std::vector<Value>{rewriter.builder().emit("sin", {rewriter.map(node->input(0))})};
      });
  EXPECT_EQ(ir::print(after), R"(graph @main(%x: f32[s0, 8], %y: f32[s0, 8]) {
  %a = sin(%x)
  %b = add(%a, %y) after(%a)
  %c = neg(%b) @{stage = 2}
  %d = reduce_sum(%y) {axes = [1]}
  return %c "out", %d
}
)");
  EXPECT_EQ(reinferred, 0u);
  EXPECT_EQ(after.outputs()[1].node, graph.outputs()[1].node);
  EXPECT_EQ(after.outputs()[0].meta().storage, graph.outputs()[0].meta().storage);
  ir::verify(after, ir::Stage::Functional);
}

TEST(Rewriter, ReinfersOnlyWhatAChangeOfTypeReaches) {
  std::string text = "graph @main(%x: f32[s0, 8]) {\n  %v0 = exp(%x)\n";
  for (int k = 1; k < 1000; ++k)
    text += "  %v" + std::to_string(k) + " = neg(%v" + std::to_string(k - 1) + ")\n";
  const Graph graph = ir::parse(text + "  return %v999\n}\n");
  std::size_t reinferred = 0;
  const Graph after =
      ir::rewrite(graph, [&](Rewriter& rewriter, const NodePtr& node) -> Replacement {
        reinferred = rewriter.reinferred();
        if (node->name() != "v989") return {};
        const Value operand = rewriter.map(node->input(0));
        return std::vector<Value>{rewriter.builder().emit(
            "reduce_sum", {operand}, {{"axes", std::vector<std::int64_t>{1}}})};
      });
  // v990 to v998 were made anew before v999 was visited.
  EXPECT_EQ(reinferred, 9u);
  EXPECT_EQ(after.outputs()[0].meta().to_string(), "f32[s0]");
  EXPECT_EQ(after.nodes()[900], graph.nodes()[900]);
}

TEST(Rewriter, ReplacementsInheritAnnotationsOrderAndTheName) {
  const Graph graph = ir::parse(kText);
  const Graph after = replace(graph, "c", [](Rewriter& rewriter, const ir::Node& node) {
    const Value half = rewriter.builder().emit("exp", {rewriter.map(node.input(0))});
    return rewriter.builder().emit("neg", {half});
  });
  const Value out = after.outputs()[0];
  EXPECT_EQ(out.name(), "%c");
  EXPECT_EQ(after.output_label(0), "out");
  EXPECT_EQ(out.node->annotations(), graph.outputs()[0].node->annotations());
  EXPECT_EQ(out.node->input(0).node->annotations(), graph.outputs()[0].node->annotations());
  ir::verify(after, ir::Stage::Functional);
  expect_round_trip(after);
}

TEST(Rewriter, DroppingPrunesOrder) {
  const Graph graph = ir::parse(R"(graph @main(%x: f32[4]) {
  %a = exp(%x)
  %b = neg(%x) after(%a)
  return %b
}
)");
  const Graph after =
      Rewriter::keep_only(graph, [](const ir::Node& node) { return node.name() != "a"; });
  EXPECT_TRUE(after.outputs()[0].node->after().empty());
  ir::verify(after, ir::Stage::Functional);
}

TEST(Rewriter, AViewOfWhatWasReplacedFollowsItsStorage) {
  const Graph graph = ir::parse(R"(graph @main(%x: f32[4, 2]) {
  %a = exp(%x)
  %b = permute(%a) {perm = [1, 0]}
  return %b
}
)");
  const Graph after = replace(graph, "a", [](Rewriter& rewriter, const ir::Node& node) {
    return rewriter.builder().emit("sin", {rewriter.map(node.input(0))});
  });
  EXPECT_EQ(after.outputs()[0].meta().storage, after.outputs()[0].node->input(0).meta().storage);
  ir::verify(after, ir::Stage::Functional);
}

// S2-4: a node that tells sizes and is made anew tells them under the same names; also where it
// is inferred anew since an operand has another type.
TEST(Rewriter, SizesOfTheRunKeepTheirNumbers) {
  const Graph graph = ir::parse(R"(graph @main(%p: bool[], %x: f32[8]) {
  %a = cond(%p, %x) {then = @yes, else = @no} : f32[u0]
  %b = cond(%p, %x) {then = @yes, else = @no} : f32[u1]
  %i = iota() {sizes = [u0], axis = 0, dtype = f32}
  %c = add(%a, %i)
  return %b, %c
}

graph @yes(%x: f32[8]) {
  %y = exp(%x)
  return %y
}

graph @no(%x: f32[8]) {
  %y = concat(%x, %x) {axis = 0}
  return %y
}
)");
  const auto again = [](Rewriter& rewriter, const ir::Node& node) {
    return rewriter.builder()
        .call(node.op(), rewriter.map(node.inputs()), ir::Attrs(node.attrs()))
        ->value();
  };
  for (const char* name : {"a", "b"}) {
    const Graph after = replace(graph, name, again);
    EXPECT_EQ(ir::print(after), ir::print(graph)) << name;
    ir::verify(after, ir::Stage::Functional);
  }
  const Graph wider = ir::parse(R"(graph @main(%p: bool[], %x: f32[s0], %y: f32[s1]) {
  %n = neg(%x)
  %a = cond(%p, %n) {then = @yes, else = @no} : f32[u0]
  %b = cond(%p, %x) {then = @yes, else = @no} : f32[u1]
  %i = iota() {sizes = [u0+u1], axis = 0, dtype = f32}
  return %a, %b, %i
}

graph @yes(%x: f32[s0]) {
  %y = exp(%x)
  return %y
}

graph @no(%x: f32[s0]) {
  %y = concat(%x, %x) {axis = 0}
  return %y
}
)");
  const Graph other = replace(wider, "n", [](Rewriter& rewriter, const ir::Node&) {
    for (const Value& input : rewriter.builder().inputs())
      if (input.node->name() == "y") return rewriter.builder().emit("neg", {input});
    return Value{};
  });
  EXPECT_EQ(other.outputs()[0].meta().to_string(), "f32[u0]");
  EXPECT_EQ(other.outputs()[1].meta().to_string(), "f32[u1]");
  EXPECT_EQ(other.next_unbacked_symbol(), 2u);
  ir::verify(other, ir::Stage::Functional);
}

}  // namespace
}  // namespace heddle::testing
