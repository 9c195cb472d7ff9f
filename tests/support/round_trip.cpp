#include "tests/support/round_trip.h"

#include <gtest/gtest.h>

#include "ir/text.h"

namespace heddle::testing {

void expect_round_trip(const ir::Graph& graph) {
  const ir::LiteralTable literals = ir::named_literals(graph);
  for (const bool types : {false, true}) {
    const std::string text = ir::print(graph, {.types = types, .locations = false});
    const ir::Graph again = ir::parse(text, &literals);
    EXPECT_EQ(ir::print(again, {.types = types, .locations = false}), text);
    EXPECT_EQ(again.inputs().size(), graph.inputs().size());
    EXPECT_EQ(again.outputs().size(), graph.outputs().size());
  }
}

ir::Graph expect_canonical(std::string_view text) {
  const ir::Graph graph = ir::parse(text);
  EXPECT_EQ(ir::print(graph), text);
  return graph;
}

}  // namespace heddle::testing
