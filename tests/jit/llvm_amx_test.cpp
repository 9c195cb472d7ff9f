// Contractions of groups by AMX's matrix registers, against plain loops, where the processor has them; and what is emitted, anywhere.
#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <ostream>
#include <string>

#include "base/half.h"
#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"
#include "tests/support/guarded_memory.h"

namespace heddle::jit {
namespace {

using tests::CompiledNest;
using tests::GuardedMemory;

constexpr std::int64_t kTileRows = 32;
constexpr std::int64_t kTileColumns = 64;

struct AmxCase {
  bool is_bf16 = false;
  bool accumulate = true;
  bool knows_depth = true;
  std::int64_t known_rows = 0;  ///< 0: the kernel is told how many when it runs
  bool fetches = false;         ///< what lies behind the right matrix

  std::int64_t size() const { return is_bf16 ? 2 : 4; }  ///< elements of a group
  DType a() const { return is_bf16 ? DType::BF16 : DType::U8; }
  DType b() const { return is_bf16 ? DType::BF16 : DType::I8; }
  DType sum() const { return is_bf16 ? DType::F32 : DType::I32; }
};

std::ostream& operator<<(std::ostream& out, const AmxCase& c) {
  return out << (c.is_bf16 ? "bf16" : "bytes") << (c.accumulate ? ", sums of before" : "")
             << (c.knows_depth ? "" : ", any depth") << ", " << c.known_rows << " known rows";
}

/// out[m, n] = 3, if sums go on from there, + a . b; rows of a lie 8 bytes further apart than they are long.
Nest amx_product(const AmxCase& c, std::int64_t groups) {
  NestBuilder b("product");
  b.nest().size_count = 3;
  const SymExpr rows = c.known_rows == 0 ? SymExpr::size(0) : SymExpr(c.known_rows);
  const SymExpr columns = SymExpr::size(1);
  const SymExpr depth = c.knows_depth ? SymExpr(groups) : SymExpr::size(2);
  const SymExpr pitch = depth * c.size() + 2 * c.size();
  const auto left = b.add_global(c.a(), rows * pitch);
  const auto right = b.add_global(c.b(), depth * kTileColumns * c.size());
  const auto out = b.add_global(c.sum(), rows * columns);
  const auto sums = b.add_local(c.sum(), kTileRows * kTileColumns, kTileRows * kTileColumns);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol k = b.begin_for(kTileRows * kTileColumns, ForStmt::Kind::Vector);
  b.store(sums, k, c.is_bf16 ? b.constant(c.sum(), 3) : b.constant_int(c.sum(), 3));
  b.end_for();
  b.contract({.acc = sums,
              .dtype = c.sum(),
              .tile_rows = kTileRows,
              .tile_columns = kTileColumns,
              .rows = rows,
              .columns = columns,
              .depth = depth,
              .a = {left, 0, pitch, c.size()},
              .b = {right, 0, kTileColumns * c.size(), c.size()},
              .accumulate = c.accumulate,
              .group = c.size(),
              .ahead = c.fetches ? depth * kTileColumns * c.size() : SymExpr(0),
              .ahead_count = c.fetches ? 1 << 14 : 0});
  b.nest().buffers[sums].read = true;
  const Symbol m = b.begin_for(rows, ForStmt::Kind::Serial);
  const Symbol n = b.begin_for(columns, ForStmt::Kind::Vector);
  b.store(out, SymExpr(m) * columns + SymExpr(n),
          b.load(sums, SymExpr(m) * kTileColumns + SymExpr(n)));
  b.end_for();
  b.end_for();
  return b.finish();
}

/// Numbers whose sums both dtypes hold.
std::int64_t left_number(const AmxCase& c, std::int64_t k) {
  return c.is_bf16 ? k * 37 % 251 - 125 : k % 3 == 0 ? 255 : k * 37 % 256;
}
std::int64_t right_number(const AmxCase& c, std::int64_t k) {
  return c.is_bf16 ? k * 11 % 127 - 63 : k % 7 < 2 ? 127 : k * 11 % 256 - 128;
}

void put_number(DType dtype, const GuardedMemory& memory, std::int64_t at, std::int64_t value) {
  if (dtype == DType::BF16)
    memory.as<std::uint16_t>()[at] = base::BFloat16(static_cast<float>(value)).bits;
  else
    memory.as<std::uint8_t>()[at] = static_cast<std::uint8_t>(value);
}

/// Neither matrix is read beyond its end.
void expect_product(const AmxCase& c, std::int64_t groups, std::int64_t rows,
                    std::int64_t columns) {
  const CompiledNest code(amx_product(c, groups));
  const std::int64_t depth = groups * c.size();
  const std::int64_t pitch = depth + 2 * c.size();
  const auto bytes = [](DType dtype, std::int64_t count) {
    return static_cast<std::size_t>(count) * size_of(dtype);
  };
  const GuardedMemory left(bytes(c.a(), (rows - 1) * pitch + depth));
  const GuardedMemory right(bytes(c.b(), depth * kTileColumns));
  const GuardedMemory out(bytes(c.sum(), rows * columns));
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t k = 0; k < depth; ++k)
      put_number(c.a(), left, m * pitch + k, left_number(c, m * depth + k));
  for (std::int64_t k = 0; k < depth * kTileColumns; ++k)
    put_number(c.b(), right, k, right_number(c, k));
  ASSERT_EQ(code.run({left.as<void>(), right.as<void>(), out.as<void>()}, {rows, columns, groups}),
            0);
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t n = 0; n < columns; ++n) {
      std::int64_t sum = c.accumulate ? 3 : 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        const std::int64_t place = (k / c.size() * kTileColumns + n) * c.size() + k % c.size();
        sum += left_number(c, m * depth + k) * right_number(c, place);
      }
      const std::int64_t at = m * columns + n;
      const std::int64_t got =
          c.is_bf16 ? static_cast<std::int64_t>(out.as<float>()[at]) : out.as<std::int32_t>()[at];
      ASSERT_EQ(got, sum) << m << ", " << n << " of " << rows << " x " << columns << " by "
                          << groups << " groups, " << c;
    }
}

/// out[rows, 50] = runs of a times panels of 32 columns: of each row 3 runs of 16 groups, 5 elements further on than the one before by
/// two rows, and what follows the sums for `extra` operations.
constexpr std::int64_t kRuns = 3;
constexpr std::int64_t kRunGroups = 16;
constexpr std::int64_t kRunColumns = 50;

Nest product_of_runs(bool is_bf16, const SymExpr& rows, int extra = 0) {
  const AmxCase c{.is_bf16 = is_bf16};
  NestBuilder b("runs");
  b.nest().size_count = 1;
  const std::int64_t pitch = kRunGroups * c.size() + 4;
  const std::int64_t panel = kRuns * kRunGroups * 32 * c.size();
  const auto left = b.add_global(c.a(), (rows + 2 * kRuns + 16) * pitch);
  const auto right = b.add_global(c.b(), 2 * panel);
  const auto out = b.add_global(c.sum(), rows * kRunColumns);
  const auto sums = b.add_local(c.sum(), kTileRows * kTileColumns, kTileRows * kTileColumns);
  b.set_parallel(b.new_axis(1), 1);
  b.contract({.acc = sums,
              .dtype = c.sum(),
              .tile_rows = kTileRows,
              .tile_columns = kTileColumns,
              .rows = rows,
              .columns = kRunColumns,
              .depth = kRunGroups,
              .a = {left, 0, pitch, c.size()},
              .b = {right, 0, 32 * c.size(), c.size()},
              .group = c.size(),
              .runs = {{kRuns, 2 * pitch, kRunGroups * 32 * c.size()}},
              .panel_columns = 32,
              .panel_stride = panel});
  b.nest().buffers[sums].read = true;
  const Symbol m = b.begin_for(rows, ForStmt::Kind::Serial);
  const Symbol n = b.begin_for(kRunColumns, ForStmt::Kind::Vector);
  auto value = b.load(sums, SymExpr(m) * kTileColumns + SymExpr(n));
  for (int k = 0; k < extra; ++k) value = b.apply(ir::ScalarOp::Mul, {value, value});
  b.store(out, SymExpr(m) * kRunColumns + SymExpr(n), value);
  b.end_for();
  b.end_for();
  return b.finish();
}

void expect_runs(bool is_bf16, const SymExpr& known_rows, std::int64_t rows) {
  const AmxCase c{.is_bf16 = is_bf16};
  const CompiledNest code(product_of_runs(is_bf16, known_rows));
  const std::int64_t run = kRunGroups * c.size(), pitch = run + 4, panel = kRuns * run * 32;
  const auto bytes = [](DType dtype, std::int64_t count) {
    return static_cast<std::size_t>(count) * size_of(dtype);
  };
  const std::int64_t left_count = (rows - 1 + 2 * (kRuns - 1)) * pitch + run;
  const GuardedMemory left(bytes(c.a(), left_count)), right(bytes(c.b(), 2 * panel));
  const GuardedMemory out(bytes(c.sum(), rows * kRunColumns));
  for (std::int64_t k = 0; k < left_count; ++k) put_number(c.a(), left, k, left_number(c, k));
  for (std::int64_t k = 0; k < 2 * panel; ++k) put_number(c.b(), right, k, right_number(c, k));
  ASSERT_EQ(code.run({left.as<void>(), right.as<void>(), out.as<void>()}, {rows}), 0);
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t n = 0; n < kRunColumns; ++n) {
      std::int64_t sum = 0;
      for (std::int64_t r = 0; r < kRuns; ++r)
        for (std::int64_t k = 0; k < run; ++k) {
          const std::int64_t row = r * kRunGroups + k / c.size();
          const std::int64_t place = n / 32 * panel + (row * 32 + n % 32) * c.size() + k % c.size();
          sum += left_number(c, (m + 2 * r) * pitch + k) * right_number(c, place);
        }
      const std::int64_t at = m * kRunColumns + n;
      const std::int64_t got =
          is_bf16 ? static_cast<std::int64_t>(out.as<float>()[at]) : out.as<std::int32_t>()[at];
      ASSERT_EQ(got, sum) << m << ", " << n << " of " << rows << (is_bf16 ? ", bf16" : ", bytes");
    }
}

/// By registers where the processor has them, and by vectors where it has none. No row is read but those asked for.
TEST(LlvmAmx, RunsByPanels) {
  for (const bool is_bf16 : {false, true})
    for (const std::int64_t rows : {1, 2, 5, 16, 17, 31, 32}) {
      expect_runs(is_bf16, SymExpr::size(0), rows);
      expect_runs(is_bf16, rows, rows);
    }
}

bool has_amx() { return cpu::has_amx(cpu::host_target()); }

TEST(LlvmAmx, EveryEdgeOfATile) {
  if (!has_amx()) GTEST_SKIP() << "needs AMX";
  for (const bool is_bf16 : {false, true})
    for (const bool accumulate : {false, true})
      for (const bool knows_depth : {false, true}) {
        const AmxCase c{is_bf16, accumulate, knows_depth, 0};
        for (const std::int64_t rows : {1, 2, 3, 15, 16, 17, 31, 32})
          for (const std::int64_t columns : {1, 16, 17, 33, 63, 64})
            expect_product(c, 37, rows, columns);
        for (const std::int64_t groups : {1, 15, 16, 32, 96}) expect_product(c, groups, 19, 50);
      }
}

TEST(LlvmAmx, RowsThatAreKnown) {
  if (!has_amx()) GTEST_SKIP() << "needs AMX";
  for (const bool is_bf16 : {false, true})
    for (const std::int64_t rows : {1, 2, 3, 16, 30, 32})
      expect_product({is_bf16, false, true, rows}, 48, rows, 64);
}

TEST(LlvmAmx, WhatIsFetchedMeanwhileMayBeNothing) {
  if (!has_amx()) GTEST_SKIP() << "needs AMX";
  for (const bool is_bf16 : {false, true})
    for (const std::int64_t rows : {1, 16, 17, 32})
      expect_product({.is_bf16 = is_bf16, .fetches = true}, 48, rows, 50);
}

/// Code for a processor with them, whatever this one has.
std::string code_for_amx(const Nest& nest) {
  cpu::CodegenTarget target = cpu::host_target();
  target.vector_bytes = 64;
  target.features =
      "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512vnni,+avx512bf16,+fma,+amx-tile,"
      "+amx-int8,+amx-bf16";
  cpu::CodegenTexts texts;
  cpu::compile_object(nest, target, &texts);
  return texts.ir;
}
std::string code_for_amx(const AmxCase& c, std::int64_t groups) {
  return code_for_amx(amx_product(c, groups));
}

std::int64_t occurrences(const std::string& text, const std::string& part) {
  std::int64_t found = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(LlvmAmx, RegistersAreShapedOnceAndGivenBack) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "needs x86-64";
#endif
  const std::string bytes = code_for_amx({}, 64);
  EXPECT_EQ(occurrences(bytes, "call void @llvm.x86.ldtilecfg"), 1);
  EXPECT_EQ(occurrences(bytes, "call void @llvm.x86.tilerelease"), occurrences(bytes, "ret void"));
  EXPECT_GT(occurrences(bytes, "call void @llvm.x86.tdpbusd("), 0);
  const std::string floats = code_for_amx({.is_bf16 = true}, 64);
  EXPECT_EQ(occurrences(floats, "call void @llvm.x86.ldtilecfg"), 1);
  EXPECT_GT(occurrences(floats, "call void @llvm.x86.tdpbf16ps("), 0);
  EXPECT_EQ(occurrences(floats, "llvm.x86.tdpbusd"), 0);
}

/// Two rows of bytes at most, and depths of fewer than 16 groups, take vectors.
TEST(LlvmAmx, FewRowsAndGroupsTakeNone) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "needs x86-64";
#endif
  EXPECT_EQ(occurrences(code_for_amx({.known_rows = 2}, 64), "llvm.x86.tile"), 0);
  EXPECT_GT(occurrences(code_for_amx({.known_rows = 3}, 64), "llvm.x86.tile"), 0);
  EXPECT_GT(occurrences(code_for_amx({.is_bf16 = true, .known_rows = 1}, 64), "llvm.x86.tile"), 0);
  EXPECT_EQ(occurrences(code_for_amx({}, 15), "llvm.x86.tile"), 0);
}

TEST(LlvmAmx, RunsTakeRegistersAndWholeOnesNoCopies) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "needs x86-64";
#endif
  const auto copies = [](const SymExpr& rows) {
    return occurrences(code_for_amx(product_of_runs(false, rows)), "alloca [1024 x i8]");
  };
  EXPECT_GT(occurrences(code_for_amx(product_of_runs(false, 32)), "llvm.x86.tdpbusd("), 0);
  EXPECT_GT(occurrences(code_for_amx(product_of_runs(true, 32)), "llvm.x86.tdpbf16ps("), 0);
  EXPECT_EQ(copies(32), 0);
  EXPECT_EQ(copies(16 * ceildiv(SymExpr::size(0), 16)), 0);
  EXPECT_GT(copies(SymExpr::size(0)), 0);
}

TEST(LlvmAmx, FetchWhatComesNext) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "needs x86-64";
#endif
  // Vectors fetch, too, where rows are few.
  const auto fetches = [](const AmxCase& c) {
    return occurrences(code_for_amx(c, 64), "call void @llvm.prefetch");
  };
  EXPECT_GE(fetches({.fetches = true}), fetches({}) + 8);
}

/// Long work on the sums of a tile keeps them awake, by products of bytes whatever the sums are of.
TEST(LlvmAmx, StayAwakeThroughLongWork) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "needs x86-64";
#endif
  const auto products = [](int extra) {
    return occurrences(code_for_amx(product_of_runs(true, 32, extra)),
                       "call void @llvm.x86.tdpbusd(");
  };
  EXPECT_EQ(products(3), 0);
  EXPECT_EQ(products(40), 1);
}

/// Without leave of the system, or where they are not wanted, nothing takes them.
TEST(LlvmAmx, AreLeftWhereTheyAreNotWanted) {
  EXPECT_FALSE(cpu::has_amx(cpu::host_target(0, false)));
  EXPECT_FALSE(cpu::has_amx(cpu::host_target(32)));
  EXPECT_EQ(cpu::host_target(0, false).features.find("+amx"), std::string::npos);
}

}  // namespace
}  // namespace heddle::jit
