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
