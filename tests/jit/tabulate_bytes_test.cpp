// Chains of operations on one byte as tables.
#include <gmock/gmock.h>

#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;
using ::testing::HasSubstr;
using ::testing::Not;

Value real(GraphBuilder& b, double number) { return b.constant(ir::Literal::scalar(f32, number)); }

Value number_of(GraphBuilder& b, Value bytes, std::int64_t zero, double scale) {
  const Value wide = b.emit("convert", {bytes}, {{"dtype", i32}});
  const Value centred = b.emit("sub", {wide, b.constant(ir::Literal::scalar_int(i32, zero))});
  return b.emit("mul", {b.emit("convert", {centred}, {{"dtype", f32}}), real(b, scale)});
}

Value byte_of(GraphBuilder& b, Value x, DType dtype, double zero, double scale) {
  const double least = dtype == i8 ? -128 : 0;
  Value y = b.emit("round", {b.emit("div", {x, real(b, scale)})});
  y = b.emit("clamp", {b.emit("add", {y, real(b, zero)}), real(b, least), real(b, least + 255)});
  return b.emit("convert", {y}, {{"dtype", dtype}});
}

/// x * sigmoid(x) of quantised numbers.
ir::Graph activation(DType from, DType to) {
  GraphBuilder b("main");
  const Value x = number_of(b, b.input(tensor(from, {"s0", "300"})), 100, 0.05);
  const Value gate = byte_of(b, b.emit("sigmoid", {x}), to, 3, 1.0 / 256);
  const Value product = b.emit("mul", {x, number_of(b, gate, 3, 1.0 / 256)});
  b.output(byte_of(b, product, to, -7, 0.04));
  return b.finish();
}

ir::Literal all_bytes(DType dtype, std::int64_t rows) {
  ir::Literal x(dtype, {rows, 300});
  for (std::int64_t k = 0; k < x.count(); ++k) x.set_int(k, k % 256 - (dtype == i8 ? 128 : 0));
  return x;
}

TEST(TabulateBytes, AnActivationIsOneTable) {
  for (const DType from : {u8, i8}) {
    for (const DType to : {u8, i8}) {
      const ir::Graph graph = activation(from, to);
      const std::string text = nests_of(lowered(graph));
      EXPECT_THAT(text, HasSubstr("table("));
      EXPECT_EQ(text.find("table("), text.rfind("table("));
      EXPECT_THAT(text, Not(HasSubstr("sigmoid")));
      expect_code_right(graph, {all_bytes(from, 3)}, 0);
    }
  }
}

#if HEDDLE_WITH_LLVM
TEST(TabulateBytes, OnVectorsOfEveryWidth) {
  const ir::Graph graph = activation(i8, u8);
  for (const std::int64_t vector_bytes : {64, 32, 16})
    expect_program_right(graph, lowered(graph), {all_bytes(i8, 2)}, as_code_of(vector_bytes), 0);
}
#endif

TEST(TabulateBytes, OfBytesMadeInTheSameKernel) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(f32, {"s0", "300"}));
  const Value bytes = byte_of(b, x, u8, 100, 0.02);
  const Value y = b.emit("sigmoid", {number_of(b, bytes, 100, 0.02)});
  b.output(number_of(b, byte_of(b, y, u8, 0, 1.0 / 256), 0, 1.0 / 256));
  b.output(bytes);
  const ir::Graph graph = b.finish();
  const jit::Program program = jit::lower(graph, {.byte_tables = true});
  EXPECT_THAT(nests_of(program), HasSubstr("table("));
  expect_program_right(graph, program, random_arguments(graph, {4}), as_code(), 0);
}

/// Bytes in other numbers: a table pays where registers hold it, and where vectors are short.
TEST(TabulateBytes, WhereReadingCostsLess) {
  GraphBuilder b("main");
  Value x = b.input(tensor(u8, {"s0", "300"}));
  for (const double scale : {0.04, 0.03}) x = byte_of(b, number_of(b, x, 7, 0.05), u8, 9, scale);
  b.output(x);
  const ir::Graph graph = b.finish();
  const auto has_table = [&](const jit::LowerOptions& options) {
    return nests_of(jit::lower(graph, options)).find("table(") != std::string::npos;
  };
  EXPECT_TRUE(has_table({.byte_tables = true}));
  EXPECT_TRUE(has_table({.vector_bytes = 32}));
  EXPECT_FALSE(has_table({.vector_bytes = 64}));
}

TEST(TabulateBytes, NotOfTwoBytesNorOfFewOperations) {
  GraphBuilder b("main");
  const Value x = b.input(tensor(u8, {"s0", "300"}));
  const Value y = b.input(tensor(u8, {"s0", "300"}));
  const Value sum = b.emit("add", {number_of(b, x, 100, 0.05), number_of(b, y, 7, 0.03)});
  b.output(byte_of(b, b.emit("sigmoid", {sum}), u8, 0, 1.0 / 256));
  b.output(b.emit("convert", {b.emit("add", {x, x})}, {{"dtype", i8}}));
  const ir::Graph graph = b.finish();
  EXPECT_THAT(nests_of(lowered(graph)), Not(HasSubstr("table(")));
  expect_code_right_at(graph, {3});
}

}  // namespace
}  // namespace heddle::test
