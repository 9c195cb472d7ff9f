// Each rule is broken once, by hand.
#include "ir/verifier.h"

#include <gtest/gtest.h>

#include "heddle/error.h"
#include "ir/op.h"
#include "ir/passes/pipeline.h"
#include "ir/text.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Graph;
using ir::GraphBuilder;
using ir::NodePtr;
using ir::Stage;
using ir::Value;

NodePtr node_named(const Graph& graph, std::string_view name) {
  for (const NodePtr& node : graph.nodes())
    if (node->name() == name) return node;
  return nullptr;
}

/// Which rule `graph` breaks: "V1", or "" for none.
std::string broken_rule(const Graph& graph, Stage stage = Stage::Functional) {
  try {
    ir::verify(graph, stage, "some-pass");
  } catch (const InvariantError& error) {
    EXPECT_TRUE(error.parts().what.starts_with("some-pass: V")) << error.what();
    return error.parts().what.substr(11, error.parts().what.find(' ', 11) - 11);
  }
  return "";
}

const Graph& chain() {
  static const Graph graph = ir::parse(R"(graph @main(%x: f32[4, 2]) {
  %a = exp(%x)
  %b = neg(%a)
  return %b
}
)");
  return graph;
}

ir::OpDef mutating_op() {
  ir::OpDef op;
  op.name = "overwrite";
  op.operands = {{"x"}};
  op.infer = [](const ir::InferContext& context) { return std::vector{context.meta(0)}; };
  op.alias = [](const ir::Node&, std::uint32_t) { return ir::Alias{ir::Alias::Kind::Mutates, 0}; };
  return op;
}

TEST(Verifier, AcceptsWhatTheBuilderMakes) {
  EXPECT_EQ(broken_rule(chain()), "");
  EXPECT_EQ(broken_rule(chain(), Stage::Traced), "");
}

TEST(Verifier, V1OperandsAreDefinedBeforeTheirUse) {
  GraphBuilder builder("main");
  builder.share(node_named(chain(), "b"));
  builder.share(node_named(chain(), "a"));
  EXPECT_EQ(broken_rule(builder.finish()), "V1");
}

TEST(Verifier, V2OrderComesFromAbove) {
  GraphBuilder builder("main");
  const Value x = builder.input(meta(f32, {4}));
  builder.context.after = {node_named(chain(), "a")->value()};
  builder.emit("exp", {x});
  EXPECT_EQ(broken_rule(builder.finish()), "V2");
}

TEST(Verifier, V3NamesAreUnique) {
  GraphBuilder builder("main");
  builder.input(meta(f32, {4}), "a");
  builder.share(node_named(chain(), "x"));
  builder.share(node_named(chain(), "a"));
  EXPECT_EQ(broken_rule(builder.finish()), "V3");
}

TEST(Verifier, V4AttributesFollowTheSchema) {
  ir::OpDef op = mutating_op();
  op.alias = nullptr;
  GraphBuilder builder("main");
  builder.call(op, std::vector<Value>{builder.input(meta(f32, {4}))});
  const Graph graph = builder.finish();
  EXPECT_EQ(broken_rule(graph), "");
  op.attrs = {{"axis", ir::AttrKind::Int, std::nullopt}};
  EXPECT_EQ(broken_rule(graph), "V4");
}

TEST(Verifier, V5MetadataIsWhatInferenceGives) {
  ir::OpDef op = mutating_op();
  op.alias = nullptr;
  GraphBuilder builder("main");
  builder.call(op, std::vector<Value>{builder.input(meta(f32, {4}))});
  const Graph graph = builder.finish();
  op.infer = [](const ir::InferContext&) { return std::vector{meta(f32, {5})}; };
  EXPECT_EQ(broken_rule(graph), "V5");
  op.infer = [](const ir::InferContext& context) -> std::vector<ir::TensorMeta> {
    context.fail_shape("C1", "another", "this");
  };
  EXPECT_EQ(broken_rule(graph), "V5");
}

TEST(Verifier, V5NodesOfAKnownGraphAreNotInferredAgain) {
  ir::OpDef op = mutating_op();
  op.alias = nullptr;
  GraphBuilder builder("main");
  builder.call(op, std::vector<Value>{builder.input(meta(f32, {4}))});
  const Graph known = builder.finish();
  const auto again = [&](bool grown) {
    GraphBuilder builder("main");
    for (const NodePtr& node : known.nodes()) builder.share(node);
    if (grown) builder.call(op, std::vector<Value>{known.nodes().back()->value()});
    return builder.finish();
  };
  const Graph kept = again(false);
  const Graph grown = again(true);
  op.infer = [](const ir::InferContext&) { return std::vector{meta(f32, {5})}; };
  EXPECT_EQ(broken_rule(kept), "V5");
  EXPECT_NO_THROW(ir::verify(kept, Stage::Functional, "pass", &known));
  EXPECT_THROW(ir::verify(grown, Stage::Functional, "pass", &known), InvariantError);
}

TEST(Verifier, StructureAloneIsNotInferred) {
  ir::OpDef op = mutating_op();
  GraphBuilder builder("main");
  builder.call(op, std::vector<Value>{builder.input(meta(f32, {4}))});
  const Graph graph = builder.finish();
  op.infer = [](const ir::InferContext&) { return std::vector{meta(f32, {5})}; };
  EXPECT_EQ(broken_rule(graph, Stage::Reinplaced), "V5");
  EXPECT_NO_THROW(ir::verify_structure(graph, Stage::Reinplaced, "pass"));
  EXPECT_THROW(ir::verify_structure(graph, Stage::Functional, "pass"), InvariantError);
}

TEST(Verifier, V6NothingMutatesBeforeReinplace) {
  const ir::OpDef op = mutating_op();
  GraphBuilder builder("main");
  builder.call(op, std::vector<Value>{builder.input(meta(f32, {4}))});
  const Graph graph = builder.finish();
  EXPECT_EQ(broken_rule(graph, Stage::Traced), "V6");
  EXPECT_EQ(broken_rule(graph, Stage::Functional), "V6");
  EXPECT_EQ(broken_rule(graph, Stage::Reinplaced), "");
}

TEST(Verifier, V7StoragesFollowAliases) {
  ir::OpDef op = mutating_op();
  op.alias = [](const ir::Node&, std::uint32_t) { return ir::Alias{ir::Alias::Kind::View, 0}; };
  GraphBuilder builder("main");
  builder.call(op, std::vector<Value>{builder.input(meta(f32, {4}))});
  const Graph graph = builder.finish();
  EXPECT_EQ(broken_rule(graph), "");
  op.alias = nullptr;
  EXPECT_EQ(broken_rule(graph), "V7");
}

TEST(Verifier, V8OutputsAreDefined) {
  GraphBuilder builder("main");
  builder.output(chain().outputs()[0]);
  EXPECT_EQ(broken_rule(builder.finish()), "V8");
}

TEST(Verifier, V9WriteBacksFitTheirInput) {
  GraphBuilder wrong_target("main");
  const Value x = wrong_target.input(meta(f32, {4}));
  const Value a = wrong_target.emit("exp", {x});
  wrong_target.write_back(a, x);
  EXPECT_EQ(broken_rule(wrong_target.finish()), "V9");

  GraphBuilder wrong_type("main");
  const Value y = wrong_type.input(meta(f32, {4}));
  wrong_type.write_back(y, wrong_type.emit("convert", {y}, {{"dtype", f16}}));
  EXPECT_EQ(broken_rule(wrong_type.finish()), "V9");
}

TEST(Verifier, V10WhatInferenceAssumesIsRecorded) {
  const Graph graph = ir::parse(R"(graph @main(%x: f32[s0], %y: f32[s1]) {
  %a = add(%x, %y)
  return %a
}
)");
  EXPECT_EQ(broken_rule(graph), "");
  GraphBuilder builder("main");
  for (const NodePtr& node : graph.nodes()) builder.share(node);
  EXPECT_EQ(broken_rule(builder.finish()), "V10");
}

TEST(Verifier, NamesThePassTheNodeAndTheRule) {
  const ir::OpDef op = mutating_op();
  GraphBuilder builder("main");
  const Value x = builder.input(meta(f32, {4}), "x");
  builder.context.name = "y";
  builder.context.location = {"user.cpp", 7};
  builder.call(op, std::vector<Value>{x});
  const Graph graph = builder.finish();
  EXPECT_EQ(error_of([&] { ir::verify(graph, Stage::Functional, "my-pass"); }),
            "my-pass: V6 nothing mutates before reinplace at %y = overwrite from user.cpp:7: "
            "expected a functional op, got a mutation");
}

}  // namespace
}  // namespace heddle::testing
