// Loops that turn a tile around, by shuffles.
#include <cstring>
#include <gtest/gtest.h>

#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"
#include "tests/support/guarded_memory.h"

namespace heddle::jit {
namespace {

using tests::CompiledNest;
using tests::GuardedMemory;

constexpr std::int64_t kTile = 32;

/// [s0, s1] with `gap` elements between its rows, brought to [s1, s0] through a tile of `pitch`.
Nest turning(DType dtype, std::int64_t gap = 0, std::int64_t pitch = kTile) {
  NestBuilder b("turning");
  b.nest().size_count = 2;
  const SymExpr rows = SymExpr(Symbol{Symbol::Kind::Size, 0});
  const SymExpr columns = SymExpr(Symbol{Symbol::Kind::Size, 1});
  const Symbol once = b.new_axis(1);
  b.set_parallel(once, 1);
  const NestBufferId from = b.add_global(dtype, rows * (columns + gap));
  const NestBufferId to = b.add_global(dtype, rows * columns);
  const NestBufferId tile = b.add_local(dtype, pitch * pitch, pitch * pitch);
  const Symbol row = b.begin_for(min(kTile, rows), ForStmt::Kind::Serial);
  const Symbol column = b.begin_for(min(kTile, columns), ForStmt::Kind::Vector);
  b.store(tile, SymExpr(row) + SymExpr(column) * pitch,
          b.load(from, SymExpr(row) * (columns + gap) + SymExpr(column)));
  b.end_for();
  b.end_for();
  const Symbol turned = b.begin_for(min(kTile, columns), ForStmt::Kind::Serial);
  const Symbol lane = b.begin_for(min(kTile, rows), ForStmt::Kind::Vector);
  b.store(to, SymExpr(turned) * rows + SymExpr(lane),
          b.load(tile, SymExpr(turned) * pitch + SymExpr(lane)));
  b.end_for();
  b.end_for();
  return b.finish();
}

/// The same without a tile, of any sizes.
Nest turning_directly(DType dtype, std::int64_t gap) {
  NestBuilder b("turning");
  b.nest().size_count = 2;
  const SymExpr rows = SymExpr(Symbol{Symbol::Kind::Size, 0});
  const SymExpr columns = SymExpr(Symbol{Symbol::Kind::Size, 1});
  b.set_parallel(b.new_axis(1), 1);
  const NestBufferId from = b.add_global(dtype, rows * (columns + gap));
  const NestBufferId to = b.add_global(dtype, rows * columns);
  const Symbol row = b.begin_for(rows, ForStmt::Kind::Serial);
  const Symbol column = b.begin_for(columns, ForStmt::Kind::Vector);
  b.store(to, SymExpr(row) + SymExpr(column) * rows,
          b.load(from, SymExpr(row) * (columns + gap) + SymExpr(column)));
  b.end_for();
  b.end_for();
  return b.finish();
}

class LlvmTranspose : public testing::TestWithParam<std::int64_t> {};

TEST_P(LlvmTranspose, EveryElementComesToItsPlaceAndNothingElseIsRead) {
  for (const DType dtype : {DType::U8, DType::Bool, DType::I8, DType::F16, DType::BF16, DType::F32,
                            DType::I32, DType::F64, DType::I64}) {
    const std::size_t size = static_cast<std::size_t>(size_of(dtype));
    for (const auto& [gap, direct] : {std::pair{0, false}, {3, false}, {0, true}, {3, true}}) {
      const CompiledNest code(direct ? turning_directly(dtype, gap) : turning(dtype, gap),
                              GetParam());
      for (const auto& [rows, columns] : {std::pair{1, 1},
                                          {1, 32},
                                          {32, 1},
                                          {3, 5},
                                          {5, 31},
                                          {7, 8},
                                          {15, 17},
                                          {16, 16},
                                          {17, 15},
                                          {31, 4},
                                          {24, 30},
                                          {32, 31},
                                          {31, 32},
                                          {32, 32}}) {
        const std::size_t pitch = static_cast<std::size_t>(columns + gap);
        const std::size_t count =
            static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
        const std::size_t from_bytes = (static_cast<std::size_t>(rows) * pitch) * size;
        const GuardedMemory from(from_bytes - static_cast<std::size_t>(gap) * size);
        const GuardedMemory to(count * size);
        for (std::size_t k = 0; k < from_bytes - static_cast<std::size_t>(gap) * size; ++k)
          from.as<char>()[k] =
              static_cast<char>(dtype == DType::Bool ? k * 7 % 5 % 2 : k * 37 + k / 97);
        ASSERT_EQ(code.run({from.as<char>(), to.as<char>()}, {rows, columns}), 0);
        for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r)
          for (std::size_t c = 0; c < static_cast<std::size_t>(columns); ++c)
            ASSERT_EQ(std::memcmp(to.as<char>() + (c * static_cast<std::size_t>(rows) + r) * size,
                                  from.as<char>() + (r * pitch + c) * size, size),
                      0)
                << name_of(dtype) << " " << rows << "x" << columns << ", row " << r << ", column "
                << c;
      }
    }
  }
}

TEST_P(LlvmTranspose, SquaresAreTurnedInRegisters) {
  for (const DType dtype : {DType::U8, DType::F16, DType::F32, DType::F64}) {
    cpu::CodegenTexts texts;
    cpu::compile_object(turning(dtype), cpu::host_target(GetParam()), &texts);
    EXPECT_NE(texts.ir.find("shufflevector"), std::string::npos) << name_of(dtype);
    EXPECT_EQ(texts.ir.find("masked.scatter"), std::string::npos) << name_of(dtype);
    EXPECT_EQ(texts.ir.find("masked.gather"), std::string::npos) << name_of(dtype);
  }
}

TEST_P(LlvmTranspose, TilesWithoutRoomForWholeSquaresAreNot) {
  cpu::CodegenTexts texts;
  const Nest nest = turning(DType::F32, 0, kTile + 1);
  cpu::compile_object(nest, cpu::host_target(GetParam()), &texts);
  EXPECT_NE(texts.ir.find("masked.scatter"), std::string::npos);
}

std::vector<std::int64_t> widths() {
  std::vector<std::int64_t> found;
  for (const std::int64_t bytes : {16, 32, 64})
    if (cpu::host_target(bytes).vector_bytes == bytes) found.push_back(bytes);
  return found;
}

INSTANTIATE_TEST_SUITE_P(VectorBytes, LlvmTranspose, testing::ValuesIn(widths()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace heddle::jit
