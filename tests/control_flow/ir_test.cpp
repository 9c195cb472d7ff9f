// Ops with nested graphs as graphs: text, inference, passes, evaluation.
#include <gtest/gtest.h>

#include "heddle/error.h"
#include "ir/analysis/regions.h"
#include "ir/evaluate.h"
#include "ir/op.h"
#include "ir/passes/pipeline.h"
#include "ir/verifier.h"
#include "tests/control_flow/support.h"

namespace heddle::testing {
namespace {

using ir::Graph;
using ir::Literal;

Graph round_trip(std::string_view text) {
  const Graph graph = ir::parse(text);
  EXPECT_EQ(ir::print(graph), text);
  ir::verify(graph, ir::Stage::Traced, "");
  return graph;
}

constexpr std::string_view kLoops = R"(graph @main(%x: f32[s0], %xs: f32[s1, s0], %n: i64[]) {
  %a, %b = scan(%x, %xs, %n) {body = @step, carried = 1, scanned = 1, length = s1, reverse = true}
  %c, %k = while_loop(%a, %n) {condition = @more, body = @next, carried = 2}
  %d = map(%b, %c) {body = @each, scanned = 1}
  %e = invoke(%d) {body = @once}
  return %c, %k, %e
}

graph @step(%v0: f32[s0], %v1: f32[s0], %v2: i64[]) {
  %v3 = add(%v0, %v1)
  %v4 = mul(%v3, 2.0: f32)
  return %v3, %v4
}

graph @more(%v0: f32[s0], %v1: i64[]) {
  %v2 = gt(%v1, 0: i64)
  return %v2
}

graph @next(%v0: f32[s0], %v1: i64[]) {
  %v2 = mul(%v0, 0.5: f32)
  %v3 = sub(%v1, 1: i64)
  return %v2, %v3
}

graph @each(%v0: f32[s0], %v1: f32[s0]) {
  %v2 = sub(%v0, %v1)
  return %v2
}

graph @once(%v0: f32[s1, s0]) {
  %v1 = neg(%v0)
  return %v1
}
)";

TEST(RegionOps, PrintParseAndEvaluate) {
  const Graph graph = round_trip(kLoops);
  const double x[] = {1, 2};
  const double xs[] = {1, 1, 10, 10, 100, 100};
  const Literal arguments[] = {Literal::of_doubles(f32, {2}, x),
                               Literal::of_doubles(f32, {3, 2}, xs), Literal::scalar_int(i64, 2)};
  const std::vector<Literal> got = ir::evaluate(graph, arguments);
  // Backwards: 101, 111, 112, twice that in the order of the slices; then two halvings.
  EXPECT_EQ(got[0].at(0), 28);
  EXPECT_EQ(got[1].at_int(0), 0);
  EXPECT_EQ(got[2].at(0), -(224.0 - 28));
  EXPECT_EQ(got[2].at(4), -(202.0 - 28));
}

TEST(RegionOps, ALoopStacksWhatItDoesNotCarry) {
  const Graph graph = round_trip(R"(graph @main(%x: f32[2], %n: i64[]) {
  %a, %k, %all = while_loop(%x, %n) {condition = @more, body = @next, carried = 2} : f32[2], i64[], f32[u0, 2]
  %sums = reduce_sum(%all) {axes = [1]}
  return %a, %sums
}

graph @more(%v0: f32[2], %v1: i64[]) {
  %v2 = gt(%v1, 0: i64)
  return %v2
}

graph @next(%v0: f32[2], %v1: i64[]) {
  %v2 = mul(%v0, 2.0: f32)
  %v3 = sub(%v1, 1: i64)
  %v4 = add(%v0, 1.0: f32)
  return %v2, %v3, %v4
}
)");
  const double x[] = {1, 3};
  for (const std::int64_t n : {3, 0}) {
    const Literal arguments[] = {Literal::of_doubles(f32, {2}, x), Literal::scalar_int(i64, n)};
    const std::vector<Literal> got = ir::evaluate(graph, arguments);
    ASSERT_EQ(got[1].sizes(), ir::Sizes{n});
    for (std::int64_t k = 0; k < n; ++k)
      EXPECT_EQ(got[1].at(k), 4 * static_cast<double>(1 << k) + 2);
    EXPECT_EQ(got[0].at(1), 3 * static_cast<double>(1 << n));
  }
}

TEST(RegionOps, ACallWithoutResultsHasAText) {
  // Its token has a name, whether the text gives it one or not.
  const std::string rest =
      "invoke(%x) {body = @g}\n  return %x\n}\n\ngraph @g(%x: f32[2]) {\n  return\n}\n";
  const std::string head = "graph @main(%x: f32[2]) {\n  ";
  EXPECT_EQ(ir::print(round_trip(head + "%t = " + rest)), head + "%t = " + rest);
  EXPECT_EQ(ir::print(ir::parse(head + rest)), head + "%v0 = " + rest);
}

TEST(RegionOps, PassesWorkOnNestedGraphsAndKeepSharedOnesShared) {
  const Graph graph = ir::parse(R"(graph @main(%x: f32[4]) {
  %a = invoke(%x) {body = @g}
  %b = invoke(%a) {body = @g}
  %c = invoke(%b) {body = @g}
  return %b
}
graph @g(%x: f32[4]) {
  %a = exp(%x)
  %b = exp(%x)
  %unused = sin(%x)
  %c = add(%a, %b)
  return %c
}
)");
  const Graph done = ir::run_passes(graph, ir::default_pipeline(), {});
  EXPECT_EQ(ir::print(done),
            "graph @main(%x: f32[4]) {\n  %a = invoke(%x) {body = @g}\n"
            "  %b = invoke(%a) {body = @g}\n  return %b\n}\n\n"
            "graph @g(%x: f32[4]) {\n  %a = exp(%x)\n  %c = add(%a, %a)\n  return %c\n}\n");
}

TEST(RegionOps, EqualLoopsAreOneAfterCse) {
  const Graph graph = ir::parse(R"(graph @main(%x: f32[4]) {
  %a = scan(%x) {body = @g, carried = 1, scanned = 0, length = 3}
  %b = scan(%x) {body = @h, carried = 1, scanned = 0, length = 3}
  %c = add(%a, %b)
  return %c
}
graph @g(%x: f32[4]) {
  %a = exp(%x)
  return %a
}
graph @h(%y: f32[4]) {
  %z = exp(%y)
  return %z
}
)");
  EXPECT_EQ(nodes_of(ir::run_passes(graph, ir::default_pipeline(), {}), "scan").size(), 1u);
}

TEST(RegionOps, TheOrderOfInputsIsPartOfAGraph) {
  const Graph a =
      ir::parse("graph @g(%x: f32[4], %y: f32[4]) {\n  %z = sub(%x, %y)\n  return %z\n}\n");
  const Graph b =
      ir::parse("graph @g(%y: f32[4], %x: f32[4]) {\n  %z = sub(%x, %y)\n  return %z\n}\n");
  EXPECT_NE(a.structural_hash().hex(), b.structural_hash().hex());
}

TEST(RegionOps, ANestedGraphIsPureUnlessSomethingInItIsNot) {
  const Graph graph = ir::parse(kLoops);
  for (const ir::NodePtr& node : graph.nodes())
    EXPECT_TRUE(ir::is_pure(*node) || node->inputs().empty());
}

std::string failure(const std::string& call, const std::string& body) {
  const std::string text =
      "graph @main(%p: bool[], %x: f32[4], %y: i32[4]) {\n  " + call + "\n  return %x\n}\n" + body;
  try {
    ir::parse(text);
  } catch (const Error& error) {
    return Error::format({error.parts().what, "", error.parts().expected, error.parts().got});
  }
  return "no error";
}

TEST(RegionOps, ConstraintsAreChecked) {
  const std::string same = "graph @g(%x: f32[4]) {\n  return %x\n}\n";
  const std::string longer =
      "graph @h(%x: f32[4]) {\n  %a = concat(%x, %x) {axis = 0}\n  return %a\n}\n";
  const std::string whole =
      "graph @h(%x: f32[4]) {\n  %a = convert(%x) {dtype = i32}\n  return %a\n}\n";
  const std::string ask = "graph @h(%x: f32[4]) {\n  return %x\n}\n";
  EXPECT_EQ(failure("%r = cond(%x, %x) {then = @g, else = @g}", same),
            "cond: C1 predicate: expected bool[], got f32[4]");
  EXPECT_EQ(failure("%r = cond(%p, %x, %x) {then = @g, else = @g}", same),
            "cond: C2 then takes the operands: expected 2 inputs, got 1");
  EXPECT_EQ(failure("%r = cond(%p, %y) {then = @g, else = @g}", same),
            "cond: C2 then takes the operands: expected i32[4], got f32[4]");
  EXPECT_EQ(failure("%r = cond(%p, %x) {then = @g, else = @h}", same + whole),
            "cond: C3 results: expected f32[4], got i32[4]");
  EXPECT_EQ(failure("%r = while_loop(%x) {condition = @h, body = @g, carried = 2}", same + ask),
            "while_loop: C1 carried: expected at most the number of operands, got 2");
  EXPECT_EQ(failure("%r = while_loop(%x) {condition = @h, body = @g, carried = 1}", same + ask),
            "while_loop: C3 condition: expected one bool[], got f32[4]");
  EXPECT_EQ(failure("%r = scan(%x) {body = @g, carried = 2, scanned = 0, length = 2}", same),
            "scan: C1 counts: expected at most 1 operands, got 2 carried and 0 scanned");
  EXPECT_EQ(failure("%r = scan(%x) {body = @h, carried = 1, scanned = 0, length = 2}", longer),
            "scan: C4 the body keeps the shape of carried value 0: expected f32[4], got f32[8]");
  EXPECT_EQ(failure("%r = scan(%x) {body = @g, carried = 1, scanned = 0, length = 2, "
                    "counted = true}",
                    same),
            "scan: C6 count: expected an operand after the scanned ones, got none");
  EXPECT_EQ(failure("%r = scan(%x, %y) {body = @h, carried = 1, scanned = 0, length = 2, "
                    "counted = true}",
                    "graph @h(%x: f32[4], %y: i32[4]) {\n  return %x\n}\n"),
            "scan: C6 count: expected i64[], got i32[4]");
  EXPECT_EQ(failure("%r = map(%p) {body = @g, scanned = 1}", same),
            "map: C2 scanned operand 0: expected a leading dimension, got bool[]");
  EXPECT_EQ(failure("%r = invoke(%y) {body = @g}", same),
            "invoke: C1 body takes the operands: expected i32[4], got f32[4]");
}

}  // namespace
}  // namespace heddle::testing
