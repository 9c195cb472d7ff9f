// Layers that differ in their scales share kernels, with the same results.
#include "jit/lower/scales_in_memory.h"

#include <gtest/gtest.h>

#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using testing::any_bytes;

/// `layers` products of 64 x 64 bytes behind each other, each quantised by a scale and a zero point of its own.
ir::Graph layers_of_bytes(std::int64_t layers, bool scales_differ = true) {
  GraphBuilder b("main");
  const auto number = [&](double value) { return b.constant(ir::Literal::scalar(f32, value)); };
  Value bytes = b.input(tensor(u8, {"s0", "64"}), "x");
  for (std::int64_t k = 0; k < layers; ++k) {
    const Value w = b.constant(any_bytes(i8, {64, 64}, 3 + static_cast<std::uint32_t>(k)));
    const Value product = b.emit("matmul", {b.emit("convert", {bytes}, {{"dtype", i32}}),
                                            b.emit("convert", {w}, {{"dtype", i32}})});
    const double scale = 0.0001234567 * (scales_differ ? 1 + 0.37 * static_cast<double>(k) : 1);
    const Value real =
        b.emit("mul", {b.emit("convert", {product}, {{"dtype", f32}}), number(scale)});
    const Value shifted =
        b.emit("add", {b.emit("round", {real}), number(100.0 + static_cast<double>(k))});
    bytes =
        b.emit("convert", {b.emit("clamp", {shifted, number(0), number(255)})}, {{"dtype", u8}});
  }
  b.output(bytes);
  return b.finish();
}

TEST(ScalesInMemory, LayersShareAKernel) {
  const ir::Graph graph = layers_of_bytes(6);
  const jit::Program program = lowered(graph);
  EXPECT_EQ(distinct_nests(program, "packed_int8_matmul").size(), 1u);
  expect_program_right(graph, program, {any_bytes(u8, {3, 64}, 3)}, {}, 0);
}

/// `layers` times relu(x) * a + b, with numbers of their own or the same, behind a product or alone.
ir::Graph layers_of_lines(std::int64_t layers, double spread) {
  GraphBuilder b("main");
  Value x = b.input(tensor(f32, {"s0", "64"}), "x");
  for (std::int64_t k = 0; k < layers; ++k) {
    const double share = 1 + spread * static_cast<double>(k);
    const auto number = [&](double value) {
      return b.constant(ir::Literal::scalar(f32, value * share));
    };
    const Value w = b.constant(random_literal(f32, {64, 64}, 3 + static_cast<std::uint32_t>(k)));
    const Value product = b.emit("relu", {b.emit("matmul", {x, w})});
    x = b.emit("add", {b.emit("mul", {product, number(0.0123457)}), number(0.1234567)});
  }
  b.output(x);
  return b.finish();
}

TEST(ScalesInMemory, LearnedNumbersOfAlikeLayersAreNoPartOfTheirKernel) {
  const ir::Graph graph = layers_of_lines(6, 0.37);
  const jit::Program program = lowered(graph);
  EXPECT_EQ(distinct_nests(program).size(), 1u);
  expect_code_right_at(graph, {5});
}

TEST(ScalesInMemory, ALibraryIsGivenNumbers) {
  const ir::Graph graph = layers_of_lines(6, 0.37);
  EXPECT_FALSE(jit::scales_in_memory(graph, {}).identical(graph));
  jit::LowerOptions options;
  options.library_available = [](std::string_view, const ir::Node&) { return true; };
  EXPECT_TRUE(jit::scales_in_memory(graph, options).identical(graph));
}

TEST(ScalesInMemory, LeaveWhatIsNotWorthIt) {
  const auto is_left = [](const ir::Graph& graph, const jit::LowerOptions& options = {}) {
    return jit::scales_in_memory(graph, options).identical(graph);
  };
  const ir::Graph packed = lowered(layers_of_bytes(6)).graph;
  EXPECT_TRUE(is_left(packed)) << "done once";
  EXPECT_TRUE(is_left(layers_of_lines(6, 0))) << "what all layers use";
  EXPECT_TRUE(is_left(layers_of_lines(3, 0.37))) << "few layers";
  EXPECT_TRUE(is_left(lowered(layers_of_bytes(6, false)).graph)) << "what all layers use";
  EXPECT_TRUE(is_left(packed, {.target = jit::LowerOptions::Target::Cuda}));
}

}  // namespace
}  // namespace heddle::test
