// Every op, in every form that is tested, reads back from its text.
#include <gtest/gtest.h>

#include "ir/evaluate.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "tests/support/op_samples.h"
#include "tests/support/round_trip.h"

namespace heddle::testing {
namespace {

TEST(TextSamples, RoundTripAndVerify) {
  const auto samples = op_samples();
  ASSERT_GT(samples.size(), 100u);
  for (const OneOp& call : samples) {
    SCOPED_TRACE(call.op);
    const ir::Graph graph = graph_of(call);
    expect_round_trip(graph);
    ir::verify(graph, ir::Stage::Traced);
    const ir::LiteralTable literals = ir::named_literals(graph);
    EXPECT_EQ(ir::parse(ir::print(graph), &literals).structural_hash(), graph.structural_hash());
  }
}

}  // namespace
}  // namespace heddle::testing
