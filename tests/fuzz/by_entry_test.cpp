// What ir/analysis/by_entry.h proves of nodes holds for their definitions: each entry of a batch by itself gives what it gives among all.
#include "ir/analysis/by_entry.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <span>

#include "heddle/error.h"
#include "ir/evaluate.h"
#include "ir/op.h"
#include "ir/text.h"
#include "tests/fuzz/random_case.h"
#include "tests/support/nightly.h"

namespace heddle::fuzz {
namespace {

using ir::Literal;

/// Entry `entry` of a tensor that holds those of a batch.
Literal entry_of(const Literal& tensor, const ir::BatchDimension& batch, std::int64_t entry,
                 const base::SymbolValues& sizes) {
  ir::Sizes part = tensor.sizes();
  part[batch.dimension] = batch.of_entry.evaluate(sizes);
  const std::int64_t offset = tensor.strides()[batch.dimension] * part[batch.dimension] * entry;
  return tensor.view(part, tensor.strides(), offset).contiguous();
}

bool same_bytes(const Literal& a, const Literal& b) {
  return a.sizes() == b.sizes() && a.dtype() == b.dtype() &&
         std::memcmp(a.contiguous().data(), b.contiguous().data(), a.bytes()) == 0;
}

/// Each entry by itself, of a node that is said to treat them apart.
void check_node(const ir::Node& node, const std::vector<Literal>& operands,
                const std::vector<Literal>& results, ir::ByEntry& batches, base::Symbol batch,
                const base::SymbolValues& sizes) {
  base::SymbolValues one = sizes;
  one[batch] = 1;
  for (std::int64_t entry = 0; entry < sizes.at(batch); ++entry) {
    std::vector<Literal> own = operands;
    for (std::size_t k = 0; k < own.size(); ++k)
      if (node.input(k))
        if (const auto held = batches.dimension(node.input(k).meta().sizes))
          own[k] = entry_of(operands[k], *held, entry, sizes);
    const std::vector<Literal> got = node.op().evaluate(ir::EvalContext(node, own, one));
    for (std::size_t k = 0; k < results.size(); ++k) {
      const auto held = batches.dimension(node.output(k).sizes);
      const Literal want = held ? entry_of(results[k], *held, entry, sizes) : results[k];
      ASSERT_TRUE(same_bytes(got[k], want))
          << node.op_name() << " %" << node.name() << ", entry " << entry;
    }
  }
}

struct Counts {
  std::size_t apart = 0;
  std::size_t other = 0;
  std::set<std::string> ops;
};

/// All nodes of a graph, as they are evaluated one after another.
void check_graph(const ir::Graph& graph, const std::vector<Literal>& arguments, base::Symbol batch,
                 const base::SymbolValues& sizes, Counts& counts) {
  ir::ByEntry batches(batch);
  std::map<ir::Value, Literal> values;
  std::size_t next = 0;
  for (const ir::Value& input : graph.inputs()) {
    const Literal* parameter = graph.parameter(input.node);
    values[input] = parameter != nullptr ? *parameter : arguments[next++];
  }
  for (const ir::NodePtr& node : graph.nodes()) {
    if (node->op_name() == "input" || node->op_name() == "param") continue;
    if (node->op().evaluate == nullptr || node->op().lowering.region) return;
    std::vector<Literal> operands;
    for (const ir::Value& input : node->inputs())
      operands.push_back(input ? values.at(input) : Literal());
    const std::vector<Literal> results =
        node->op().evaluate(ir::EvalContext(*node, operands, sizes));
    for (std::uint32_t k = 0; k < results.size(); ++k) values[node->value(k)] = results[k];
    const bool concerned = batches.mentions(node->output().sizes) ||
                           std::ranges::any_of(node->inputs(), [&](const ir::Value& input) {
                             return input && batches.mentions(input.meta().sizes);
                           });
    if (!concerned) continue;
    if (!batches.holds(*node)) {
      ++counts.other;
      continue;
    }
    ++counts.apart;
    counts.ops.insert(std::string(node->op_name()));
    check_node(*node, operands, results, batches, batch, sizes);
  }
}

TEST(ByEntry, HoldsInRandomGraphs) {
  Counts counts;
  const std::uint32_t seeds = test::is_nightly() ? 3000 : 400;
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    const Case subject = random_case(seed);
    for (std::size_t call = 0; call < std::min<std::size_t>(subject.calls.size(), 2); ++call) {
      const std::vector<Literal> arguments = arguments_of(subject, call);
      const base::SymbolValues sizes = ir::bind_sizes(subject.graph, arguments);
      for (const auto& [symbol, size] : sizes)
        if (size >= 2) check_graph(subject.graph, arguments, symbol, sizes, counts);
      if (HasFatalFailure()) FAIL() << "seed " << seed << "\n" << ir::print(subject.graph);
    }
  }
  EXPECT_GT(counts.apart, 2000u);
  EXPECT_GT(counts.other, 200u);
  EXPECT_GT(counts.ops.size(), 60u);
}

}  // namespace
}  // namespace heddle::fuzz
