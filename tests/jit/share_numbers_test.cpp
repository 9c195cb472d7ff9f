// Layers that differ in numbers share a kernel, with the same results.
#include "jit/lower/share_numbers.h"

#include <gtest/gtest.h>

#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using testing::any_bytes;

Value number(GraphBuilder& b, double value) { return b.constant(ir::Literal::scalar(f32, value)); }

/// round(x / scale) + zero as a byte.
Value quantised(GraphBuilder& b, Value x, double scale, double zero, DType dtype = u8) {
  const double least = dtype == u8 ? 0 : -128;
  const Value ratio = b.emit("round", {b.emit("div", {x, number(b, scale)})});
  const Value shifted = b.emit("add", {ratio, number(b, zero)});
  const Value bounded = b.emit("clamp", {shifted, number(b, least), number(b, least + 255)});
  return b.emit("convert", {bounded}, {{"dtype", dtype}});
}

/// `layers` products of 64 x 64 bytes behind each other, each quantised by a scale and a zero point of its own.
ir::Graph layers_of_bytes(std::int64_t layers) {
  GraphBuilder b("main");
  Value bytes = b.input(tensor(u8, {"s0", "64"}), "x");
  for (std::int64_t k = 0; k < layers; ++k) {
    const Value w = b.constant(any_bytes(i8, {64, 64}, 3 + static_cast<std::uint32_t>(k)));
    const Value product = b.emit("matmul", {b.emit("convert", {bytes}, {{"dtype", i32}}),
                                            b.emit("convert", {w}, {{"dtype", i32}})});
    const double scale = 0.0001234567 * (1 + 0.37 * static_cast<double>(k));
    const Value real =
        b.emit("mul", {b.emit("convert", {product}, {{"dtype", f32}}), number(b, scale)});
    bytes = quantised(b, real, 1, 100.0 + static_cast<double>(k));
  }
  b.output(bytes);
  return b.finish();
}

TEST(ShareNumbers, LayersShareAKernel) {
  const ir::Graph graph = layers_of_bytes(6);
  const jit::Program program = lowered(graph);
  EXPECT_EQ(distinct_nests(program, "packed_int8_matmul").size(), 1u);
  expect_program_right(graph, program, {any_bytes(u8, {3, 64}, 3)}, {}, 0);
  expect_program_right(graph, program, {any_bytes(u8, {3, 64}, 3)}, as_code(), 0);
}

/// x times a matrix of 40 x 40: what follows is one kernel with it.
Value product(GraphBuilder& b, Value x, std::size_t layer) {
  const Value w = b.constant(random_literal(f32, {40, 40}, 3 + static_cast<std::uint32_t>(layer)));
  return b.emit("matmul", {x, w});
}

/// Products as bytes and back, each by numbers of its own.
ir::Graph rounded_products(const std::vector<double>& scales, const std::vector<double>& zeros,
                           DType dtype) {
  GraphBuilder b("main");
  Value x = b.input(tensor(f32, {"5", "40"}), "x");
  for (std::size_t k = 0; k < scales.size(); ++k) {
    const Value byte = quantised(b, product(b, x, k), scales[k], zeros[k], dtype);
    const Value zero = b.constant(ir::Literal::scalar(i32, zeros[k]));
    const Value whole = b.emit("sub", {b.emit("convert", {byte}, {{"dtype", i32}}), zero});
    const Value real =
        b.emit("mul", {b.emit("convert", {whole}, {{"dtype", f32}}), number(b, scales[k])});
    x = b.emit("div", {b.emit("add", {real, x}), number(b, 7.7 + static_cast<double>(k))});
  }
  b.output(x);
  return b.finish();
}

TEST(ShareNumbers, ScalesZeroPointsAndDivisors) {
  for (const DType dtype : {u8, i8}) {
    const ir::Graph graph = rounded_products({0.0312, 0.0171, 0.0289}, {7, 121, 33}, dtype);
    const jit::Program program = lowered(graph);
    EXPECT_LT(distinct_nests(program).size(), program.kernels.size());
    expect_code_right_at(graph, {});
  }
}

TEST(ShareNumbers, WhereRangesAreWide) {
  // Neither scales whose reciprocals are normal, nor zero points that are bytes.
  expect_code_right_at(rounded_products({0x1p-100, 0.5, 0x1p90}, {7, 121, 33}, u8), {});
  expect_code_right_at(rounded_products({0.03, 0.02, 0.04}, {7.5, 300, -4}, u8), {});
  expect_code_right_at(rounded_products({-0.03, 0.02, 0.04}, {7, 3, 4}, i8), {});
}

/// `layers` times relu(x) * a + b behind a product, with numbers of their own or the same.
ir::Graph layers_of_lines(std::int64_t layers, double spread) {
  GraphBuilder b("main");
  Value x = b.input(tensor(f32, {"s0", "64"}), "x");
  for (std::int64_t k = 0; k < layers; ++k) {
    const double share = 1 + spread * static_cast<double>(k);
    const Value w = b.constant(random_literal(f32, {64, 64}, 3 + static_cast<std::uint32_t>(k)));
    const Value product = b.emit("relu", {b.emit("matmul", {x, w})});
    x = b.emit("add", {b.emit("mul", {product, number(b, 0.0123457 * share)}),
                       number(b, 0.1234567 * share)});
  }
  b.output(x);
  return b.finish();
}

std::size_t numbers_given(const jit::Program& program) {
  std::size_t most = 0;
  for (const jit::Launch& launch : program.launches) most = std::max(most, launch.sizes.size());
  return most;
}

TEST(ShareNumbers, LearnedNumbersOfAlikeLayersAreNoPartOfTheirKernel) {
  const ir::Graph graph = layers_of_lines(6, 0.37);
  const jit::Program program = lowered(graph);
  EXPECT_EQ(distinct_nests(program).size(), 1u);
  EXPECT_EQ(numbers_given(program), 3u) << "rows and two numbers";
  expect_code_right_at(graph, {5});
}

TEST(ShareNumbers, WhatAllHaveStaysAConstant) {
  EXPECT_EQ(numbers_given(lowered(layers_of_lines(6, 0))), 1u) << "rows";
}

/// A function of a product, with each of the numbers in turn.
ir::Graph chain(const std::vector<double>& numbers, const char* op) {
  GraphBuilder b("main");
  Value x = b.input(tensor(f32, {"6", "40"}), "x");
  for (std::size_t k = 0; k < numbers.size(); ++k)
    x = b.emit(op, {product(b, x, k), number(b, numbers[k])});
  b.output(x);
  return b.finish();
}

TEST(ShareNumbers, LeavesWhatIsMoreThanAnOperand) {
  // Bounds, exponents, 0 and 1 say how to compute.
  EXPECT_EQ(numbers_given(lowered(chain({3, 5}, "max"))), 0u);
  EXPECT_EQ(numbers_given(lowered(chain({2, 3}, "pow"))), 0u);
  EXPECT_EQ(numbers_given(lowered(chain({1, 0.3}, "mul"))), 0u);
  EXPECT_EQ(numbers_given(lowered(chain({0.7, 0.3}, "mul"))), 1u);
  EXPECT_EQ(numbers_given(lowered(chain({0.7, 0.3}, "div"))), 1u);
  EXPECT_EQ(numbers_given(
                jit::lower(chain({0.7, 0.3}, "mul"), {.target = jit::LowerOptions::Target::Cuda})),
            0u);
  expect_code_right_at(chain({0.7, 0.3, 0x1p-130}, "div"), {});
}

}  // namespace
}  // namespace heddle::test
