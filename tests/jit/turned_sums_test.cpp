// Sums of what all pairs of rows make have neighbouring results as lanes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

/// Distances between points, reduced by `reduction`; `more`: statements between.
ir::Graph distances(std::string_view left, std::string_view right,
                    std::string_view reduction = "reduce_sum", int axis = 2,
                    std::string_view more = "", std::string_view results = "%s") {
  return ir::parse(
      fmt::format("graph @main(%a: f32[{}], %b: f32[{}]) {{\n"
                  "  %d = sub(%a, %b)\n"
                  "  %q = mul(%d, %d)\n"
                  "{}  %s = {}(%q) {{axes = [{}]}}\n"
                  "  return {}\n"
                  "}}\n",
                  left, right, more, reduction, axis, results));
}

std::size_t steps_of(const ir::Graph& graph) { return lowered(graph).record.steps.size(); }

std::size_t count_of(std::string_view part, const std::string& text) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

/// The copy of the turned operand is a step of its own.
TEST(TurnedSums, OfPairsOfRows) {
  for (const auto& [rows, results, terms] : {std::tuple(16, 48, 5), {17, 16, 40}, {16, 17, 3}}) {
    const ir::Graph graph =
        distances(fmt::format("{}, 1, {}", rows, terms), fmt::format("{}, {}", results, terms));
    EXPECT_EQ(steps_of(graph), 2u) << rows;
    expect_code_right(graph, random_arguments(graph, {}));
  }
  for (const std::string_view reduction : {"reduce_max", "reduce_min"}) {
    const ir::Graph graph = distances("16, 1, 4", "32, 4", reduction);
    EXPECT_EQ(steps_of(graph), 2u);
    expect_code_right(graph, random_arguments(graph, {}));
  }
}

/// Rows share what a loop loads of the other operand, as many of them as divide their number.
TEST(TurnedSums, OfSeveralRowsInOneLoop) {
  for (const auto& [rows, jammed] : {std::pair(20, 4), {21, 3}, {22, 2}, {23, 1}}) {
    const ir::Graph graph = distances(fmt::format("{}, 1, 6", rows), "48, 6");
    const std::string text = nests_of(lowered(graph));
    EXPECT_EQ(count_of("sub(", text), static_cast<std::size_t>(jammed)) << text;
    expect_code_right(graph, random_arguments(graph, {}));
  }
}

/// The number of pairs may be known, as there are none, where that of results is not.
TEST(TurnedSums, OfNoneOfAnOpenNumber) {
  const ir::Graph graph = distances("0, 1, 4", "s0, 4");
  expect_code_right_at(graph, {48});
}

TEST(TurnedSums, OfBatches) {
  const ir::Graph batches = distances("3, 20, 1, 9", "3, 1, 48, 9", "reduce_sum", 3);
  EXPECT_EQ(steps_of(batches), 2u);
  expect_code_right(batches, random_arguments(batches, {}));
}

/// With a row of weights, what is read of the pairs by several, and dimensions that are kept.
TEST(TurnedSums, OfMoreThanTwoOperands) {
  const ir::Graph graph = ir::parse(
      "graph @main(%a: f32[20, 1, 9], %b: f32[1, 64, 9], %v: f32[9], %w: f32[64, 1]) {\n"
      "  %d = add(%a, %b)\n"
      "  %t = tanh(%d)\n"
      "  %p = mul(%t, %v)\n"
      "  %e = add(%p, %w)\n"
      "  %f = mul(%e, %t)\n"
      "  %g = add(%f, 0.5: f32)\n"
      "  %s = reduce_sum(%g) {axes = [-1], keepdims = true}\n"
      "  return %s\n"
      "}\n");
  EXPECT_EQ(steps_of(graph), 2u);
  expect_code_right(graph, random_arguments(graph, {}));
}

TEST(TurnedSums, LeaveWhatWouldNotPay) {
  EXPECT_EQ(steps_of(distances("8, 1, 64", "64, 64")), 1u) << "few rows read each element";
  EXPECT_EQ(steps_of(distances("32, 1, 64", "17, 64")), 1u) << "most lanes would be idle";
  EXPECT_EQ(steps_of(distances("32, 1, 257", "64, 257")), 1u) << "long sums";
  EXPECT_EQ(steps_of(distances("32, 64, 64", "64, 64")), 1u) << "an operand of all pairs";
  EXPECT_EQ(steps_of(distances("32, 1, 64", "1, 1, 64")), 1u) << "nothing to turn";
  EXPECT_EQ(steps_of(distances("32, 1, 64", "64, 64", "reduce_sum", 1)), 1u) << "not along rows";
  // The pairs are stored in their own order.
  const ir::Graph stored = distances("32, 1, 64", "64, 64", "reduce_sum", 2, "", "%s, %d");
  EXPECT_EQ(nests_of(lowered(stored)).find("clone"), std::string::npos);
}

}  // namespace
}  // namespace heddle::test
