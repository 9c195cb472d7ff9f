// Products of a few terms for a few columns or many, which are elements, and what is computed of positions alone, which is kept.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <tuple>
#include <utility>

#include "tests/engine/case_graph.h"

namespace heddle::testing {
namespace {

std::size_t steps_of(const std::string& text) {
  CaseGraph graph(text);
  graph.launched();
  return graph.plan().at("steps").size();
}

TEST(NarrowProducts, OfEverySizeAndBatchAgreeWithTheEvaluator) {
  for (const char* dtype : {"f32", "f64"}) {
    for (const auto& [left, right] :
         {std::pair("", ""), {"5, ", ""}, {"", "3, "}, {"2, 1, ", "3, "}, {"s0, ", "s0, "}}) {
      for (const auto& [rows, terms, columns] : {std::tuple("70", 3, 2),
                                                 {"s1", 4, 4},
                                                 {"1", 1, 1},
                                                 {"0", 2, 3},
                                                 {"9", 3, 1},
                                                 {"8", 2, 5},
                                                 {"11", 1, 16},
                                                 {"s1", 4, 37},
                                                 {"1", 2, 64}})
        CaseGraph(fmt::format("graph @main(%a: {0}[{1}{3}, {4}], %b: {0}[{2}{4}, {5}]) {{\n"
                              "  %c = matmul(%a, %b)\n"
                              "  %y = relu(%c)\n"
                              "  return %y\n"
                              "}}\n",
                              dtype, left, right, rows, terms, columns))
            .launched();
    }
  }
}

/// One kernel makes the rows, multiplies them and sums what comes of it; one column more has a kernel of its own.
TEST(NarrowProducts, AreComputedWithWhatMakesAndReadsThem) {
  const auto steps = [](int columns) {
    return steps_of(
        fmt::format("graph @main(%x: f32[50, 3], %w: f32[3, {}]) {{\n"
                    "  %a = neg(%x)\n"
                    "  %b = matmul(%a, %w)\n"
                    "  %y = reduce_max(%b) {{axes = [1]}}\n"
                    "  return %y\n"
                    "}}\n",
                    columns));
  };
  EXPECT_EQ(steps(4), 1u);
  EXPECT_GT(steps(5), 1u);
}

/// Where each batch has a matrix of its own, rows decide: few would be gathered.
TEST(NarrowProducts, OfManyMatricesNeedManyRows) {
  const auto is_product = [](int rows, int terms, int columns) {
    CaseGraph graph(
        fmt::format("graph @main(%a: f32[64, {0}, {1}], %b: f32[64, {1}, {2}]) {{\n"
                    "  %c = matmul(%a, %b)\n"
                    "  return %c\n"
                    "}}\n",
                    rows, terms, columns));
    graph.launched();
    return graph.optimised().find("matmul") != std::string::npos;
  };
  EXPECT_TRUE(is_product(4, 4, 4));
  EXPECT_TRUE(is_product(3, 3, 3));
  EXPECT_FALSE(is_product(16, 4, 4));
  EXPECT_FALSE(is_product(2, 2, 2));
  EXPECT_FALSE(is_product(1, 4, 4));
  EXPECT_FALSE(is_product(4, 4, 1));
  EXPECT_TRUE(is_product(4, 4, 15));
  EXPECT_FALSE(is_product(4, 4, 16)) << "columns are lanes";
  EXPECT_TRUE(is_product(4, 5, 16));
}

/// As of a sum that begins with 0; 1 / -0 would be another infinity.
TEST(NarrowProducts, OfTermsThatAreAllMinusZeroAreZero) {
  const auto sign = [](int terms) {
    Engine engine([](const Tensor& a, const Tensor& b) { return 1.0f / matmul(a, b); });
    const Tensor a = Tensor::full(f32, {2, terms}, -1);
    const Tensor b = Tensor::full(f32, {terms, 3}, 0);
    return engine.run({a, b})[0].to_doubles()[0];
  };
  for (const int terms : {1, 2, 4}) EXPECT_GT(sign(terms), 0) << terms;
}

/// What is made of positions alone is computed once, when the engine is made, where it is small.
TEST(FixedSteps, OfPositionsAloneAreKeptWhereTheyAreSmall) {
  const auto steps = [](int count) {
    return steps_of(
        fmt::format("graph @main(%x: i64[2, {0}]) {{\n"
                    "  %p = iota() {{sizes = [{0}], axis = 0}}\n"
                    "  %q = cumsum(%p) {{axis = 0}}\n"
                    "  %y = add(%x, %q)\n"
                    "  return %y\n"
                    "}}\n",
                    count));
  };
  EXPECT_EQ(steps(5000), 1u);
  EXPECT_GT(steps(50000), 1u);
}

/// A window, whose cosines are folded: a call copies it.
TEST(FixedSteps, OfAWindowAreNone) {
  CaseGraph graph(
      "graph @main() {\n"
      "  %p = iota() {sizes = [400], axis = 0, dtype = f64}\n"
      "  %a = mul(%p, 0.0157: f64)\n"
      "  %c = cos(%a)\n"
      "  %h = mul(%c, -0.5: f64)\n"
      "  %w = add(%h, 0.5: f64)\n"
      "  %y = convert(%w) {dtype = f32}\n"
      "  return %y\n"
      "}\n");
  graph.launched();
  const auto plan = graph.plan();
  EXPECT_EQ(plan.at("kernels").size(), 1u);
  for (const auto& kernel : plan.at("kernels")) EXPECT_EQ(kernel.at("kind"), "copy");
}

/// %y is after %t, which is computed once; so it is after %a, which %t is after.
TEST(FixedSteps, LeaveTheOrderThatRanThroughThem) {
  for (const char* made :
       {"iota() {sizes = [4], axis = 0, dtype = f32}", "const [0.5, 2, 1, 4]: f32"}) {
    CaseGraph graph(std::string("graph @main(%x: f32[6, 6], %z: f32[70, 2]) {\n  %p = ") + made +
                    "\n  %a = softmax(%x)\n"
                    "  %t = cumsum(%p) {axis = 0} after(%a)\n"
                    "  %m = softmax(%t)\n"
                    "  %y = softmax(%z) after(%m)\n"
                    "  %v = cumsum(%m) {axis = 0}\n"
                    "  %r = reshape(%v) {sizes = [2, 2]}\n"
                    "  %w = matmul(%z, %r) {tf32 = true}\n"
                    "  return %y, %a, %w\n"
                    "}\n");
    graph.launched();
    const auto plan = graph.plan();
    EXPECT_GE(plan.at("folded_steps").get<int>(), 2) << made;
    std::size_t weak = 0;
    for (const auto& step : plan.at("steps"))
      for (const auto& edge : step.at("edges")) weak += edge.at("kind") == "weak" ? 1 : 0;
    EXPECT_EQ(weak, 2u) << made;
  }
}

}  // namespace
}  // namespace heddle::testing
