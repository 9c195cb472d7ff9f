// Random graphs: whatever is fused, the values are the evaluator's.
#include <gtest/gtest.h>

#include "tests/jit/lower_support.h"
#include "tests/support/random_graph.h"

namespace heddle::test {
namespace {

TEST(LowerFuzz, RandomGraphsAgreeWithTheEvaluator) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ir::Graph graph = RandomGraph(seed).make();
    SCOPED_TRACE(text_of(graph));
    expect_right_at(graph, {2 + seed % 2, 3}, 1e-4);
    if (HasFatalFailure() || HasFailure()) return;
  }
}

}  // namespace
}  // namespace heddle::test
