// What reinplace may and may not do; the rules that hold before and after it.
#include "ir/passes/reinplace.h"

#include <gtest/gtest.h>

#include "heddle/error.h"
#include "ir/evaluate.h"
#include "ir/op.h"
#include "ir/passes/pipeline.h"
#include "ir/text.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Graph;
using ir::Literal;
using ir::Value;

constexpr std::string_view kReinplace[] = {"reinplace"};

Graph reinplaced(const std::string& body, const std::string& inputs = "") {
  const std::string text =
      "graph @main(%x: f32[3], %v: f32[1], %i: i64[1]" + inputs + ") {\n" + body + "}\n";
  return ir::run_passes(ir::parse(text), kReinplace);
}

struct Counts {
  std::size_t in_place = 0;
  std::size_t missed = 0;
};
Counts counts_of(const Graph& graph) {
  Counts counts;
  for (const ir::NodePtr& node : graph.nodes())
    for (const ir::InPlace& pair : node->op().in_place)
      ++(ir::overwrites(*node, pair.operand) ? counts.in_place : counts.missed);
  return counts;
}
Counts counts_of(const std::string& body) { return counts_of(reinplaced(body)); }

TEST(Reinplace, WhatIsReadLaterIsCopied) {
  const auto missed = counts_of(R"(  %t = cos(%x)
  %u = index_put(%t, %v, %i)
  %r = mul(%u, %t)
  return %r
)");
  EXPECT_EQ(missed.in_place, 0u);
  EXPECT_EQ(missed.missed, 1u);
}

// A4-13: who only waits for a value does not read it; who waits for it and reads it does.
TEST(Reinplace, WaitingIsNotReading) {
  const auto in_place = [](const std::string& later) {
    return counts_of("  %t = cos(%x)\n  %u = index_put(%t, %v, %i)\n  %n = " + later +
                     "\n  return %u, %n\n")
        .in_place;
  };
  EXPECT_EQ(in_place("neg(%x) after(%t)"), 1u);
  EXPECT_EQ(in_place("neg(%t) after(%t)"), 0u);
  EXPECT_EQ(in_place("add(%x, %t) after(%x)"), 0u);
  EXPECT_EQ(in_place("neg(%t)"), 0u);
}

TEST(Reinplace, AChainOfUpdatesOfAStateCopiesNothing) {
  const auto counts = counts_of(R"(  %a = index_put(%x, %v, %i)
  %b = index_put(%a, %v, %i) {accumulate = true}
  %c = index_put(%b, %v, %i) {accumulate = true}
  write_back %x = %c
  return
)");
  EXPECT_EQ(counts.in_place, 3u);
  EXPECT_EQ(counts.missed, 0u);
}

TEST(Reinplace, ALaterReadingOfAnEarlierUpdateStopsTheNext) {
  const Graph graph = reinplaced(R"(  %a = index_put(%x, %v, %i)
  %b = index_put(%a, %v, %i)
  %n = neg(%a)
  write_back %x = %b
  return %n
)");
  EXPECT_EQ(counts_of(graph).in_place, 1u);
  EXPECT_EQ(graph.write_backs().size(), 1u);
}

TEST(Reinplace, OneWriteBackGoesAndAnotherStays) {
  const Graph graph = reinplaced(R"(  %a = index_put(%x, %v, %i)
  %n = neg(%a)
  write_back %x = %a
  write_back %y = %n
  return
)",
                                 ", %y: f32[3]");
  ASSERT_EQ(graph.write_backs().size(), 1u);
  EXPECT_EQ(graph.write_backs()[0].target.name(), "%y");
}

TEST(Reinplace, ACopyingReshapeIsLookedThrough) {
  EXPECT_EQ(counts_of(R"(  %e = expand(%x) {sizes = [2, 3]}
  %m = cos(%e)
  %p = permute(%m) {perm = [1, 0]}
  %f = reshape(%p) {sizes = [6]}
  %u = index_put(%m, %v, %i, %i)
  %s = add(%u, 1.0: f32)
  %t = reduce_sum(%f) {axes = [0]}
  %r = add(%s, %t)
  return %r
)")
                .in_place,
            0u);
}

TEST(Reinplace, WhatItLeavesEvaluatesToTheSame) {
  const Graph before = ir::parse(R"(graph @main(%x: f32[3], %v: f32[1], %i: i64[1]) {
  %t = cos(%x)
  %c = neg(%t)
  %u = index_put(%t, %v, %i)
  %r = add(%u, %c)
  %s = index_put(%x, %v, %i)
  write_back %x = %s
  return %r
}
)");
  const Graph after = ir::run_passes(before, kReinplace);
  const auto arguments = [] {
    const std::int64_t one[] = {1};
    const double three[] = {0.5, 1, 2};
    return std::vector<Literal>{Literal::of_doubles(f32, {3}, three),
                                Literal::scalar(f32, 7).view({1}, {1}, 0),
                                Literal::of_ints(i64, {1}, one)};
  };
  const auto want = ir::evaluate(before, arguments());
  const auto now = arguments();
  const auto got = ir::evaluate(after, now);
  ASSERT_EQ(got.size(), 1u);
  for (std::int64_t k = 0; k < 3; ++k) {
    EXPECT_EQ(got[0].at(k), want[0].at(k));
    EXPECT_EQ(now[0].at(k), want[1].at(k)) << "the state";
  }
}

std::string invariant_of(const std::string& body, ir::Stage stage) {
  const std::string text =
      "graph @main(%x: f32[3], %v: f32[1], %i: i64[1], %w: param f32[3]) {\n" + body + "}\n";
  return error_of([&] { ir::verify(ir::parse(text), stage); });
}

TEST(Reinplace, MutationBeforeItIsAnInvariantError) {
  EXPECT_EQ(
      invariant_of("  %u = index_put(%x, %v, %i) {in_place = [0]}\n  return %u\n",
                   ir::Stage::Functional),
      "V6 nothing mutates before reinplace at %u = index_put from 2:8: expected a functional op, "
      "got a mutation");
}

TEST(Reinplace, AnOverwrittenValueMayNotBeRead) {
  EXPECT_EQ(
      invariant_of("  %t = cos(%x)\n  %u = index_put(%t, %v, %i) {in_place = [0]}\n"
                   "  %r = add(%u, %t)\n  return %r\n",
                   ir::Stage::Reinplaced),
      "V11 an overwritten value is not read at %r = add from 4:8: expected the value that is there "
      "now, got %t");
  EXPECT_NE(invariant_of("  %t = cos(%x)\n  %s = alias(%t)\n"
                         "  %u = index_put(%t, %v, %i) {in_place = [0]}\n  return %u, %s\n",
                         ir::Stage::Reinplaced)
                .find("V11"),
            std::string::npos);
}

TEST(Reinplace, PartsAndParametersMayNotBeOverwritten) {
  EXPECT_NE(invariant_of("  %u = index_put(%w, %v, %i) {in_place = [0]}\n  return %u\n",
                         ir::Stage::Reinplaced)
                .find("V12"),
            std::string::npos);
  EXPECT_NE(
      invariant_of("  %t = cos(%x)\n  %p = slice(%t) {start = [0], limit = [2], stride = [1]}\n"
                   "  %u = index_put(%p, %v, %i) {in_place = [0]}\n  return %u\n",
                   ir::Stage::Reinplaced)
          .find("V12"),
      std::string::npos);
}

/// The graph with index_put made to overwrite too early.
Graph mutate(const Graph& graph) {
  return ir::rewrite(
      graph,
      [](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<std::vector<Value>> {
        if (node->op_name() != "index_put") return {};
        ir::Attrs attrs = node->attrs();
        attrs["in_place"] = std::vector<std::int64_t>{0};
        return std::vector<Value>{
            rewriter.builder().call(node->op(), rewriter.map(node->inputs()), attrs)->value()};
      });
}

Graph share_outputs(const Graph& graph) {
  return ir::rewrite(
      graph,
      [](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<std::vector<Value>> {
        if (node->op_name() != "clone") return {};
        return std::vector<Value>{rewriter.map(node->input(0))};
      });
}

const Graph& updated() {
  static const Graph graph = ir::parse(R"(graph @main(%x: f32[3], %v: f32[1], %i: i64[1]) {
  %t = cos(%x)
  %u = index_put(%t, %v, %i)
  %c = clone(%u)
  return %u, %c
}
)");
  return graph;
}

TEST(UserPass, RunsAtItsPointAndIsRecorded) {
  ir::PipelineOptions options;
  options.user_passes = {{"last", ir::PassPoint::BeforeReinplace, [](const Graph& g) { return g; }},
                         {"first", ir::PassPoint::First, [](const Graph& g) { return g; }}};
  std::vector<ir::PassRecord> records;
  const std::string_view passes[] = {"cse", "reinplace"};
  ir::run_passes(updated(), passes, options, &records);
  std::vector<std::string> names;
  for (const auto& record : records) names.push_back(record.name);
  EXPECT_EQ(names, (std::vector<std::string>{"first", "cse", "last", "reinplace"}));
}

TEST(UserPass, ThatMutatesIsAnInvariantErrorThatNamesIt) {
  for (const auto point : {ir::PassPoint::First, ir::PassPoint::BeforeReinplace}) {
    ir::PipelineOptions options;
    options.user_passes = {{"mine", point, mutate}};
    EXPECT_EQ(error_of([&] { ir::run_passes(updated(), ir::default_pipeline(), options); }),
              "mine: V6 nothing mutates before reinplace at %u = index_put from 3:8: expected a "
              "functional op, got a mutation");
  }
}

TEST(UserPass, ThatLetsOutputsShareStorageIsAnInvariantError) {
  ir::PipelineOptions options;
  options.user_passes = {{"mine", ir::PassPoint::First, share_outputs}};
  EXPECT_EQ(
      error_of([&] { ir::run_passes(updated(), {}, options); }),
      "mine: a pass makes no input and output share storage, nor two outputs: expected a copy, "
      "got %u and %u");
}

TEST(UserPass, AWriteBackIsNoMutation) {
  ir::PipelineOptions options;
  options.user_passes = {{"same", ir::PassPoint::BeforeReinplace,
                          [](const Graph& g) { return ir::parse(ir::print(g)); }}};
  const Graph graph = ir::parse(R"(graph @main(%x: f32[3]) {
  %n = neg(%x)
  write_back %x = %n
  return
}
)");
  EXPECT_EQ(ir::run_passes(graph, ir::default_pipeline(), options).write_backs().size(), 1u);
}

}  // namespace
}  // namespace heddle::testing
