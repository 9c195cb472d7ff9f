// Kernels that make something narrower of what they load in another order.
#include "jit/lower/narrowing.h"

#include <gtest/gtest.h>
#include <set>

#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

using ir::GraphBuilder;
using ir::Value;

/// What becomes bytes does so before it is turned; not where something else needs the wide value too.
TEST(Narrowing, WhatIsTurnedIsNarrowedFirst) {
  const auto tiles_of = [](const ir::Graph& graph) {
    std::set<DType> tiles;
    for (const jit::ProgramKernel& kernel : lowered(graph).kernels)
      for (const jit::NestBuffer& buffer : kernel.nest->buffers)
        if (buffer.scope == jit::NestBuffer::Scope::Local) tiles.insert(buffer.dtype);
    return tiles;
  };
  for (const bool alone : {true, false}) {
    GraphBuilder b("main");
    const Value x = b.input(tensor(f32, {"40", "70"}));
    const Value turned = b.emit("permute", {x}, {{"perm", Ints{1, 0}}});
    const Value y = b.input(tensor(f32, {"70", "40"}));
    const Value cut = b.emit("clamp", {b.emit("mul", {turned, b.scalar(f32, 30)}), b.scalar(f32, 0),
                                       b.scalar(f32, 255)});
    const Value bytes = b.emit("convert", {cut}, {{"dtype", u8}});
    const Value wide = b.emit("convert", {bytes}, {{"dtype", f32}});
    b.output(b.emit("add", {b.emit("mul", {wide, y}), alone ? y : turned}));
    const ir::Graph graph = b.finish();
    EXPECT_EQ(tiles_of(graph), std::set<DType>{alone ? u8 : f32});
    expect_code_right(graph, {random_literal(f32, {40, 70}, 1), random_literal(f32, {70, 40}, 2)});
  }
}

}  // namespace
}  // namespace heddle::test
