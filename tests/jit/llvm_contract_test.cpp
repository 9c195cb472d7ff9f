// Tile contractions of every edge size, dtype and layout, against plain loops.
#include <algorithm>
#include <cctype>
#include <cstring>
#include <gtest/gtest.h>
#include <sstream>
#include <vector>

#include "base/half.h"
#include "jit/nest_builder.h"
#include "tests/jit/contract_elements.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {

using tests::CompiledNest;

enum class Layout { RowMajor, Transposed };

struct Case {
  DType a = f32;
  DType b = f32;
  DType acc = f32;
  std::int64_t tile_rows = 6;
  std::int64_t tile_columns = 64;
  Layout a_layout = Layout::RowMajor;
  Layout b_layout = Layout::RowMajor;
  std::int64_t known_columns = 0;  ///< 0: the kernel is told how many when it runs
  bool gathers = false;            ///< pairs of bf16
  std::int64_t known_depth = 0;    ///< the same of the depth
};

/// out[m, n] = the contraction of a [rows, depth] and b [depth, columns], in two halves of the depth.
CompiledNest compile_contraction(const Case& c, std::int64_t vector_bytes) {
  NestBuilder builder("contract");
  builder.nest().size_count = 3;
  const SymExpr rows = SymExpr::size(0);
  const SymExpr columns = c.known_columns == 0 ? SymExpr::size(1) : SymExpr(c.known_columns);
  const SymExpr depth = c.known_depth == 0 ? SymExpr::size(2) : SymExpr(c.known_depth);
  const auto a = builder.add_global(c.a, rows * depth + (c.gathers ? 1 : 0));
  const auto b = builder.add_global(c.b, depth * columns);
  const auto out = builder.add_global(c.acc, rows * columns);
  const std::int64_t tile = c.tile_rows * c.tile_columns;
  const auto acc = builder.add_local(c.acc, tile, tile);
  builder.set_parallel(builder.new_axis(1), 1);
  const bool a_plain = c.a_layout == Layout::RowMajor;
  const bool b_plain = c.b_layout == Layout::RowMajor;
  const SymExpr half = floordiv(depth, 2);
  const bool one_tile = c.known_columns <= c.tile_columns;
  SymExpr first = 0;
  SymExpr of_tile = columns;
  if (!one_tile) {
    const SymExpr tiles = ceildiv(columns, c.tile_columns);
    first = SymExpr(builder.begin_for(tiles, ForStmt::Kind::Serial)) * c.tile_columns;
    of_tile = min(c.tile_columns, columns - first);
  }
  for (bool second : {false, true}) {
    ContractStmt s;
    s.acc = acc;
    s.dtype = c.acc;
    s.tile_rows = c.tile_rows;
    s.tile_columns = c.tile_columns;
    s.rows = rows;
    s.columns = of_tile;
    s.depth = second ? depth - half : half;
    s.a = {a, 0, a_plain ? depth : SymExpr(1), a_plain ? SymExpr(1) : rows};
    s.b = {b, 0, b_plain ? columns : SymExpr(1), b_plain ? SymExpr(1) : depth};
    if (second) {
      s.a.base = half * s.a.column_stride;
      s.b.base = half * s.b.row_stride;
    }
    s.b.base += first * s.b.column_stride;
    s.accumulate = second;
    s.gathers = c.gathers;
    s.group = c.gathers ? 2 : 1;
    builder.contract(s);
  }
  builder.nest().buffers[acc].read = true;
  const Symbol m = builder.new_axis(rows);
  const Symbol n = builder.new_axis(of_tile);
  builder.begin_for(m, rows, ForStmt::Kind::Serial);
  builder.begin_for(n, of_tile, ForStmt::Kind::Vector);
  builder.store(out, SymExpr(m) * columns + first + SymExpr(n),
                builder.load(acc, SymExpr(m) * c.tile_columns + SymExpr(n)));
  builder.end_for();
  builder.end_for();
  if (!one_tile) builder.end_for();
  return CompiledNest(builder.finish(), vector_bytes);
}

void expect_contraction(const Case& c, const CompiledNest& code, std::int64_t rows,
                        std::int64_t columns, std::int64_t depth) {
  const auto make = [](DType dtype, std::int64_t count) {
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count) * size_of(dtype));
    for (std::int64_t k = 0; k < count; ++k) put(dtype, bytes, k, element(k, !is_signed(dtype)));
    return bytes;
  };
  auto a = make(c.a, rows * depth + (c.gathers ? 1 : 0));
  auto b = make(c.b, depth * columns);
  auto out = make(c.acc, rows * columns);
  code.run({a.data(), b.data(), out.data()}, {rows, columns, depth});
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t n = 0; n < columns; ++n) {
      std::int64_t sum = 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        const auto i = c.a_layout == Layout::RowMajor ? m * depth + k : k * rows + m;
        const auto j = c.b_layout == Layout::RowMajor ? k * columns + n : n * depth + k;
        sum += element(i, !is_signed(c.a)) * element(j, !is_signed(c.b));
      }
      ASSERT_EQ(get(c.acc, out, m * columns + n), static_cast<double>(sum))
          << "row " << m << " column " << n << " of " << rows << "x" << columns << ", depth "
          << depth;
    }
  }
}

TEST(LlvmContract, EveryEdgeOfATile) {
  for (std::int64_t vector_bytes : {64, 32}) {
    const Case c{.tile_rows = 7, .tile_columns = 72};
    const CompiledNest code = compile_contraction(c, vector_bytes);
    for (std::int64_t rows = 1; rows <= 7; ++rows)
      for (std::int64_t columns = 1; columns <= 72; ++columns)
        expect_contraction(c, code, rows, columns, 5);
    for (std::int64_t depth : {0, 1, 2, 63, 130}) expect_contraction(c, code, 5, 70, depth);
  }
}

/// Columns that are left over of whole blocks are multiplied at once where it is known how many they are.
TEST(LlvmContract, KnownColumns) {
  for (std::int64_t vector_bytes : {64, 32, 16})
    for (std::int64_t columns :
         {1, 8, 12, 15, 16, 18, 31, 33, 42, 48, 60, 64, 65, 80, 96, 113, 128})
      for (const Layout layout : {Layout::RowMajor, Layout::Transposed}) {
        const Case c{.tile_rows = 32, .b_layout = layout, .known_columns = columns};
        const CompiledNest code = compile_contraction(c, vector_bytes);
        for (std::int64_t rows : {1, 2, 3, 15, 16, 29, 32})
          expect_contraction(c, code, rows, columns, 7);
      }
}

/// One vector of columns behind whole blocks is multiplied for more rows at once, and by each row once.
TEST(LlvmContract, OneVectorOfColumnsLeftOver) {
  for (const std::int64_t vector_bytes : {64, 32, 16}) {
    const std::int64_t lanes = vector_bytes / 4;
    for (const std::int64_t vectors : {2, 3, 4, 5}) {
      for (const bool known : {true, false}) {
        const std::int64_t tile = vectors * lanes;
        for (const std::int64_t columns : {tile, tile - 3, 2 * lanes + 1}) {
          if (columns > tile) continue;
          const Case c{.tile_rows = 32,
                       .tile_columns = tile,
                       .known_columns = known ? columns : 0,
                       .known_depth = 5};
          const CompiledNest code = compile_contraction(c, vector_bytes);
          for (const std::int64_t rows : {1, 2, 7, 8, 9, 15, 27, 32})
            expect_contraction(c, code, rows, columns, 5);
        }
      }
    }
  }
}

TEST(LlvmContract, PairsThatAreGathered) {
  for (const std::int64_t vector_bytes : {64, 32, 16})
    for (const DType of_b : {f32, bf16})
      for (const Layout layout : {Layout::RowMajor, Layout::Transposed})
        for (const std::int64_t known : {0, 32, 70}) {
          const Case c{.a = bf16,
                       .b = of_b,
                       .tile_rows = 13,
                       .tile_columns = 72,
                       .b_layout = layout,
                       .known_columns = known,
                       .gathers = true};
          const CompiledNest code = compile_contraction(c, vector_bytes);
          for (const std::int64_t columns : {1, 15, 16, 33, 70, 72}) {
            if (known != 0 && columns != known) continue;
            for (const std::int64_t depth : {0, 1, 2, 3, 31, 64, 66, 190, 263})
              expect_contraction(c, code, 13, columns, depth);
            expect_contraction(c, code, 2, columns, 5);
          }
        }
}

TEST(LlvmContract, EveryTileShape) {
  const std::pair<std::int64_t, std::int64_t> shapes[] = {{1, 16}, {14, 32}, {30, 16}, {4, 128},
                                                          {6, 64}, {13, 48}, {3, 5},   {1, 1}};
  for (const auto& [rows, columns] : shapes) {
    const Case c{.tile_rows = rows, .tile_columns = columns};
    const CompiledNest code = compile_contraction(c, 0);
    expect_contraction(c, code, rows, columns, 20);
    expect_contraction(c, code, (rows + 1) / 2, (columns + 1) / 2, 20);
  }
}

TEST(LlvmContract, EveryLayout) {
  for (Layout a : {Layout::RowMajor, Layout::Transposed}) {
    for (Layout b : {Layout::RowMajor, Layout::Transposed}) {
      const Case c{.a_layout = a, .b_layout = b};
      for (std::int64_t vector_bytes : {64, 32}) {
        const CompiledNest code = compile_contraction(c, vector_bytes);
        for (std::int64_t columns : {1, 15, 16, 17, 33, 64})
          for (std::int64_t rows : {1, 4, 5, 6})
            for (std::int64_t depth : {0, 1, 16, 37, 128, 300})
              expect_contraction(c, code, rows, columns, depth);
      }
    }
  }
}

TEST(LlvmContract, EveryDtype) {
  const std::tuple<DType, DType, DType> dtypes[] = {
      {f64, f64, f64}, {f16, f16, f32}, {bf16, bf16, f32}, {f32, bf16, f32}, {i8, i8, i32},
      {u8, i8, i32},   {u8, u8, i32},   {i32, i32, i32},   {i64, i64, i64},  {i32, i32, i64}};
  for (const auto& [a, b, acc] : dtypes) {
    for (Layout layout : {Layout::RowMajor, Layout::Transposed}) {
      const Case c{.a = a, .b = b, .acc = acc, .tile_columns = 40, .b_layout = layout};
      const CompiledNest code = compile_contraction(c, 0);
      for (std::int64_t columns : {1, 8, 23, 40})
        for (std::int64_t rows : {1, 6}) expect_contraction(c, code, rows, columns, 19);
    }
  }
}

/// What group_nest() multiplies.
struct Groups {
  DType a = u8;
  DType b = i8;
  DType acc = i32;
  std::int64_t size = 4;  ///< elements
  bool pairs_fit = false;
};
constexpr Groups kPairs{.a = bf16, .b = bf16, .acc = f32, .size = 2};

/// out[m, n] = the sum of products of groups: a lies by rows, b by groups of columns.
Nest group_nest(std::int64_t groups, const Groups& of = {}, std::int64_t tile_rows = 7) {
  NestBuilder builder("groups");
  builder.nest().size_count = 2;
  const SymExpr rows = SymExpr::size(0);
  const SymExpr columns = SymExpr::size(1);
  constexpr std::int64_t kColumns = 64;
  const auto a = builder.add_global(of.a, rows * groups * of.size);
  const auto b = builder.add_global(of.b, groups * kColumns * of.size);
  const auto out = builder.add_global(of.acc, rows * columns);
  const auto acc = builder.add_local(of.acc, tile_rows * kColumns, tile_rows * kColumns);
  builder.set_parallel(builder.new_axis(1), 1);
  const Symbol k = builder.begin_for(tile_rows * kColumns, ForStmt::Kind::Vector);
  builder.store(
      acc, k, is_floating(of.acc) ? builder.constant(of.acc, 0) : builder.constant_int(of.acc, 0));
  builder.end_for();
  builder.contract({acc,
                    of.acc,
                    tile_rows,
                    kColumns,
                    rows,
                    columns,
                    groups,
                    {a, 0, of.size * groups, of.size},
                    {b, 0, of.size * kColumns, of.size},
                    true,
                    of.size,
                    of.pairs_fit});
  builder.nest().buffers[acc].read = true;
  const Symbol m = builder.new_axis(rows);
  const Symbol n = builder.new_axis(columns);
  builder.begin_for(m, rows, ForStmt::Kind::Serial);
  builder.begin_for(n, columns, ForStmt::Kind::Vector);
  builder.store(out, SymExpr(m) * columns + SymExpr(n),
                builder.load(acc, SymExpr(m) * kColumns + SymExpr(n)));
  builder.end_for();
  builder.end_for();
  return builder.finish();
}

/// Weights at the ends of their range: sums of two products would not fit 16 bits.
std::int8_t any_weight(std::int64_t k) {
  if (k % 7 < 2) return 127;
  return k % 2 == 0 ? -128 : static_cast<std::int8_t>(k * 11 % 256 - 128);
}

/// Each two that are even and odd add up to 128 or -128, or one has the other sign.
std::int8_t fitting_weight(std::int64_t k) {
  const std::int64_t first = k / 2 * 37 % 129;
  const auto second = k / 2 % 5 == 0 ? 0 : 128 - first;
  const std::int64_t value = k % 2 == 0 ? first : second;
  if (k / 2 % 3 == 0) return static_cast<std::int8_t>(-value);
  if (k / 2 % 7 == 0) return static_cast<std::int8_t>(k % 2 == 0 ? -128 : 127);
  return static_cast<std::int8_t>(std::min<std::int64_t>(value, 127));
}

/// @tparam A  elements of a, all of them bytes without a sign
template <typename A = std::uint8_t>
void expect_groups(const cpu::CodegenTarget& target, std::int64_t rows, std::int64_t columns,
                   const Groups& of = {}) {
  constexpr std::int64_t kGroups = 5;
  std::vector<A> a;
  std::vector<std::int8_t> b;
  for (std::int64_t k = 0; k < rows * kGroups * 4; ++k)
    a.push_back(k % 3 == 0 ? 255 : static_cast<std::uint8_t>(k % 4 == 1 ? 255 : k * 37));
  for (std::int64_t k = 0; k < kGroups * 64 * 4; ++k)
    b.push_back(of.pairs_fit ? fitting_weight(k) : any_weight(k));
  std::vector<std::int32_t> out(static_cast<std::size_t>(rows * columns), 7);
  const auto code = cpu::load_object(cpu::compile_object(group_nest(kGroups, of), target), target);
  void* buffers[] = {a.data(), b.data(), out.data()};
  const std::int64_t sizes[] = {rows, columns};
  std::int32_t status = 0;
  code.entry(buffers, sizes, 0, 1, nullptr, &status);
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t n = 0; n < columns; ++n) {
      std::int32_t sum = 0;
      for (std::int64_t k = 0; k < 4 * kGroups; ++k)
        sum += a[static_cast<std::size_t>(m * 4 * kGroups + k)] *
               b[static_cast<std::size_t>((k / 4 * 64 + n) * 4 + k % 4)];
      ASSERT_EQ(out[static_cast<std::size_t>(m * columns + n)], sum) << m << ", " << n;
    }
  }
}

std::string without(std::string features, const std::string& feature) {
  const auto at = features.find("+" + feature);
  if (at != std::string::npos) features[at] = '-';
  return features;
}

/// With the instruction, where the processor has it, and by products of 16 bits.
TEST(LlvmContract, GroupsOfBytesAreExactOnEveryTarget) {
  for (const std::int64_t vector_bytes : {64, 32, 16}) {
    for (const bool plain : {false, true}) {
      cpu::CodegenTarget target = cpu::host_target(vector_bytes);
      if (plain) {
        target.features = without(target.features, "avx512vnni");
        target.features = without(target.features, "avxvnni");
        cpu::CodegenTexts texts;
        cpu::compile_object(group_nest(5), target, &texts);
        EXPECT_EQ(texts.ir.find("vpdpbusd"), std::string::npos);
      }
      for (const std::int64_t rows : {1, 2, 4, 7})
        for (const std::int64_t columns : {1, 16, 33, 64}) expect_groups(target, rows, columns);
    }
  }
}

/// Of bytes that lie in i16, and of those whose products' sums are known to fit 16 bits.
TEST(LlvmContract, GroupsOfBytesByPairs) {
  const Groups widened{.a = i16};
  const Groups narrow{.pairs_fit = true};
  for (const std::int64_t vector_bytes : {64, 32, 16}) {
    cpu::CodegenTarget target = cpu::host_target(vector_bytes);
    target.features = without(without(target.features, "avx512vnni"), "avxvnni");
    for (const std::int64_t rows : {1, 2, 3, 4, 6, 7})
      for (const std::int64_t columns : {1, 8, 16, 29, 33, 64}) {
        expect_groups<std::int16_t>(target, rows, columns, widened);
        expect_groups(target, rows, columns, narrow);
      }
  }
  cpu::CodegenTarget target = cpu::host_target(32);
  if (target.vector_bytes != 32) return;
  target.features = without(without(target.features, "avx512vnni"), "avxvnni");
  cpu::CodegenTexts texts;
  cpu::compile_object(group_nest(5, narrow), target, &texts);
  EXPECT_NE(texts.ir.find("pmadd.ub.sw"), std::string::npos);
  cpu::compile_object(group_nest(5, widened), target, &texts);
  EXPECT_EQ(texts.ir.find("pmadd.ub.sw"), std::string::npos);
  EXPECT_NE(texts.ir.find("pmadd.wd"), std::string::npos);
}

void expect_pairs(const cpu::CodegenTarget& target, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kGroups = 5;
  constexpr std::int64_t kDepth = 2 * kGroups;
  // Sums that bf16 would round and f32 holds.
  const auto noise = [](std::int64_t k) { return static_cast<float>(k * 37 % 251 - 125) * 0.5f; };
  std::vector<std::uint16_t> a;
  std::vector<std::uint16_t> b;
  for (std::int64_t k = 0; k < rows * kDepth; ++k) a.push_back(base::BFloat16(noise(k)).bits);
  for (std::int64_t k = 0; k < kDepth * 64; ++k) b.push_back(base::BFloat16(noise(k + 9)).bits);
  std::vector<float> out(static_cast<std::size_t>(rows * columns), 7);
  const auto code =
      cpu::load_object(cpu::compile_object(group_nest(kGroups, kPairs), target), target);
  void* buffers[] = {a.data(), b.data(), out.data()};
  const std::int64_t sizes[] = {rows, columns};
  std::int32_t status = 0;
  code.entry(buffers, sizes, 0, 1, nullptr, &status);
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t n = 0; n < columns; ++n) {
      float sum = 0;
      for (std::int64_t k = 0; k < kDepth; ++k)
        sum += noise(m * kDepth + k) * noise((k / 2 * 64 + n) * 2 + k % 2 + 9);
      ASSERT_EQ(out[static_cast<std::size_t>(m * columns + n)], sum) << m << ", " << n;
    }
  }
}

/// With the instruction, where the processor has it, and by multiply-adds.
TEST(LlvmContract, PairsOfBf16HaveSumsOfF32OnEveryTarget) {
  for (const std::int64_t vector_bytes : {64, 32, 16}) {
    for (const bool plain : {false, true}) {
      cpu::CodegenTarget target = cpu::host_target(vector_bytes);
      if (plain) target.features = without(target.features, "avx512bf16");
      cpu::CodegenTexts texts;
      cpu::compile_object(group_nest(5, kPairs), target, &texts);
      EXPECT_EQ(texts.ir.find("dpbf16ps") != std::string::npos, cpu::has_bf16_dot(target));
      EXPECT_FALSE(plain && cpu::has_bf16_dot(target));
      for (const std::int64_t rows : {1, 2, 4, 7})
        for (const std::int64_t columns : {1, 16, 33, 64}) expect_pairs(target, rows, columns);
    }
  }
}

/// acc += a . b on one tile of 32 by 64, the rows of b `stride` elements apart.
Nest nest_of_tile(const SymExpr& stride, bool accumulate, bool local, const SymExpr& columns) {
  NestBuilder builder("tile");
  builder.nest().size_count = 1;
  const SymExpr depth = 96;
  const auto a = builder.add_global(f32, depth * 32);
  const auto matrix = builder.add_global(f32, depth * stride);
  const auto out = builder.add_global(f32, 1);
  const auto b = local ? builder.add_local(f32, 96 * 64, 96 * 64) : matrix;
  const auto acc = builder.add_local(f32, 32 * 64, 32 * 64);
  builder.set_parallel(builder.new_axis(1), 1);
  for (const NestBufferId buffer : {acc, b}) {
    if (buffer == b && !local) continue;
    const Symbol k = builder.new_axis(96 * 16);
    builder.begin_for(k, 96 * 16, ForStmt::Kind::Vector);
    builder.store(buffer, k, builder.constant(f32, 0));
    builder.end_for();
  }
  builder.contract(
      {acc, f32, 32, 64, 32, columns, depth, {a, 0, depth, 1}, {b, 0, stride, 1}, accumulate});
  builder.store(out, 0, builder.load(acc, 0));
  return builder.finish();
}

/// The IR of such a tile.
std::string code_of_tile(const SymExpr& stride, bool accumulate, bool local = false,
                         std::int64_t vector_bytes = 0, const SymExpr& columns = 64) {
  cpu::CodegenTexts texts;
  cpu::compile_object(nest_of_tile(stride, accumulate, local, columns),
                      cpu::host_target(vector_bytes), &texts);
  return texts.ir;
}

bool has_avx2() { return cpu::has_feature(cpu::host_target(32), "avx2"); }

/// The instructions of the loop that multiplies most at a time, of vectors of 32 bytes: from where it fetches the next part on.
std::vector<std::string> loop_with_avx2(const Nest& nest) {
  cpu::CodegenTexts texts;
  texts.want_assembly = true;
  cpu::CodegenTarget target = cpu::host_target(32);
  target.features = without(without(target.features, "avx512vnni"), "avxvnni");
  cpu::compile_object(nest, target, &texts);
  std::istringstream lines(texts.assembly.substr(texts.assembly.find("prefetcht1")));
  std::vector<std::string> result;
  for (std::string line; std::getline(lines, line) && line.find("\tj") == std::string::npos;)
    if (line.size() > 1 && line[0] == '\t' && std::isalpha(line[1])) result.push_back(line);
  return result;
}

std::ptrdiff_t lines_with(const std::vector<std::string>& lines, std::string_view text) {
  return std::ranges::count_if(
      lines, [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

/// Where each step begins is known at the start of a loop, and LLVM leaves steps behind each other: else it loads what
/// several multiply first, and has no registers for it.
TEST(LlvmContract, StepsWithAvx2AreLoadsAndProducts) {
  if (!has_avx2()) GTEST_SKIP() << "other instructions";
  const std::vector<std::string> code = loop_with_avx2(nest_of_tile(64, true, false, 64));
  constexpr std::ptrdiff_t kSteps = 4;
  EXPECT_EQ(lines_with(code, "vfmadd"), kSteps * 12);
  EXPECT_EQ(lines_with(code, "rsp"), 0);
  EXPECT_LE(std::ssize(code), kSteps * (12 + 6 + 2) + 8);
}

/// The same of bytes, whose products are no part of what adds them up.
TEST(LlvmContract, SumsOfBytesWithAvx2AreInRegisters) {
  if (!has_avx2()) GTEST_SKIP() << "other instructions";
  for (const bool fit : {false, true}) {
    const std::vector<std::string> code =
        loop_with_avx2(group_nest(64, {.a = fit ? u8 : i16, .pairs_fit = fit}, 32));
    // 4 rows, two vectors of sums for each and 8 steps.
    EXPECT_EQ(lines_with(code, "vpmaddwd"), 64);
    EXPECT_LE(lines_with(code, "rsp"), 8) << "pairs fit: " << fit;
  }
}

/// Parts of a panel lie behind each other: the next one is fetched while one is multiplied.
TEST(LlvmContract, FetchesTheNextPartOfAPanel) {
  const auto fetches = [](const std::string& code) {
    return code.find("call void @llvm.prefetch") != std::string::npos;
  };
  EXPECT_TRUE(fetches(code_of_tile(64, true)));
  EXPECT_FALSE(fetches(code_of_tile(64, false))) << "nothing was before it: there are no parts";
  EXPECT_FALSE(fetches(code_of_tile(128, true))) << "rows of a wider matrix";
  EXPECT_FALSE(fetches(code_of_tile(SymExpr::size(0), true)));
  EXPECT_FALSE(fetches(code_of_tile(64, true, true))) << "a local buffer";
}

/// 48 columns of 64 are one block of 3 vectors in a row and no others: 8 rows, and those that are left over by two and by one.
TEST(LlvmContract, KnownColumnsAreOneBlock) {
  if (cpu::host_target(64).vector_bytes != 64) GTEST_SKIP() << "vectors of other sizes";
  const auto products = [](const SymExpr& columns) {
    const std::string code = code_of_tile(64, false, false, 64, columns);
    std::ptrdiff_t count = 0;
    for (std::size_t k = code.find("@llvm.fma.v16f32(<16 x float> %"); k != std::string::npos;
         k = code.find("@llvm.fma.v16f32(<16 x float> %", k + 1))
      ++count;
    return count;
  };
  // All rows are there, so that none are left over.
  EXPECT_EQ(products(48), 3 * 8);
  EXPECT_EQ(products(10), 1 * 8) << "more rows have no registers for their places";
  // Of an open number, 4 rows of 4 vectors, and of single vectors that are left over 8 rows.
  EXPECT_EQ(products(SymExpr::size(0)), 4 * 4 + 8 * 1);
}

/// All passes over a tile of 32 x 64 together fetch the 4 lines of each row of the next part at least once: a pass asks for a
/// line and then multiplies as much as it takes for one, in a power of two of steps.
TEST(LlvmContract, FetchesAsFastAsItMultiplies) {
  struct Expected {
    std::int64_t vector_bytes;
    std::ptrdiff_t products;  ///< of vectors, for a line
  };
  // 8 passes of 4 x 4 vectors, 5 x 4 passes of 6 x 2, 5 x 8 of 6 x 2: a line for each 2, 5 and 10 steps.
  for (const Expected& e : {Expected{64, 2 * 16}, Expected{32, 4 * 12}, Expected{16, 8 * 12}}) {
    if (cpu::host_target(e.vector_bytes).vector_bytes != e.vector_bytes) continue;
    const std::string code = code_of_tile(64, true, false, e.vector_bytes);
    const std::string fetch = "call void @llvm.prefetch";
    const std::size_t at = code.find(fetch);
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(code.find(fetch, at + 1), std::string::npos);
    const std::string step = code.substr(at, code.find("br i1", at) - at);
    std::ptrdiff_t products = 0;
    for (std::size_t k = step.find("@llvm.fma"); k != std::string::npos;
         k = step.find("@llvm.fma", k + 1))
      ++products;
    EXPECT_EQ(products, e.products) << e.vector_bytes << "-byte vectors";
  }
}

}  // namespace
}  // namespace heddle::jit
