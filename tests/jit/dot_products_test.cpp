// Products by one column, or few, are sums over rows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

ir::Graph product(std::string_view left, std::string_view right, std::string_view views = "",
                  std::string_view operands = "%a, %b", std::string_view attrs = "") {
  return ir::parse(
      fmt::format("graph @main(%a: {}, %b: {}) {{\n{}  %c = matmul({}){}\n  return %c\n}}\n", left,
                  right, views, operands, attrs));
}

bool is_sum(const ir::Graph& graph) {
  return nests_of(lowered(graph)).find("contract") == std::string::npos;
}

TEST(DotProducts, OfOneColumn) {
  for (const DType dtype : {f32, f64}) {
    for (const auto& [left, right] : {std::pair("s0, 40", "40, 1"),
                                      {"s0, s1", "s1, 1"},
                                      {"3, s0, 17", "17, 1"},
                                      {"s0, 9", "5, 9, 1"},
                                      {"4, 1, 6, 33", "2, 33, 1"}}) {
      const std::string name(name_of(dtype));
      const ir::Graph graph =
          product(fmt::format("{}[{}]", name, left), fmt::format("{}[{}]", name, right));
      EXPECT_TRUE(is_sum(graph)) << left;
      for (const std::int64_t size : {0, 1, 7, 50})
        expect_code_right(graph, random_arguments(graph, {size, size}));
    }
  }
}

/// Columns that are the same in each run are turned once.
TEST(DotProducts, OfFewColumnsOfAParameter) {
  for (const std::int64_t columns : {2, 3, 4}) {
    ir::GraphBuilder b("main");
    const ir::Value x = b.input(tensor(f64, {"s0", "150"}));
    const ir::Value w = b.constant(random_literal(f64, {150, columns}, 3));
    b.output(b.emit("relu", {b.emit("matmul", {x, w})}));
    const ir::Graph graph = b.finish();
    EXPECT_TRUE(is_sum(graph));
    for (const std::int64_t rows : {0, 1, 30})
      expect_code_right(graph, random_arguments(graph, {rows}));
  }
}

/// Sums of one term are products of elements where vectors have not 64 bytes.
TEST(DotProducts, OfOneTerm) {
  const jit::LowerOptions options{.vector_bytes = 32};
  for (const DType dtype : {f32, f64, f16})
    for (const auto& [left, right] :
         {std::pair("s0, 1", "1, 40"), {"3, s0, 1", "1, s1"}, {"4, 1, s0, 1", "2, 1, 33"}}) {
      const std::string name(name_of(dtype));
      const ir::Graph graph =
          product(fmt::format("{}[{}]", name, left), fmt::format("{}[{}]", name, right));
      const jit::Program program = jit::lower(graph, options);
      EXPECT_EQ(nests_of(program).find("contract"), std::string::npos) << left;
      EXPECT_FALSE(is_sum(graph)) << left;
      for (const std::int64_t size : {0, 1, 7, 50})
        expect_program_right(graph, program, random_arguments(graph, {size, size}), as_code(),
                             1e-3);
    }
}

/// What lies across the sum would be gathered; short sums leave lanes idle; tiles fill more columns.
TEST(DotProducts, OfNothingElse) {
  EXPECT_FALSE(is_sum(product("f32[9, 150]", "f32[150, 2]")));
  EXPECT_FALSE(is_sum(product("f32[9, 150]", "param f32[150, 5]")));
  EXPECT_FALSE(is_sum(product("f32[9, 60]", "param f32[60, 2]")));
  EXPECT_FALSE(is_sum(product("f32[9, 7]", "f32[7, 1]")));
  EXPECT_FALSE(is_sum(product("f16[9, 40]", "f16[40, 1]")));
  EXPECT_FALSE(is_sum(product("f32[9, 40]", "f32[40, 1]", "", "%a, %b", " {bf16 = true}")));
  EXPECT_FALSE(is_sum(
      product("f32[40, 9]", "f32[40, 1]", "  %t = permute(%a) {perm = [1, 0]}\n", "%t, %b")));
  EXPECT_FALSE(is_sum(
      product("f32[9, 40]", "f32[40, 3]",
              "  %t = slice(%b) {start = [0, 1], limit = [40, 2], stride = [1, 1]}\n", "%a, %t")));
  const ir::Graph graph = product("f32[9, 40]", "f32[40, 1]");
  const jit::Program cuda = jit::lower(graph, {.target = jit::LowerOptions::Target::Cuda});
  EXPECT_NE(nests_of(cuda).find("contract"), std::string::npos);
}

/// Views that leave the elements of a row side by side.
TEST(DotProducts, OfViewsAlongTheSum) {
  const ir::Graph turned =
      product("f32[9, 40]", "f32[1, 40]", "  %t = permute(%b) {perm = [1, 0]}\n", "%a, %t");
  const ir::Graph parts =
      product("f32[9, 90]", "f32[40]",
              "  %p = slice(%a) {start = [2, 3], limit = [9, 43], stride = [2, 1]}\n"
              "  %t = reshape(%b) {sizes = [40, 1]}\n",
              "%p, %t");
  for (const ir::Graph& graph : {turned, parts}) {
    EXPECT_TRUE(is_sum(graph));
    expect_code_right(graph, random_arguments(graph, {}));
  }
}

}  // namespace
}  // namespace heddle::test
