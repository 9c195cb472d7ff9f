// Nests that only move elements give the same without being compiled, and others are told from them.
#include "jit/copy_nest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "jit/lower/group_panels.h"
#include "jit/lower/pack_weights.h"
#include "jit/nest_builder.h"
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using base::Symbol;
using base::SymExpr;
using ir::GraphBuilder;
using ir::Value;

/// How many nests of `graph` move elements only. All results are as the evaluator has them, theirs without the interpreter.
int copies_in(const ir::Graph& graph) {
  int copies = 0;
  const jit::Program program = lowered(graph);
  const auto runner = [&](const jit::Nest& nest, std::span<const InterpreterBuffer> buffers,
                          std::span<const std::int64_t> sizes) {
    const auto copy = jit::CopyNest::of(nest);
    if (!copy) return interpret(nest, buffers, sizes);
    ++copies;
    std::vector<void*> addresses;
    for (const InterpreterBuffer& buffer : buffers) addresses.push_back(buffer.data);
    copy->run(addresses);
    return 0;
  };
  expect_program_right(graph, program, random_arguments(graph, {}), {.runner = runner}, 0);
  return copies;
}

int copies_in(const std::string& body, const std::string& type) {
  return copies_in(ir::parse("graph @main(%x: " + type + ") {\n" + body + "  return %y\n}\n"));
}

TEST(CopyNest, TurnsMatricesOfEveryDType) {
  for (const char* dtype : {"f32", "f64", "bf16", "u8", "i64", "bool"})
    EXPECT_EQ(copies_in("  %t = permute(%x) {perm = [1, 0]}\n  %y = clone(%t)\n",
                        std::string(dtype) + "[70, 100]"),
              1)
        << dtype;
}

TEST(CopyNest, MovesDimensionsAndParts) {
  EXPECT_EQ(
      copies_in("  %t = permute(%x) {perm = [2, 0, 3, 1]}\n  %y = clone(%t)\n", "f32[5, 7, 3, 33]"),
      1);
  EXPECT_EQ(copies_in("  %t = slice(%x) {start = [1, 2], limit = [9, 90], stride = [2, 3]}\n"
                      "  %y = clone(%t)\n",
                      "f32[10, 100]"),
            1);
}

/// Panels as weights have them, whose last columns, and rows of the last group, are zeros.
TEST(CopyNest, FillsPanelsUpWithZeros) {
  for (const std::int64_t columns : {64, 100, 7}) {
    GraphBuilder b("main");
    b.output(jit::emit_panels(b, b.input(tensor(f32, {"50", std::to_string(columns).c_str()}), "x"),
                              64));
    EXPECT_EQ(copies_in(b.finish()), 1) << columns;
  }
  for (const std::int64_t depth : {48, 50}) {
    GraphBuilder b("main");
    b.output(jit::emit_group_panels(
        b, b.input(tensor(i8, {std::to_string(depth).c_str(), "90"}), "x"), 4));
    EXPECT_EQ(copies_in(b.finish()), 1) << depth;
  }
}

/// Few columns: one part of the kernel moves them, and another fills the rest of the panels with zeros.
TEST(CopyNest, ChoosesParts) {
  for (const auto& [depth, columns] :
       {std::pair("480", "20"), std::pair("672", "28"), std::pair("1152", "48")}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(i8, {columns, depth}), "x");
    const Value turned = b.emit("permute", {x}, {{"perm", std::vector<std::int64_t>{1, 0}}});
    b.output(jit::emit_group_panels(b, turned, 4));
    const ir::Graph graph = b.finish();
    EXPECT_NE(nests_of(lowered(graph)).find("  if "), std::string::npos);
    EXPECT_EQ(copies_in(graph), 1) << depth;
  }
}

TEST(CopyNest, SeveralResultsOfOneKernel) {
  const ir::Graph graph = ir::parse(
      "graph @main(%x: f32[32, 40], %z: f32[32, 40]) {\n"
      "  %a = permute(%x) {perm = [1, 0]}\n  %b = permute(%z) {perm = [1, 0]}\n"
      "  %c = clone(%a)\n  %d = clone(%b)\n  return %c, %d\n}\n");
  EXPECT_GE(copies_in(graph), 1);
}

/// Elements that one place after the other is evaluated for: few are moved so, many would take longer than to compile.
TEST(CopyNest, LeavesLongUnevenOnes) {
  for (const std::int64_t rows : {10, 1000}) {
    jit::NestBuilder b("uneven");
    const SymExpr count = rows * 200;
    const auto from = b.add_global(f32, count);
    const auto to = b.add_global(f32, count);
    const Symbol row = b.new_axis(rows);
    b.set_parallel(row, rows);
    const Symbol k = b.begin_for(200, jit::ForStmt::Kind::Serial);
    const Symbol one = b.begin_for(1, jit::ForStmt::Kind::Vector);
    const SymExpr at = SymExpr(row) * 200 + SymExpr(one);
    const SymExpr turned = 20 * mod(SymExpr(k), 10) + floordiv(SymExpr(k), 10);
    b.store(to, at + SymExpr(k), b.load(from, at + turned));
    b.end_for();
    b.end_for();
    EXPECT_EQ(jit::CopyNest::of(b.finish()).has_value(), rows == 10) << rows;
  }
}

TEST(CopyNest, LeavesWhatComputesOrDependsOnSizes) {
  EXPECT_EQ(copies_in("  %y = neg(%x)\n", "f32[70]"), 0);
  EXPECT_EQ(copies_in("  %y = convert(%x) {dtype = bf16}\n", "f32[70]"), 0);
  EXPECT_EQ(
      copies_in("  %n = const 2: f32\n  %y = pad(%x, %n) {low = [0], high = [3]}\n", "f32[70]"), 0);
  EXPECT_EQ(copies_in("  %y = reduce_sum(%x) {axes = [0]}\n", "i64[70, 3]"), 0);
  const ir::Graph any = ir::parse(
      "graph @main(%x: f32[s0, 40]) {\n  %t = permute(%x) {perm = [1, 0]}\n"
      "  %y = clone(%t)\n  return %y\n}\n");
  const jit::Program program = lowered(any);
  ASSERT_EQ(program.kernels.size(), 1u);
  EXPECT_FALSE(jit::CopyNest::of(*program.kernels[0].nest));
}

}  // namespace
}  // namespace heddle::test
