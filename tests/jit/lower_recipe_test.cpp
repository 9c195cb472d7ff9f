// Nest groups: recipes with inlined producers and fused epilogues.
#include <array>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using Ints = std::vector<std::int64_t>;

TEST(LowerRecipe, MatmulOfEachShape) {
  struct Case {
    ir::Dims a, b;
  };
  const Case cases[] = {
      {dims({"s0", "7"}), dims({"7", "5"})},
      {dims({"7"}), dims({"7", "5"})},
      {dims({"s0", "7"}), dims({"7"})},
      {dims({"7"}), dims({"7"})},
      {dims({"2", "s0", "7"}), dims({"7", "5"})},
      {dims({"s0", "7"}), dims({"3", "7", "5"})},
      {dims({"2", "1", "s0", "7"}), dims({"3", "7", "5"})},
  };
  for (const Case& shapes : cases) {
    GraphBuilder b("main");
    const Value x = b.input(ir::TensorMeta::of(f32, shapes.a));
    const Value y = b.input(ir::TensorMeta::of(f32, shapes.b));
    b.output(b.emit("matmul", {x, y}));
    expect_right_at(b.finish(), {40}, 1e-4);
  }
}

/// What is turned for a tile serves more rows, where enough tiles are left.
TEST(LowerRecipe, TilesOfTransposedMatricesHaveMoreRows) {
  const auto product = [](std::int64_t rows, std::int64_t columns, bool turns = true) {
    GraphBuilder b("main");
    const Value x = b.input(ir::TensorMeta::of(f32, {3, rows, 5}));
    Value y = b.input(turns ? ir::TensorMeta::of(f32, {3, columns, 5})
                            : ir::TensorMeta::of(f32, {3, 5, columns}));
    if (turns) y = b.emit("permute", {y}, {{"perm", Ints{0, 2, 1}}});
    b.output(b.emit("matmul", {x, y}));
    return b.finish();
  };
  const auto has = [](const ir::Graph& graph, std::string_view tile) {
    return nests_of(lowered(graph)).find(tile) != std::string::npos;
  };
  EXPECT_TRUE(has(product(256, 200), "tile 128x64"));
  EXPECT_TRUE(has(product(130, 200), "tile 64x64"));
  EXPECT_TRUE(has(product(130, 100), "tile 32x64"));
  EXPECT_TRUE(has(product(256, 200, false), "tile 32x64"));
  for (const ir::Graph& graph : {product(256, 200), product(130, 200), product(300, 260)})
    expect_code_right(graph, random_arguments(graph, {}));
}

/// Rows that no cache holds go in blocks that stay in the second-level one, beside panels that do not: of 33 tiles and more of
/// 32 rows, 3 at a time.
TEST(LowerRecipe, ManyRowsByManyPanelsGoInBlocks) {
  const std::int64_t depth = 1024;
  const std::int64_t columns = 136;
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "1024"}));
  b.output(b.emit("matmul", {x, b.constant(random_literal(f32, {depth, columns}, 3))}));
  const ir::Graph graph = b.finish();
  const jit::Program program = jit::lower(graph, {});
  const jit::Nest& nest = *program.kernels[program.record.steps.back().kernel].nest;
  const auto tiles = [&](std::int64_t rows) {
    return nest.parallel_extent.evaluate_sizes(std::array{rows});
  };
  EXPECT_EQ(tiles(1), 3);
  EXPECT_EQ(tiles(32 * 32), 3 * 32);
  EXPECT_EQ(tiles(33 * 32), 3 * 33) << "11 blocks of 3";
  EXPECT_EQ(tiles(34 * 32), 3 * 36) << "12 blocks of 3, of the last of which two are empty";
}

/// Threads that would have unlike numbers of tiles have smaller ones; four or fewer have those that are fastest.
TEST(LowerRecipe, ManyThreadsShareSmallerTiles) {
  const auto graph_of = [](const char* rows, std::int64_t columns) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {rows, "8"}));
    b.output(b.emit("matmul", {x, b.constant(random_literal(f32, {8, columns}, 3))}));
    return b.finish();
  };
  const auto tiles = [](const ir::Graph& graph, int threads, std::int64_t rows) {
    const jit::Program program = jit::lower(graph, {.threads = threads});
    const jit::Nest& nest = *program.kernels[program.record.steps.back().kernel].nest;
    expect_program_right(graph, program, random_arguments(graph, {rows}), {}, 1e-5);
    return nest.parallel_extent.evaluate_sizes(std::array{rows});
  };
  const ir::Graph six = graph_of("128", 384);
  EXPECT_EQ(tiles(six, 1, 128), 24);
  EXPECT_EQ(tiles(six, 4, 128), 24);
  EXPECT_EQ(tiles(six, 16, 128), 48) << "3 tiles of 16 rows each, not 2 of 32 or 1";
  EXPECT_EQ(tiles(six, 24, 128), 24);
  EXPECT_EQ(tiles(graph_of("49", 128), 16, 49), 14) << "of 8 rows";
  const ir::Graph any = graph_of("s0", 128);
  EXPECT_EQ(tiles(any, 4, 49), 4);
  EXPECT_EQ(tiles(any, 5, 49), 8) << "of rows that only calls tell";
}

TEST(LowerRecipe, MlpIsOneKernelALayer) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "12"}));
  const Value w1 = b.input(tensor(f32, {"12", "70"}));
  const Value b1 = b.input(tensor(f32, {"70"}));
  const Value w2 = b.input(tensor(f32, {"70", "12"}));
  const Value b2 = b.input(tensor(f32, {"12"}));
  const Value h = b.emit("gelu", {b.emit("add", {b.emit("matmul", {x, w1}), b1})});
  const Value y = b.emit("add", {b.emit("matmul", {h, w2}), b2});
  b.output(b.emit("add", {y, x}));
  const ir::Graph graph = b.finish();
  EXPECT_THAT(kernels(graph), ::testing::ElementsAre("matmul_add_gelu", "matmul_add_add"));
  expect_right_at(graph, {5}, 1e-4);
  expect_right_at(graph, {37}, 1e-4);
}

TEST(LowerRecipe, OperandsAreReadThroughTheirViews) {
  GraphBuilder b("main");
  const Value q = b.input(tensor(f32, {"s0", "s1", "2", "8"}));
  const Value k = b.input(tensor(f32, {"s0", "s1", "2", "8"}));
  const Value heads = b.emit("permute", {q}, {{"perm", Ints{0, 2, 1, 3}}});
  const Value turned = b.emit("permute", {k}, {{"perm", Ints{0, 2, 3, 1}}});
  b.output(b.emit("mul", {b.emit("matmul", {heads, turned}), b.scalar(f32, 0.25)}));
  const ir::Graph graph = b.finish();
  EXPECT_THAT(kernels(graph), ::testing::ElementsAre("matmul_mul"));
  expect_right_at(graph, {2, 5}, 1e-4);
}

TEST(LowerRecipe, ValuesThatOthersReadAreStoredOnTheWay) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "6"}));
  const Value w = b.input(tensor(f32, {"6", "6"}));
  const Value m = b.emit("matmul", {x, w});
  const Value t = b.emit("tanh", {m});
  b.output(t);
  b.output(b.emit("matmul", {m, w}));
  b.output(b.emit("neg", {t}));
  const ir::Graph graph = b.finish();
  EXPECT_THAT(kernels(graph), ::testing::ElementsAre("matmul_tanh_neg", "matmul"));
  expect_right_at(graph, {4}, 1e-4);
}

TEST(LowerRecipe, ViewsOfWhatItReadsJoinInTheirOwnOrder) {
  for (const Ints& perm : {Ints{}, Ints{1, 0}}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {"s0", "s0"}));
    const Value sum = b.emit("cumsum", {x}, {{"axis", std::int64_t{0}}});
    if (perm.empty())
      for (const std::int64_t axis : {0, 1})
        b.output(b.emit("reverse", {x}, {{"axes", Ints{axis}}}));
    else
      b.output(b.emit("permute", {b.emit("neg", {x})}, {{"perm", perm}}));
    b.output(sum);
    b.output(b.emit("lt", {sum, x}));
    const ir::Graph graph = b.finish();
    EXPECT_THAT(kernels(graph), ::testing::ElementsAre(::testing::HasSubstr("cumsum")))
        << perm.size();
    expect_right_at(graph, {5});
    expect_right_at(graph, {0});
  }
}

TEST(LowerRecipe, TransformerLayer) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "s1", "16"}));
  const auto weight = [&](std::initializer_list<const char*> sizes) {
    return b.input(tensor(f32, sizes));
  };
  const auto linear = [&](Value v, Value w, Value bias) {
    return b.emit("add", {b.emit("matmul", {v, w}), bias});
  };
  const auto split = [&](Value v) {
    const Value r = b.emit("reshape", {v}, {{"sizes", dims({"s0", "s1", "2", "8"})}});
    return b.emit("permute", {r}, {{"perm", Ints{0, 2, 1, 3}}});
  };
  const Value q = split(linear(x, weight({"16", "16"}), weight({"16"})));
  const Value k = split(linear(x, weight({"16", "16"}), weight({"16"})));
  const Value v = split(linear(x, weight({"16", "16"}), weight({"16"})));
  const Value kt = b.emit("permute", {k}, {{"perm", Ints{0, 1, 3, 2}}});
  const Value scores = b.emit("mul", {b.emit("matmul", {q, kt}), b.scalar(f32, 0.35)});
  const Value mixed = b.emit("matmul", {b.emit("softmax", {scores}), v});
  const Value joined = b.emit("reshape", {b.emit("permute", {mixed}, {{"perm", Ints{0, 2, 1, 3}}})},
                              {{"sizes", dims({"s0", "s1", "16"})}});
  const Value first = b.emit("add", {linear(joined, weight({"16", "16"}), weight({"16"})), x});
  const Value normed = b.emit("layer_norm", {first, weight({"16"}), weight({"16"})});
  const Value hidden = b.emit("gelu", {linear(normed, weight({"16", "32"}), weight({"32"}))});
  const Value second =
      b.emit("add", {linear(hidden, weight({"32", "16"}), weight({"16"})), normed});
  b.output(b.emit("layer_norm", {second, weight({"16"}), weight({"16"})}));
  const ir::Graph graph = b.finish();
  // Three projections, scores, softmax, mix, join and project, norm, two of the MLP, norm.
  EXPECT_EQ(kernels(graph).size(), 11u) << ::testing::PrintToString(kernels(graph));
  expect_right_at(graph, {2, 5}, 1e-3);
  expect_right_at(graph, {1, 1}, 1e-3);
}

}  // namespace
}  // namespace heddle::test
