// Loads that ask for the next row while a row is gone through again.
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <vector>

#include "jit/cpu/llvm/row_fetch.h"
#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;
using tests::CompiledNest;

constexpr std::int64_t kRows = 3;

/// Rows of `extent` elements; loops over a row read x, and store f(x) where told, in their order.
struct Rows {
  explicit Rows(const SymExpr& row_extent, DType dtype = f32)
      : builder("rows"), extent(row_extent), row(builder.new_axis(kRows)) {
    builder.nest().size_count = 1;
    builder.set_parallel(row, kRows);
    x = builder.add_global(dtype, kRows * extent);
    y = builder.add_global(dtype, kRows * extent);
  }

  Rows& loop(ScalarOp f, const std::vector<SymExpr>& more = {0}, ScalarId mask = kNoScalar) {
    const Symbol i = builder.new_axis(extent);
    builder.begin_for(i, extent, ForStmt::Kind::Vector);
    for (const SymExpr& offset : more) {
      const Scalar read = builder.load(x, extent * row + i + offset, mask);
      builder.store(y, extent * row + i, builder.apply(f, {read}));
    }
    builder.end_for();
    return *this;
  }

  NestBuilder builder;
  SymExpr extent;
  Symbol row;
  NestBufferId x{};
  NestBufferId y{};
};

/// "loop.statement+distance" of each fetch, in the order of the nest.
std::vector<std::string> fetches(const Nest& nest) {
  const auto found = cpu::row_fetches(nest);
  std::vector<std::string> texts;
  int loops = 0;
  for (const Stmt& statement : nest.body) {
    const auto* loop = std::get_if<ForStmt>(&statement.node);
    if (loop == nullptr) continue;
    for (std::size_t k = 0; k < loop->body->size(); ++k) {
      const auto* load = std::get_if<LoadStmt>(&(*loop->body)[k].node);
      const auto fetch = load == nullptr ? found.end() : found.find(load);
      if (fetch != found.end())
        texts.push_back(std::to_string(loops) + "." + std::to_string(k) + "+" +
                        fetch->second.to_string());
    }
    ++loops;
  }
  EXPECT_EQ(texts.size(), found.size());
  return texts;
}

using Texts = std::vector<std::string>;

TEST(LlvmRowFetch, TheSecondLoopOverARowFetchesTheNext) {
  Rows rows(1024);
  EXPECT_EQ(
      fetches(rows.loop(ScalarOp::Abs).loop(ScalarOp::Exp).loop(ScalarOp::Exp).builder.finish()),
      Texts{"1.0+1024"});
}

TEST(LlvmRowFetch, OneLoopThatReadsARowTwiceFetchesNothing) {
  Rows rows(1024);
  EXPECT_EQ(fetches(rows.loop(ScalarOp::Exp, {0, 0}).builder.finish()), Texts{});
}

TEST(LlvmRowFetch, OtherElementsAreOtherRows) {
  Rows rows(1024);
  EXPECT_EQ(fetches(rows.loop(ScalarOp::Abs, {1}).loop(ScalarOp::Exp, {0, 1}).builder.finish()),
            Texts{"1.3+1024"});
}

TEST(LlvmRowFetch, LoopsWithoutTimeToSpareFetchNothing) {
  Rows rows(1024);
  EXPECT_EQ(fetches(rows.loop(ScalarOp::Exp).loop(ScalarOp::Abs).builder.finish()), Texts{});
}

TEST(LlvmRowFetch, RowsAreLongEnoughAndFitTheFirstCache) {
  const auto of = [](const SymExpr& extent, DType dtype = f32) {
    Rows rows(extent, dtype);
    return fetches(rows.loop(ScalarOp::Abs).loop(ScalarOp::Exp).builder.finish());
  };
  EXPECT_EQ(of(255), Texts{});
  EXPECT_EQ(of(256), Texts{"1.0+256"});
  EXPECT_EQ(of(2048), Texts{"1.0+2048"});
  EXPECT_EQ(of(2049), Texts{});
  EXPECT_EQ(of(256, f16), Texts{});
  EXPECT_EQ(of(4096, f16), Texts{"1.0+4096"});
  EXPECT_EQ(of(SymExpr::size(0)), Texts{}) << "its length is not known";
}

TEST(LlvmRowFetch, WhatIsNoRowOfMemoryFetchesNothing) {
  Rows masked(1024);
  const Scalar truth = masked.builder.constant_int(DType::Bool, 1);
  EXPECT_EQ(fetches(masked.loop(ScalarOp::Abs).loop(ScalarOp::Exp, {0}, truth.id).builder.finish()),
            Texts{});
  Rows local(1024);
  local.x = local.builder.add_local(f32, kRows * 1024, kRows * 1024);
  EXPECT_EQ(fetches(local.loop(ScalarOp::Abs).loop(ScalarOp::Exp).builder.finish()), Texts{});
  Rows columns(1024);
  for (const ScalarOp f : {ScalarOp::Abs, ScalarOp::Exp}) {
    NestBuilder& b = columns.builder;
    const Symbol i = b.new_axis(1024);
    b.begin_for(i, 1024, ForStmt::Kind::Vector);
    b.store(columns.y, i, b.apply(f, {b.load(columns.x, kRows * SymExpr(i) + columns.row)}));
    b.end_for();
  }
  EXPECT_EQ(fetches(columns.builder.finish()), Texts{}) << "elements of a row lie apart";
}

/// A tile of rows `pitch` elements apart, the next one `step` elements beside it.
std::size_t piece_fetches(std::int64_t pitch, std::int64_t step, bool is_masked = false) {
  NestBuilder b("tile");
  const Symbol tile = b.new_axis(8);
  b.set_parallel(tile, 8);
  const NestBufferId x = b.add_global(f32, 64 * pitch + 8 * step);
  const NestBufferId y = b.add_local(f32, 1024, 1024);
  const Scalar truth = b.constant_int(DType::Bool, 1);
  const Symbol row = b.begin_for(32, ForStmt::Kind::Serial);
  const Symbol i = b.begin_for(32, ForStmt::Kind::Vector);
  const Scalar read =
      b.load(x, SymExpr(row) * pitch + SymExpr(tile) * step + i, is_masked ? truth.id : kNoScalar);
  b.store(y, SymExpr(row) * 32 + i, read);
  b.end_for();
  b.end_for();
  const auto found = cpu::row_fetches(b.finish());
  for (const auto& [load, distance] : found) EXPECT_TRUE(distance.is_constant(step));
  return found.size();
}

TEST(LlvmRowFetch, PiecesOfRowsFetchTheOnesBeside) {
  EXPECT_EQ(piece_fetches(3136, 32), 1u);
  EXPECT_EQ(piece_fetches(512, 32), 1u);
  EXPECT_EQ(piece_fetches(511, 32), 0u) << "some are in one page";
  EXPECT_EQ(piece_fetches(3136, 4096), 0u) << "the next ones are other rows";
  EXPECT_EQ(piece_fetches(3136, 0), 0u) << "the next ones are the same";
  EXPECT_EQ(piece_fetches(3136, 32, true), 0u);
}

/// Elements `offsets` of x that 16 lanes share, in a loop over blocks of a row that go on by `step` each.
std::vector<std::int64_t> block_fetches(std::int64_t step, const std::vector<std::int64_t>& offsets,
                                        bool is_shared = true) {
  NestBuilder b("blocks");
  const Symbol row = b.new_axis(8);
  b.set_parallel(row, 8);
  const NestBufferId x = b.add_global(f32, 1 << 16);
  const NestBufferId y = b.add_global(f32, 1 << 16);
  const Symbol block = b.begin_for(38, ForStmt::Kind::Serial);
  const Symbol lane = b.begin_for(16, ForStmt::Kind::Vector);
  const Symbol plane = b.begin_for(3, ForStmt::Kind::Serial);
  for (const std::int64_t offset : offsets) {
    const SymExpr at = SymExpr(row) * 1216 + SymExpr(block) * step + SymExpr(plane) * 608 + offset;
    b.store(y, SymExpr(row) * 16 + lane, b.load(x, is_shared ? at : at + SymExpr(lane)));
  }
  b.end_for();
  b.end_for();
  b.end_for();
  const Nest nest = b.finish();
  std::vector<std::int64_t> found;
  for (const auto& [load, distance] : cpu::row_fetches(nest)) {
    EXPECT_TRUE(distance.is_constant(6 * step));
    found.push_back(
        (load->index - SymExpr(row) * 1216 - SymExpr(block) * step - SymExpr(plane) * 608)
            .constant());
  }
  std::ranges::sort(found);
  return found;
}

TEST(LlvmRowFetch, ElementsThatLanesShareFetchBlocksAhead) {
  using Found = std::vector<std::int64_t>;
  EXPECT_EQ(block_fetches(16, {-1, 0, 1, 14, 15, 31}), (Found{-1, 15, 31}))
      << "each line that a block reads once";
  EXPECT_EQ(block_fetches(8, {0, 1, 2}), Found{0});
  EXPECT_EQ(block_fetches(7, {0, 1, 2}), Found{}) << "blocks share lines";
  EXPECT_EQ(block_fetches(256, {0, 1, 2}), Found{}) << "blocks lie apart";
  EXPECT_EQ(block_fetches(16, {0, 1, 2}, false), Found{}) << "each lane reads its own";
}

/// The code asks for each line of the next row once, in the main loop alone, and computes the same.
TEST(LlvmRowFetch, CodeAsksForEachLineOnce) {
  constexpr std::int64_t kExtent = 300;
  Rows rows(kExtent);
  const Nest nest = rows.loop(ScalarOp::Abs).loop(ScalarOp::Exp).builder.finish();
  cpu::CodegenTexts texts;
  cpu::compile_object(nest, cpu::host_target(), &texts);
  int fetched = 0;
  const std::string call = "call void @llvm.prefetch.p0(ptr ";
  for (std::size_t at = texts.ir.find(call); at != std::string::npos;
       at = texts.ir.find(call, at + 1)) {
    EXPECT_LT(texts.ir.find("i32 0, i32 3, i32 1)", at), texts.ir.find('\n', at));
    ++fetched;
  }
  const std::int64_t bytes = cpu::host_target().vector_bytes;
  EXPECT_GT(fetched, 0);
  EXPECT_EQ(fetched * 64 % bytes, 0);
  std::vector<float> x(kRows * kExtent);
  std::vector<float> y(x.size());
  for (std::size_t k = 0; k < x.size(); ++k) x[k] = static_cast<float>(k % 17) - 8;
  EXPECT_EQ(CompiledNest(nest).run({x.data(), y.data()}, {0}), 0);
  for (std::size_t k = 0; k < x.size(); ++k)
    ASSERT_NEAR(y[k], std::exp(x[k]), 1e-6 * std::exp(x[k]) + 1e-9);
}

}  // namespace
}  // namespace heddle::jit
