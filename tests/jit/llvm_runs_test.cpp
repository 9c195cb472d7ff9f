// Contractions of runs of every count, length and dtype, against plain loops.
#include <gtest/gtest.h>
#include <vector>

#include "jit/nest_builder.h"
#include "tests/jit/contract_elements.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {

using tests::CompiledNest;

/// out[m, n] = the sum over 2 x `runs` of a's and b's rows of `depth`, which lie three elements apart.
CompiledNest compile_runs(DType dtype, std::int64_t columns, std::int64_t tile_rows,
                          std::int64_t known_depth, std::int64_t vector_bytes) {
  NestBuilder builder("runs");
  builder.nest().size_count = 3;
  const SymExpr rows = SymExpr::size(0), runs = SymExpr::size(1);
  const SymExpr depth = known_depth == 0 ? SymExpr::size(2) : SymExpr(known_depth);
  const SymExpr step = depth + 3;
  const auto a = builder.add_global(dtype, rows * 2 * runs * step);
  const auto b = builder.add_global(dtype, columns * 2 * runs * step);
  const auto out = builder.add_global(dtype, rows * columns);
  const auto acc = builder.add_local(dtype, tile_rows * columns, tile_rows * columns);
  builder.set_parallel(builder.new_axis(1), 1);
  builder.contract({.acc = acc,
                    .dtype = dtype,
                    .tile_rows = tile_rows,
                    .tile_columns = columns,
                    .rows = rows,
                    .columns = columns,
                    .depth = depth,
                    .a = {a, 0, runs * 2 * step, 1},
                    .b = {b, 0, 1, runs * 2 * step},
                    .runs = {{2, runs * step, runs * step}, {runs, step, step}}});
  builder.nest().buffers[acc].read = true;
  const SymExpr k = builder.begin_for(rows * columns, ForStmt::Kind::Serial);
  builder.store(out, k, builder.load(acc, k));
  builder.end_for();
  return CompiledNest(builder.finish(), vector_bytes);
}

void expect_runs(DType dtype, const CompiledNest& code, std::int64_t rows, std::int64_t columns,
                 std::int64_t runs, std::int64_t depth) {
  const std::int64_t length = 2 * runs * (depth + 3);
  const auto make = [&](std::int64_t count) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count) * size_of(dtype));
    for (std::int64_t k = 0; k < count; ++k) put(dtype, bytes, k, element(k, false));
    return bytes;
  };
  auto a = make(rows * length), b = make(columns * length), out = make(rows * columns);
  code.run({a.data(), b.data(), out.data()}, {rows, runs, depth});
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t n = 0; n < columns; ++n) {
      std::int64_t sum = 0;
      for (std::int64_t k = 0; k < length; ++k)
        if (k % (depth + 3) < depth)
          sum += element(m * length + k, false) * element(n * length + k, false);
      ASSERT_EQ(get(dtype, out, m * columns + n), static_cast<double>(sum))
          << "row " << m << " column " << n << " of " << rows << "x" << columns << ", " << runs
          << " runs of " << depth;
    }
}

TEST(LlvmRuns, OfEveryCountAndLength) {
  for (const DType dtype : {f32, f64})
    for (const std::int64_t vector_bytes : {64, 32, 16})
      for (const std::int64_t columns : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 36}) {
        const CompiledNest open = compile_runs(dtype, columns, 33, 0, vector_bytes);
        for (const std::int64_t rows : {1, 2, 15, 16, 17, 33})
          for (const std::int64_t depth : {0, 1, 7, 16, 40}) {
            expect_runs(dtype, open, rows, columns, 2, depth);
            expect_runs(dtype, open, rows, columns, 0, depth);
          }
        for (const std::int64_t depth : {3, 24, 32, 61, 64, 130}) {
          const CompiledNest known = compile_runs(dtype, columns, 20, depth, vector_bytes);
          for (const std::int64_t rows : {1, 8, 20})
            expect_runs(dtype, known, rows, columns, 1, depth);
        }
      }
}

/// out[m, n] = the sum over 2 x `runs` of groups of bytes of a's rows, which overlap, and of b's panels.
CompiledNest compile_byte_runs(std::int64_t columns, std::int64_t known_depth,
                               std::int64_t vector_bytes) {
  NestBuilder builder("byte_runs");
  builder.nest().size_count = 3;
  const SymExpr rows = SymExpr::size(0), runs = SymExpr::size(1);
  const SymExpr depth = known_depth == 0 ? SymExpr::size(2) : SymExpr(known_depth);
  const SymExpr step = depth * 4 + 3;
  const auto a = builder.add_global(DType::U8, rows * 6 + 2 * runs * step);
  const auto b = builder.add_global(DType::I8, 2 * runs * depth * columns * 4);
  const auto out = builder.add_global(DType::I32, rows * columns);
  const auto acc = builder.add_local(DType::I32, 33 * columns, 33 * columns);
  builder.set_parallel(builder.new_axis(1), 1);
  builder.contract(
      {.acc = acc,
       .dtype = DType::I32,
       .tile_rows = 33,
       .tile_columns = columns,
       .rows = rows,
       .columns = columns,
       .depth = depth,
       .a = {a, 0, 6, 4},
       .b = {b, 0, columns * 4, 4},
       .group = 4,
       .runs = {{2, runs * step, runs * depth * columns * 4}, {runs, step, depth * columns * 4}}});
  builder.nest().buffers[acc].read = true;
  const SymExpr k = builder.begin_for(rows * columns, ForStmt::Kind::Serial);
  builder.store(out, k, builder.load(acc, k));
  builder.end_for();
  return CompiledNest(builder.finish(), vector_bytes);
}

void expect_byte_runs(const CompiledNest& code, std::int64_t rows, std::int64_t columns,
                      std::int64_t runs, std::int64_t depth) {
  const std::int64_t step = depth * 4 + 3;
  std::vector<std::uint8_t> a(static_cast<std::size_t>(rows * 6 + 2 * runs * step));
  std::vector<std::int8_t> b(static_cast<std::size_t>(2 * runs * depth * columns * 4));
  for (std::size_t k = 0; k < a.size(); ++k) a[k] = static_cast<std::uint8_t>(k * 37 + 255);
  for (std::size_t k = 0; k < b.size(); ++k) b[k] = static_cast<std::int8_t>(k * 53 - 128);
  std::vector<std::int32_t> out(static_cast<std::size_t>(rows * columns));
  code.run({a.data(), b.data(), out.data()}, {rows, runs, depth});
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t n = 0; n < columns; ++n) {
      std::int32_t sum = 0;
      for (std::int64_t run = 0; run < 2 * runs; ++run)
        for (std::int64_t k = 0; k < depth * 4; ++k) {
          const std::int64_t row = run * depth + k / 4;
          sum += a[static_cast<std::size_t>(m * 6 + run * step + k)] *
                 b[static_cast<std::size_t>((row * columns + n) * 4 + k % 4)];
        }
      ASSERT_EQ(out[static_cast<std::size_t>(m * columns + n)], sum)
          << "row " << m << " column " << n << " of " << rows << "x" << columns << ", " << runs
          << " runs of " << depth;
    }
}

TEST(LlvmRuns, OfGroupsOfBytes) {
  for (const std::int64_t vector_bytes : {64, 32, 16})
    for (const std::int64_t columns : {1, 15, 16, 24, 32, 33, 64}) {
      const CompiledNest open = compile_byte_runs(columns, 0, vector_bytes);
      for (const std::int64_t rows : {1, 3, 4, 5, 8, 9, 12, 13, 33})
        for (const std::int64_t depth : {0, 1, 9})
          for (const std::int64_t runs : {0, 2}) expect_byte_runs(open, rows, columns, runs, depth);
      for (const std::int64_t depth : {1, 6, 9})
        expect_byte_runs(compile_byte_runs(columns, depth, vector_bytes), 13, columns, 1, depth);
    }
}

}  // namespace
}  // namespace heddle::jit
