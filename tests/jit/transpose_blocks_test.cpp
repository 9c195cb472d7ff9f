// Kernels that read across the order in which they write, as CUDA has them: tiles in shared memory.
#include "tests/jit/nests_support.h"

namespace heddle::test {
namespace {

const jit::LowerOptions kTilesOnCuda{.target = jit::LowerOptions::Target::Cuda};

struct TileCase {
  std::initializer_list<const char*> sizes;
  Ints perm;
  ir::Sizes argument;
};

std::int64_t local_buffers(const jit::Program& program) {
  std::int64_t count = 0;
  for (const auto& kernel : program.kernels)
    for (const jit::NestBuffer& buffer : kernel.nest->buffers)
      if (buffer.scope == jit::NestBuffer::Scope::Local) ++count;
  return count;
}

TEST(TransposeBlocks, EverySizeAndDType) {
  for (const auto& [sizes, perm, argument] :
       {TileCase{{"32", "32"}, {1, 0}, {32, 32}}, TileCase{{"33", "65"}, {1, 0}, {33, 65}},
        TileCase{{"2", "96", "64"}, {0, 2, 1}, {2, 96, 64}},
        TileCase{{"40", "3", "50"}, {2, 1, 0}, {40, 3, 50}},
        TileCase{{"s0", "s1"}, {1, 0}, {70, 90}}, TileCase{{"s0", "s1"}, {1, 0}, {1, 3}},
        TileCase{{"s0", "s1"}, {1, 0}, {0, 5}},
        TileCase{{"2", "s0", "33", "s1"}, {0, 3, 2, 1}, {2, 35, 33, 40}}}) {
    for (const DType dtype : {f32, u8, f16, f64, boolean}) {
      SCOPED_TRACE(::testing::PrintToString(argument) + " " + std::string(name_of(dtype)));
      ir::GraphBuilder b("main");
      b.output(
          b.emit("clone", {b.emit("permute", {b.input(tensor(dtype, sizes))}, {{"perm", perm}})}));
      const ir::Graph graph = b.finish();
      const jit::Program program = jit::lower(graph, kTilesOnCuda);
      EXPECT_EQ(local_buffers(program), 1);
      expect_program_right(graph, program, {noise(dtype, argument)}, {}, 0);
      expect_program_right(graph, program, {noise(dtype, argument)}, as_code(), 0);
    }
  }
}

TEST(TransposeBlocks, AThreadReadsBesideItsNeighbourAndWritesBesideIt) {
  ir::GraphBuilder b("main");
  b.output(b.emit("permute", {b.input(tensor(f32, {"128", "256"}))}, {{"perm", Ints{1, 0}}}));
  const jit::Program program = jit::lower(b.finish(), kTilesOnCuda);
  ASSERT_EQ(program.kernels.size(), 1u);
  const jit::Nest& nest = *program.kernels[0].nest;
  EXPECT_EQ(nest.parallel_extent.constant(), 4 * 8) << "a block has a tile of 32 x 32";
  ASSERT_EQ(nest.body.size(), 2u);
  for (const jit::Stmt& statement : nest.body) {
    const auto& loop = std::get<jit::ForStmt>(statement.node);
    EXPECT_EQ(loop.kind, jit::ForStmt::Kind::Vector);
    for (const jit::Stmt& inner : *loop.body) {
      const auto check = [&](jit::NestBufferId buffer, const base::SymExpr& index) {
        if (nest.buffers[buffer].scope == jit::NestBuffer::Scope::Local) return;
        const auto at = [&](std::int64_t k) {
          return index
              .substitute({{loop.axis, base::SymExpr(k)}, {nest.parallel_axis, base::SymExpr(5)}})
              .constant();
        };
        for (std::int64_t k = 0; k < 31; ++k) EXPECT_EQ(at(k + 1), at(k) + 1);
      };
      if (const auto* load = std::get_if<jit::LoadStmt>(&inner.node))
        check(load->buffer, load->index);
      if (const auto* store = std::get_if<jit::StoreStmt>(&inner.node))
        check(store->buffer, store->index);
    }
  }
}

/// Tiles of 64 x 64 where they are many, of elements of 4 bytes too.
TEST(TransposeBlocks, LargeTilesWhereThereAreMany) {
  for (const auto& [rows, blocks] : {std::pair{64 * 33, 33 * 8}, std::pair{64 * 32, 64 * 16}}) {
    ir::GraphBuilder b("main");
    b.output(b.emit("permute", {b.input(tensor(f32, {std::to_string(rows).c_str(), "512"}))},
                    {{"perm", Ints{1, 0}}}));
    const ir::Graph graph = b.finish();
    const jit::Program program = jit::lower(graph, kTilesOnCuda);
    EXPECT_EQ(blocks_of(program), std::vector<std::int64_t>{blocks}) << rows;
    expect_program_right(graph, program, {noise(f32, {rows, 512})}, as_code(), 0);
  }
}

TEST(TransposeBlocks, WithWhatElseTheKernelReadsAndChecks) {
  ir::GraphBuilder b("main");
  const ir::Value x = b.input(tensor(f32, {"70", "45"}));
  const ir::Value y = b.input(tensor(f32, {"45", "70"}));
  const ir::Value row = b.input(tensor(f32, {"70"}));
  const ir::Value turned = b.emit("permute", {x}, {{"perm", Ints{1, 0}}});
  const ir::Value twice = b.emit("permute", {b.emit("exp", {x})}, {{"perm", Ints{1, 0}}});
  b.output(b.emit("mul", {b.emit("add", {turned, y}), row}));
  b.output(b.emit("sub", {twice, y}));
  const ir::Graph graph = b.finish();
  const std::vector<ir::Literal> arguments{noise(f32, {70, 45}), noise(f32, {45, 70}),
                                           noise(f32, {70})};
  const jit::Program program = jit::lower(graph, kTilesOnCuda);
  EXPECT_GE(local_buffers(program), 1);
  expect_program_right(graph, program, arguments, {}, 1e-5);
  expect_program_right(graph, program, arguments, as_code(), 1e-5);
}

TEST(TransposeBlocks, BesideMasksOfTheirOwn) {
  ir::GraphBuilder b("main");
  const ir::Value x = b.input(tensor(f32, {"50", "60"}));
  const ir::Value y = b.input(tensor(f32, {"57", "50"}));
  const ir::Value turned = b.emit("permute", {x}, {{"perm", Ints{1, 0}}});
  const ir::Value zero = b.constant(ir::Literal::scalar(f32, 0));
  const ir::Value padded =
      b.emit("pad", {y, zero}, {{"low", ir::Dims{1, 0}}, {"high", ir::Dims{2, 0}}});
  b.output(b.emit("add", {turned, padded}));
  const ir::Graph graph = b.finish();
  const std::vector<ir::Literal> arguments{noise(f32, {50, 60}), noise(f32, {57, 50}, 2)};
  const jit::Program program = jit::lower(graph, kTilesOnCuda);
  EXPECT_EQ(local_buffers(program), 1);
  expect_program_right(graph, program, arguments, {}, 0);
  expect_program_right(graph, program, arguments, as_code(), 0);
}

TEST(TransposeBlocks, PaddedAndGatheredOnesAreReadWhereTheyLie) {
  ir::GraphBuilder b("main");
  const ir::Value x = b.input(tensor(f32, {"50", "60"}));
  const ir::Value which = b.input(tensor(i64, {"60"}));
  const ir::Value turned = b.emit("permute", {x}, {{"perm", Ints{1, 0}}});
  const ir::Value zero = b.constant(ir::Literal::scalar(f32, 0));
  const ir::Value padded =
      b.emit("pad", {turned, zero}, {{"low", ir::Dims{1, 0}}, {"high", ir::Dims{2, 3}}});
  b.output(padded);
  b.output(b.emit("add", {turned, b.emit("gather", {turned, which}, {{"axis", std::int64_t{0}}})}));
  const ir::Graph graph = b.finish();
  ir::Literal order(i64, {60});
  for (std::int64_t k = 0; k < 60; ++k) order.set(k, static_cast<double>((7 * k) % 60));
  const std::vector<ir::Literal> arguments{noise(f32, {50, 60}), order};
  const jit::Program program = jit::lower(graph, kTilesOnCuda);
  EXPECT_EQ(local_buffers(program), 0);
  expect_program_right(graph, program, arguments, {}, 0);
  expect_program_right(graph, program, arguments, as_code(), 0);
}

}  // namespace
}  // namespace heddle::test
