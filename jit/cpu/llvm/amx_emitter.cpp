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

Value* register_number(llvm::IRBuilderBase& b, unsigned k) {
  return b.getInt8(static_cast<std::uint8_t>(k));
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

/// Loads all sums of a block, or stores them.
void NestEmitter::amx_sums(const Tile& tile, const AmxBlock& block, bool stores) {
  const ContractStmt& s = tile.s;
  llvm::Type* type = scalars_.storage_type(nest_.buffers[s.acc].dtype, 0);
  Value* row = b_.CreateNSWMul(block.row, b_.getInt64(static_cast<std::uint64_t>(s.tile_columns)));
  Value* first = element_address(s.acc, b_.CreateNSWAdd(row, block.column));
  Value* pitch =
      b_.getInt64(static_cast<std::uint64_t>(s.tile_columns * kRowBytes / kRegisterColumns));
  for (unsigned k = 0; k < block.rows * block.columns; ++k) {
    const std::int64_t down = k / block.columns * kRegisterRows;
    const std::int64_t across = k % block.columns * kRegisterColumns;
    Value* at = b_.CreateGEP(
        type, first, b_.getInt64(static_cast<std::uint64_t>(down * s.tile_columns + across)));
    b_.CreateIntrinsic(stores ? Intrinsic::x86_tilestored64 : Intrinsic::x86_tileloadd64, {},
                       {register_number(b_, k), at, pitch});
  }
}

void NestEmitter::amx_block(const Tile& tile, const AmxBlock& block) {
  const ContractStmt& s = tile.s;
  if (s.accumulate) {
    amx_sums(tile, block, false);
  } else {
    for (unsigned k = 0; k < block.rows * block.columns; ++k)
      b_.CreateIntrinsic(Intrinsic::x86_tilezero, {}, {register_number(b_, k)});
  }
  Value* first_a = element_address(
      s.a.buffer, b_.CreateNSWAdd(tile.a_base, b_.CreateNSWMul(block.row, tile.a_row)));
  Value* first_b = element_address(
      s.b.buffer, b_.CreateNSWAdd(tile.b_base, b_.CreateNSWMul(block.column, tile.b_column)));
  loop(b_.getInt64(0), block.depth, kRegisterColumns, {}, [&](Value* k, const Values&) {
    amx_step(tile, block, first_a, first_b, k);
    return Values{};
  });
  amx_sums(tile, block, true);
}

/// 16 groups of the depth from `k` on. Each register is loaded next to its first product.
void NestEmitter::amx_step(const Tile& tile, const AmxBlock& block, Value* first_a, Value* first_b,
                           Value* k) {
  const ContractStmt& s = tile.s;
  const DType dtype = nest_.buffers[s.a.buffer].dtype;
  llvm::Type* element = scalars_.storage_type(dtype, 0);
  Value* along = b_.CreateNSWMul(k, b_.getInt64(static_cast<std::uint64_t>(s.group)));
  Value* left = b_.CreateGEP(element, first_a, along);
  Value* left_pitch = b_.CreateNSWMul(tile.a_row, b_.getInt64(size_of(dtype)));
  Value* right = b_.CreateGEP(element, first_b, b_.CreateNSWMul(k, tile.b_row));
  Value* right_pitch =
      b_.getInt64(static_cast<std::uint64_t>(s.tile_columns * kRowBytes / kRegisterColumns));
  if (block.copy != nullptr) {
    auto* line = llvm::FixedVectorType::get(b_.getInt8Ty(), kRowBytes);
    for (unsigned r = 0; r < kRegisterRows; ++r) {
      Value* row = b_.CreateAlignedLoad(line, b_.CreateGEP(element, block.copied_rows[r], along),
                                        llvm::Align(kReadAlignment));
      b_.CreateAlignedStore(row, b_.CreateGEP(line, block.copy, b_.getInt64(std::uint64_t{r})),
                            llvm::Align(kRowBytes));
    }
    left = block.copy;
    left_pitch = b_.getInt64(kRowBytes);
  }
  const Intrinsic::ID multiply =
      is_floating(s.dtype) ? Intrinsic::x86_tdpbf16ps : Intrinsic::x86_tdpbusd;
  const std::int64_t width = kRegisterColumns * s.group;  // of columns in a row of b
  for (unsigned r = 0; r < block.rows; ++r) {
    Value* rows = b_.CreateNSWMul(tile.a_row, b_.getInt64(r * kRegisterRows));
    Value* left_number = register_number(b_, kFirstLeft + r);
    b_.CreateIntrinsic(Intrinsic::x86_tileloadd64, {},
                       {left_number, b_.CreateGEP(element, left, rows), left_pitch});
    for (unsigned c = 0; c < block.columns; ++c) {
      Value* right_number = register_number(b_, kFirstRight + c % 2);
      Value* columns = b_.getInt64(static_cast<std::uint64_t>(c * width));
      if (r == 0)
        b_.CreateIntrinsic(Intrinsic::x86_tileloadd64, {},
                           {right_number, b_.CreateGEP(element, right, columns), right_pitch});
      b_.CreateIntrinsic(multiply, {},
                         {register_number(b_, r * block.columns + c), left_number, right_number});
    }
  }
}

}  // namespace heddle::jit::cpu
