// Acceptance cases of regional compilation: what is one unit, what is launched, how often something is compiled.
#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <stdexcept>
#include <unistd.h>

#include "heddle/custom_op.h"
#include "tests/engine/case_graph.h"

namespace heddle::testing {
namespace {

using test::Json;

using ::testing::HasSubstr;

const EngineOptions kAnnotated{.scope = CompileScope::Annotated};

std::string region_graph(const std::string& body,
                         const std::string& inputs = "%x: f32[8], %y: f32[8]") {
  return "graph @main(" + inputs + ") {\n" + body + "}\n";
}

std::uint64_t regions_of(CaseGraph& made) {
  made.launched();
  EXPECT_EQ(made.plan()["regions"].size(), made.engine().stats().regions_compiled);
  return made.engine().stats().regions_compiled;
}

TEST(RegionCases, A1_01_TheMarkedMiddleIsOneUnit) {
  CaseGraph made(region_graph("  %s = sin(%x)\n"
                              "  %m = mul(%s, %y) @{compile = true}\n"
                              "  %a = add(%m, 1.0: f32) @{compile = true}\n"
                              "  %o = sin(%a)\n"
                              "  return %o\n"),
                 kAnnotated);
  EXPECT_EQ(made.launched(), "s | region_0: m a | o");
  EXPECT_EQ(made.engine().stats().regions_compiled, 1u);
  const auto plan = made.plan();
  EXPECT_EQ(plan["kernels"][1]["reads"], Json::array({"s", "y"}));
  EXPECT_EQ(plan["kernels"][1]["writes"], Json::array({"a"}));
}

TEST(RegionCases, A1_02_WithoutMarksThereIsNoUnit) {
  CaseGraph made(region_graph("  %s = sin(%x)\n  %o = mul(%s, %y)\n  return %o\n"), kAnnotated);
  EXPECT_EQ(made.launched(), "s | o");
  EXPECT_EQ(made.engine().stats().regions_compiled, 0u);
}

TEST(RegionCases, A1_03_TheBlockTwiceIsTwoUnits) {
  CaseGraph made(region_graph("  %s = sin(%x)\n"
                              "  %m = mul(%s, %y) @{compile = true}\n"
                              "  %a = add(%m, 1.0: f32) @{compile = true}\n"
                              "  %o = sin(%a)\n"
                              "  %t = sin(%o)\n"
                              "  %n = mul(%t, %y) @{compile = true}\n"
                              "  %b = add(%n, 1.0: f32) @{compile = true}\n"
                              "  %p = sin(%b)\n"
                              "  return %p\n"),
                 kAnnotated);
  EXPECT_EQ(made.launched(), "s | region_0: m a | o | t | region_1: n b | p");
  EXPECT_EQ(made.engine().stats().regions_compiled, 2u);
}

TEST(RegionCases, A1_04_ChainsAreCutWhereAPathLeavesThem) {
  const auto count = [](std::string_view marks) {
    std::string body;
    std::string last = "x";
    for (std::size_t k = 0; k < marks.size(); ++k) {
      const std::string name = "n" + std::to_string(k);
      body += "  %" + name + " = sin(%" + last + ")" +
              (marks[k] == 'T' ? " @{compile = true}\n" : "\n");
      last = name;
    }
    CaseGraph made(region_graph(body + "  return %" + last + "\n"), kAnnotated);
    return regions_of(made);
  };
  EXPECT_EQ(count("FTTTF"), 1u);
  EXPECT_EQ(count("TTFTT"), 2u);
  EXPECT_EQ(count("TFTFT"), 3u);
  EXPECT_EQ(count("TFTFTFT"), 4u);
  EXPECT_EQ(count("FFF"), 0u);
}

const std::string kBeside =
    "  %a = mul(%x, 2.0: f32) @{compile = \"0\"}\n"
    "  %s = sin(%x)\n"
    "  %b = mul(%x, 3.0: f32) @{compile = \"ID\"}\n"
    "  %o = add(%a, %b)\n"
    "  return %o, %s\n";
const std::string kAfterAGap =
    "  %a = mul(%x, 2.0: f32) @{compile = \"0\"}\n"
    "  %s = sin(%x)\n"
    "  %b = mul(%a, 3.0: f32) @{compile = \"ID\"}\n"
    "  return %b, %s\n";

std::string with_id(std::string text, const std::string& id) {
  return text.replace(text.find("ID"), 2, id);
}

TEST(RegionCases, A1_05_NodesBesideEachOtherAreOneUnit) {
  CaseGraph made(region_graph(with_id(kBeside, "0")), kAnnotated);
  EXPECT_EQ(regions_of(made), 1u);
  const auto kernel = made.plan()["kernels"];
  std::size_t writes = 0;
  for (const auto& entry : kernel)
    if (entry["region"] != "") writes += entry["writes"].size();
  EXPECT_EQ(writes, 2u) << kernel.dump(1);
}

TEST(RegionCases, A1_06_AGapBetweenThemDoesNotPart) {
  CaseGraph made(region_graph(with_id(kAfterAGap, "0")), kAnnotated);
  EXPECT_EQ(regions_of(made), 1u);
}

TEST(RegionCases, A1_07_APathThatLeavesAndComesBackParts) {
  CaseGraph made(region_graph("  %a = mul(%x, 2.0: f32) @{compile = true}\n"
                              "  %u = sin(%a)\n"
                              "  %b = add(%u, %a) @{compile = true}\n"
                              "  return %b\n"),
                 kAnnotated);
  EXPECT_EQ(made.launched(), "region_0: a | u | region_1: b");
}

TEST(RegionCases, A1_08_DifferentIdsAreNeverOneUnit) {
  for (const std::string& body : {kBeside, kAfterAGap}) {
    CaseGraph made(region_graph(with_id(body, "1")), kAnnotated);
    EXPECT_EQ(regions_of(made), 2u);
  }
  CaseGraph runs(region_graph("  %a1 = sin(%x) @{compile = \"0\"}\n"
                              "  %a2 = cos(%a1) @{compile = \"0\"}\n"
                              "  %b1 = sin(%a2) @{compile = \"1\"}\n"
                              "  %b2 = cos(%b1) @{compile = \"1\"}\n"
                              "  return %b2\n"),
                 kAnnotated);
  EXPECT_EQ(runs.launched(), "region_0: a1 a2 | region_1: b1 b2");
}

TEST(RegionCases, A1_11_AnAlternatingChainIsCutAtEachChange) {
  CaseGraph made(region_graph("  %a1 = sin(%x) @{compile = \"p\"}\n"
                              "  %b1 = cos(%a1) @{compile = \"q\"}\n"
                              "  %a2 = sin(%b1) @{compile = \"p\"}\n"
                              "  %b2 = cos(%a2) @{compile = \"q\"}\n"
                              "  return %b2\n"),
                 kAnnotated);
  EXPECT_EQ(made.launched(), "region_0: a1 | region_1: b1 | region_2: a2 | region_3: b2");
}

TEST(RegionCases, A1_12_ScopesNestMergeAndEnd) {
  Engine engine([](const Tensor& x) {
    Tensor t = x;
    {
      const Annotate stage{{"stage", 0}};
      {
        const Annotate bucket{{"bucket", 0}};
        t = sin(t);
      }
      t = t - 1;
      {
        const Annotate both{{"stream", 2}, {"bucket", 1}};
        t = t * 3;
      }
    }
    return t / 2;
  });
  const std::vector<Tensor> inputs{Tensor::full(f32, {4}, 1)};
  const std::string text = engine.graph_text(inputs, false);
  EXPECT_THAT(text, HasSubstr("sin(%input0) @{bucket = 0, stage = 0}\n"));
  EXPECT_THAT(text, HasSubstr("1.0: f32) @{stage = 0}\n"));
  EXPECT_THAT(text, HasSubstr("3.0: f32) @{bucket = 1, stage = 0, stream = 2}\n"));
  EXPECT_THAT(text, HasSubstr("2.0: f32)\n"));
}

// In a text inputs carry no annotations; what is traced inside of a scope does, and is not marked by it.
TEST(RegionCases, A1_15_AScopeAroundNoNodeIsNoUnit) {
  Engine engine(
      [](const Tensor& x) {
        Tensor same;
        {
          const Annotate scope{{"compile", "r"}};
          same = x;
        }
        return sin(same);
      },
      {.disk_cache = false, .scope = CompileScope::Annotated});
  engine.run({Tensor::full(f32, {4}, 1)});
  EXPECT_EQ(engine.stats().regions_compiled, 0u);
}

const std::string kOptions =
    "  %a = mul(%x, 2.0: f32) @{compile = {id = \"m\", options = {OPTION}}}\n"
    "  %b = sin(%a) @{compile = {id = \"m\", options = {OPTION}}}\n"
    "  return %b\n";

std::string with_option(const std::string& option) {
  std::string text = kOptions;
  for (std::size_t at; (at = text.find("OPTION")) != std::string::npos;)
    text.replace(at, 6, option);
  return text;
}

TEST(RegionCases, A1_16_AnUnknownOptionIsNamedBeforeAnythingIsCompiled) {
  int compiles = 0;
  EngineOptions options = kAnnotated;
  options.on_region_compile = [&](const RegionInfo&) { ++compiles; };
  CaseGraph made(region_graph(with_option("bogus = 1")), options);
  const EngineOptions before = made.engine().options();
  try {
    made.plan();
    FAIL();
  } catch (const OptionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("bogus"));
  }
  EXPECT_EQ(compiles, 0);
  EXPECT_EQ(made.engine().stats().kernels_compiled, 0u);
  EXPECT_EQ(made.engine().options().fuse, before.fuse);
}

TEST(RegionCases, A1_17_OptionsAreThoseOfTheirUnitAndEndWithIt) {
  bool fails = true;
  std::vector<std::string> seen;
  EngineOptions options = kAnnotated;
  options.on_region_compile = [&](const RegionInfo& region) {
    seen.push_back(region.id + (std::get<bool>(region.options.at("fuse").value) ? "+" : "-"));
    if (fails) throw std::runtime_error("injected");
  };
  CaseGraph made(region_graph(with_option("fuse = false")), options);
  EXPECT_THROW(made.plan(), std::runtime_error);
  EXPECT_TRUE(made.engine().options().fuse);
  fails = false;
  EXPECT_EQ(made.launched(), "region_0: a | region_0: b") << "a kernel for each node, as it asks";
  EXPECT_EQ(seen, (std::vector<std::string>{"m-", "m-"}));
  EXPECT_TRUE(made.engine().options().fuse);
}

TEST(RegionCases, A1_20_ConstantsAreInsideAndStillSeenOutside) {
  CaseGraph made(region_graph("  %c = const [1, 2, 3, 4, 5, 6, 7, 8]: f32\n"
                              "  %m = mul(%x, %c) @{compile = true}\n"
                              "  %o = sub(%m, %c)\n"
                              "  return %o\n"),
                 kAnnotated);
  EXPECT_EQ(made.launched(), "region_0: m | o");
  for (const auto& event : made.events()) EXPECT_NE(event.value, "c");
  CaseGraph text(region_graph("  %c = const [1, 2, 3, 4, 5, 6, 7, 8]: f32\n"
                              "  %m = mul(%x, %c) @{compile = true}\n"
                              "  return %m\n"),
                 kAnnotated);
  EXPECT_EQ(text.plan()["regions"][0]["nodes"], Json::array({"m"}));
}

TEST(RegionCases, A1_21_AMarkedNodeOfABodyThatIsCalledTwiceIsCompiledOnce) {
  CaseGraph made(
      "graph @main(%x: f32[8]) {\n"
      "  %a = invoke(%x) {body = @block}\n"
      "  %b = invoke(%a) {body = @block}\n"
      "  return %b\n"
      "}\n"
      "graph @block(%t: f32[8]) {\n"
      "  %e = exp(%t) @{compile = \"in\"}\n"
      "  %f = mul(%e, 0.5: f32) @{compile = \"in\"}\n"
      "  %g = sin(%f)\n"
      "  return %g\n"
      "}\n",
      kAnnotated);
  made.launched();
  EXPECT_EQ(made.engine().stats().regions_compiled, 1u);
}

// As it runs: the hook is called once, one kernel is compiled for each of the unit and the rest, and what is in the unit runs
// twice, also where a third call comes from the body of a branch.
TEST(RegionCases, A1_21_AUnitOfASharedBodyIsCompiledOnceAndLaunchedAtEachCall) {
  static int calls = 0;
  register_op({.schema = "rc::noted(Tensor x) -> Tensor",
               .shape = [](const ShapeCall& call) { return std::vector{call.tensor(0)}; },
               .cpu =
                   [](const KernelCall& call) {
                     ++calls;
                     for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
                       call.results[0].as<float>()[k] = call.tensor(0).as<float>()[k] + 1;
                   }});
  int compiles = 0;
  EngineOptions options = kAnnotated;
  options.on_region_compile = [&](const RegionInfo& region) {
    EXPECT_EQ(region.id, "in");
    ++compiles;
  };
  CaseGraph made(
      "graph @main(%x: f32[8], %p: f32[8]) {\n"
      "  %a = invoke(%x) {body = @block}\n"
      "  %b = invoke(%a) {body = @block}\n"
      "  %s = reduce_sum(%p) {axes = [0]}\n"
      "  %yes = gt(%s, -100.0: f32)\n"
      "  %c = cond(%yes, %b) {then = @more, else = @less}\n"
      "  return %c\n"
      "}\n"
      "graph @block(%t: f32[8]) {\n"
      "  %e = exp(%t) @{compile = \"in\"}\n"
      "  %n = rc::noted(%e) @{compile = \"in\"}\n"
      "  %f = mul(%n, 0.1: f32) @{compile = \"in\"}\n"
      "  %g = sin(%f)\n"
      "  return %g\n"
      "}\n"
      "graph @more(%t: f32[8]) {\n"
      "  %d = invoke(%t) {body = @block}\n"
      "  return %d\n"
      "}\n"
      "graph @less(%t: f32[8]) {\n"
      "  %d = neg(%t)\n"
      "  return %d\n"
      "}\n",
      options);
  made.plan();
  calls = 0;
  made.engine().run(made.inputs());
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(compiles, 1);
  EXPECT_EQ(made.engine().stats().regions_compiled, 1u);
  EXPECT_EQ(made.plan()["regions"].size(), 1u);
  std::vector<std::string> launched;
  std::vector<Json> described;
  const std::function<void(const Json&)> collect = [&](const Json& plan) {
    for (const Json& step : plan["steps"])
      for (const Json& nested : step.value("nested", Json::array())) {
        if (nested.contains("id")) described.push_back(nested);
        const Json body = described.at(nested.value("same_as", Json(described.size() - 1)));
        for (const Json& kernel : body["kernels"])
          if (kernel["unit"] == "region_0") launched.push_back(kernel["nodes"].dump());
        collect(body);
      }
  };
  collect(made.plan());
  const std::vector<std::string> once{R"(["e"])", R"(["n"])", R"(["f"])"};
  std::vector<std::string> thrice;
  for (int k = 0; k < 3; ++k) thrice.insert(thrice.end(), once.begin(), once.end());
  EXPECT_EQ(launched, thrice);
}

// What form-regions leaves may be read back; a call of it without its mark is an error.
TEST(RegionCases, ACallOfAUnitWithoutItsMarkIsNamed) {
  CaseGraph made(
      "graph @main(%x: f32[8]) {\n"
      "  %a = region(%x) {body = @block}\n"
      "  return %a\n"
      "}\n"
      "graph @block(%t: f32[8]) {\n"
      "  %e = exp(%t)\n"
      "  return %e\n"
      "}\n");
  try {
    made.plan();
    FAIL();
  } catch (const OptionError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a region's call at %a"));
    EXPECT_THAT(error.what(), HasSubstr("expected the annotation compile"));
  }
}

std::string error_of(const std::string& text) {
  try {
    CaseGraph(text, kAnnotated).plan();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

// What goes into a unit has a type: an input says it, a node infers it.
TEST(RegionCases, A1_26_AnInputOfAUnitWithoutATypeIsNamed) {
  const std::string marked = "  %m = mul(%s, %y) @{compile = true}\n  return %m\n";
  EXPECT_EQ(error_of(region_graph("  %s = sin(%x)\n" + marked, "%x: f32[8], %y")),
            "type of input %y at 1:25: expected a type, such as f32[s0, 4], got none");
  register_op({.schema = "rc::silent(Tensor x) -> Tensor",
               .shape = [](const ShapeCall&) { return std::vector<TensorType>(); },
               .cpu = [](const KernelCall&) {}});
  EXPECT_EQ(error_of(region_graph("  %s = rc::silent(%x)\n" + marked)),
            "rc::silent: number of results of the shape function at 2:8: expected 1, got 0");
  EXPECT_EQ(error_of("graph @main(%x: f32[8], %y: f32[8]) {\n"
                     "  %m = region(%x) {body = @unit} @{compile = true}\n  return %m\n}\n"
                     "graph @unit(%s) {\n  %r = sin(%s)\n  return %r\n}\n"),
            "type of input %s at 5:13: expected a type, such as f32[s0, 4], got none");
}

TEST(RegionCases, A1_27_AMarkedNodeIsAKernelAloneAndLeavesNoTrace) {
  const std::string rest = "  %b = mul(%a, 2.0: f32)\n  %c = add(%b, %y)\n  return %c\n";
  CaseGraph marked(region_graph("  %a = add(%x, %y) @{should_fallback = true}\n" + rest));
  EXPECT_EQ(marked.launched(), "a | b c");
  CaseGraph unmarked(region_graph("  %a = add(%x, %y)\n" + rest));
  EXPECT_EQ(unmarked.launched(), "a b c");
  CaseGraph no(region_graph("  %a = add(%x, %y) @{should_fallback = false}\n" + rest));
  EXPECT_EQ(no.launched(), "a b c") << "only a true value counts";
}

TEST(RegionCases, A1_29_TheMarkHoldsUnderOrderAndInsideAUnit) {
  CaseGraph made(
      region_graph("  %e = exp(%y)\n"
                   "  %a = add(%x, %y) @{compile = \"r\", should_fallback = true} after(%e)\n"
                   "  %b = mul(%a, 2.0: f32) @{compile = \"r\"}\n"
                   "  return %b, %e\n"));
  EXPECT_EQ(made.launched(), "e | region_0: a | region_0: b");
}

TEST(RegionCases, A1_30_AMarkedOpWithoutAKernelOfItsOwnIsNamed) {
  CaseGraph made(region_graph(
      "  %a = softmax(%x) {axis = -1} @{should_fallback = true}\n  return %a\n", "%x: f32[2, 3]"));
  try {
    made.plan();
    FAIL();
  } catch (const UnsupportedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("softmax: should_fallback"));
  }
}

TEST(RegionCases, A1_31_AMarkedNodeThatNobodyReadsGoes) {
  CaseGraph made(region_graph("  %a = mul(%x, %y) @{compile = true}\n"
                              "  %b = sin(%x)\n"
                              "  return %b\n"),
                 kAnnotated);
  EXPECT_EQ(made.launched(), "b");
  EXPECT_EQ(made.engine().stats().regions_compiled, 0u);
}

// A4-03: a unit takes no name that something has, here or in a nested graph, and what has it stays as it is.
TEST(RegionCases, A4_03_UnitsTakeNamesThatNothingHas) {
  CaseGraph made(
      "graph @main(%x: f32[8], %y: f32[8]) {\n"
      "  %region_0 = invoke(%x) {body = @region_1}\n"
      "  %m = mul(%region_0, %y) @{compile = {id = \"m\", options = {fuse = true}}}\n"
      "  %a = add(%m, 1.0: f32) @{compile = {id = \"m\", options = {fuse = true}}}\n"
      "  return %a\n"
      "}\n"
      "graph @region_1(%t: f32[8]) {\n"
      "  %region_2 = region(%t) {body = @inner} @{compile = {id = \"in\", options = {fuse = "
      "false}}}\n"
      "  return %region_2\n"
      "}\n"
      "graph @inner(%t: f32[8]) {\n"
      "  %e = exp(%t)\n"
      "  %f = sin(%e)\n"
      "  return %f\n"
      "}\n",
      kAnnotated);
  EXPECT_EQ(made.launched(), "region_0 | region_3: m a") << "the call of @region_1, and the unit";
  const auto regions = made.plan()["regions"];
  ASSERT_EQ(regions.size(), 2u);
  for (const auto& region : regions) {
    const bool inner = region["id"] == "in";
    EXPECT_EQ(region["name"], inner ? "region_2" : "region_3");
    EXPECT_EQ(region["options"]["fuse"], !inner);
    EXPECT_EQ(region["nodes"], inner ? Json::array({"e", "f"}) : Json::array({"m", "a"}));
  }
}

// D6: options are part of what makes nodes one unit.
TEST(RegionCases, S1_20_DifferentlyConfiguredNodesAreUnitsOfTheirOwn) {
  CaseGraph made(region_graph("  %a = sin(%x) @{compile = {options = {fuse = false}}}\n"
                              "  %b = cos(%a) @{compile = {options = {fuse = true}}}\n"
                              "  return %b\n"),
                 kAnnotated);
  EXPECT_EQ(made.launched(), "region_0: a | region_1: b");
}

// What a unit was compiled to is found on disk by the next engine, with equal results.
TEST(RegionCases, S1_25_ACompiledUnitIsKeptOnDiskAndLoaded) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("heddle_s1_25_" + std::to_string(getpid()));
  const std::string text = region_graph(
      "  %s = sin(%x)\n  %m = mul(%s, %y) @{compile = \"unit\"}\n"
      "  %a = add(%m, 1.0: f32) @{compile = \"unit\"}\n  return %a\n");
  const std::vector inputs{Tensor::full(f32, {8}, 0.3), Tensor::full(f32, {8}, 1.7)};
  std::vector<double> first;
  for (const bool again : {false, true}) {
    Engine engine = parse_ir(
        text, {.threads = 1, .cache_dir = folder.string(), .scope = CompileScope::Annotated});
    const std::vector<double> got = engine.run(inputs)[0].to_doubles();
    EXPECT_EQ(engine.stats().regions_compiled, 1u);
    EXPECT_EQ(engine.stats().kernels_compiled, again ? 0u : 2u);
    EXPECT_EQ(engine.stats().disk_hits, again ? 2u : 0u);
    if (!again) first = got;
    EXPECT_EQ(got, first);
  }
  std::filesystem::remove_all(folder);
}

// A unit's results have the strides that the nodes said, so that other units, compiled apart, read them right.
TEST(RegionCases, S1_28_ResultsOfAUnitKeepTheirStrides) {
  CaseGraph made(region_graph("  %e = exp(%x) @{compile = \"first\"}\n"
                              "  %t = permute(%e) {perm = [1, 0]} @{compile = \"first\"}\n"
                              "  %c = cumsum(%t) {axis = 1} @{compile = \"second\"}\n"
                              "  %r = reduce_sum(%t) {axes = [0]} @{compile = \"second\"}\n"
                              "  return %c, %r\n",
                              "%x: f32[3, 8]"),
                 kAnnotated);
  made.launched();  // compares with the evaluator
  EXPECT_EQ(made.engine().stats().regions_compiled, 2u);
  const Json plan = made.plan();
  for (const auto& buffer : plan["buffers"])
    EXPECT_EQ(buffer["bytes"], buffer["value"] == "r" ? 12 : 96) << "not padded";
}

// A marked node is a kernel alone that reads its operands however they lie.
TEST(RegionCases, S1_33_AFallbackReadsStridedOperands) {
  CaseGraph made(
      region_graph("  %t = permute(%x) {perm = [1, 0]}\n"
                   "  %m = matmul(%t, %y) @{should_fallback = true}\n"
                   "  %o = exp(%m)\n"
                   "  return %o\n",
                   "%x: f32[8, 3], %y: f32[8, 5]"));
  made.launched();
  const Json plan = made.plan();
  std::string kind;
  for (const auto& kernel : plan["kernels"])
    if (kernel["nodes"] == Json::array({"m"})) kind = kernel["kind"];
  EXPECT_NE(kind, "") << "no kernel of its own";
}

// The handles that a call is given end with the last unit that reads them, not with the call.
TEST(RegionCases, S1_23_ActivationsHandedOverEndWithTheirLastUnit) {
  EngineOptions options = kAnnotated;
  options.threads = 1;
  options.donate = {"x"};
  Engine engine = parse_ir(region_graph("  %a = sin(%x) @{compile = \"first\"}\n"
                                        "  %b = cumsum(%a) {axis = 0} @{compile = \"second\"}\n"
                                        "  %c = mul(%b, %y) @{compile = \"third\"}\n"
                                        "  return %c\n"),
                           options);
  bool gone = false;
  std::vector<float> memory(8, 0.5F);
  std::vector inputs{Tensor::wrap(memory.data(), f32, {8}, [&](void*) { gone = true; }),
                     Tensor::full(f32, {8}, 1)};
  std::string text;
  for (const RunEvent& event : engine.run_trace(inputs))
    text += event.value + (event.kind == RunEvent::Kind::Free ? " free, " : ", ");
  EXPECT_THAT(text, ::testing::MatchesRegex("a, [a-z_0-9]+, x free, .*"));
  EXPECT_FALSE(gone);
  engine.run(std::move(inputs));
  EXPECT_TRUE(gone);
  EXPECT_FALSE(inputs[0].defined());
  EXPECT_TRUE(inputs[1].defined());
}

}  // namespace
}  // namespace heddle::testing
