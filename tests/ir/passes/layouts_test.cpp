// Which orders of dimensions groups of nodes take, where thousands read one value.
#include "ir/passes/layouts.h"

#include <algorithm>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/op.h"
#include "ir/passes/pipeline.h"
#include "ir/text.h"

namespace heddle::testing {
namespace {

using ir::Graph;

constexpr std::string_view kPasses[] = {"push-permutes", "dce"};

std::size_t permutes_in(const Graph& graph) {
  return static_cast<std::size_t>(std::ranges::count_if(
      graph.nodes(), [](const ir::NodePtr& node) { return node->op_name() == "permute"; }));
}

/// Groups that all read two permuted values; `end` makes of %n what is returned.
Graph readers(int groups, const std::string& end) {
  std::string text = "graph @main(%x: f32[2, 8, 5, 6], %y: f32[2, 8, 5, 6]) {\n";
  std::string results;
  for (const char* input : {"x", "y"})
    text += fmt::format("  %{}p = permute(%{}) {{perm = [0, 2, 3, 1]}}\n", input, input);
  for (int k = 0; k < groups; ++k) {
    text += fmt::format("  %m{} = add(%xp, %yp)\n  %n{} = exp(%m{})\n", k, k, k);
    text += fmt::format("  %r{} = {}\n", k, fmt::format(fmt::runtime(end), k));
    results += fmt::format("{}%r{}", k == 0 ? "" : ", ", k);
  }
  return ir::parse(text + "  return " + results + "\n}\n");
}

// Two permutes serve however many groups, since each of them that took the order of %x and %y would have to permute its
// result. Where each group weighed its own readings alone, all would do that.
TEST(Layouts, SharedPermutesStayHoweverManyShareThem) {
  for (const int groups : {1, 2, 255, 257, 600}) {
    const Graph graph = readers(groups, "neg(%n{})");
    const Graph after = ir::run_passes(graph, kPasses);
    EXPECT_EQ(permutes_in(after), groups == 1 ? 1u : 2u) << groups;
  }
}

// Where results are sums that come out right in either order, a group that takes the order of what it reads saves nothing
// as long as another one is left that needs the permutes; the number never grows.
TEST(Layouts, TheNumberOfPermutesNeverGrows) {
  for (const int groups : {1, 2, 255, 257, 600}) {
    const Graph graph = readers(groups, "reduce_sum(%n{}) {{axes = [1, 2, 3]}}");
    const Graph after = ir::run_passes(graph, kPasses);
    EXPECT_LE(permutes_in(after), groups == 1 ? 0u : 2u) << groups;
  }
}

// What is inferred anew is what is made anew: none where nothing is to be gained.
TEST(Layouts, NothingIsMadeAnewWhereNothingIsGained) {
  const Graph graph = readers(600, "neg(%n{})");
  std::vector<ir::PassRecord> records;
  ir::run_passes(graph, kPasses, {}, &records);
  EXPECT_FALSE(records[0].changed);
  EXPECT_EQ(records[0].inferred, 0u);
}

}  // namespace
}  // namespace heddle::testing
