// Acceptance cases of the invariants of passes: what is launched and copied when the whole pipeline has run.
#include <gmock/gmock.h>

#include "tests/engine/case_graph.h"

namespace heddle::testing {
namespace {

using test::Json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string graph(const std::string& body, const std::string& inputs = "%x: f32[8]") {
  return "graph @main(" + inputs + ") {\n" + body + "}\n";
}

std::size_t copies_of(CaseGraph& made) {
  const Json plan = made.plan();
  const Json& kernels = plan["kernels"];
  return static_cast<std::size_t>(
      std::ranges::count_if(kernels, [](const auto& kernel) { return kernel["kind"] == "copy"; }));
}

TEST(PassCases, A2_01_AReturnedCloneOfAnInputIsMemoryOfItsOwn) {
  CaseGraph made(graph("  %y = clone(%x)\n  return %y\n"));
  EXPECT_EQ(made.launched(), "y");
  EXPECT_THAT(made.optimised(), HasSubstr("%y = clone(%x)"));
  EXPECT_NE(made.outputs()[0].data(), made.inputs()[0].data());
}

// What is returned is a copy that later calls, which write the state anew, leave alone.
TEST(PassCases, A2_02_ACloneThatIsReturnedAndWrittenBackStays) {
  CaseGraph same(graph("  %y = clone(%x)\n  write_back %x = %y\n  return %y\n"));
  EXPECT_EQ(same.launched(), "y | ");
  EXPECT_THAT(same.optimised(), HasSubstr("%y = clone(%x)\n  write_back %x = %y\n"));
  EXPECT_EQ(copies_of(same), 1u) << "the write-back";
  EXPECT_NE(same.outputs()[0].data(), same.inputs()[0].data());
  CaseGraph made(graph("  %e = neg(%x)\n  %y = clone(%e)\n  write_back %x = %e\n  return %y\n"));
  made.launched();
  EXPECT_THAT(made.optimised(), HasSubstr("%y = clone(%e)"));
  const std::vector<double> before = made.outputs()[0].to_doubles();
  const Tensor kept = made.outputs()[0];
  made.engine().run(made.inputs());
  EXPECT_EQ(kept.to_doubles(), before);
}

TEST(PassCases, A2_03_ACloneInsideGoes) {
  CaseGraph made(graph("  %y = clone(%x)\n  %z = mul(%y, 2.0: f32)\n  return %z\n"));
  EXPECT_EQ(made.launched(), "z");
  EXPECT_THAT(made.optimised(), Not(HasSubstr("clone")));
}

TEST(PassCases, A2_04_TwoOutputsAreTwoStorages) {
  CaseGraph made(graph("  %a = add(%x, 1.0: f32)\n  %b = clone(%a)\n  return %a, %b\n"));
  made.launched();
  EXPECT_THAT(made.optimised(), HasSubstr("clone"));
  EXPECT_NE(made.outputs()[0].data(), made.outputs()[1].data());
}

TEST(PassCases, A2_06_WhatDoesNothingVanishes) {
  CaseGraph made(
      graph("  %a = slice(%x) {start = [0, 0], limit = [s0, 4], stride = [1, 1]}\n"
            "  %b = concat(%a) {axis = 0}\n"
            "  %c = expand(%b) {sizes = [s0, 4]}\n"
            "  %d = pad(%c, 0.0: f32) {low = [0, 0], high = [0, 0]}\n"
            "  %e = convert(%d) {dtype = f32}\n"
            "  %f = reshape(%e) {sizes = [s0, 4]}\n"
            "  %g = neg(%f)\n"
            "  %h = floor(%i)\n"
            "  %j = pow(%h, 1: i32)\n"
            "  %k = neg(%j)\n"
            "  return %g, %k\n",
            "%x: f32[s0, 4], %i: i32[4]"));
  EXPECT_EQ(made.launched(), "g | k");
}

/// How many nodes' metadata a pass had inferred, all its runs together.
std::uint64_t inferred_by(CaseGraph& made, std::string_view pass) {
  std::uint64_t count = 0;
  const Json plan = made.plan();
  for (const Json& record : plan["passes"])
    if (record["name"] == pass) count += record["inferred"].get<std::uint64_t>();
  return count;
}

// What a pass takes out without changing a type makes nothing be inferred anew: 50 nodes read on.
TEST(PassCases, A2_08_NothingIsInferredAnewWhereNoTypeChanges) {
  std::string body = "  %n0 = clone(%x)\n";
  for (int k = 1; k < 50; ++k)
    body += "  %n" + std::to_string(k) + " = tanh(%n" + std::to_string(k - 1) + ")\n";
  CaseGraph made(graph(body + "  return %n49\n"));
  EXPECT_THAT(made.optimised(), Not(HasSubstr("%n0")));
  EXPECT_THAT(made.optimised(), HasSubstr("%n1 = tanh(%x)"));
  for (const char* pass : {"remove-noops", "cse", "dce", "merge-views"})
    EXPECT_EQ(inferred_by(made, pass), 0u) << pass;
}

// What waits has the type that its new operand gives it, and waits as before.
TEST(PassCases, A2_10_WhatWaitsFollowsAChangeOfTypeAboveIt) {
  GraphPass shorter{.name = "shorter", .point = GraphPass::Point::First};
  shorter.run = [](std::string text) {
    return text.replace(text.find("limit = [6]"), 11, "limit = [4]");
  };
  const auto bytes_of_w = [](std::vector<GraphPass> passes) {
    Engine engine = parse_ir(graph("  %e = cumsum(%x) {axis = 0}\n"
                                   "  %s = slice(%x) {start = [0], limit = [6], stride = [1]}\n"
                                   "  %w = cumsum(%s) {axis = 0} after(%e)\n"
                                   "  %r = reduce_sum(%w) {axes = [0]}\n"
                                   "  return %e, %r\n"),
                             {.threads = 1, .passes = std::move(passes)});
    const std::vector<Tensor> inputs{Tensor::full(f32, {8}, 1)};
    const auto plan = Json::parse(engine.plan_json(inputs));
    EXPECT_EQ(plan["kernels"][1]["nodes"][0], "w");
    EXPECT_EQ(plan["steps"][1]["edges"], Json::parse(R"([{"from": 0, "kind": "weak"}])"));
    for (const auto& buffer : plan["buffers"])
      if (buffer["value"] == "w")
        return std::pair(buffer["bytes"].get<int>(), engine.run(inputs)[1].item());
    return std::pair(0, 0.0);
  };
  EXPECT_EQ(bytes_of_w({}), std::pair(24, 21.0));
  EXPECT_EQ(bytes_of_w({shorter}), std::pair(16, 10.0));
}

const std::string kWithIndices = "%x: f32[8], %v: f32[2], %i: i64[2]";

TEST(PassCases, A2_11_AnUpdateIsInPlaceWhereNobodyCanTell) {
  const auto counts = [](const std::string& body) {
    CaseGraph made(graph(body, kWithIndices));
    made.launched();
    const EngineStats stats = made.engine().stats();
    return std::pair(stats.in_place, stats.missed_in_place);
  };
  const auto missed = std::pair<std::uint64_t, std::uint64_t>(0, 1);
  const auto in_place = std::pair<std::uint64_t, std::uint64_t>(1, 0);
  const std::string put = "  %u = index_put(%t, %v, %i)\n";
  EXPECT_EQ(counts("  %t = cos(%x)\n" + put + "  return %u, %t\n"), missed) << "(i)";
  EXPECT_EQ(counts("  %t = cos(%x)\n  %w = alias(%t)\n  %u = index_put(%w, %v, %i)\n"
                   "  %c = cos(%t)\n  %r = add(%u, %c)\n  return %r\n"),
            missed)
      << "(ii)";
  EXPECT_EQ(counts("  %u = index_put(%x, %v, %i)\n  return %u\n"), missed) << "(iii)";
  EXPECT_EQ(counts("  %t = cos(%x)\n" + put + "  return %u\n"), in_place) << "(iv)";
  EXPECT_EQ(counts("  %u = index_put(%x, %v, %i)\n  write_back %x = %u\n  return %v\n"), in_place)
      << "(v)";
}

// (v): the write-back is gone too: the update is all that is launched besides the copy of an output.
TEST(PassCases, A2_11_AWriteBackOfAnUpdateInPlaceIsNoCopy) {
  CaseGraph made(
      graph("  %u = index_put(%x, %v, %i)\n  %n = neg(%v)\n  write_back %x = %u\n"
            "  return %n\n",
            kWithIndices));
  made.launched();
  EXPECT_EQ(copies_of(made), 0u);
  EXPECT_EQ(made.engine().stats().in_place, 1u);
}

// Names of what an op is made of begin with the op's own, in the user's words, are unique, and are the same each time.
TEST(PassCases, NodesOfADecompositionAreNamedAfterWhatTheyComeFrom) {
  const auto engine = [] {
    return Engine(
        [](const Tensor& x) {
          const Annotate scope{{"name", "head"}};
          return softmax(softmax(x, 0), -1);
        },
        {.threads = 1, .disk_cache = false});
  };
  Engine one = engine();
  Engine two = engine();
  const std::vector<Tensor> inputs{Tensor::full(f32, {2, 3}, 1)};
  const std::string text = one.graph_text(inputs, true);
  EXPECT_EQ(text, two.graph_text(inputs, true));
  const Json plan = Json::parse(one.plan_json(inputs));
  std::vector<std::string> names;
  for (const Json& kernel : plan["kernels"])
    for (const Json& node : kernel["nodes"]) names.push_back(node);
  for (const char* stem : {"head.softmax", "head.softmax_1"})
    for (const char* part : {"", ".reduce_max", ".exp", ".reduce_sum", ".div"})
      EXPECT_EQ(std::ranges::count(names, std::string(stem) + part), 1) << stem << part << "\n"
                                                                        << text;
  for (const std::string& name : names) EXPECT_THAT(name, StartsWith("head.softmax"));
}

/// Puts `after` behind the line that has `line` in it, and `more` in front of that line.
GraphPass inserting(const std::string& line, const std::string& after, const std::string& more) {
  GraphPass pass{.name = "mine", .point = GraphPass::Point::First};
  pass.run = [=](std::string text) {
    const std::size_t at = text.find(line);
    text.insert(text.find('\n', at), after);
    return text.insert(text.rfind('\n', at) + 1, more);
  };
  return pass;
}

// S2-11, S4-8: a pass may put what waits before what it waits for, and readers before what they read: all is sorted, and
// what was in order stays as it was. What goes round is named.
TEST(PassCases, S2_11_CallsThatAPassPutOutOfOrderAreSorted) {
  const std::string text = graph(
      "  %a = cumsum(%x) {axis = 0}\n"
      "  %b = cumsum(%x) {axis = 0, reverse = true}\n"
      "  %c = reduce_sum(%b) {axes = [0]} @{name = \"%d // (\"}\n"
      "  %d = neg(%x)\n"
      "  return %a, %c, %d\n");
  const auto launched = [&](const GraphPass& pass) {
    EngineOptions options;
    options.order = StepOrder::Given;
    options.passes = {pass};
    return CaseGraph(text, options).launched();
  };
  EXPECT_EQ(launched(inserting("%a =", "", "")), "a | b | c | d");
  EXPECT_EQ(launched(inserting("%a =", " after(%d)", "")), "b | c | d | a");
  EXPECT_EQ(launched(inserting("%a =", " after(%late)", "  %late = exp(%b) after(%d)\n")),
            "b | c | d | a")
      << "what is only waited for is gone";
  try {
    launched(inserting("%b =", " after(%c)", ""));
    FAIL();
  } catch (const CycleError& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected no cycle, got %b before %c before %b"));
  }
  try {
    launched(inserting("%b =", " after(%nosuch)", ""));
    FAIL();
  } catch (const ParseError& error) {
    EXPECT_THAT(error.what(), HasSubstr("undefined value %nosuch"));
  }
}

TEST(PassCases, A2_22_AMutationBeforeTheLastStageIsNamed) {
  GraphPass mutates{.name = "my-pass"};
  mutates.run = [](const std::string& text) {
    const std::size_t end = text.find('\n', text.find("index_put"));
    return text.substr(0, end) + " {in_place = [0]}" + text.substr(end);
  };
  EngineOptions options;
  options.passes = {mutates};
  CaseGraph made(graph("  %u = index_put(%x, %v, %i)\n  return %u\n", kWithIndices), options);
  try {
    made.plan();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("my-pass"));
    EXPECT_THAT(error.what(), HasSubstr("%u"));
  }
  CaseGraph writes(graph("  %n = neg(%x)\n  write_back %x = %n\n  return %n\n"));
  EXPECT_EQ(writes.launched().substr(0, 1), "n") << "a write-back at the end is none";
}

TEST(PassCases, WhatAPassOfTheEmbedderGivesAndThrowsIsToldWithItsName) {
  const auto text_of = [](std::function<std::string(const std::string&)> run) -> std::string {
    EngineOptions options;
    options.passes = {{.name = "mine", .run = std::move(run)}};
    CaseGraph made(graph("  %n = neg(%x)\n  return %n\n"), options);
    try {
      made.plan();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(text_of([](const std::string&) { return "garbage"; }),
            "pass mine: syntax at 1:1: expected 'graph', got 'garbage'");
  EXPECT_EQ(text_of([](const std::string&) -> std::string { throw std::runtime_error("no luck"); }),
            "pass mine: expected a graph, got an exception: no luck");
  EXPECT_EQ(text_of([](const std::string&) -> std::string {
              throw ShapeError({.what = "sizes", .where = "here", .expected = {}, .got = {}});
            }),
            "pass mine: sizes at here");
}

}  // namespace
}  // namespace heddle::testing
