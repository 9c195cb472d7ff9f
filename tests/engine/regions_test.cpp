// Regional compilation through the engine: what is compiled, under which options, and what a failure does.
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "tests/support/json.h"

namespace hd = heddle;
using hd::test::Json;

namespace {

hd::Tensor ones(std::int64_t n) { return hd::Tensor::full(hd::f32, {n}, 1); }

/// sin, then a marked mul and add, then sin.
hd::Tensor marked_middle(const hd::Tensor& x, const hd::Tensor& y, hd::AnnotationValue mark) {
  const hd::Tensor s = hd::sin(x);
  hd::Tensor a;
  {
    const hd::Annotate scope{{"compile", mark}};
    a = s * y + 1;
  }
  return hd::sin(a);
}

hd::Engine engine_of(hd::AnnotationValue mark, hd::EngineOptions options = {}) {
  options.disk_cache = false;
  return hd::Engine(
      [mark](const hd::Tensor& x, const hd::Tensor& y) { return marked_middle(x, y, mark); },
      options);
}

std::vector<double> plain() {
  return hd::Engine(
             [](const hd::Tensor& x, const hd::Tensor& y) { return hd::sin(hd::sin(x) * y + 1); })
      .run({ones(8), ones(8)})[0]
      .to_doubles();
}

Json plan_of(hd::Engine& engine) {
  const std::vector<hd::Tensor> inputs{ones(8), ones(8)};
  return Json::parse(engine.plan_json(inputs));
}

hd::AnnotationMap with_options(hd::AnnotationMap options) {
  return {{"id", "mlp"}, {"options", std::move(options)}};
}

}  // namespace

TEST(Regions, OnlyTheMarkedNodesAreCompiledTogether) {
  hd::Engine engine = engine_of("mlp", {.scope = hd::CompileScope::Annotated});
  EXPECT_EQ(engine.run({ones(8), ones(8)})[0].to_doubles(), plain());
  const Json plan = plan_of(engine);
  ASSERT_EQ(plan["regions"].size(), 1u);
  EXPECT_EQ(plan["regions"][0]["id"], "mlp");
  EXPECT_EQ(plan["regions"][0]["nodes"].size(), 2u);
  ASSERT_EQ(plan["kernels"].size(), 3u) << plan["kernels"].dump(1);
  EXPECT_EQ(plan["kernels"][0]["region"], "");
  EXPECT_EQ(plan["kernels"][1]["unit"], "region_0");
  EXPECT_EQ(plan["kernels"][1]["nodes"].size(), 2u);
  EXPECT_EQ(plan["kernels"][2]["region"], "");
  EXPECT_EQ(engine.stats().regions_compiled, 1u);
}

TEST(Regions, WholeScopeCompilesTheRestTooAndUnmarkedIgnoresMarks) {
  hd::Engine whole = engine_of(true);
  EXPECT_EQ(whole.run({ones(8), ones(8)})[0].to_doubles(), plain());
  EXPECT_EQ(plan_of(whole)["kernels"].size(), 3u);
  EXPECT_EQ(whole.stats().regions_compiled, 1u);
  hd::Engine unmarked = engine_of(true, {.scope = hd::CompileScope::Unmarked});
  EXPECT_EQ(unmarked.run({ones(8), ones(8)})[0].to_doubles(), plain());
  EXPECT_EQ(plan_of(unmarked)["kernels"].size(), 1u);
  EXPECT_EQ(unmarked.stats().regions_compiled, 0u);
}

TEST(Regions, WithoutMarksNothingIsCompiledTogether) {
  hd::Engine engine([](const hd::Tensor& x) { return hd::sin(hd::cos(x) + 1); },
                    {.disk_cache = false, .scope = hd::CompileScope::Annotated});
  engine.run({ones(4)});
  EXPECT_EQ(engine.stats().regions_compiled, 0u);
  const std::vector<hd::Tensor> inputs{ones(4)};
  EXPECT_EQ(Json::parse(engine.plan_json(inputs))["kernels"].size(), 3u);
}

TEST(Regions, TwoBlocksAreTwoRegions) {
  hd::Engine engine(
      [](const hd::Tensor& x, const hd::Tensor& y) {
        return marked_middle(marked_middle(x, y, "mlp"), y, "mlp");
      },
      {.disk_cache = false, .scope = hd::CompileScope::Annotated});
  engine.run({ones(8), ones(8)});
  EXPECT_EQ(engine.stats().regions_compiled, 2u);
}

TEST(Regions, MarksInBranchesAndLoopsAreRegions) {
  const auto marked = [](const hd::Tensor& t) {
    const hd::Annotate scope{{"compile", "inner"}};
    return hd::sin(t * 2) + 1;
  };
  const auto f = [&](const hd::Tensor& x, const hd::Tensor& y) {
    const hd::Tensor chosen = hd::cond(
        hd::greater(hd::sum(x), 0), [&](const hd::Tensor& t) { return hd::cos(marked(t)); },
        [](const hd::Tensor& t) { return hd::neg(t); }, y);
    return hd::scan(chosen, y,
                    [&](const hd::Tensor& sum, const hd::Tensor& element) {
                      const hd::Tensor next = hd::tanh(marked(sum) * element);
                      return std::pair(next, hd::amax(next));
                    })
        .second;
  };
  const std::vector<hd::Tensor> inputs{ones(8), ones(8)};
  for (const hd::CompileScope scope : {hd::CompileScope::Whole, hd::CompileScope::Annotated}) {
    hd::Engine engine(f, {.disk_cache = false, .scope = scope});
    hd::Engine reference(f, {.device = hd::Device::reference()});
    EXPECT_EQ(engine.run(inputs)[0].sizes()[0], 8);
    for (std::size_t k = 0; k < 8; ++k)
      EXPECT_NEAR(engine.run(inputs)[0].to_doubles()[k], reference.run(inputs)[0].to_doubles()[k],
                  1e-5);
    EXPECT_EQ(engine.stats().regions_compiled, 2u);
    const Json plan = Json::parse(engine.plan_json(inputs));
    ASSERT_EQ(plan["regions"].size(), 2u);
    std::set<std::string> marked_kernels;
    for (const Json& step : plan["steps"])
      for (const Json& nested : step.value("nested", Json::array()))
        for (const Json& kernel : nested["kernels"])
          if (kernel["unit"] != "") {
            marked_kernels.insert(kernel["unit"]);
            EXPECT_EQ(kernel["nodes"].size(), 3u) << kernel.dump(1);  // mul, sin, add: nothing else
          }
    EXPECT_EQ(marked_kernels.size(), 2u) << plan.dump(1);
  }
}

TEST(Regions, ARegionInABodyThatIsCalledTwiceIsCompiledOnce) {
  int compiles = 0;
  hd::EngineOptions options{.disk_cache = false};
  options.on_region_compile = [&](const hd::RegionInfo& region) {
    EXPECT_EQ(region.id, "inner");
    ++compiles;
  };
  const auto body = [](const hd::Tensor& t) {
    hd::Tensor y;
    {
      const hd::Annotate scope{{"compile", "inner"}};
      y = hd::exp(t) * 3;
    }
    return hd::sin(y);
  };
  const auto f = [&](const hd::Tensor& x) {
    const hd::Tensor once = hd::invoke({}, body, x);
    return hd::invoke({}, body, once);
  };
  hd::Engine engine(f, options);
  const double wanted = std::sin(3 * std::exp(std::sin(3 * std::exp(1.0))));
  EXPECT_NEAR(engine.run({ones(8)})[0].to_doubles()[3], wanted, 1e-5);
  EXPECT_EQ(compiles, 1);
  EXPECT_EQ(engine.stats().regions_compiled, 1u);
  const Json plan = Json::parse(engine.plan_json(std::vector{ones(8)}));
  ASSERT_EQ(plan["regions"].size(), 1u);
  ASSERT_EQ(plan["steps"].size(), 2u);
  const Json& first = plan["steps"][0]["nested"][0];
  std::vector<std::string> units;
  for (const Json& kernel : first["kernels"]) units.push_back(kernel["unit"]);
  EXPECT_EQ(units, (std::vector<std::string>{"region_0", ""})) << plan.dump(1);
  const Json& second = plan["steps"][1]["nested"][0];
  EXPECT_EQ(second["graph"], first["graph"]);
  EXPECT_EQ(second["same_as"], first["id"]);
  EXPECT_FALSE(second.contains("kernels")) << "what two calls share is described once";
}

TEST(Regions, AMarkedCallOwnsItsBodyWithTheMarksInIt) {
  const auto body = [](const hd::Tensor& t) {
    const hd::Annotate scope{{"compile", "inner"}};
    return hd::exp(t) * 3;
  };
  const auto f = [&](const hd::Tensor& x) {
    const hd::Annotate scope{{"compile", "outer"}};
    return hd::invoke({}, body, x + 1);
  };
  hd::Engine engine(f, {.disk_cache = false});
  engine.run({ones(8)});
  const Json plan = Json::parse(engine.plan_json(std::vector{ones(8)}));
  ASSERT_EQ(plan["regions"].size(), 1u) << plan["regions"].dump(1);
  EXPECT_EQ(plan["regions"][0]["id"], "outer");
}

TEST(Regions, AFailedRegionOfACalledBodyRunsOpByOp) {
  std::vector<std::string> log;
  hd::EngineOptions options{.disk_cache = false};
  options.log = [&](std::string_view line) { log.emplace_back(line); };
  options.on_region_compile = [](const hd::RegionInfo&) { throw std::runtime_error("no"); };
  const auto body = [](const hd::Tensor& t) {
    const hd::Annotate scope{{"compile", with_options({{"on_error", "op_by_op"}})}};
    return hd::exp(t) * 3;
  };
  hd::Engine engine(
      [&](const hd::Tensor& x) { return hd::invoke({}, body, hd::invoke({}, body, x) - 3); },
      options);
  EXPECT_NEAR(engine.run({ones(8)})[0].to_doubles()[0], 3 * std::exp(3 * std::exp(1.0) - 3), 1.0);
  EXPECT_EQ(log.size(), 1u);
  EXPECT_EQ(engine.stats().region_fallbacks, 1u);
}

TEST(Regions, APredicateMarksInsteadOfScopes) {
  hd::EngineOptions options{.scope = hd::CompileScope::Annotated};
  options.mark = [](const hd::NodeInfo& node) -> std::optional<hd::AnnotationValue> {
    if (node.op == "mul" || node.op == "add") return hd::AnnotationValue("by_op");
    return std::nullopt;
  };
  hd::Engine engine = engine_of(false, options);
  EXPECT_EQ(engine.run({ones(8), ones(8)})[0].to_doubles(), plain());
  const Json plan = plan_of(engine);
  ASSERT_EQ(plan["regions"].size(), 1u);
  EXPECT_EQ(plan["regions"][0]["id"], "by_op");
}

TEST(Regions, OptionsReachTheirRegionAndNoOther) {
  hd::Engine engine = engine_of(with_options({{"fuse", false}}));
  EXPECT_EQ(engine.run({ones(8), ones(8)})[0].to_doubles(), plain());
  const Json plan = plan_of(engine);
  EXPECT_EQ(plan["kernels"].size(), 4u);
  EXPECT_EQ(plan["regions"][0]["options"]["fuse"], false);
  EXPECT_TRUE(engine.options().fuse);
}

TEST(Regions, AnUnknownOptionIsNamedBeforeAnythingIsCompiled) {
  int compiled = 0;
  hd::EngineOptions options;
  options.on_region_compile = [&](const hd::RegionInfo&) { ++compiled; };
  hd::Engine engine = engine_of(with_options({{"bogus", 1}}), options);
  try {
    engine.run({ones(8), ones(8)});
    FAIL() << "no error";
  } catch (const hd::OptionError& error) {
    EXPECT_NE(std::string(error.what()).find("bogus"), std::string::npos) << error.what();
  }
  EXPECT_EQ(compiled, 0);
  EXPECT_EQ(engine.stats().kernels_compiled, 0u);
}

TEST(Regions, TheHookSeesTheOptionsAndAFailureLeavesTheEngineUsable) {
  std::vector<hd::RegionInfo> seen;
  bool fail = true;
  hd::EngineOptions options;
  options.on_region_compile = [&](const hd::RegionInfo& region) {
    seen.push_back(region);
    if (fail) throw std::runtime_error("injected");
  };
  hd::Engine engine = engine_of(with_options({{"max_kernel_nodes", 1}}), options);
  EXPECT_THROW(engine.run({ones(8), ones(8)}), std::runtime_error);
  fail = false;
  EXPECT_EQ(engine.run({ones(8), ones(8)})[0].to_doubles(), plain());
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[1].id, "mlp");
  EXPECT_EQ(std::get<std::int64_t>(seen[1].options.at("max_kernel_nodes").value), 1);
  EXPECT_EQ(plan_of(engine)["kernels"].size(), 4u);
}

TEST(Regions, AFailedRegionRunsOpByOpWhereAllowed) {
  std::vector<std::string> lines;
  hd::EngineOptions options;
  options.on_region_compile = [](const hd::RegionInfo&) { throw std::runtime_error("injected"); };
  options.log = [&](std::string_view line) { lines.emplace_back(line); };
  hd::Engine engine = engine_of(with_options({{"on_error", "op_by_op"}}), options);
  EXPECT_EQ(engine.run({ones(8), ones(8)})[0].to_doubles(), plain());
  EXPECT_EQ(engine.stats().region_fallbacks, 1u);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0], "heddle: region_0 mlp runs op by op: injected");
  const Json plan = plan_of(engine);
  EXPECT_EQ(plan["regions"][0]["fell_back"], true);
  EXPECT_EQ(plan["kernels"].size(), 4u);
}

// The hook is the embedder's and may throw anything.
TEST(Regions, AnyExceptionOfTheHookIsAFailedCompile) {
  std::vector<std::string> lines;
  hd::EngineOptions options;
  options.on_region_compile = [](const hd::RegionInfo&) { throw 7; };
  options.log = [&](std::string_view line) { lines.emplace_back(line); };
  hd::Engine engine = engine_of(with_options({{"on_error", "op_by_op"}}), options);
  EXPECT_EQ(engine.run({ones(8), ones(8)})[0].to_doubles(), plain());
  EXPECT_EQ(engine.stats().region_fallbacks, 1u);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0], "heddle: region_0 mlp runs op by op: an exception that is no std::exception");
  hd::Engine strict = engine_of("mlp", options);
  EXPECT_THROW(strict.run({ones(8), ones(8)}), int);
}

TEST(Regions, PassesThatAreNotForARegionsBodyAreRefused) {
  for (const char* name : {"form-regions", "dce,inline-regions"}) {
    hd::Engine engine = engine_of(with_options({{"passes", name}}));
    try {
      engine.run({ones(8), ones(8)});
      FAIL() << "no error";
    } catch (const hd::OptionError& error) {
      EXPECT_NE(std::string(error.what()).find("compile options: passes"), std::string::npos)
          << error.what();
    }
  }
}

// Calls of one body with different marks are different units: each has its id and its options.
TEST(Regions, ABodyWithTwoMarksIsCompiledForEach) {
  hd::Engine engine = hd::parse_ir(R"(graph @main(%x: f32[8], %y: f32[8]) {
  %a = region(%x) {body = @unit} @{compile = {id = "p", options = {fuse = false}}}
  %b = region(%y) {body = @unit} @{compile = {id = "q", options = {fuse = true}}}
  %c = region(%b) {body = @unit} @{compile = {id = "q", options = {fuse = true}}}
  return %a, %c
}
graph @unit(%x: f32[8]) {
  %e = exp(%x)
  %s = sin(%e)
  return %s
}
)",
                                   {.disk_cache = false});
  const Json plan = plan_of(engine);
  ASSERT_EQ(plan["regions"].size(), 2u);
  EXPECT_EQ(plan["regions"][0]["id"], "p");
  EXPECT_EQ(plan["regions"][1]["id"], "q");
  std::map<std::size_t, int> kernels;  // by number of nodes
  for (const auto& kernel : plan["kernels"]) ++kernels[kernel["nodes"].size()];
  EXPECT_EQ(kernels[1], 2) << plan["kernels"].dump();  // of p, which fuses nothing
  EXPECT_GT(kernels[2] + kernels[4], 0) << plan["kernels"].dump();
  const double once = std::sin(std::exp(1.0));
  EXPECT_NEAR(engine.run({ones(8), ones(8)})[0].to_doubles()[3], once, 1e-6);
  EXPECT_NEAR(engine.run({ones(8), ones(8)})[1].to_doubles()[3], std::sin(std::exp(once)), 1e-6);
}

TEST(Regions, ANodeMarkedForFallbackIsAKernelAlone) {
  hd::Engine engine(
      [](const hd::Tensor& x, const hd::Tensor& y) {
        hd::Tensor a;
        {
          const hd::Annotate scope{{"should_fallback", true}};
          a = x + y;
        }
        return a * 2 + y;
      },
      {.disk_cache = false});
  EXPECT_EQ(engine.run({ones(8), ones(8)})[0].to_doubles()[0], 5);
  const Json plan = plan_of(engine);
  ASSERT_EQ(plan["kernels"].size(), 2u) << plan["kernels"].dump(1);
  EXPECT_EQ(plan["kernels"][0]["nodes"].size(), 1u);
  hd::Engine unmarked(
      [](const hd::Tensor& x, const hd::Tensor& y) {
        const hd::Annotate scope{{"should_fallback", false}};
        return (x + y) * 2 + y;
      },
      {.disk_cache = false});
  unmarked.run({ones(8), ones(8)});
  EXPECT_EQ(plan_of(unmarked)["kernels"].size(), 1u);
}

TEST(Regions, AFallbackWithoutAKernelOfItsOwnNamesTheOp) {
  hd::Engine engine(
      [](const hd::Tensor& x) {
        const hd::Annotate scope{{"should_fallback", true}};
        return hd::softmax(x, -1);
      },
      {.disk_cache = false});
  try {
    engine.run({hd::Tensor::full(hd::f32, {2, 3}, 1)});
    FAIL() << "no error";
  } catch (const hd::UnsupportedError& error) {
    EXPECT_NE(std::string(error.what()).find("softmax: should_fallback"), std::string::npos)
        << error.what();
  }
}

TEST(Regions, NamesOfScopesReachThePlan) {
  hd::Engine engine(
      [](const hd::Tensor& x, const hd::Tensor& y) {
        const hd::Annotate scope{{"name", "encoder"}};
        return hd::sin(x) * y;
      },
      {.disk_cache = false});
  engine.run({ones(8), ones(8)});
  const Json plan = plan_of(engine);
  EXPECT_EQ(plan["kernels"][0]["nodes"], Json::array({"encoder.sin", "encoder.mul"}));
}

TEST(Regions, SnapshotsOfNestedScopes) {
  hd::Engine engine([](const hd::Tensor& x) {
    hd::Tensor t = x;
    {
      const hd::Annotate stage{{"stage", 0}};
      {
        const hd::Annotate bucket{{"bucket", 0}};
        t = hd::sin(t);
      }
      t = t - 1;
      {
        const hd::Annotate both{{"stream", 2}, {"bucket", 1}};
        t = t * 3;
      }
    }
    return t / 2;
  });
  const std::string text = engine.graph_text(std::vector<hd::Tensor>{ones(4)}, false);
  EXPECT_NE(text.find("sin(%input0) @{bucket = 0, stage = 0}"), std::string::npos) << text;
  EXPECT_NE(text.find("1.0: f32) @{stage = 0}"), std::string::npos) << text;
  EXPECT_NE(text.find("3.0: f32) @{bucket = 1, stage = 0, stream = 2}"), std::string::npos) << text;
  EXPECT_NE(text.find("2.0: f32)\n"), std::string::npos) << text;
}

TEST(Regions, OrderAcrossARegionsBorderIsKept) {
  hd::Engine engine(
      [](const hd::Tensor& x, const hd::Tensor& y) {
        const hd::Tensor a = hd::sin(x);
        hd::Tensor b;
        {
          const hd::Annotate scope{{"compile", "late"}};
          b = hd::after({a}, [&] { return hd::exp(y) + 1; });
        }
        return std::vector<hd::Tensor>{b, a};
      },
      {.disk_cache = false});
  engine.run({ones(8), ones(8)});
  const Json plan = plan_of(engine);
  ASSERT_EQ(plan["kernels"].size(), 2u);
  EXPECT_EQ(plan["steps"][1]["edges"][0]["kind"], "weak") << plan["steps"].dump(1);
  EXPECT_EQ(plan["kernels"][1]["unit"], "region_0");
}
