// Loops whose lanes are neighbours but for borders.
#include <gtest/gtest.h>

#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;

ir::Graph padded(const ir::TensorMeta& x, const char* mode, const Ints& low, const Ints& high) {
  GraphBuilder b("main");
  b.output(
      b.emit("pad", {b.input(x)}, {{"mode", std::string(mode)}, {"low", low}, {"high", high}}));
  return b.finish();
}

std::size_t vector_loops(const ir::Graph& graph) {
  const std::string text = nests_of(lowered(graph));
  std::size_t count = 0;
  for (auto at = text.find("vector "); at != std::string::npos; at = text.find("vector ", at + 1))
    ++count;
  return count;
}

TEST(LanePieces, BordersHaveLoopsOfTheirOwn) {
  for (const char* mode : {"reflect", "edge", "wrap"}) {
    SCOPED_TRACE(mode);
    const ir::Graph graph = padded(tensor(f32, {"3", "5", "40"}), mode, {0, 2, 3}, {0, 1, 2});
    EXPECT_EQ(vector_loops(graph), 3u) << nests_of(lowered(graph));
    EXPECT_NE(nests_of(lowered(graph)).find("< 40 {"), std::string::npos)
        << nests_of(lowered(graph));
  }
}

TEST(LanePieces, OfEveryModeAndType) {
  for (const char* mode : {"reflect", "edge", "wrap"}) {
    for (const DType dtype : {f32, u8, i64, f16}) {
      for (const char* width : {"14", "31", "64", "100"}) {
        SCOPED_TRACE(std::string(mode) + " of " + width);
        expect_code_right_at(padded(tensor(dtype, {"4", width}), mode, {1, 9}, {2, 7}), {}, 0);
        expect_code_right_at(padded(tensor(dtype, {"2", width}), mode, {0, 5}, {1, 0}), {}, 0);
      }
    }
  }
}

TEST(LanePieces, OfRowsInSeveralParts) {
  for (const char* mode : {"reflect", "edge", "wrap"}) {
    SCOPED_TRACE(mode);
    expect_code_right_at(padded(tensor(f32, {"16500"}), mode, {300}, {16400}), {}, 0);
    expect_code_right_at(padded(tensor(f32, {"2", "16380"}), mode, {0, 3}, {0, 5}), {}, 0);
  }
}

TEST(LanePieces, OfSizesKnownLate) {
  for (const char* mode : {"reflect", "edge", "wrap"}) {
    SCOPED_TRACE(mode);
    const ir::Graph graph = padded(tensor(f32, {"s0", "s1"}), mode, {1, 4}, {1, 3});
    for (const std::int64_t width : {5, 6, 17, 40, 16384, 16390})
      expect_code_right_at(graph, {2, width}, 0);
    const ir::Graph row = padded(tensor(f32, {"s0"}), mode, {4}, {3});
    for (const std::int64_t width : {5, 16376, 16377, 16378, 16384, 32770})
      expect_code_right_at(row, {width}, 0);
  }
}

TEST(LanePieces, WithWhatElseIsComputed) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"6", "30"}));
  const Value y = b.input(tensor(f32, {"6", "38"}));
  const Value padded = b.emit(
      "pad", {x}, {{"mode", std::string("reflect")}, {"low", Ints{0, 5}}, {"high", Ints{0, 3}}});
  b.output(b.emit("mul", {b.emit("add", {padded, y}), y}));
  expect_code_right_at(b.finish(), {}, 0);
}

}  // namespace
}  // namespace heddle::test
