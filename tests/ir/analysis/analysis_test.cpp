#include <gtest/gtest.h>

#include "heddle/error.h"
#include "ir/analysis/aliases.h"
#include "ir/analysis/dependencies.h"
#include "ir/analysis/lifetimes.h"
#include "ir/analysis/users.h"
#include "ir/op.h"
#include "ir/text.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Dependency;
using ir::Graph;
using ir::Value;

//   0 x   1 a = exp(x)   2 b = neg(a)   3 c = view of a   4 d = add(b, x) after(c)
Graph sample() {
  return ir::parse(R"(graph @main(%x: f32[4, 2]) {
  %a = exp(%x)
  %b = neg(%a)
  %c = permute(%a) {perm = [1, 0]}
  %d = add(%b, %x) after(%c, %b)
  return %d
}
)");
}

Value value(const Graph& graph, std::size_t k) { return graph.nodes()[k]->value(); }

std::vector<Dependency> into(const ir::Dependencies& dependencies, std::uint32_t node) {
  const auto edges = dependencies.into(node);
  return {edges.begin(), edges.end()};
}

TEST(Users, ListReadsAndOrder) {
  const Graph graph = sample();
  const ir::Users users = ir::users_of(graph);
  const auto of_x = users.of(value(graph, 0));
  ASSERT_EQ(of_x.size(), 2u);
  EXPECT_EQ(of_x[0], (ir::Use{graph.nodes()[1].get(), 0, false}));
  EXPECT_EQ(of_x[1], (ir::Use{graph.nodes()[4].get(), 1, false}));
  EXPECT_TRUE(users.of(value(graph, 3))[0].order);
  EXPECT_FALSE(users.needed(value(graph, 3)));
  EXPECT_TRUE(users.needed(value(graph, 2)));
  EXPECT_TRUE(users.escapes(value(graph, 4)));
  EXPECT_TRUE(users.of(value(graph, 4)).empty());
}

TEST(Aliases, AViewIsInTheGroupOfWhatItViews) {
  const Graph graph = sample();
  const ir::AliasSets sets = ir::alias_sets(graph);
  const auto group = sets.closure(value(graph, 3));
  ASSERT_EQ(group.size(), 2u);
  EXPECT_EQ(group[0], value(graph, 1));
  EXPECT_EQ(group[1], value(graph, 3));
  EXPECT_TRUE(sets.is_input(value(graph, 0)));
  EXPECT_FALSE(sets.is_input(value(graph, 1)));
  EXPECT_TRUE(sets.is_output(value(graph, 4)));
}

TEST(Dependencies, StrongWinsOverWeak) {
  const ir::Dependencies edges = ir::dependencies_of(sample());
  EXPECT_EQ(into(edges, 1), (std::vector<Dependency>{{0, false}}));
  EXPECT_EQ(into(edges, 4), (std::vector<Dependency>{{0, false}, {2, false}, {3, true}}));
  EXPECT_TRUE(edges.reaches(3, 4));
  EXPECT_FALSE(edges.reaches(3, 2));
}

ir::OpDef overwrite() {
  ir::OpDef op;
  op.name = "overwrite";
  op.operands = {{"x"}};
  op.infer = [](const ir::InferContext& context) { return std::vector{context.meta(0)}; };
  op.alias = [](const ir::Node&, std::uint32_t) { return ir::Alias{ir::Alias::Kind::Mutates, 0}; };
  return op;
}

TEST(Dependencies, AMutationWaitsForReadersAndReadersWaitForIt) {
  const ir::OpDef op = overwrite();
  ir::GraphBuilder builder("main");
  const Value x = builder.input(meta(f32, {4}), "x");                // 0
  const Value a = builder.emit("exp", {x});                          // 1
  const Value reader = builder.emit("neg", {a});                     // 2
  const Value view = builder.emit("alias", {a});                     // 3
  const Value b = builder.call(op, std::vector<Value>{a})->value();  // 4
  const Value late = builder.emit("neg", {view});                    // 5
  const Value c = builder.call(op, std::vector<Value>{b})->value();  // 6
  for (const Value& v : {reader, late, c}) builder.output(v);
  const Graph graph = builder.finish();
  const ir::Dependencies edges = ir::dependencies_of(graph);
  EXPECT_EQ(into(edges, 4), (std::vector<Dependency>{{1, false}, {2, true}, {3, true}}));
  EXPECT_EQ(into(edges, 5), (std::vector<Dependency>{{3, false}, {4, false}}));
  EXPECT_EQ(into(edges, 6), (std::vector<Dependency>{{4, false}, {5, true}}));
}

TEST(TopologicalOrder, KeepsAValidOrderAndHonoursWeakEdges) {
  const Graph graph = sample();
  ir::Dependencies edges = ir::dependencies_of(graph);
  EXPECT_EQ(ir::topological_order(graph, edges), (std::vector<std::uint32_t>{0, 1, 2, 3, 4}));
  edges.add(3, 2, true);
  EXPECT_EQ(ir::topological_order(graph, edges), (std::vector<std::uint32_t>{0, 1, 3, 2, 4}));
}

TEST(TopologicalOrder, ListsTheCycle) {
  const Graph graph = sample();
  ir::Dependencies edges = ir::dependencies_of(graph);
  edges.add(4, 2, true);
  try {
    ir::topological_order(graph, edges);
    FAIL();
  } catch (const CycleError& error) {
    EXPECT_STREQ(error.what(), "order: expected no cycle, got %b before %d before %b");
  }
}

TEST(Lifetimes, ViewsExtendThemAndWeakEdgesDoNot) {
  const Graph graph = sample();
  const auto lifetimes = ir::lifetimes_of(graph);
  const auto of = [&](std::size_t k) { return lifetimes.at(value(graph, k).meta().storage); };
  EXPECT_EQ(of(0), (ir::Lifetime{0, ir::kForever}));
  EXPECT_EQ(of(1), (ir::Lifetime{1, 3}));  // the view at 3; the weak edge into 4 does not count
  EXPECT_EQ(of(2), (ir::Lifetime{2, 4}));
  EXPECT_EQ(of(4), (ir::Lifetime{4, ir::kForever}));
}

TEST(Lifetimes, FollowTheOrder) {
  const Graph graph = sample();
  const std::uint32_t order[] = {0, 1, 3, 2, 4};
  const auto lifetimes = ir::lifetimes_of(graph, order);
  EXPECT_EQ(lifetimes.at(value(graph, 1).meta().storage), (ir::Lifetime{1, 3}));
  EXPECT_EQ(lifetimes.at(value(graph, 2).meta().storage), (ir::Lifetime{3, 4}));
}

}  // namespace
}  // namespace heddle::testing
