// Products by large matrices that are given with each call, and by those whose rows begin within lines of the caches: parts of them are
// copied.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

ir::Graph given_product(std::string_view left, std::string_view right, std::string_view view = "") {
  return ir::parse(
      fmt::format("graph @main(%a: {}, %b: {}) {{\n{}  %c = matmul(%a, {})\n  return %c\n}}\n",
                  left, right, view, view.empty() ? "%b" : "%t"));
}

/// Parts of 64 rows, in a local buffer of panels.
bool copies(const ir::Graph& graph, std::int64_t vector_bytes = 32) {
  const std::string nests = nests_of(jit::lower(graph, {.vector_bytes = vector_bytes}));
  return nests.find("local l1: f32[8192]") != std::string::npos;
}

TEST(GivenProducts, CopyPartsOfALargeMatrix) {
  for (const auto& [rows, sizes] : std::vector<std::pair<std::string, std::vector<std::int64_t>>>{
           {"16", {}}, {"40", {}}, {"70", {}}, {"2, 33", {}}, {"s0", {0, 3, 16, 50}}}) {
    const ir::Graph graph = given_product(fmt::format("f32[{}, 700]", rows), "f32[700, 761]");
    for (const std::int64_t vector_bytes : {32, 64}) {
      ASSERT_TRUE(copies(graph, vector_bytes)) << rows;
      const jit::Program program = jit::lower(graph, {.vector_bytes = vector_bytes});
      if (sizes.empty())
        expect_program_right(graph, program, random_arguments(graph, {}), as_code(), 1e-4);
      for (const std::int64_t size : sizes)
        expect_program_right(graph, program, random_arguments(graph, {size}), as_code(), 1e-4);
    }
  }
}

/// Vectors of 64 bytes that mostly lie on two lines.
TEST(GivenProducts, CopyRowsThatBeginWithinLines) {
  const ir::Graph graph = given_product("f32[40, 200]", "f32[200, 196]");
  EXPECT_TRUE(copies(graph, 64));
  EXPECT_FALSE(copies(graph, 32));
  expect_program_right(graph, jit::lower(graph, {.vector_bytes = 64}), random_arguments(graph, {}),
                       as_code(), 1e-4);
  EXPECT_FALSE(copies(given_product("f32[40, 200]", "f32[200, 192]"), 64));
  EXPECT_FALSE(copies(given_product("f32[40, 100]", "f32[100, 196]"), 64));
  EXPECT_FALSE(copies(given_product("f32[40, 200]", "f32[200, 100]"), 64));
}

/// Few rows read those of the matrix in long runs, the last of them of any width.
TEST(GivenProducts, ReadLongRunsForFewRows) {
  for (const auto& [columns, tile] : {std::pair{64, 64},
                                      {100, 64},
                                      {250, 128},
                                      {300, 192},
                                      {500, 256},
                                      {768, 192},
                                      {1100, 192}}) {
    const ir::Graph graph = given_product("f32[1, 70]", fmt::format("f32[70, {}]", columns));
    for (const std::int64_t vector_bytes : {16, 32, 64}) {
      const jit::Program program = jit::lower(graph, {.vector_bytes = vector_bytes});
      EXPECT_NE(nests_of(program).find(fmt::format("tile 32x{} ", tile)), std::string::npos)
          << columns << nests_of(program);
      expect_program_right(graph, program, random_arguments(graph, {}), as_code_of(vector_bytes),
                           1e-5);
    }
  }
  for (const std::int64_t rows : {2, 3}) {
    const ir::Graph graph = given_product(fmt::format("f32[{}, 70]", rows), "f32[70, 300]");
    for (const std::int64_t vector_bytes : {16, 32, 64}) {
      SCOPED_TRACE(fmt::format("{} rows, vectors of {} bytes", rows, vector_bytes));
      expect_program_right(graph, jit::lower(graph, {.vector_bytes = vector_bytes}),
                           random_arguments(graph, {}), as_code_of(vector_bytes), 1e-5);
    }
  }
  const ir::Graph open = given_product("f32[1, s0]", "f32[s0, s1]");
  for (const std::int64_t columns : {1, 40, 256, 700})
    expect_program_right(open, jit::lower(open, {.vector_bytes = 64}),
                         random_arguments(open, {33, columns}), as_code_of(64), 1e-5);
  const ir::Graph batch = given_product("f32[3, 1, 40]", "f32[3, 40, 300]");
  expect_program_right(batch, jit::lower(batch, {.vector_bytes = 64}), random_arguments(batch, {}),
                       as_code_of(64), 1e-5);
}

TEST(GivenProducts, CopyPartsOfEachOfABatch) {
  const ir::Graph graph = given_product("f32[2, 20, 800]", "f32[2, 800, 700]");
  EXPECT_TRUE(copies(graph));
  expect_program_right(graph, jit::lower(graph, {.vector_bytes = 32}), random_arguments(graph, {}),
                       as_code(), 1e-4);
}

TEST(GivenProducts, CopyNothingElse) {
  const std::string_view large = "f32[700, 761]";
  EXPECT_FALSE(copies(given_product("f32[15, 700]", large)));
  EXPECT_FALSE(copies(given_product("f32[40, 700]", large), 16));
  EXPECT_FALSE(copies(given_product("f32[40, 700]", "f32[700, 700]")));
  EXPECT_FALSE(copies(given_product("f32[40, 700]", "f32[700, s0]")));
  EXPECT_FALSE(copies(given_product("f32[40, 8500]", "f32[8500, 64]")));
  EXPECT_FALSE(copies(given_product("i32[40, 700]", "i32[700, 761]")));
  EXPECT_FALSE(copies(
      given_product("f32[40, 700]", "f32[761, 700]", "  %t = permute(%b) {perm = [1, 0]}\n")));
  EXPECT_FALSE(copies(given_product("f32[40, 700]", "param f32[700, 761]")));
}

/// Results of a tile of rows lie side by side, and the rows are read once.
TEST(GivenProducts, GoThroughAllColumnsOfASmallMatrixForATileOfRows) {
  const auto begin_of_columns = [](std::string_view left, std::string_view right) {
    const std::string nests = nests_of(lowered(given_product(left, right)));
    const std::size_t at = nests.find("x b1[");
    return nests.substr(at, nests.find(']', at) - at);
  };
  EXPECT_EQ(begin_of_columns("f32[1000, 16]", "f32[16, 96]"), "x b1[64*mod(i0,2)");
  EXPECT_EQ(begin_of_columns("f32[s0, 16]", "f32[16, 96]"), "x b1[64*mod(i0,2)");
  EXPECT_EQ(begin_of_columns("f32[1024, 256]", "f32[256, 128]"), "x b1[64*mod(floor(i0/32),2)");
  for (const char* rows : {"1000", "2, 333"})
    expect_code_right_at(given_product(fmt::format("f32[{}, 16]", rows), "f32[16, 96]"), {}, 1e-4);
}

}  // namespace
}  // namespace heddle::test
