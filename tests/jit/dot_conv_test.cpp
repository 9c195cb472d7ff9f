// Convolutions to few channels, and products by few columns, on the CPU: lanes are neighbouring terms.
#include "jit/nests/dot_conv.h"

#include <limits>

#include "ir/text.h"
#include "tests/jit/one_conv.h"

namespace heddle::test {
namespace {

struct Few {
  std::int64_t channels = 8, results = 1;
  Ints kernel{3, 3}, strides{1, 1}, low{1, 1}, high{1, 1}, dilations{1, 1};
  std::vector<const char*> sizes{"2", "7", "40"};  ///< of x, but for the channels
  bool biased = true, turned = false, fixed = true;
};

ir::Graph graph_of(const Few& c) {
  return graph_of(OneConv{.channels = c.channels,
                          .results = c.results,
                          .kernel = c.kernel,
                          .strides = c.strides,
                          .low = c.low,
                          .high = c.high,
                          .dilations = c.dilations,
                          .sizes = c.sizes,
                          .biased = c.biased,
                          .fixed = c.fixed,
                          .turned = c.turned});
}

jit::LowerOptions where_library_leaves_these(std::int64_t vector_bytes) {
  jit::LowerOptions options = with_convs_of_a_library(vector_bytes);
  options.library_available = [](std::string_view name, const ir::Node& node) {
    return name == "conv" && !jit::is_dot_conv(node);
  };
  return options;
}

/// Whether one of the nests multiplies by runs.
bool is_dots(const jit::Program& program) {
  return nests_of(program).find(" run ") != std::string::npos;
}

void expect_dots(const Few& c, const Ints& sizes = {}, std::int64_t vector_bytes = 64) {
  const ir::Graph graph = graph_of(c);
  const jit::Program program = jit::lower(graph, where_library_leaves_these(vector_bytes));
  EXPECT_TRUE(is_dots(program)) << nests_of(program);
  const auto arguments = random_arguments(graph, sizes);
  for (const std::int64_t bytes : {64, 32, 16})
    expect_program_right(graph, program, arguments, as_code_of(bytes), 1e-5);
}

void expect_left(const Few& c, std::int64_t vector_bytes = 64) {
  EXPECT_FALSE(is_dots(jit::lower(graph_of(c), where_library_leaves_these(vector_bytes))));
}

TEST(DotConv, OfEveryWindow) {
  expect_dots({});
  expect_dots({.biased = false});
  expect_dots({.turned = true});
  expect_dots({.kernel = {5, 5}, .low = {2, 2}, .high = {2, 2}});
  expect_dots({.kernel = {1, 4}, .low = {0, 3}, .high = {0, 0}});
  expect_dots({.kernel = {2, 3}, .strides = {2, 3}, .low = {0, 2}, .high = {1, 0}});
  expect_dots({.strides = {2, 2}});
  expect_dots({.low = {4, 5}, .high = {5, 4}});
  expect_dots({.low = {0, 0}, .high = {0, 0}});
  expect_dots(
      {.channels = 16, .strides = {2, 2}, .low = {3, 3}, .high = {3, 3}, .dilations = {3, 3}});
}

TEST(DotConv, OfEveryWidth) {
  for (const char* width : {"1", "2", "3", "15", "16", "17", "18", "19", "66", "67", "130", "140"})
    for (const std::int64_t results : {1, 3})
      expect_dots({.results = results, .sizes = {"1", "3", width}});
}

TEST(DotConv, OfEveryCountOfChannels) {
  for (const std::int64_t results : {1, 2, 3, 4})
    for (const std::int64_t channels : {4, 5, 11, 24})
      expect_dots({.channels = channels, .results = results, .strides = {2, 2}});
  for (const std::int64_t results : {5, 6, 7, 8}) expect_dots({.channels = 30, .results = results});
  for (const std::int64_t results : {20, 36})
    expect_dots({.channels = 2,
                 .results = results,
                 .kernel = {1, 256},
                 .strides = {1, 5},
                 .low = {0, 0},
                 .high = {0, 0},
                 .sizes = {"1", "1", "640"}});
}

/// Of many taps along a row x has its padding.
TEST(DotConv, OfManyTaps) {
  for (const bool turned : {false, true})
    expect_dots({.kernel = {3, 39}, .low = {1, 19}, .high = {1, 19}, .turned = turned});
  expect_dots({.channels = 1,
               .kernel = {1, 256},
               .strides = {1, 2},
               .low = {0, 0},
               .high = {0, 0},
               .sizes = {"1", "1", "2000"}});
}

TEST(DotConv, OfEveryRank) {
  expect_dots({.kernel = {9},
               .strides = {2},
               .low = {4},
               .high = {3},
               .dilations = {1},
               .sizes = {"2", "70"}});
  expect_dots({.results = 3,
               .kernel = {2, 3, 3},
               .strides = {1, 2, 1},
               .low = {1, 1, 1},
               .high = {0, 1, 1},
               .dilations = {1, 1, 1},
               .sizes = {"1", "4", "5", "20"}});
}

TEST(DotConv, OfSizesThatAreNotKnown) {
  for (const Ints& sizes : {Ints{1, 1, 1}, Ints{2, 3, 5}, Ints{1, 4, 80}, Ints{1, 2, 131}})
    for (const std::int64_t results : {1, 3})
      expect_dots({.results = results, .sizes = {"s0", "s1", "s2"}}, sizes);
  expect_dots({.kernel = {3, 11},
               .strides = {2, 2},
               .low = {1, 5},
               .high = {1, 5},
               .sizes = {"s0", "s1", "s2"}},
              {2, 9, 30});
}

/// Numbers that are none stay in the windows that read them.
TEST(DotConv, WhatIsNoNumberStaysInItsWindows) {
  for (const std::int64_t channels : {8, 11}) {
    const ir::Graph graph =
        graph_of(Few{.channels = channels, .results = 2, .sizes = {"1", "5", "40"}});
    std::vector<ir::Literal> arguments = random_arguments(graph, {});
    arguments[0].set(channels * (40 * 2 + 20) + 3, std::numeric_limits<double>::quiet_NaN());
    arguments[0].set(channels * 40, std::numeric_limits<double>::infinity());
    expect_program_right(graph, jit::lower(graph, where_library_leaves_these(64)), arguments,
                         as_code(), 1e-5);
  }
}

TEST(DotConv, LeavesWhatFillsVectors) {
  expect_left({.channels = 64, .results = 16});
  expect_left({.channels = 3, .results = 4});
  expect_left({.channels = 8, .results = 8});
  expect_left({.fixed = false});
  expect_left({.channels = 0});
  expect_left({.results = 0});
  expect_left({.channels = 30, .results = 8}, 32);
  expect_left({.channels = 16, .results = 2, .kernel = {1, 1}, .low = {0, 0}, .high = {0, 0}});
}

TEST(DotConv, OfOneElement) {
  for (const bool turned : {false, true})
    expect_dots({.channels = 40,
                 .results = 3,
                 .kernel = {1, 1},
                 .low = {0, 0},
                 .high = {0, 0},
                 .turned = turned});
  expect_dots({.channels = 130,
               .results = 12,
               .kernel = {1, 1},
               .strides = {2, 2},
               .low = {0, 0},
               .high = {0, 0}});
  expect_dots({.channels = 40, .results = 3, .kernel = {1, 1}});
}

/// Channels of x lie apart, or in planes, or its rows are parts of longer ones.
TEST(DotConv, OfViews) {
  for (const bool turned : {false, true})
    for (const std::int64_t step : {1, 2})
      for (const std::int64_t left : {0, 3}) {
        const ir::Graph graph = graph_of(OneConv{.channels = 12,
                                                 .results = 2,
                                                 .sizes = {"2", "5", "30"},
                                                 .turned = turned,
                                                 .step = step,
                                                 .left = left});
        const jit::Program program = jit::lower(graph, where_library_leaves_these(64));
        EXPECT_TRUE(is_dots(program));
        expect_program_right(graph, program, random_arguments(graph, {}), as_code(), 1e-5);
      }
}

/// Rows whose terms do not lie side by side are multiplied as they are.
TEST(DotConv, OfProductsOfViews) {
  const auto expect_product = [](const char* input, const char* view, bool dots) {
    ir::GraphBuilder b("main");
    const ir::Graph left = ir::parse(std::string("graph @left(%x: ") + input +
                                     ") {\n  %v = " + view + "\n  return %v\n}\n");
    ir::Value v = b.input(left.inputs()[0].meta(), "x");
    const ir::Node& node = *left.outputs()[0].node;
    v = b.emit(node.op_name(), {v}, node.attrs());
    const ir::Value w = b.constant(random_literal(f32, {60, 3}, 3));
    b.output(b.emit("matmul", {v, w}));
    const ir::Graph graph = b.finish();
    EXPECT_EQ(is_dots(lowered(graph)), dots) << view;
    expect_code_right(graph, random_arguments(graph, {}));
  };
  expect_product("f32[60, 40]", "permute(%x) {perm = [1, 0]}", false);
  expect_product("f32[40, 120]", "slice(%x) {start = [0, 0], limit = [40, 120], stride = [1, 2]}",
                 false);
  expect_product("f32[40, 1]", "expand(%x) {sizes = [40, 60]}", false);
  expect_product("f32[80, 90]", "slice(%x) {start = [1, 7], limit = [80, 67], stride = [2, 1]}",
                 true);
  expect_product("f32[20, 2, 60]", "permute(%x) {perm = [1, 0, 2]}", true);
}

/// A product by few columns of a parameter is one too.
TEST(DotConv, OfProducts) {
  for (const std::int64_t columns : {2, 3, 4, 7, 8, 11, 15})
    for (const std::vector<const char*>& rows :
         std::vector<std::vector<const char*>>{{"s0"}, {"1"}, {"3", "s0"}}) {
      const std::int64_t terms = columns > 8 ? 150 : 50;
      ir::GraphBuilder b("main");
      ir::Dims sizes;
      for (const char* size : rows) sizes.push_back(base::parse_symexpr(size));
      sizes.emplace_back(terms);
      const ir::Value x = b.input(ir::TensorMeta::of(f32, sizes));
      const ir::Value w = b.constant(random_literal(f32, {terms, columns}, 3));
      b.output(b.emit("relu", {b.emit("matmul", {x, w})}));
      const ir::Graph graph = b.finish();
      EXPECT_TRUE(is_dots(lowered(graph)));
      for (const std::int64_t size : {0, 1, 30, 70})
        expect_code_right(graph, random_arguments(graph, {size}));
    }
}

}  // namespace
}  // namespace heddle::test
