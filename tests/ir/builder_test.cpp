#include <gtest/gtest.h>

#include "heddle/error.h"
#include "ir/op.h"
#include "ir/text.h"
#include "tests/support/one_op.h"
#include "tests/support/round_trip.h"

namespace heddle::testing {
namespace {

using ir::Graph;
using ir::GraphBuilder;
using ir::SymExpr;
using ir::Value;

std::string thrown(const std::function<void(GraphBuilder&, Value)>& f) {
  return error_of([&] {
    GraphBuilder builder("main");
    builder.context.location = {"user.cpp", 12};
    const Value x = builder.input(meta(f32, {4, 6}), "x");
    f(builder, x);
  });
}

TEST(Builder, FillsDefaultsAndKeepsNamesUnique) {
  GraphBuilder builder("main");
  const Value x = builder.input(meta(f32, {4}), "x");
  builder.context.name = "x";
  const Value y = builder.emit("softmax", {x});
  EXPECT_EQ(y.name(), "%x_1");
  EXPECT_EQ(y.node->integer("axis"), -1);
  EXPECT_EQ(builder.emit("exp", {y}).name(), "%v0");
  const ir::Node* sorted = builder.call("sort", {y});
  EXPECT_EQ(sorted->names()[0], "v1");
  EXPECT_EQ(sorted->names()[1], "v2");
}

TEST(Builder, NamesOpAttributeExpectedAndGot) {
  EXPECT_EQ(thrown([](GraphBuilder& b, Value x) { b.emit("exp", {x, x}); }),
            "exp: number of operands at user.cpp:12: expected 1, got 2");
  EXPECT_EQ(thrown([](GraphBuilder& b, Value) { b.emit("exp", {Value()}); }),
            "exp: operand 0 at user.cpp:12: expected a value, got none");
  EXPECT_EQ(
      thrown([](GraphBuilder& b, Value x) { b.emit("softmax", {x}, {{"axes", std::int64_t{1}}}); }),
      "softmax: unknown attribute at user.cpp:12: expected axis, got axes");
  EXPECT_EQ(thrown([](GraphBuilder& b, Value x) {
              b.emit("softmax", {x}, {{"axis", std::string("1")}});
            }),
            "softmax: attribute axis at user.cpp:12: expected int, got string");
  EXPECT_EQ(thrown([](GraphBuilder& b, Value x) { b.emit("reshape", {x}); }),
            "reshape: missing attribute at user.cpp:12: expected sizes");
  EXPECT_EQ(thrown([](GraphBuilder& b, Value x) { b.emit("expp", {x}); }),
            "unknown op 'expp': expected 'exp'");
}

TEST(Builder, ViewsShareStorageAndOthersDoNot) {
  GraphBuilder builder("main");
  const Value x = builder.input(meta(f32, {4, 6}), "x");
  const Value view = builder.emit("permute", {x}, {{"perm", std::vector<std::int64_t>{1, 0}}});
  const Value fresh = builder.emit("exp", {view});
  EXPECT_EQ(view.meta().storage, x.meta().storage);
  EXPECT_NE(fresh.meta().storage, x.meta().storage);
}

TEST(Builder, ResultsAreOnTheDeviceOfTheOperands) {
  GraphBuilder builder("main");
  const ir::DeviceTag cuda{ir::DeviceTag::Kind::Cuda, 1};
  const Value x = builder.input(ir::TensorMeta::of(f32, {4}, cuda), "x");
  EXPECT_EQ(builder.emit("add", {x, builder.scalar(f32, 1)}).meta().device, cuda);
}

TEST(Builder, ArgumentsComeBeforeParameters) {
  GraphBuilder builder("main");
  builder.parameter(meta(f32, {1}), nullptr, "w");
  builder.input(meta(f32, {2}), "x");
  builder.input(meta(f32, {3}), "y");
  const Graph graph = builder.finish();
  EXPECT_EQ(graph.inputs()[0].name(), "%x");
  EXPECT_EQ(graph.inputs()[1].name(), "%y");
  EXPECT_EQ(graph.inputs()[2].name(), "%w");
}

Graph layer(std::string_view name, double factor, bool annotated = false) {
  GraphBuilder builder("main");
  const Value x = builder.input(meta(f32, {SymExpr::size(0), 4}), std::string(name));
  if (annotated) builder.context.annotations["stage"] = {std::int64_t{1}};
  builder.context.location = {std::string(name), 3};
  builder.output(builder.emit("mul", {x, builder.scalar(f32, factor)}));
  return builder.finish();
}

TEST(StructuralHash, SeesStructureOnly) {
  const auto key = layer("a", 2).structural_hash();
  EXPECT_EQ(key, layer("b", 2).structural_hash());
  EXPECT_NE(key, layer("a", 3).structural_hash());
  EXPECT_NE(key, layer("a", 2, true).structural_hash());
}

}  // namespace
}  // namespace heddle::testing
