// Random graphs: whatever passes run, the values, the types and what the caller sees stay the same.
#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <set>

#include "ir/evaluate.h"
#include "ir/passes/form_regions.h"
#include "ir/passes/pipeline.h"
#include "ir/text.h"
#include "tests/support/one_op.h"
#include "tests/support/random_ir.h"
#include "tests/support/round_trip.h"

namespace heddle::testing {
namespace {

using ir::Graph;
using ir::Value;
using Names = std::vector<std::string_view>;

/// Outputs by number; what is written back to input k: 1000 + k.
std::map<int, Value> results_of(const Graph& graph) {
  std::map<int, Value> results;
  for (const Value& output : graph.outputs())
    results.emplace(static_cast<int>(results.size()), output);
  for (const Graph::WriteBack& write : graph.write_backs()) {
    const auto at = std::ranges::find(graph.inputs(), write.target);
    results.emplace(1000 + static_cast<int>(at - graph.inputs().begin()), write.source);
  }
  return results;
}

/// Pairs of results, and of results and inputs, that share storage.
std::set<std::pair<int, int>> sharing(const Graph& graph) {
  std::set<std::pair<int, int>> pairs;
  const auto storage = [](const Value& value) { return value.meta().storage; };
  const std::map<int, Value> results = results_of(graph);
  for (const auto& [k, value] : results) {
    for (const auto& [j, other] : results)
      if (j < k && storage(value) == storage(other)) pairs.insert({k, j});
    for (int j = 0; j < static_cast<int>(graph.inputs().size()); ++j)
      if (storage(value) == storage(graph.inputs()[j])) pairs.insert({k, -1 - j});
  }
  return pairs;
}

/// What the caller has afterwards: the outputs, then the inputs.
std::vector<ir::Literal> after_a_call(const Graph& graph, std::int64_t size, std::uint32_t seed) {
  const auto arguments = random_ir_arguments(size, seed);
  const auto values = ir::evaluate(graph, arguments);
  std::vector<ir::Literal> seen(values.begin(), values.begin() + graph.outputs().size());
  seen.insert(seen.end(), arguments.begin(), arguments.end());
  for (std::size_t k = 0; k < graph.write_backs().size(); ++k) {
    const auto at = std::ranges::find(graph.inputs(), graph.write_backs()[k].target);
    const auto input = static_cast<std::size_t>(at - graph.inputs().begin());
    seen[graph.outputs().size() + input] = values[graph.outputs().size() + k];
  }
  return seen;
}

void expect_equivalent(const Graph& before, const Graph& after, std::uint32_t seed) {
  SCOPED_TRACE(ir::print(after));
  EXPECT_EQ(before.inputs().size(), after.inputs().size());
  ASSERT_EQ(before.outputs().size(), after.outputs().size());
  for (std::size_t k = 0; k < after.outputs().size(); ++k)
    EXPECT_EQ(after.outputs()[k].meta().to_string(), before.outputs()[k].meta().to_string());
  for (const auto& pair : sharing(after))
    EXPECT_TRUE(sharing(before).contains(pair)) << pair.first << ", " << pair.second;
  for (const std::int64_t size : {0, 1, 3}) {
    const auto want = after_a_call(before, size, seed);
    const auto got = after_a_call(after, size, seed);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t k = 0; k < want.size(); ++k) expect_close(got[k], want[k], 1e-3);
  }
}

void run_and_compare(const Graph& graph, const Names& passes, std::uint32_t seed,
                     std::map<std::string, int>* changes = nullptr) {
  std::string trace;
  for (const std::string_view pass : passes) trace += std::string(pass) + ",";
  SCOPED_TRACE("// passes: " + trace + "\n" + ir::print(graph));
  std::vector<ir::PassRecord> records;
  expect_equivalent(graph, ir::run_passes(graph, passes, {}, &records), seed);
  if (changes == nullptr) return;
  for (const ir::PassRecord& record : records) (*changes)[record.name] += record.changed;
}

TEST(PassFuzz, EachPassAloneAndEachLeftOut) {
  std::map<std::string, int> changes;
  Names pipeline(ir::default_pipeline().begin(), ir::default_pipeline().end());
  for (const char* pass :
       {"widen-permutes", "push-permutes", "merge-views", "cse", "dce", "reinplace"})
    pipeline.push_back(pass);
  for (std::uint32_t seed = 1; seed <= 300 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = random_ir(seed);
    ir::verify(graph, ir::Stage::Traced);
    expect_round_trip(graph);
    run_and_compare(graph, pipeline, seed, &changes);
    for (const ir::Pass& pass : ir::all_passes()) {
      // It rounds weights: other results are what it is for.
      if (pass.name == "bf16-weights") continue;
      const bool inverse = pass.name == "inline-regions";
      run_and_compare(inverse ? ir::form_regions(graph) : graph, {pass.name}, seed, &changes);
      Names others = pipeline;
      std::erase(others, pass.name);
      run_and_compare(graph, others, seed);
    }
  }
  for (const ir::Pass& pass : ir::all_passes()) {
    const int count = changes[std::string(pass.name)];
    std::printf("%-16s changed %d graphs\n", std::string(pass.name).c_str(), count);
    // These graphs assume nothing, so there is nothing to resolve, find no sizes at run time, and have no
    // convolutions, products of one matrix and attention (those of tests/fuzz do) and no collectives.
    const bool idle = pass.name == "resolve-sizes" || pass.name == "channels-last" ||
                      pass.name == "permuted-products" || pass.name == "narrow-products" ||
                      pass.name == "form-attention" || pass.name.starts_with("bf16-") ||
                      pass.name == "tf32-products" || pass.name == "byte-convs" ||
                      pass.name == "wide-convs" || pass.name == "merge-convs" ||
                      pass.name == "order-sizes" || pass.name == "hoist-products" ||
                      pass.name == "drop-operands" || pass.name.ends_with("-collectives");
    const int floor = idle ? 0 : 30;
    EXPECT_GE(count, floor) << pass.name;
  }
}

/// A pass that forgets that a clone protects its operand.
Graph careless(const Graph& graph) {
  return ir::rewrite(
      graph,
      [](ir::Rewriter& rewriter, const ir::NodePtr& node) -> std::optional<std::vector<Value>> {
        if (node->op_name() != "clone") return {};
        return std::vector<Value>{rewriter.map(node->input(0))};
      });
}

TEST(PassFuzz, FindsAPassThatMakesOutputsShareStorage) {
  int found = 0;
  for (std::uint32_t seed = 1; seed <= 2000; ++seed) {
    const Graph graph = random_ir(seed);
    const auto before = sharing(graph);
    for (const auto& pair : sharing(careless(graph))) found += !before.contains(pair);
  }
  EXPECT_GT(found, 0);
}

}  // namespace
}  // namespace heddle::testing
