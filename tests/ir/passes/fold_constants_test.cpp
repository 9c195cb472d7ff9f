// Folding of what follows from constants and positions, where a graph is deep.
#include "ir/passes/fold_constants.h"

#include <gtest/gtest.h>

#include "ir/graph.h"

namespace heddle::testing {
namespace {

constexpr int kDepth = 100000;

/// An exponential of a chain of sums that begins with `first`.
ir::Graph deep(bool of_positions) {
  ir::GraphBuilder b("main");
  const ir::Value x = b.input(ir::TensorMeta::of(f32, {2}));
  ir::Value sum = x;
  if (of_positions)
    sum = b.emit("iota", {}, {{"sizes", ir::Dims{2}}, {"axis", std::int64_t{0}}, {"dtype", f32}});
  const ir::Value step = of_positions ? b.scalar(f32, 1e-5) : x;
  for (int k = 0; k < kDepth; ++k) sum = b.emit("add", {sum, step});
  b.output(b.emit("mul", {x, b.emit("exp", {sum})}));
  return b.finish();
}

bool has_exponential(const ir::Graph& graph) {
  for (const ir::NodePtr& node : graph.nodes())
    if (node->op_name() == "exp") return true;
  return false;
}

TEST(FoldConstants, LooksThroughDeepGraphs) {
  EXPECT_TRUE(has_exponential(ir::fold_constants(deep(false))));
  EXPECT_FALSE(has_exponential(ir::fold_constants(deep(true))));
}

}  // namespace
}  // namespace heddle::testing
