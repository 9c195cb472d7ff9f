// Pointwise groups and views.
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <set>

#include "heddle/error.h"
#include "ir/text.h"
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using Ints = std::vector<std::int64_t>;

TEST(LowerPointwise, ChainIsOneKernel) {
  GraphBuilder b("main");
  Value x = b.input(tensor(f32, {"s0", "128"}));
  const Value bias = b.input(tensor(f32, {"128"}));
  for (int k = 0; k < 5; ++k) {
    x = b.emit("add", {x, bias});
    x = b.emit("tanh", {x});
    x = b.emit("mul", {x, b.scalar(f32, 1.5)});
    x = b.emit("relu", {x});
  }
  b.output(x);
  const ir::Graph graph = b.finish();
  EXPECT_EQ(kernels(graph).size(), 1u);
  expect_right_at(graph, {3});
  expect_right_at(graph, {0});
}

TEST(LowerPointwise, FlatAccessIsOneLoop) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "s1", "7"}));
  const Value y = b.input(tensor(f32, {"s0", "s1", "7"}));
  b.output(b.emit("add", {x, y}));
  const ir::Graph graph = b.finish();
  const jit::Program program = lowered(graph);
  ASSERT_EQ(program.kernels.size(), 1u);
  const jit::Nest& nest = *program.kernels[0].nest;
  ASSERT_EQ(nest.body.size(), 1u) << jit::print(nest);
  EXPECT_EQ(std::get<jit::ForStmt>(nest.body[0].node).kind, jit::ForStmt::Kind::Vector);
  expect_right_at(graph, {2, 5});
  expect_right_at(graph, {1, 1});
}

TEST(LowerPointwise, BroadcastKeepsRows) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "s1"}));
  const Value row = b.input(tensor(f32, {"s1"}));
  const Value column = b.input(tensor(f32, {"s0", "1"}));
  b.output(b.emit("mul", {b.emit("add", {x, row}), column}));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(kernels(graph).size(), 1u);
  expect_right_at(graph, {5, 3});
  expect_right_at(graph, {300, 70});
  expect_right_at(graph, {2, 20000});
}

TEST(LowerPointwise, ShortRowsAreWalkedFlat) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "3"}));
  const Value row = b.input(tensor(f32, {"3"}));
  b.output(b.emit("add", {x, row}));
  expect_right_at(b.finish(), {20});
}

TEST(LowerPointwise, SiblingsShareAKernel) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "16"}));
  b.output(b.emit("exp", {x}));
  b.output(b.emit("neg", {x}));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(kernels(graph).size(), 1u);
  expect_right_at(graph, {4});
}

TEST(LowerPointwise, ValueUsedTwiceIsStoredInTheSamePass) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "16"}));
  const Value e = b.emit("exp", {x});
  b.output(e);
  b.output(b.emit("add", {e, x}));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(kernels(graph).size(), 1u);
  expect_right_at(graph, {4});
}

TEST(LowerPointwise, ViewsAreNoKernels) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "8", "6"}));
  const Value e = b.emit("exp", {x});
  const Value p = b.emit("permute", {e}, {{"perm", Ints{0, 2, 1}}});
  const Value s = b.emit("slice", {p},
                         {{"start", Ints{0, 1, 0}},
                          {"limit", ir::Dims{base::SymExpr::size(0), 5, 8}},
                          {"stride", Ints{1, 2, 1}}});
  const Value r = b.emit("reshape", {s}, {{"sizes", dims({"s0", "16"})}});
  const Value v = b.emit("reverse", {r}, {{"axes", Ints{1}}});
  b.output(b.emit("add", {v, b.scalar(f32, 1)}));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(kernels(graph).size(), 1u);
  expect_right_at(graph, {3});
}

TEST(LowerPointwise, TransposesGoThroughTiles) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "s1", "s2"}));
  const Value y = b.input(tensor(f32, {"s2", "s1"}));
  const Value p = b.emit("permute", {x}, {{"perm", Ints{0, 2, 1}}});
  b.output(b.emit("add", {b.emit("exp", {p}), y}));
  b.output(b.emit("permute", {x}, {{"perm", Ints{2, 0, 1}}}));
  const ir::Graph graph = b.finish();
  EXPECT_NE(nests_of(lowered(graph)).find("local l0: f32[1024]"), std::string::npos);
  expect_right_at(graph, {2, 3, 5});
  expect_right_at(graph, {2, 40, 70});
}

TEST(LowerPointwise, WhatIsOnlyMovedNeedsNoTile) {
  for (const DType dtype : {f32, u8}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(dtype, {"s0", "s1", "s2"}));
    b.output(b.emit("permute", {x}, {{"perm", Ints{0, 2, 1}}}));
    const ir::Graph graph = b.finish();
    EXPECT_EQ(nests_of(lowered(graph)).find("local"), std::string::npos);
    expect_right_at(graph, {2, 3, 5});
    expect_right_at(graph, {3, 33, 70});
  }
}

/// Fewer columns than a tile has are turned too, in registers, and threads share the rows.
TEST(LowerPointwise, FewColumnsAreTurned) {
  for (const std::int64_t columns : {9, 12, 16, 24, 31}) {
    for (const DType dtype : {f32, f16, u8}) {
      GraphBuilder b("main");
      const Value x = b.input(tensor(dtype, {"s0", std::to_string(columns).c_str()}));
      b.output(b.emit("permute", {x}, {{"perm", Ints{1, 0}}}));
      const ir::Graph graph = b.finish();
      const jit::Program program = lowered(graph);
      const jit::Nest& nest = *program.kernels.at(0).nest;
      const base::SymExpr parts = nest.parallel_extent.substitute(
          {{base::Symbol{base::Symbol::Kind::Size, 0}, base::SymExpr(2000)}});
      EXPECT_EQ(parts.as_constant(), 4) << parts.to_string();
      // serial tile { serial lane { vector along { load; store } } }, contiguous along what the vector reads.
      const jit::Block* body = &nest.body;
      const jit::ForStmt* loop = nullptr;
      for (int depth = 0; depth < 3; ++depth) {
        ASSERT_EQ(body->size(), 1u);
        loop = &std::get<jit::ForStmt>(body->front().node);
        body = loop->body.get();
      }
      EXPECT_EQ(loop->kind, jit::ForStmt::Kind::Vector);
      const auto along = std::get<jit::LoadStmt>(body->front().node).index.linear_in(loop->axis);
      ASSERT_TRUE(along);
      EXPECT_TRUE(along->coefficient.is_constant(1));
      for (const std::int64_t rows : {1, 15, 33, 600}) expect_code_right_at(graph, {rows});
    }
  }
}

TEST(LowerPointwise, FewTurnedColumnsMeetOthers) {
  for (const char* columns : {"9", "16", "20"}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {"2", "s0", columns}));
    const Value y = b.input(tensor(f32, {columns, "s0"}));
    const Value turned = b.emit("permute", {x}, {{"perm", Ints{0, 2, 1}}});
    b.output(b.emit("relu", {b.emit("add", {turned, y})}));
    const ir::Graph graph = b.finish();
    EXPECT_NE(nests_of(lowered(graph)).find("local l0: f32[1024]"), std::string::npos);
    for (const std::int64_t rows : {1, 17, 530}) expect_code_right_at(graph, {rows});
  }
}

/// What a transposed convolution makes, the channels last, as planes: [h, w, 2, 2, c] to [c, 2 * h, 2 * w].
ir::Graph pixels_side_by_side(std::int64_t width, std::int64_t channels, std::int64_t step,
                              DType dtype, int more = 0) {
  GraphBuilder b("main");
  const Value x = b.input(ir::TensorMeta::of(dtype, {3, width, step, step, channels}));
  const Value bias = b.input(ir::TensorMeta::of(dtype, {channels, 1, 1}));
  const Value turned = b.emit("permute", {x}, {{"perm", Ints{4, 0, 2, 1, 3}}});
  const Value planes =
      b.emit("reshape", {turned}, {{"sizes", ir::Dims{channels, 3 * step, width * step}}});
  Value sum = b.emit("add", {planes, bias});
  for (int k = 0; k < more; ++k) sum = b.emit(k % 2 == 0 ? "max" : "mul", {sum, bias});
  b.output(sum);
  return b.finish();
}

/// Of many statements the columns are not all written out, and rows of two elements would be all that lanes have.
TEST(LowerPointwise, PixelsOfLongBodiesStayInWholeRows) {
  const auto axes = [](int more) {
    const std::string nest = nests_of(lowered(pixels_side_by_side(56, 32, 2, f32, more)));
    return std::pair(nest.find("< 112 {") != std::string::npos, nest);
  };
  EXPECT_FALSE(axes(0).first) << axes(0).second;
  EXPECT_TRUE(axes(100).first) << axes(100).second;
  expect_code_right_at(pixels_side_by_side(20, 8, 2, f32, 100), {});
}

TEST(LowerPointwise, PixelsArePutSideBySideInWholeRows) {
  const ir::Graph graph = pixels_side_by_side(56, 32, 2, f32);
  const std::string nest = nests_of(lowered(graph));
  EXPECT_NE(nest.find("local l1: f32[1024]"), std::string::npos) << nest;
  EXPECT_EQ(std::get<jit::ForStmt>(lowered(graph).kernels[0].nest->body.back().node).kind,
            jit::ForStmt::Kind::Serial);
  for (const std::int64_t step : {2, 3, 9})
    for (const std::int64_t width : {7, 8, 33})
      for (const std::int64_t channels : {1, 20})
        expect_code_right_at(pixels_side_by_side(width, channels, step, f32), {});
  for (const DType dtype : {f16, i64})
    expect_code_right_at(pixels_side_by_side(20, 16, 2, dtype), {});
}

/// The planes of images, put last, and a number added to each: lanes run along each plane, which needs no division.
ir::Graph planes_last(const char* images, const char* planes) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {images, planes, "s0", "s1"}));
  const Value bias = b.input(tensor(f32, {planes}));
  const Value last = b.emit("permute", {x}, {{"perm", Ints{0, 2, 3, 1}}});
  b.output(b.emit("add", {last, bias}));
  return b.finish();
}

TEST(LowerPointwise, PlanesAreInterleavedAlongThem) {
  for (const auto& [planes, store] : {std::pair{"3", "+2] ="}, {"11", "i1+11*i2"}}) {
    for (const char* images : {"1", "2"}) {
      const ir::Graph graph = planes_last(images, planes);
      const std::string nest = nests_of(lowered(graph));
      EXPECT_EQ(nest.find("/" + std::string(planes)), std::string::npos) << nest;
      EXPECT_NE(nest.find(store), std::string::npos) << nest;
      for (const auto& [height, width] : {std::pair{1, 1}, {7, 5}, {40, 33}, {41, 53}})
        expect_right_at(graph, {height, width});
    }
  }
}

TEST(LowerPointwise, ReshapeOfAResultIsItsMemory) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "8"}));
  const Value e = b.emit("exp", {x});
  b.output(b.emit("reshape", {e}, {{"sizes", dims({"8*s0"})}}));
  const ir::Graph graph = b.finish();
  EXPECT_THAT(kernels(graph), ::testing::ElementsAre("exp"));
  expect_right_at(graph, {3});
}

TEST(LowerPointwise, ExpensiveValuesAreNotRecomputedForABroadcast) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "64"}));
  const Value w = b.input(tensor(f32, {"64"}));
  b.output(b.emit("mul", {x, b.emit("exp", {w})}));
  const ir::Graph graph = b.finish();
  EXPECT_THAT(kernels(graph), ::testing::ElementsAre("exp", "mul"));
  expect_right_at(graph, {3});
}

TEST(LowerPointwise, CheapValuesAreInlinedIntoABroadcast) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "64"}));
  const Value w = b.input(tensor(f32, {"64"}));
  b.output(b.emit("mul", {x, b.emit("neg", {w})}));
  const ir::Graph graph = b.finish();
  EXPECT_THAT(kernels(graph), ::testing::ElementsAre("mul"));
  expect_right_at(graph, {3});
}

/// Rows that lie across memory are brought side by side before they are looked up, where that is often enough.
TEST(LowerPointwise, WhatIsLookedUpLiesSideBySide) {
  const auto is_turned = [](std::int64_t width, std::int64_t count) {
    GraphBuilder b("main");
    const Value x = b.input(ir::TensorMeta::of(f32, {width, 80}));
    const Value ids = b.input(ir::TensorMeta::of(i64, {count}));
    b.output(b.emit("gather", {b.emit("permute", {x}, {{"perm", Ints{1, 0}}}), ids}));
    const ir::Graph graph = b.finish();
    expect_fast_code_right(graph, {noise(f32, {width, 80}), drawn_places({count}, -80, 79)});
    return kernels(graph) == std::vector<std::string>{"permute", "gather"};
  };
  EXPECT_TRUE(is_turned(30, 20));
  EXPECT_FALSE(is_turned(30, 19));
  EXPECT_FALSE(is_turned(7, 200));
}

TEST(LowerPointwise, GatherChecksItsIndices) {
  GraphBuilder b("main");
  const Value table = b.input(tensor(f32, {"s0", "4"}));
  const Value ids = b.input(tensor(i64, {"s1"}));
  b.output(b.emit("gather", {table, ids}));
  const ir::Graph graph = b.finish();
  const std::vector<ir::Literal> good{random_literal(f32, {5, 4}, 1),
                                      ir::Literal::of_ints(i64, {3}, Ints{4, 0, -1})};
  expect_right(graph, good);
  const std::vector<ir::Literal> bad{good[0], ir::Literal::of_ints(i64, {3}, Ints{4, 5, -1})};
  const jit::Program program = lowered(graph);
  EXPECT_THROW(run_program(graph, program, bad), IndexError);
}

TEST(LowerPointwise, StridedInputsAreReadThroughTheirStrides) {
  GraphBuilder b("main");
  ir::TensorMeta meta = tensor(f32, {"4", "6"});
  meta.strides = dims({"1", "4"});
  const Value x = b.input(meta);
  b.output(b.emit("add", {x, b.scalar(f32, 1)}));
  b.output(x);
  const ir::Literal base = random_literal(f32, {6, 4}, 3);
  expect_right(b.finish(), {base.view({4, 6}, {1, 4}, 0)});
}

TEST(LowerPointwise, OutputsThatAreInputsOrRepeatedAreCopied) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0"}));
  const Value e = b.emit("exp", {x});
  b.output(x);
  b.output(e);
  b.output(e);
  const ir::Graph graph = b.finish();
  EXPECT_THAT(kernels(graph), ::testing::ElementsAre("exp", "copy", "copy"));
  expect_right_at(graph, {7});
}

TEST(LowerPointwise, WriteBacksComeLast) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0"}));
  const Value e = b.emit("exp", {x});
  b.output(b.emit("add", {e, x}));
  b.write_back(x, e);
  const ir::Graph graph = b.finish();
  expect_right_at(graph, {7});
}

TEST(LowerPointwise, WriteBacksMaySwap) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0"}));
  const Value y = b.input(tensor(f32, {"s0"}));
  b.output(b.emit("add", {x, y}));
  b.write_back(x, y);
  b.write_back(y, x);
  expect_right_at(b.finish(), {7});
}

TEST(LowerPointwise, IdenticalLayersShareANest) {
  GraphBuilder b("main");
  Value x = b.input(tensor(f32, {"s0", "16"}));
  for (int k = 0; k < 3; ++k) {
    x = b.emit("tanh", {x});
    // The transposed read needs the value in memory, which ends the kernel.
    const Value t = b.emit("permute", {x}, {{"perm", Ints{1, 0}}});
    x = b.emit("add", {x, b.emit("reshape", {t}, {{"sizes", dims({"s0", "16"})}})});
  }
  b.output(x);
  const ir::Graph graph = b.finish();
  const jit::Program program = lowered(graph);
  ASSERT_EQ(program.kernels.size(), 4u) << nests_of(program);
  EXPECT_EQ(program.kernels[1].nest, program.kernels[2].nest);
  expect_right_at(graph, {16});
  expect_right_at(graph, {3});
}

TEST(LowerPointwise, WeakEdgesOrderAndSeparateKernels) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0"}));
  const Value first = b.emit("exp", {x});
  b.context.after = {first};
  const Value second = b.emit("neg", {x});
  b.context.after.clear();
  b.output(second);
  b.output(first);
  const ir::Graph graph = b.finish();
  const jit::Program program = lowered(graph);
  ASSERT_EQ(program.record.steps.size(), 2u);
  ASSERT_EQ(program.record.steps[1].edges.size(), 1u);
  EXPECT_TRUE(program.record.steps[1].edges[0].weak);
  expect_right_at(graph, {5});
}

TEST(LowerPointwise, ScalarsAndOneElementTensors) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {}));
  const Value y = b.input(tensor(f32, {"1", "1"}));
  b.output(b.emit("add", {x, y}));
  b.output(b.emit("exp", {x}));
  expect_right_at(b.finish(), {});
}

TEST(LowerPointwise, MixedDTypes) {
  for (const DType dtype : kArithmeticDTypes) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(dtype, {"s0", "9"}));
    const Value y = b.input(tensor(f32, {"9"}));
    b.output(b.emit("mul", {x, y}));
    b.output(b.emit("convert", {x}, {{"dtype", i32}}));
    expect_right_at(b.finish(), {3});
  }
}

TEST(LowerPointwise, ResultsMayTakeTheirOperandsBytes) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "16"}));
  const Value y = b.input(tensor(f32, {"16"}));
  b.output(b.emit("add", {x, y}));
  const jit::Program program = lowered(b.finish());
  ASSERT_EQ(program.record.steps.size(), 1u);
  const ir::PlanStep& step = program.record.steps[0];
  ASSERT_EQ(step.may_reuse.size(), 1u);
  EXPECT_EQ(program.record.buffers[step.reads[step.may_reuse[0].first]].position, 0u);
}

TEST(LowerPointwise, WhatFusesDoesNotDependOnAddresses) {
  // The order edge keeps `c` out of the kernel of `a`: `b` can share one with either of them, and
  // which it is must not be told by where the inputs happen to lie.
  const auto make = [] {
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {"s0"}));
    const Value y = b.input(tensor(f32, {"s0"}));
    const Value a = b.emit("exp", {x});
    const Value both = b.emit("add", {x, y});
    const Value sums = b.emit("cumsum", {a}, {{"axis", std::int64_t{0}}});
    b.context.after = {sums};
    const Value c = b.emit("neg", {y});
    b.context.after.clear();
    for (const Value value : {a, both, sums, c}) b.output(value);
    return b.finish();
  };
  std::vector<ir::Graph> kept;
  std::mt19937 random(7);
  bool ascending = false, descending = false;
  std::set<std::vector<std::string>> found;
  for (int k = 0; k < 2000 && !(ascending && descending); ++k) {
    kept.push_back(make());
    const auto inputs = kept.back().inputs();
    (std::less<>{}(inputs[0], inputs[1]) ? ascending : descending) = true;
    found.insert(kernels(kept.back()));
    // Holes for the next graphs, in no order.
    if (kept.size() > 8)
      kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(random() % kept.size()));
  }
  EXPECT_TRUE(ascending && descending);
  EXPECT_EQ(found.size(), 1u);
  expect_right_at(kept.back(), {5});
}

/// Slices picked by data and read across their rows: no tile can be filled before it is known which slice it is of.
TEST(LowerPointwise, ReadsAcrossWhatDataPicks) {
  const ir::Graph graph = ir::parse(
      "graph @main(%x: f64[3, s0, s1], %i: i16[6, 1]) {\n"
      "  %t = permute(%x) {perm = [0, 2, 1]}\n"
      "  %y = gather_nd(%t, %i)\n"
      "  return %y\n}\n");
  for (const Ints& sizes : {Ints{2, 3}, Ints{40, 70}}) {
    std::vector<ir::Literal> arguments = random_arguments(graph, sizes);
    const Ints places = {0, 2, -1, 1, 1, -3};
    arguments[1] = ir::Literal::of_ints(i16, {6, 1}, places);
    expect_right(graph, arguments);
  }
}

/// Positions and weights of columns are computed before the rows, where a table is cheaper than computing them again.
TEST(LowerPointwise, WhatRowsComputeAlikeIsComputedOnce) {
  const auto resized = [](const char* mode, std::initializer_list<const char*> from,
                          std::vector<std::int64_t> to) {
    GraphBuilder b("main");
    ir::Dims sizes(to.begin(), to.end());
    b.output(b.emit("resize", {b.input(tensor(f32, from))},
                    {{"sizes", sizes}, {"mode", std::string(mode)}}));
    return b.finish();
  };
  const auto tables = [](const ir::Graph& graph) {
    const jit::Program program = lowered(graph);
    return program.kernels.at(0).nest->buffers.size() - program.kernels.at(0).nest->global_count();
  };
  const ir::Graph linear = resized("linear", {"3", "8", "20"}, {3, 13, 30});
  // Two places and two weights.
  EXPECT_EQ(tables(linear), 4u) << nests_of(lowered(linear));
  expect_right_at(linear, {});
  const ir::Graph cubic = resized("cubic", {"3", "8", "20"}, {3, 13, 30});
  EXPECT_EQ(tables(cubic), 8u) << nests_of(lowered(cubic));
  expect_right_at(cubic, {});
  // Rows of pixels of a few channels are such rows too.
  const ir::Graph pixels = resized("linear", {"8", "20", "3"}, {13, 30, 3});
  EXPECT_EQ(tables(pixels), 4u) << nests_of(lowered(pixels));
  expect_right_at(pixels, {});
  // Tables of a row that wide would not stay near in the caches.
  EXPECT_EQ(tables(resized("linear", {"3", "8", "2000"}, {3, 13, 3000})), 0u);
  EXPECT_EQ(tables(resized("nearest", {"3", "8", "20"}, {3, 16, 40})), 0u);
}

/// Rows of several values that are interleaved and turned, as phases of a transposed convolution, are put together first; what is
/// only turned is read where it is.
TEST(LowerPointwise, InterleavedRowsArePutTogetherBeforeTheyAreTurned) {
  const auto turned = [](std::string_view sizes) {
    return ir::parse(
        "graph @main(%a: f32[6, 1, 32], %b: f32[6, 1, 32]) {\n"
        "  %c = concat(%a, %b) {axis = 1}\n"
        "  %r = reshape(%c) {sizes = " +
        std::string(sizes) +
        "}\n"
        "  %p = permute(%r) {perm = [1, 0]}\n"
        "  return %p\n"
        "}\n");
  };
  const ir::Graph graph = turned("[12, 32]");
  EXPECT_THAT(kernels(graph), ::testing::ElementsAre("concat", "permute"));
  expect_code_right(graph, random_arguments(graph, {}), 0);
  EXPECT_EQ(kernels(turned("[6, 64]")).size(), 1u);
  EXPECT_EQ(kernels(turned("[24, 16]")).size(), 1u);
}

/// A scale that does not fit the sizes reads the last element again and again.
TEST(LowerPointwise, NearestOfAScaleBesideOtherSizesStaysInside) {
  GraphBuilder b("main");
  b.output(b.emit("resize", {b.input(tensor(f32, {"2", "5"}))},
                  {{"sizes", ir::Dims{2, 17}}, {"scales", std::vector<double>{1, 2}}}));
  expect_right_at(b.finish(), {});
}

}  // namespace
}  // namespace heddle::test
