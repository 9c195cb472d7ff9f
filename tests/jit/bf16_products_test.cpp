// Products that may round to bf16, by constant weights, as products of packed pairs where the CPU multiplies these.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tuple>

#include "jit/lower/pack_weights.h"
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using ::testing::ElementsAre;
using testing::ops_of;

const jit::LowerOptions kPairs{.bf16_dot = true};
const ir::Attrs kAllowed{{"bf16", true}};

/// Small integers, which bf16 holds.
Value whole_weights(GraphBuilder& b, DType dtype, const ir::Sizes& sizes) {
  const Value whole = b.constant(random_literal(i32, sizes, 7, -9, 9));
  return b.emit("convert", {whole}, {{"dtype", dtype}});
}

ir::Literal whole_numbers(DType dtype, ir::Sizes sizes) {
  return testing::value_of(
      {"convert", {random_literal(i32, std::move(sizes), 3, -9, 9)}, {{"dtype", dtype}}});
}

void expect_exact_pairs(const ir::Graph& graph, const std::vector<ir::Literal>& arguments) {
  const jit::Program program = jit::lower(graph, kPairs);
  expect_program_right(graph, program, arguments, {}, 0);
  expect_program_right(graph, program, arguments, as_code(), 0);
}

/// Operands that bf16 holds: results are those of f32 to the last bit.
TEST(Bf16Products, OfAnyShape) {
  for (const auto& [depth, columns] :
       {std::pair{1, 4200}, {97, 129}, {192, 64}, {300, 70}, {385, 130}}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {"s0", "s1", std::to_string(depth).c_str()}), "x");
    b.output(
        b.emit("relu", {b.emit("matmul", {x, whole_weights(b, f32, {depth, columns})}, kAllowed)}));
    const ir::Graph graph = b.finish();
    for (const std::int64_t rows : {0, 1, 2, 33})
      expect_exact_pairs(graph, {whole_numbers(f32, {rows, 2, depth})});
  }
}

/// For matrix registers parts of the depth are deeper, and multiples of 16 groups: one up to 256 groups, which needs no sums from before.
TEST(Bf16Products, PartsOfTheDepthForMatrixRegisters) {
  const jit::LowerOptions amx{.bf16_dot = true, .amx = true};
  for (const auto& [depth, parts, each] :
       {std::tuple{64, 1, 32}, {300, 1, 160}, {512, 1, 256}, {700, 2, 176}, {1100, 3, 192}}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {"s0", std::to_string(depth).c_str()}), "x");
    b.output(b.emit("matmul", {x, whole_weights(b, f32, {depth, 70})}, kAllowed));
    const ir::Graph graph = b.finish();
    const jit::Program program = jit::lower(graph, amx);
    const std::string nests = nests_of(program);
    EXPECT_EQ(nests.find("contract l0 = ") != std::string::npos, parts == 1) << depth;
    if (parts > 1) {
      EXPECT_NE(nests.find(fmt::format("min({}*", -each)), std::string::npos) << nests;
    }
    for (const std::int64_t rows : {1, 33})
      expect_program_right(graph, program, {whole_numbers(f32, {rows, depth})}, as_code(), 0);
  }
}

/// What is bf16 already is read as it is; the sums of its products are rounded once.
TEST(Bf16Products, OfBf16AndOfWhatWasWidened) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(bf16, {"s0", "96"}), "x");
  const Value narrow = whole_weights(b, bf16, {96, 70});
  b.output(b.emit("matmul", {x, narrow}, kAllowed));
  const auto wide = [&](Value value) { return b.emit("convert", {value}, {{"dtype", f32}}); };
  b.output(b.emit("matmul", {wide(x), wide(narrow)}, kAllowed));
  const ir::Graph graph = b.finish();
  const ir::Graph packed = jit::pack_weights(graph, kPairs);
  const ir::Node& of_bf16 = *packed.outputs()[0].node->input(0).node;
  const ir::Node& of_f32 = *packed.outputs()[1].node;
  for (const ir::Node* product : {&of_bf16, &of_f32}) {
    EXPECT_EQ(product->op_name(), "packed_bf16_matmul");
    EXPECT_EQ(product->input(0).node->op_name(), "input");
    EXPECT_EQ(product->input(1).meta().to_string(), "bf16[2, 48, 64, 2]");
  }
  for (const std::int64_t rows : {1, 40})
    expect_exact_pairs(graph, {whole_numbers(bf16, {rows, 96})});
}

/// Rows that three products read are rounded once; weights when the unit is built.
TEST(Bf16Products, RoundRowsOnceForAllThatReadThem) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "96"}), "x");
  for (int k = 0; k < 3; ++k)
    b.output(b.emit("matmul", {x, b.constant(random_literal(f32, {96, 70}, 7))}, kAllowed));
  const ir::Graph graph = b.finish();
  std::vector<std::string> ops = ops_of(jit::pack_weights(graph, kPairs));
  EXPECT_EQ(std::ranges::count(ops, "convert"), 4);
  EXPECT_EQ(std::ranges::count(ops, "packed_bf16_matmul"), 3);
}

/// Attention stores its result in bf16 and in the order in which the product reads it.
TEST(Bf16Products, OfAttentionAreRoundedWhereItIsStored) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"1", "2", "9", "48"}), "x");
  const Value heads = b.emit("attention", {x, x, x});
  const Value places =
      b.emit("permute", {heads}, {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}});
  const Value rows = b.emit("reshape", {places}, {{"sizes", ir::Dims{9, 96}}});
  b.output(b.emit("matmul", {rows, whole_weights(b, f32, {96, 70})}, kAllowed));
  const ir::Graph graph = b.finish();
  const jit::Program program = jit::lower(graph, kPairs);
  EXPECT_NE(nests_of(program).find("nest @attention_convert_permute"), std::string::npos)
      << nests_of(program);
  expect_program_right(graph, program, {random_literal(f32, {1, 2, 9, 48}, 3)}, as_code(), 0.5);
}

TEST(Bf16Products, InTheBodyOfALoop) {
  GraphBuilder body("step");
  const Value state = body.input(tensor(f32, {"2", "70"}));
  const Value slice = body.input(tensor(f32, {"2", "70"}));
  const Value matrix = body.input(tensor(f32, {"70", "70"}));
  const Value next =
      body.emit("clamp", {body.emit("add", {body.emit("matmul", {state, matrix}, kAllowed), slice}),
                          body.constant(ir::Literal::scalar(f32, -9)),
                          body.constant(ir::Literal::scalar(f32, 9))});
  body.output(next);
  body.output(next);
  GraphBuilder b("main");
  const Value start = b.input(tensor(f32, {"2", "70"}));
  const Value slices = b.input(tensor(f32, {"s0", "2", "70"}));
  b.output(emit_scan(b, {start, slices, whole_weights(b, f32, {70, 70})}, body.finish())->value(1));
  const ir::Graph graph = b.finish();
  const ir::Graph packed = jit::pack_weights(graph, kPairs);
  const ir::Node& loop = *packed.outputs()[0].node;
  EXPECT_EQ(loop.inputs().back().meta().to_string(), "bf16[2, 35, 64, 2]");
  EXPECT_THAT(ops_of(loop.graph("body")), ::testing::Contains(std::string("packed_bf16_matmul")));
}

TEST(Bf16Products, NeedTheInstructionAndLeave) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "96"}), "x");
  b.output(b.emit("matmul", {x, whole_weights(b, f32, {96, 70})}, kAllowed));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(ops_of(jit::pack_weights(graph, {})).back(), "packed_matmul");
  EXPECT_TRUE(
      jit::pack_weights(graph, {.target = jit::LowerOptions::Target::Cuda, .bf16_dot = true})
          .identical(graph));
  expect_right_at(graph, {5}, 1e-4);
}

TEST(Bf16Products, KeepNanAndInfinityWhereTheyBelong) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"3", "96"}), "x");
  b.output(b.emit("matmul", {x, whole_weights(b, f32, {96, 70})}, kAllowed));
  const ir::Graph graph = b.finish();
  ir::Literal argument = whole_numbers(f32, {3, 96});
  argument.set(5, NAN);
  argument.set(96 + 7, INFINITY);
  expect_exact_pairs(graph, {argument});
}

}  // namespace
}  // namespace heddle::test
