// Rows that read through the same indices.
#include <gtest/gtest.h>

#include "heddle/error.h"
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;

ir::Graph looked_up(const char* rows, const char* places, const char* columns) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {rows, "50", columns}));
  const Value at = b.input(tensor(i64, {places}));
  const Value y = b.input(tensor(f32, {rows, places, columns}));
  const Value found = b.emit("gather", {x, at}, {{"axis", std::int64_t{1}}});
  b.output(b.emit("add", {found, y}));
  b.output(b.emit("mul", {found, y}));
  return b.finish();
}

std::vector<ir::Literal> arguments_of(const ir::Graph& graph, const Ints& sizes, std::int64_t low,
                                      std::int64_t high) {
  std::vector<ir::Literal> arguments = random_arguments(graph, sizes);
  arguments[1] = random_literal(i64, arguments[1].sizes(), 5, low, high);
  return arguments;
}

void expect_looked_up(const ir::Graph& graph, const Ints& sizes) {
  const auto arguments = arguments_of(graph, sizes, -50, 49);
  expect_right(graph, arguments, 0);
#if HEDDLE_WITH_LLVM
  expect_program_right(graph, lowered(graph), arguments, as_code(), 0);
#endif
}

TEST(JamRows, SharedIndicesAreReadOnce) {
  const ir::Graph graph = looked_up("411", "40", "1");
  const std::string text = nests_of(lowered(graph));
  std::size_t binds = 0;
  for (auto at = text.find("= bind"); at != std::string::npos; at = text.find("= bind", at + 1))
    ++binds;
  EXPECT_EQ(binds, 2u) << "of four rows and of those left over\n" << text;
}

TEST(JamRows, OfAnyNumberOfThem) {
  for (const char* rows : {"1", "3", "4", "5", "8", "411"})
    for (const char* columns : {"1", "3"}) expect_looked_up(looked_up(rows, "40", columns), {});
  for (const std::int64_t rows : {1, 4, 7}) {
    expect_looked_up(looked_up("s0", "s1", "1"), {rows, 33});
    expect_looked_up(looked_up("s0", "s1", "1"), {rows, 16400});
    expect_looked_up(looked_up("s0", "s1", "2"), {rows, 33});
  }
}

TEST(JamRows, OfChannelsThatShareThemOfTheirImage) {
  for (const char* channels : {"8", "6"}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {"3", channels, "50"}));
    const Value at = b.input(tensor(i64, {"3", "1", "40"}));
    const Value all = b.emit("expand", {at}, {{"sizes", dims({"3", channels, "40"})}});
    b.output(b.emit("gather_elements", {x, all}, {{"axis", std::int64_t{2}}}));
    expect_looked_up(b.finish(), {});
  }
}

TEST(JamRows, IndicesAreChecked) {
  const ir::Graph graph = looked_up("9", "40", "1");
  const auto arguments = arguments_of(graph, {}, 40, 60);
  EXPECT_THROW(run_program(graph, lowered(graph), arguments), IndexError);
}

TEST(JamRows, OfImagesSampledAtTheSamePlaces) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"7", "5", "9"}));
  b.output(b.emit("resize", {x},
                  {{"sizes", dims({"7", "12", "31"})},
                   {"mode", std::string("nearest")},
                   {"coordinate_mode", std::string("half_pixel")}}));
  expect_right_at(b.finish(), {}, 0);
}

}  // namespace
}  // namespace heddle::test
