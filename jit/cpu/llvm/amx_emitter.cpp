// Blocks of a contraction of groups by the matrix registers of AMX, its tiles: eight of 16 rows by 64 bytes, all of that shape in a whole kernel.
//
//   registers   0 1 2 3   sums: 32 rows by 32 columns, or 16 by 64
//               4 5       rows of a, 16 groups of each: as they lie, or a copy where fewer than 16 are left
//               6 7       16 rows of b, the groups of 16 columns side by side, as panels have them
//
// Sums begin with what is in memory and go back there. Columns are rounded up to 16, of which panels and sums have all. Groups
// that are left over of the depth, fewer than 16, are the vectors' business, and so are one or two rows of bytes: the
// registers take as long for them as for 16. Rows of bf16 are all multiplied alike, so that what comes out for a row does not
// depend on how many there are.
//
// To say how large the registers are takes as long as 20 products: once for each call of the kernel, before anything else.
#include <array>
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/Intrinsics.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>
#include <llvm/TargetParser/Triple.h>

#include "jit/cpu/llvm/contract_tile.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;
namespace Intrinsic = llvm::Intrinsic;

constexpr unsigned kRegisters = 8;
constexpr unsigned kRegisterRows = 16;
constexpr unsigned kRowBytes = 64;
constexpr unsigned kFirstLeft = 4;
constexpr unsigned kFirstRight = 6;
/// Columns of sums of 32 bits, and groups of a row of a.
constexpr unsigned kRegisterColumns = 16;
constexpr std::int64_t kByteGroup = 4;
constexpr std::int64_t kBf16Group = 2;
/// So many rows of bytes take vectors no longer.
constexpr std::int64_t kFewRows = 2;

/// What LDTILECFG reads: a format, and of each register the bytes of a row and the rows.
llvm::GlobalVariable* configuration(llvm::Module& module) {
  std::array<std::uint8_t, 64> bytes{};
  bytes[0] = 1;
  for (unsigned k = 0; k < kRegisters; ++k) {
    bytes[16 + 2 * k] = kRowBytes;
    bytes[48 + k] = kRegisterRows;
  }
  auto* data = llvm::ConstantDataArray::get(module.getContext(), bytes);
  auto* variable = new llvm::GlobalVariable(
      module, data->getType(), true, llvm::GlobalValue::PrivateLinkage, data, "amx_configuration");
  variable->setAlignment(llvm::Align(kRowBytes));
  return variable;
}

}  // namespace

/// Rows and columns of registers that a block of sums takes.
struct NestEmitter::AmxBlock {
  unsigned rows, columns;
  Value* row;     ///< first one
  Value* column;  ///< first one
  Value* depth;   ///< groups, a multiple of 16
  /// Addresses of 16 rows of a, of which a copy is made step by step, and the memory for it; empty: they are read where they lie.
  Values copied_rows;
  Value* copy = nullptr;
};

bool has_amx(const CodegenTarget& target) {
  return target.vector_bytes == kRowBytes && has_feature(target, "amx-tile") &&
         has_feature(target, "amx-int8") && has_feature(target, "amx-bf16");
}

bool NestEmitter::takes_amx(const ContractStmt& s) const {
  if (!has_amx(target_) || !llvm::Triple(module_.getTargetTriple()).isX86()) return false;
  const bool is_of_bytes = s.group == kByteGroup && nest_.buffers[s.a.buffer].dtype == DType::U8;
  const bool are_few = is_of_bytes && s.rows.is_constant() && s.rows.constant() <= kFewRows;
  const bool is_shallow = s.depth.is_constant() && s.depth.constant() < kRegisterColumns;
  const std::int64_t pitch = s.tile_columns * s.group;
  return (is_of_bytes || s.group == kBf16Group) && !are_few && !is_shallow &&
         s.tile_rows % kRegisterRows == 0 && s.tile_columns % kRegisterColumns == 0 &&
         s.a.column_stride.is_constant(s.group) && s.b.column_stride.is_constant(s.group) &&
         s.b.row_stride.is_constant(pitch);
}

void NestEmitter::configure_amx(llvm::BasicBlock* entry) {
  if (!configures_amx_) return;
  b_.SetInsertPoint(entry->getTerminator());
  b_.CreateIntrinsic(Intrinsic::x86_ldtilecfg, {}, {configuration(module_)});
  for (llvm::BasicBlock& block : *function_) {
    if (!llvm::isa<llvm::ReturnInst>(block.getTerminator())) continue;
    b_.SetInsertPoint(block.getTerminator());
    b_.CreateIntrinsic(Intrinsic::x86_tilerelease, {}, {});
  }
}

void NestEmitter::contract_by_amx(Tile& tile) {
  configures_amx_ = true;
  const ContractStmt& s = tile.s;
  if (s.group == kBf16Group || s.rows.is_constant()) return amx_rows(tile);
  Value* are_few = b_.CreateICmpSLE(tile.row_count, b_.getInt64(kFewRows));
  when(are_few, [&] { contract_rows(tile); }, false);
  when(b_.CreateNot(are_few), [&] { amx_rows(tile); }, false);
}

void NestEmitter::amx_rows(Tile& tile) {
  Value* left_over = b_.CreateAnd(tile.depth, b_.getInt64(kRegisterColumns - 1));
  Value* depth = b_.CreateNSWSub(tile.depth, left_over);
  const auto below = [&](unsigned step) {
    return b_.CreateAnd(tile.row_count, b_.getInt64(~std::uint64_t{step - 1}));
  };
  const auto rows_from = [&](Value* begin, Value* end, unsigned registers, bool copies) {
    loop(begin, end, registers * kRegisterRows, {}, [&](Value* row, const Values&) {
      AmxBlock block{
          .rows = registers, .columns = 0, .row = row, .column = nullptr, .depth = depth};
      if (copies) amx_copy(tile, block);
      amx_columns(tile, block);
      return Values{};
    });
  };
  Value* pairs = below(2 * kRegisterRows);
  Value* whole = below(kRegisterRows);
  rows_from(b_.getInt64(0), pairs, 2, false);
  rows_from(pairs, whole, 1, false);
  rows_from(whole, tile.row_count, 1, true);
  if (const auto* count = llvm::dyn_cast<llvm::ConstantInt>(left_over); count && count->isZero())
    return;
  Tile rest = tile;
  rest.depth = left_over;
  rest.a_base = b_.CreateNSWAdd(tile.a_base, b_.CreateNSWMul(depth, tile.a_column));
  rest.b_base = b_.CreateNSWAdd(tile.b_base, b_.CreateNSWMul(depth, tile.b_row));
  if (!tile.s.accumulate) rest.resumes = b_.getTrue();
  when(b_.CreateICmpNE(left_over, b_.getInt64(0)), [&] { contract_rows(rest); }, false);
}

/// Of rows that are not there the last one that is takes the place.
void NestEmitter::amx_copy(const Tile& tile, AmxBlock& block) {
  llvm::IRBuilder<> entry(&function_->getEntryBlock(), function_->getEntryBlock().begin());
  auto* memory =
      entry.CreateAlloca(llvm::ArrayType::get(b_.getInt8Ty(), kRegisterRows * kRowBytes));
  memory->setAlignment(llvm::Align(kRowBytes));
  block.copy = memory;
  Value* last = b_.CreateNSWSub(tile.row_count, b_.getInt64(1));
  for (unsigned r = 0; r < kRegisterRows; ++r) {
    Value* row = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin,
                                          b_.CreateNSWAdd(block.row, b_.getInt64(r)), last);
    block.copied_rows.push_back(element_address(
        tile.s.a.buffer, b_.CreateNSWAdd(tile.a_base, b_.CreateNSWMul(row, tile.a_row))));
  }
}

/// As many columns at once as there are registers for.
void NestEmitter::amx_columns(const Tile& tile, AmxBlock& block) {
  Value* end = b_.CreateAnd(b_.CreateNSWAdd(tile.column_count, b_.getInt64(kRegisterColumns - 1)),
                            b_.getInt64(~std::uint64_t{kRegisterColumns - 1}));
  Value* begin = b_.getInt64(0);
  for (unsigned columns = kFirstLeft / block.rows; columns != 0; columns /= 2) {
    const unsigned width = columns * kRegisterColumns;
    Value* until = b_.CreateAnd(end, b_.getInt64(~std::uint64_t{width - 1}));
    block.columns = columns;
    loop(begin, until, width, {}, [&](Value* column, const Values&) {
      block.column = column;
      amx_block(tile, block);
      return Values{};
    });
    begin = until;
  }
}

void NestEmitter::amx_block(const Tile& tile, const AmxBlock& block) {
  const ContractStmt& s = tile.s;
  const NestBuffer& a = nest_.buffers[s.a.buffer];
  llvm::Type* a_type = scalars_.storage_type(a.dtype, 0);
  llvm::Type* b_type = scalars_.storage_type(nest_.buffers[s.b.buffer].dtype, 0);
  const auto number = [&](unsigned k) { return b_.getInt8(static_cast<std::uint8_t>(k)); };
  const auto at = [&](llvm::Type* type, Value* base, std::int64_t elements) {
    return b_.CreateGEP(type, base, b_.getInt64(static_cast<std::uint64_t>(elements)));
  };
  const auto each_sum = [&](Intrinsic::ID move) {
    llvm::Type* type = scalars_.storage_type(nest_.buffers[s.acc].dtype, 0);
    Value* row =
        b_.CreateNSWMul(block.row, b_.getInt64(static_cast<std::uint64_t>(s.tile_columns)));
    Value* first = element_address(s.acc, b_.CreateNSWAdd(row, block.column));
    constexpr std::int64_t kSumBytes = 4;
    for (unsigned k = 0; k < block.rows * block.columns; ++k) {
      const std::int64_t down = k / block.columns * kRegisterRows;
      const std::int64_t across = k % block.columns * kRegisterColumns;
      b_.CreateIntrinsic(move, {},
                         {number(k), at(type, first, down * s.tile_columns + across),
                          b_.getInt64(static_cast<std::uint64_t>(kSumBytes * s.tile_columns))});
    }
  };
  if (s.accumulate) {
    each_sum(Intrinsic::x86_tileloadd64);
  } else {
    for (unsigned k = 0; k < block.rows * block.columns; ++k)
      b_.CreateIntrinsic(Intrinsic::x86_tilezero, {}, {number(k)});
  }
  const std::int64_t step = kRegisterColumns * s.group;  // elements of a
  Value* a_bytes = b_.CreateNSWMul(tile.a_row, b_.getInt64(size_of(a.dtype)));
  Value* b_bytes =
      b_.getInt64(static_cast<std::uint64_t>(s.tile_columns * kRowBytes / kRegisterColumns));
  Value* first_a = element_address(
      s.a.buffer, b_.CreateNSWAdd(tile.a_base, b_.CreateNSWMul(block.row, tile.a_row)));
  Value* first_b = element_address(
      s.b.buffer, b_.CreateNSWAdd(tile.b_base, b_.CreateNSWMul(block.column, tile.b_column)));
  loop(b_.getInt64(0), block.depth, kRegisterColumns, {}, [&](Value* k, const Values&) {
    Value* along = b_.CreateNSWMul(k, b_.getInt64(static_cast<std::uint64_t>(s.group)));
    Value* down = b_.CreateNSWMul(k, tile.b_row);
    Value* right = b_.CreateGEP(b_type, first_b, down);
    if (block.copy != nullptr) {
      auto* line = llvm::FixedVectorType::get(b_.getInt8Ty(), kRowBytes);
      for (unsigned r = 0; r < kRegisterRows; ++r) {
        Value* row = b_.CreateAlignedLoad(line, b_.CreateGEP(a_type, block.copied_rows[r], along),
                                          llvm::Align(kReadAlignment));
        b_.CreateAlignedStore(row, at(b_.getInt8Ty(), block.copy, r * kRowBytes),
                              llvm::Align(kRowBytes));
      }
    }
    for (unsigned r = 0; r < block.rows; ++r) {
      Value* left = b_.CreateGEP(a_type, first_a, along);
      left =
          b_.CreateGEP(a_type, left, b_.CreateNSWMul(tile.a_row, b_.getInt64(r * kRegisterRows)));
      const bool copied = block.copy != nullptr;
      b_.CreateIntrinsic(Intrinsic::x86_tileloadd64, {},
                         {number(kFirstLeft + r), copied ? block.copy : left,
                          copied ? b_.getInt64(kRowBytes) : a_bytes});
    }
    for (unsigned c = 0; c < block.columns; ++c) {
      const unsigned held = kFirstRight + c % 2;
      b_.CreateIntrinsic(Intrinsic::x86_tileloadd64, {},
                         {number(held), at(b_type, right, c * step), b_bytes});
      for (unsigned r = 0; r < block.rows; ++r)
        b_.CreateIntrinsic(is_floating(s.dtype) ? Intrinsic::x86_tdpbf16ps : Intrinsic::x86_tdpbusd,
                           {},
                           {number(r * block.columns + c), number(kFirstLeft + r), number(held)});
    }
    return Values{};
  });
  each_sum(Intrinsic::x86_tilestored64);
}

}  // namespace heddle::jit::cpu
