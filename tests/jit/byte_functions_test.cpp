// Chains of operations on one byte as tables.
#include "jit/lower/byte_functions.h"

#include <gmock/gmock.h>

#include "tests/jit/nests_support.h"
#include "tests/jit/quantised_values.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using ::testing::HasSubstr;
using ::testing::Not;

/// Buffers of 256 bytes in the text of nests.
std::size_t tables_in(const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = text.find("8[256] read"); at != std::string::npos;
       at = text.find("8[256] read", at + 1))
    ++count;
  return count;
}

/// x * sigmoid(x) of quantised numbers.
ir::Graph activation(DType from, DType to) {
  GraphBuilder b("main");
  const Value x = dequantised(b, b.input(tensor(from, {"s0", "300"})), 100, 0.05);
  const Value gate = quantised(b, b.emit("sigmoid", {x}), to, 3, 1.0 / 256);
  const Value product = b.emit("mul", {x, dequantised(b, gate, 3, 1.0 / 256)});
  b.output(quantised(b, product, to, -7, 0.04));
  return b.finish();
}

ir::Literal all_bytes(DType dtype, std::int64_t rows) {
  ir::Literal x(dtype, {rows, 300});
  for (std::int64_t k = 0; k < x.count(); ++k) x.set_int(k, k % 256 - (dtype == i8 ? 128 : 0));
  return x;
}

TEST(ByteFunctions, AnActivationIsOneTable) {
  for (const DType from : {u8, i8}) {
    for (const DType to : {u8, i8}) {
      const ir::Graph graph = activation(from, to);
      const std::string text = nests_of(lowered(graph));
      EXPECT_EQ(tables_in(text), 1u) << text;
      EXPECT_THAT(text, Not(HasSubstr("sigmoid")));
      expect_code_right(graph, {all_bytes(from, 3)}, 0);
    }
  }
}

#if HEDDLE_WITH_LLVM
TEST(ByteFunctions, OnVectorsOfEveryWidth) {
  const ir::Graph graph = activation(i8, u8);
  for (const std::int64_t vector_bytes : {64, 32, 16})
    expect_program_right(graph, lowered(graph), {all_bytes(i8, 2)}, as_code_of(vector_bytes), 0);
}
#endif

TEST(ByteFunctions, OfBytesMadeInTheSameKernel) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "300"}));
  const Value bytes = quantised(b, x, u8, 100, 0.02);
  const Value y = b.emit("sigmoid", {dequantised(b, bytes, 100, 0.02)});
  b.output(dequantised(b, quantised(b, y, u8, 0, 1.0 / 256), 0, 1.0 / 256));
  b.output(bytes);
  const ir::Graph graph = b.finish();
  const jit::Program program = jit::lower(graph, {.byte_tables = true});
  EXPECT_EQ(tables_in(nests_of(program)), 1u);
  expect_program_right(graph, program, random_arguments(graph, {4}), as_code(), 0);
}

/// Scales are in the tables, and these in memory.
TEST(ByteFunctions, OfLayersWithScalesOfTheirOwnAreOneKernel) {
  GraphBuilder b("main");
  const auto layer = [&](double scale) {
    const Value x = dequantised(b, b.input(tensor(u8, {"s0", "300"})), 100, scale);
    b.output(quantised(b, b.emit("sigmoid", {x}), u8, 0, 1.0 / 256));
  };
  layer(0.0512345);
  layer(0.0354321);
  const ir::Graph graph = b.finish();
  const jit::Program program = jit::lower(graph, {.byte_tables = true});
  EXPECT_EQ(distinct_nests(program).size(), 1u);
  EXPECT_EQ(tables_in(nests_of(program)), 2u);
  expect_program_right(graph, program, {all_bytes(u8, 3), all_bytes(u8, 3)}, as_code(), 0);
}

/// What others read too is computed as well, and a table of a table is one.
TEST(ByteFunctions, OfEachOther) {
  GraphBuilder b("main");
  const Value x = dequantised(b, b.input(tensor(i8, {"s0", "300"})), 3, 0.05);
  const Value gate = quantised(b, b.emit("sigmoid", {x}), i8, -5, 1.0 / 200);
  const Value second =
      quantised(b, b.emit("tanh", {dequantised(b, gate, -5, 1.0 / 200)}), u8, 7, 0.01);
  b.output(gate);
  b.output(dequantised(b, second, 7, 0.01));
  const ir::Graph graph = b.finish();
  EXPECT_THAT(nests_of(lowered(graph)), Not(HasSubstr("tanh")));
  expect_code_right(graph, {all_bytes(i8, 3)}, 0);
}

/// Of two sizes an element of one is read for several of the other; neighbours are other bytes.
TEST(ByteFunctions, NotOfOtherElements) {
  GraphBuilder b("main");
  const Value row = b.input(tensor(u8, {"300"}));
  const Value rows = b.emit("expand", {row}, {{"sizes", ir::Dims{base::parse_symexpr("s0"), 300}}});
  const Value x = b.input(tensor(u8, {"s0", "300"}));
  const Value moved = b.emit("reverse", {x}, {{"axes", std::vector<std::int64_t>{1}}});
  const Value sum = b.emit("add", {dequantised(b, x, 100, 0.05), dequantised(b, moved, 100, 0.05)});
  b.output(quantised(b, b.emit("sigmoid", {sum}), u8, 0, 1.0 / 256));
  b.output(quantised(b, b.emit("sigmoid", {dequantised(b, rows, 7, 0.05)}), u8, 0, 1.0 / 256));
  expect_code_right_at(b.finish(), {3});
}

/// What is quantised by the scale that it was dequantised by is the byte itself; by another one, or a copy, it is not.
TEST(ByteFunctions, AByteItself) {
  const auto text_of = [](double scale, bool is_copied) {
    GraphBuilder b("main");
    Value x = b.input(tensor(i8, {"s0", "300"}));
    if (is_copied) x = b.emit("clone", {b.emit("permute", {x}, {{"perm", Ints{1, 0}}})});
    const Value y = quantised(b, dequantised(b, x, 3, 0.05), i8, 3, scale);
    b.output(b.emit("add", {y, b.constant(ir::Literal::scalar_int(i8, 1))}));
    const ir::Graph graph = b.finish();
    expect_code_right(graph, {all_bytes(i8, 3)}, 0);
    return nests_of(jit::lower(graph, {.vector_bytes = 64}));
  };
  EXPECT_THAT(text_of(0.05, false), Not(HasSubstr("f32")));
  EXPECT_THAT(text_of(0.0500001, false), Not(HasSubstr("f32"))) << "rounded to the same";
  EXPECT_THAT(text_of(0.051, false), HasSubstr("f32"));
  EXPECT_THAT(text_of(0.05, true), Not(HasSubstr("f32")));
}

/// What is quantised again behind views is a view of the byte, by another scale of an entry of a table.
TEST(ByteFunctions, BehindViews) {
  for (const double scale : {0.05, 0.04}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(i8, {"s0", "300"}));
    Value y = dequantised(b, x, 3, 0.05);
    y = b.emit("reshape", {y}, {{"sizes", ir::Dims{base::parse_symexpr("s0"), 3, 100}}});
    y = b.emit("permute", {y}, {{"perm", Ints{2, 0, 1}}});
    y = b.emit("slice", {y},
               {{"start", ir::Dims{3, 0, 1}},
                {"limit", ir::Dims{99, base::parse_symexpr("s0"), 3}},
                {"stride", ir::Dims{2, 1, 1}}});
    b.output(quantised(b, y, i8, 3, scale));
    const ir::Graph graph = b.finish();
    expect_code_right(graph, {all_bytes(i8, 3)}, 0);
    const jit::Program program = jit::lower(graph, {.byte_tables = true});
    EXPECT_THAT(nests_of(program), Not(HasSubstr("f32")));
    EXPECT_EQ(tables_in(nests_of(program)), scale == 0.05 ? 0u : 1u);
    expect_program_right(graph, program, {all_bytes(i8, 3)}, as_code(), 0);
  }
}

/// Two views of a byte show different bytes.
TEST(ByteFunctions, NotOfTwoViews) {
  GraphBuilder b("main");
  const Value x = dequantised(b, b.input(tensor(i8, {"300", "300"})), 3, 0.05);
  const Value turned = b.emit("permute", {x}, {{"perm", Ints{1, 0}}});
  b.output(quantised(b, b.emit("sigmoid", {b.emit("sub", {x, turned})}), i8, 3, 0.05));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(tables_in(nests_of(jit::lower(graph, {.byte_tables = true}))), 0u);
  expect_program_right(graph, lowered(graph), {all_bytes(i8, 300)}, as_code(), 0);
}

/// Of several put together each becomes bytes by itself, as it is or by a table.
TEST(ByteFunctions, OfSeveralPutTogether) {
  for (const double second : {0.05, 0.03}) {
    GraphBuilder b("main");
    const Value x = dequantised(b, b.input(tensor(u8, {"s0", "300"})), 3, 0.05);
    Value y = dequantised(b, b.input(tensor(u8, {"s0", "300"})), 3, second);
    y = b.emit("reshape", {y}, {{"sizes", ir::Dims{base::parse_symexpr("s0"), 300}}});
    const Value z = dequantised(b, b.input(tensor(i8, {"s0", "300"})), -7, 0.02);
    const Value all = b.call("concat", std::vector{x, y, z}, {{"axis", std::int64_t{1}}})->value();
    b.output(quantised(b, all, u8, 3, 0.05));
    const ir::Graph graph = b.finish();
    const std::vector<ir::Literal> arguments{all_bytes(u8, 3), all_bytes(u8, 3), all_bytes(i8, 3)};
    expect_code_right(graph, arguments, 0);
    const jit::Program program = jit::lower(graph, {.byte_tables = true});
    EXPECT_THAT(nests_of(program), Not(HasSubstr("f32")));
    EXPECT_EQ(tables_in(nests_of(program)), second == 0.05 ? 1u : 2u);
    expect_program_right(graph, program, arguments, as_code(), 0);
  }
}

TEST(ByteFunctions, LeaveOthers) {
  const ir::Graph graph = activation(u8, u8);
  EXPECT_FALSE(jit::byte_functions(graph, {}).identical(graph));
  const jit::LowerOptions cuda{.target = jit::LowerOptions::Target::Cuda};
  EXPECT_TRUE(jit::byte_functions(graph, cuda).identical(graph));
}

/// Bytes in other numbers: a table pays where registers hold it, and where vectors are short.
TEST(ByteFunctions, WhereReadingCostsLess) {
  GraphBuilder b("main");
  Value x = b.input(tensor(u8, {"s0", "300"}));
  for (const double scale : {0.04, 0.03})
    x = quantised(b, dequantised(b, x, 7, 0.05), u8, 9, scale);
  b.output(x);
  const ir::Graph graph = b.finish();
  const auto has_table = [&](const jit::LowerOptions& options) {
    return tables_in(nests_of(jit::lower(graph, options))) != 0;
  };
  EXPECT_TRUE(has_table({.byte_tables = true}));
  EXPECT_TRUE(has_table({.vector_bytes = 32}));
  EXPECT_FALSE(has_table({.vector_bytes = 64}));
}

TEST(ByteFunctions, NotOfTwoBytesNorOfFewOperations) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(u8, {"s0", "300"}));
  const Value y = b.input(tensor(u8, {"s0", "300"}));
  const Value sum = b.emit("add", {dequantised(b, x, 100, 0.05), dequantised(b, y, 7, 0.03)});
  b.output(quantised(b, b.emit("sigmoid", {sum}), u8, 0, 1.0 / 256));
  b.output(b.emit("convert", {b.emit("add", {x, x})}, {{"dtype", i8}}));
  const ir::Graph graph = b.finish();
  EXPECT_EQ(tables_in(nests_of(lowered(graph))), 0u);
  expect_code_right_at(graph, {3});
}

}  // namespace
}  // namespace heddle::test
