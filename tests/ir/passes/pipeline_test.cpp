#include "ir/passes/pipeline.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <heddle_test_paths.h>
#include <set>

#include "heddle/error.h"
#include "ir/text.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

using ir::Graph;
using ir::PassRecord;

const Graph& sample() {
  static const Graph graph = ir::parse(R"(graph @main(%x: f32[s0]) {
  %a = exp(%x)
  %b = exp(%x)
  %c = mul(%a, %b)
  return %c
}
)");
  return graph;
}

constexpr std::string_view kCseDce[] = {"cse", "dce"};

TEST(Pipeline, RecordsWhatEachPassDid) {
  std::vector<PassRecord> records;
  const Graph after = ir::run_passes(sample(), kCseDce, {}, &records);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].name, "cse");
  EXPECT_TRUE(records[0].changed);
  EXPECT_EQ(records[0].nodes_before, 4u);
  EXPECT_EQ(records[0].nodes_after, 3u);
  EXPECT_FALSE(records[1].changed);
  EXPECT_EQ(after.nodes().size(), 3u);
}

// A2-08: of a chain of 1000 nodes the one that changes and those below it are inferred, down to where types are the
// same again.
TEST(Pipeline, A2_08_OnlyWhatAChangeReachesIsInferred) {
  std::string text = "graph @main(%x: f32[8]) {\n  %n0 = exp(%x)\n";
  const auto line = [&](int k, const std::string& call) {
    text += "  %n" + std::to_string(k) + " = " + call + "\n";
  };
  for (int k = 1; k < 1000; ++k) {
    const std::string operand = "%n" + std::to_string(k - 1);
    if (k == 985)
      line(k, "slice(" + operand + ") {start = [0], limit = [8], stride = [1]}");
    else if (k == 995)
      line(k, "reduce_sum(" + operand + ") {axes = [0]}");
    else
      line(k, "neg(" + operand + ")");
  }
  const Graph graph = ir::parse(text + "  return %n999\n}\n");
  ir::PipelineOptions options;
  options.user_passes.push_back(
      {"shorten", ir::PassPoint::First, [](const Graph& before) {
         return ir::rewrite(before,
                            [](ir::Rewriter& rewriter,
                               const ir::NodePtr& node) -> std::optional<std::vector<ir::Value>> {
                              if (node->name() != "n985") return {};
                              ir::Attrs attrs = node->attrs();
                              attrs["limit"] = ir::Dims{4};
                              return std::vector{rewriter.builder().emit(
                                  "slice", {rewriter.map(node->input(0))}, std::move(attrs))};
                            });
       }});
  std::vector<PassRecord> records;
  const Graph after = ir::run_passes(graph, {}, options, &records);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].inferred, 11u) << "n985, n986 to n994 and the sum n995";
  std::size_t shared = 0;
  while (shared < graph.nodes().size() && after.nodes()[shared] == graph.nodes()[shared]) ++shared;
  EXPECT_EQ(graph.nodes()[shared]->name(), "n985");
  for (std::size_t k = 0; k < graph.nodes().size(); ++k) {
    const bool below = k >= shared && k < shared + 10;
    EXPECT_EQ(after.nodes()[k]->output().to_string(),
              below ? "f32[4]" : graph.nodes()[k]->output().to_string());
  }
}

TEST(Pipeline, WhatAUsersPassMakesIsInferredAgainWhateverIsSaid) {
  const Graph graph = ir::parse(R"(graph @main(%x: f32[s0], %y: f32[s1]) {
  %a = add(%x, %y)
  return %a
}
)");
  ir::PipelineOptions options{.infer_again = false};
  EXPECT_NO_THROW(ir::run_passes(graph, ir::default_pipeline(), options));
  // Nodes without what their inference assumed.
  options.user_passes = {{"forgetful", ir::PassPoint::First, [](const Graph& given) {
                            ir::GraphBuilder builder("main");
                            builder.adopt(given);
                            for (const ir::NodePtr& node : given.nodes()) builder.share(node);
                            builder.output(given.outputs()[0]);
                            return builder.finish();
                          }}};
  EXPECT_THROW(ir::run_passes(graph, {}, options), InvariantError);
}

TEST(Pipeline, WhatIsVerifiedLastNamesThePassThatWasWrong) {
  const Graph graph = ir::parse(R"(graph @main(%x: f32[4], %v: f32[2], %i: i64[2]) {
  %t = cos(%x)
  %u = index_put(%t, %v, %i)
  %a = exp(%u)
  %b = exp(%u)
  %c = mul(%a, %b)
  return %c
}
)");
  constexpr std::string_view kPasses[] = {"dce", "cse"};
  const ir::PipelineOptions options{.infer_again = false};
  std::vector<PassRecord> records;
  EXPECT_FALSE(ir::run_passes(graph, kPasses, options, &records).identical(graph));
  EXPECT_EQ(records.size(), 2u);
  // Passes of the first stage are given a graph that is a stage further.
  constexpr std::string_view kReinplace[] = {"reinplace"};
  const Graph reinplaced = ir::run_passes(graph, kReinplace);
  ASSERT_FALSE(reinplaced.identical(graph));
  records.clear();
  const std::string error =
      error_of([&] { ir::run_passes(reinplaced, kPasses, options, &records); });
  EXPECT_EQ(error.rfind("cse: V6", 0), 0u) << error;
  EXPECT_EQ(records.size(), 2u) << "each pass once";
}

TEST(Pipeline, SkipsWhatItIsToldTo) {
  std::vector<PassRecord> records;
  EXPECT_TRUE(ir::run_passes(sample(), kCseDce, {.skip = {"cse"}}, &records).identical(sample()));
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].name, "dce");
}

TEST(Pipeline, AnUnknownPassIsAnOptionErrorThatNamesTheClosest) {
  EXPECT_EQ(error_of([] { ir::run_passes(sample(), {}, {.skip = {"merge-view"}}); }),
            "unknown pass: expected merge-views, got merge-view");
  EXPECT_THROW(ir::pass_named("cse "), OptionError);
}

TEST(Pipeline, PassesAreSortedAndTheDefaultOnesExist) {
  EXPECT_TRUE(std::ranges::is_sorted(ir::all_passes(), {}, &ir::Pass::name));
  for (const std::string_view name : ir::default_pipeline())
    EXPECT_EQ(ir::pass_named(name).name, name);
}

TEST(Pipeline, EveryPassHasATextTest) {
  const std::filesystem::path folder = std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/passes";
  for (const ir::Pass& pass : ir::all_passes()) {
    std::string stem(pass.name);
    std::ranges::replace(stem, '-', '_');
    EXPECT_TRUE(std::filesystem::exists(folder / (stem + ".hir"))) << pass.name;
  }
}

TEST(Pipeline, DumpsTheTextAfterEachChange) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("heddle_dump_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const Graph after = ir::run_passes(sample(), kCseDce, {.dump_dir = folder.string()});
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.insert(entry.path().filename().string());
  EXPECT_EQ(files, std::set<std::string>{"00_cse.hir"});
  std::ifstream file(folder / "00_cse.hir");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), ir::print(after));
  std::filesystem::remove_all(folder);
}

TEST(Pipeline, ASecondRunChangesNothing) {
  const Graph once = ir::run_passes(sample(), ir::default_pipeline());
  EXPECT_TRUE(ir::run_passes(once, ir::default_pipeline()).identical(once));
}

}  // namespace
}  // namespace heddle::testing
