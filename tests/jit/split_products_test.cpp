// Products that are read in equal parts: the gates of recurrent cells and of feed-forward layers.
#include <gmock/gmock.h>

#include "jit/lower/pack_weights.h"
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using ::testing::Contains;
using ::testing::Not;

Value constant_matrix(GraphBuilder& b, std::int64_t rows, std::int64_t columns) {
  return b.constant(noise(f32, {rows, columns}, 7));
}

Value columns_of(GraphBuilder& b, Value x, std::int64_t begin, std::int64_t end) {
  const std::size_t rank = x.meta().sizes.size();
  ir::Dims start(rank, 0);
  ir::Dims limit = x.meta().sizes;
  start.back() = begin;
  limit.back() = end;
  return b.emit("slice", {x}, {{"start", start}, {"limit", limit}, {"stride", ir::Dims(rank, 1)}});
}

/// Part `k` of `parts` of the columns.
Value part(GraphBuilder& b, Value x, std::int64_t k, std::int64_t parts) {
  const std::int64_t columns = x.meta().sizes.back().constant() / parts;
  return columns_of(b, x, k * columns, (k + 1) * columns);
}

/// silu(x w0) * (x w1), with w = [w0 w1] and a bias.
ir::Graph gated(const char* rows, std::int64_t inner) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {rows, "70"}));
  const Value bias = b.constant(noise(f32, {2 * inner}, 8));
  const Value y = b.emit("add", {b.emit("matmul", {x, constant_matrix(b, 70, 2 * inner)}), bias});
  const Value gate = part(b, y, 0, 2);
  b.output(b.emit("mul", {b.emit("mul", {gate, b.emit("sigmoid", {gate})}), part(b, y, 1, 2)}));
  return b.finish();
}

TEST(SplitProducts, GatesAreOneKernel) {
  for (const char* rows : {"1", "s0"}) {
    const ir::Graph graph = gated(rows, 96);
    const std::vector<std::string> names = kernels(graph);
    EXPECT_EQ(names.size(), 2u);  // one makes the panels
    EXPECT_THAT(names.back(), ::testing::StartsWith("packed_split_matmul_"));
    expect_code_right_at(graph, {5}, 1e-4);
    expect_program_right(graph, lowered(graph), random_arguments(graph, {37}), as_code(), 1e-4);
  }
}

TEST(SplitProducts, OfThreeAndFourParts) {
  for (const std::int64_t parts : {3, 4}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {"2", "s0", "70"}));
    const Value other = b.input(tensor(f32, {"2", "s0", std::to_string(parts * 48).c_str()}));
    const Value column = b.input(tensor(f32, {"s0", "1"}));
    const Value product = b.emit("matmul", {x, constant_matrix(b, 70, parts * 48)});
    const Value y = b.emit("mul", {b.emit("add", {other, product}), column});
    Value sum = b.emit("tanh", {part(b, y, 0, parts)});
    for (std::int64_t k = 1; k < parts; ++k)
      sum = b.emit("sub", {sum, b.emit("mul", {part(b, y, k, parts), sum})});
    b.output(sum);
    const ir::Graph graph = b.finish();
    EXPECT_EQ(kernels(graph).size(), 2u);
    expect_code_right_at(graph, {5}, 1e-4);
  }
}

/// Steps of a cell with four gates, whose weights are an operand of the loop.
ir::Graph lstm(std::int64_t hidden) {
  const std::string h = std::to_string(hidden);
  const std::string all = std::to_string(4 * hidden);
  GraphBuilder b("step");
  const Value state = b.input(tensor(f32, {"1", h.c_str()}));
  const Value slice = b.input(tensor(f32, {"1", all.c_str()}));
  const Value weights = b.input(tensor(f32, {h.c_str(), all.c_str()}));
  const Value gates = b.emit("add", {slice, b.emit("matmul", {state, weights})});
  const Value in = b.emit("sigmoid", {part(b, gates, 0, 4)});
  const Value out = b.emit("sigmoid", {part(b, gates, 1, 4)});
  const Value keep = b.emit("sigmoid", {part(b, gates, 2, 4)});
  const Value fresh = b.emit("tanh", {part(b, gates, 3, 4)});
  const Value cell = b.emit("add", {b.emit("mul", {keep, state}), b.emit("mul", {in, fresh})});
  const Value next = b.emit("mul", {out, b.emit("tanh", {cell})});
  b.output(next);
  b.output(b.emit("clone", {next}));
  GraphBuilder around("main");
  const Value start = around.input(tensor(f32, {"1", h.c_str()}));
  const Value slices = around.input(tensor(f32, {"s0", "1", all.c_str()}));
  const Value w = constant_matrix(around, hidden, 4 * hidden);
  const ir::Node* scan = emit_scan(around, {start, slices, w}, b.finish());
  for (std::uint32_t k = 0; k < 2; ++k) around.output(scan->value(k));
  return around.finish();
}

TEST(SplitProducts, CellsOfLoopsAreOneKernel) {
  const ir::Graph graph = lstm(48);
  const jit::Program program = lowered(graph);
  ASSERT_EQ(program.kernels.size(), 2u);
  const jit::Program& body = *program.kernels[1].nested->regions[0].program;
  ASSERT_EQ(body.kernels.size(), 1u);
  EXPECT_THAT(body.record.kernels[0].name, ::testing::StartsWith("packed_split_matmul_"));
}

std::vector<std::string> packed_ops(const ir::Graph& graph) {
  return testing::ops_of(jit::pack_weights(graph, {}));
}

TEST(SplitProducts, NotWhereTheyAreReadInAnyOtherWay) {
  EXPECT_THAT(packed_ops(gated("1", 96)), Contains("packed_split_matmul"));
  EXPECT_THAT(packed_ops(gated("1", 88)),
              Not(Contains("packed_split_matmul")));  // no whole vectors
  const auto two = [](auto&& combine) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {"1", "70"}));
    const Value y = b.emit("matmul", {x, constant_matrix(b, 70, 128)});
    combine(b, y);
    return packed_ops(b.finish());
  };
  // Parts that nothing combines.
  EXPECT_THAT(two([](GraphBuilder& b, Value y) {
                for (int k = 0; k < 2; ++k) b.output(b.emit("tanh", {part(b, y, k, 2)}));
              }),
              Not(Contains("packed_split_matmul")));
  // Parts that are not all.
  EXPECT_THAT(two([](GraphBuilder& b, Value y) {
                b.output(b.emit("add", {part(b, y, 0, 4), part(b, y, 2, 4)}));
              }),
              Not(Contains("packed_split_matmul")));
  // Of other sizes.
  EXPECT_THAT(two([](GraphBuilder& b, Value y) {
                b.output(b.emit("add", {columns_of(b, y, 32, 64), columns_of(b, y, 16, 48)}));
              }),
              Not(Contains("packed_split_matmul")));
  // Between them and the product elements move.
  EXPECT_THAT(two([](GraphBuilder& b, Value y) {
                const Value order = b.constant(testing::ints(i64, {1}, {0}));
                const Value rows = b.emit("gather", {y, order}, {{"axis", std::int64_t{0}}});
                b.output(b.emit("mul", {part(b, rows, 0, 2), part(b, rows, 1, 2)}));
              }),
              Not(Contains("packed_split_matmul")));
  EXPECT_THAT(two([](GraphBuilder& b, Value y) {
                const Value turned = b.emit("pad", {columns_of(b, y, 1, 128), b.scalar(f32, 0)},
                                            {{"low", ir::Dims{0, 0}}, {"high", ir::Dims{0, 1}}});
                b.output(b.emit("mul", {part(b, turned, 0, 2), part(b, turned, 1, 2)}));
              }),
              Not(Contains("packed_split_matmul")));
  EXPECT_THAT(two([](GraphBuilder& b, Value y) {
                const Value rolled = b.emit("pad", {y, b.scalar(f32, 0)},
                                            {{"low", ir::Dims{0, 1}}, {"high", ir::Dims{0, -1}}});
                b.output(b.emit("mul", {part(b, rolled, 0, 2), part(b, rolled, 1, 2)}));
              }),
              Not(Contains("packed_split_matmul")));
  // The whole is a result too.
  EXPECT_THAT(two([](GraphBuilder& b, Value y) {
                b.output(b.emit("add", {part(b, y, 0, 2), part(b, y, 1, 2)}));
                b.output(y);
              }),
              Not(Contains("packed_split_matmul")));
}

}  // namespace
}  // namespace heddle::test
