// Concatenations and padding, which are cut into pieces at their bounds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using Ints = std::vector<std::int64_t>;

TEST(LowerPieces, ConcatAndPadReadUnderGuards) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "5"}));
  const Value y = b.input(tensor(f32, {"s0", "3"}));
  const Value operands[] = {x, y, x};
  const Value c = b.call("concat", operands, {{"axis", std::int64_t{1}}})->value();
  b.output(b.emit("pad", {c}, {{"low", Ints{1, 0}}, {"high", Ints{0, 2}}}));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(kernels(graph).size(), 1u);
  expect_right_at(graph, {4});
}

TEST(LowerPieces, ConcatIsCutAtItsBounds) {
  for (const std::int64_t axis : {0, 1, 2}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {"s0", "s1", "20"}));
    const Value y = b.emit("exp", {x});
    const Value operands[] = {x, y, x, b.emit("neg", {x})};
    const Value c = b.call("concat", operands, {{"axis", axis}})->value();
    b.output(b.emit("tanh", {c}));
    const ir::Graph graph = b.finish();
    EXPECT_EQ(kernels(graph).size(), 1u);
    EXPECT_EQ(nests_of(lowered(graph)).find("select"), std::string::npos);
    expect_right_at(graph, {2, 3});
    expect_right_at(graph, {1, 1});
    expect_right_at(graph, {0, 3});
  }
}

/// As the layers of a network that reads all before it: an element is never looked for among all parts.
TEST(LowerPieces, ConcatOfManyPartsOfKnownSizesIsCut) {
  GraphBuilder b("main");
  std::vector<Value> operands;
  for (int k = 0; k < 40; ++k)
    operands.push_back(b.input(tensor(f32, {"7", k % 3 == 0 ? "16" : "32"})));
  b.output(b.emit("tanh", {b.call("concat", operands, {{"axis", std::int64_t{1}}})->value()}));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(nests_of(lowered(graph)).find("select"), std::string::npos);
  expect_program_right(graph, lowered(graph), random_arguments(graph, {}), as_code(), 1e-5);
}

/// Pieces that lie side by side are under way at a time, so that a thread's share of a concatenation is rows; pieces one behind the other
/// keep their order. Where a piece has fewer iterations than another, or none has any, each still runs once.
TEST(LowerPieces, PartsOfTheSameRowsTakeTurns) {
  const auto nests = [](std::int64_t axis, const std::vector<const char*>& sizes) {
    GraphBuilder b("main");
    std::vector<Value> operands;
    for (const char* size : sizes)
      operands.push_back(
          b.input(axis == 0 ? tensor(f32, {size, "4096"}) : tensor(f32, {"s0", size, "64"})));
    b.output(b.call("concat", operands, {{"axis", axis}})->value());
    const ir::Graph graph = b.finish();
    for (const std::int64_t rows : {0, 1, 40}) expect_right_at(graph, {rows, 3});
    return nests_of(lowered(graph));
  };
  using ::testing::HasSubstr;
  using ::testing::Not;
  EXPECT_THAT(nests(1, {"16", "16"}), HasSubstr("mod(i0,2)"));
  EXPECT_THAT(nests(1, {"64", "20"}), HasSubstr("mod(i0,2)"));
  EXPECT_THAT(nests(1, {"30", "16", "50"}), HasSubstr("mod(i0,3)"));
  EXPECT_THAT(nests(0, {"s0", "s1"}), Not(HasSubstr("mod(i0,2)")));
}

/// Few channels side by side are parts of lines: a row of all of them is written at once.
TEST(LowerPieces, ConcatOfFewChannelsWritesWholeRows) {
  const auto loops_in = [](std::int64_t channels) {
    GraphBuilder b("main");
    const std::string width = std::to_string(channels);
    const Value x = b.input(tensor(f32, {"s0", "200", width.c_str()}));
    const Value y = b.input(tensor(f32, {"s0", "200", width.c_str()}));
    const Value operands[] = {x, b.emit("neg", {y}), b.emit("abs", {x})};
    b.output(b.call("concat", operands, {{"axis", std::int64_t{2}}})->value());
    const ir::Graph graph = b.finish();
    for (const std::int64_t rows : {1, 7}) expect_right_at(graph, {rows});
    const std::string nests = nests_of(lowered(graph));
    std::size_t loops = 0;
    for (std::size_t at = 0; (at = nests.find("serial ", at)) != std::string::npos; ++at) ++loops;
    return loops;
  };
  EXPECT_EQ(loops_in(24), 1u);
  EXPECT_EQ(loops_in(64), 3u) << "whole lines are as well written apart";
}

/// Keys turned in halves behind a cache: what was there is copied in whole rows, and nothing is chosen element by element.
TEST(LowerPieces, ConcatOfAConcatIsCutAlongBothAxes) {
  GraphBuilder b("main");
  const Value past = b.input(tensor(f32, {"2", "s0", "64"}));
  const Value x = b.input(tensor(f32, {"2", "s1", "64"}));
  const auto half = [&](std::int64_t from) {
    const ir::Dims limit{2, base::SymExpr::size(1), from + 32};
    return b.emit("slice", {x},
                  {{"start", ir::Dims{0, 0, from}}, {"limit", limit}, {"stride", ir::Dims(3, 1)}});
  };
  const Value halves[] = {b.emit("neg", {half(32)}), half(0)};
  const Value turned = b.call("concat", halves, {{"axis", std::int64_t{2}}})->value();
  const Value whole[] = {past, b.emit("add", {x, turned})};
  b.output(b.call("concat", whole, {{"axis", std::int64_t{1}}})->value());
  const ir::Graph graph = b.finish();
  EXPECT_EQ(kernels(graph).size(), 1u);
  const std::string nests = nests_of(lowered(graph));
  EXPECT_EQ(nests.find("select"), std::string::npos) << nests;
  std::size_t pieces = 0;
  for (std::size_t at = 0; (at = nests.find("if %", at)) != std::string::npos; ++at) ++pieces;
  EXPECT_EQ(pieces, 3u) << nests;
  for (const Ints& sizes : {Ints{5, 3}, {0, 2}, {70, 1}, {3, 0}}) expect_right_at(graph, sizes);
}

/// What is padded along a row and read across memory goes through tiles, whose edges are 0.
TEST(LowerPieces, PaddedTransposesGoThroughTiles) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "88", "21"}));
  const Value p = b.emit("permute", {x}, {{"perm", Ints{2, 0, 1}}});
  b.output(b.emit("pad", {p, b.scalar(f32, 7)}, {{"low", Ints{0, 3, 1}}, {"high", Ints{0, 3, 1}}}));
  const ir::Graph graph = b.finish();
  EXPECT_NE(nests_of(lowered(graph)).find("local l0: f32[1024]"), std::string::npos)
      << nests_of(lowered(graph));
  for (const std::int64_t rows : {0, 1, 40}) expect_right_at(graph, {rows});
}

TEST(LowerPieces, PaddingIsCutFromTheRest) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "s1", "20"}));
  b.output(b.emit("pad", {x, b.scalar(f32, 7)}, {{"low", Ints{1, 2, 0}}, {"high", Ints{0, 3, 0}}}));
  const ir::Graph graph = b.finish();
  expect_right_at(graph, {2, 3});
  expect_right_at(graph, {1, 0});
}

}  // namespace
}  // namespace heddle::test
