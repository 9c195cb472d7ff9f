// Contractions of groups in runs: the windows of an image as they lie, whose sums stay in registers from the first tap to the
// last.
//
// A block is 8 or 4 rows by all columns of the tile, each step a row of b, and a group of a for every row. The last block overlaps the one
// before it: fewer rows are too few sums for the latency of the instruction that multiplies, and take as long.
#include <llvm/IR/Constants.h>
#include <llvm/IR/DerivedTypes.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Intrinsics.h>

#include "base/check.h"
#include "jit/cpu/llvm/contract_tile.h"
#include "jit/cpu/llvm/nest_emitter.h"

namespace heddle::jit::cpu {
namespace {

using llvm::Value;

constexpr unsigned kManyRunRows = 8;
constexpr unsigned kFewRunRows = 4;
/// Vectors of columns of a block, at most: their sums, a row of b and a group of a fit into 16 registers and into 32.
constexpr unsigned kRunVectors = 2;
constexpr unsigned kNarrowRunVectors = 1;
/// Steps of a run that are written out, at most.
constexpr std::uint64_t kMostRunSteps = 8;

}  // namespace

void NestEmitter::contract_group_runs(const Tile& tile) {
  HD_CHECK(tile.sums == 1 && !tile.s.accumulate);
  const auto rows_of = [&](unsigned rows) {
    return [this, &tile, rows](Value* row, const Values&) {
      Value* last = b_.CreateNSWSub(tile.row_count, b_.getInt64(rows));
      row = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, row, last);
      group_run_columns(tile, row, rows);
      return Values{};
    };
  };
  Value* many =
      b_.CreateSub(tile.row_count, b_.CreateURem(tile.row_count, b_.getInt64(kManyRunRows)));
  loop(b_.getInt64(0), many, kManyRunRows, {}, rows_of(kManyRunRows));
  Value* enough = b_.CreateICmpSGE(tile.row_count, b_.getInt64(kFewRunRows));
  Value* few = b_.CreateSelect(enough, tile.row_count, many);
  loop(many, few, kFewRunRows, {}, rows_of(kFewRunRows));
  loop(few, tile.row_count, 1, {}, rows_of(1));
}

void NestEmitter::group_run_columns(const Tile& tile, Value* row, unsigned rows) {
  const unsigned most = target_.vector_bytes == 64 ? kRunVectors : kNarrowRunVectors;
  const std::uint64_t width = std::uint64_t{most} * tile.lanes;
  Value* full =
      b_.CreateSub(tile.column_count, b_.CreateURem(tile.column_count, b_.getInt64(width)));
  loop(b_.getInt64(0), full, static_cast<std::int64_t>(width), {},
       [&](Value* column, const Values&) {
         group_run_block(tile, row, rows, column, most, nullptr);
         return Values{};
       });
  loop(full, tile.column_count, tile.lanes, {}, [&](Value* column, const Values&) {
    Value* left = b_.CreateTrunc(b_.CreateSub(tile.column_count, column), b_.getInt32Ty());
    group_run_block(tile, row, rows, column, 1, lanes_below(left, 0, 1, tile.lanes));
    return Values{};
  });
}

/// @param mask  of the last of the vectors; null: all of it is there
void NestEmitter::group_run_block(const Tile& tile, Value* row, unsigned rows, Value* column,
                                  unsigned vectors, Value* mask) {
  const ContractStmt& s = tile.s;
  Value* first_row =
      element_address(s.a.buffer, b_.CreateNSWAdd(tile.a_base, b_.CreateNSWMul(row, tile.a_row)));
  const GroupRunBlock block{rows, first_row, {column, first_of_b(tile, column)}, mask};
  Value* zero = llvm::Constant::getNullValue(scalars_.compute_type(s.dtype, tile.lanes));
  const Values sums = add_group_runs(tile, block, 0, Values(std::size_t{rows} * vectors, zero));
  llvm::Type* element = scalars_.storage_type(nest_.buffers[s.acc].dtype, 0);
  const auto pitch = static_cast<std::uint64_t>(s.tile_columns);
  Value* first =
      element_address(s.acc, b_.CreateNSWAdd(b_.CreateNSWMul(row, b_.getInt64(pitch)), column));
  for (unsigned k = 0; k < sums.size(); ++k) {
    Value* place =
        b_.CreateGEP(element, first, b_.getInt64(k / vectors * pitch + k % vectors * tile.lanes));
    const auto alignment = llvm::Align(size_of(s.dtype));
    if (mask != nullptr && k % vectors + 1 == vectors)
      b_.CreateMaskedStore(sums[k], place, alignment, mask);
    else
      b_.CreateAlignedStore(sums[k], place, alignment);
  }
}

NestEmitter::Values NestEmitter::add_group_runs(const Tile& tile, const GroupRunBlock& block,
                                                std::size_t run, Values sums) {
  const ContractStmt& s = tile.s;
  if (run < s.runs.size()) {
    const ContractStmt::Run& now = s.runs[run];
    llvm::Type* element = scalars_.storage_type(nest_.buffers[s.a.buffer].dtype, 0);
    Value* a_stride = scalar_index(now.a_stride);
    Value* b_stride = scalar_index(now.b_stride);
    return loop(b_.getInt64(0), scalar_index(now.count), 1, sums,
                [&](Value* number, const Values& current) {
                  GroupRunBlock moved = block;
                  moved.first_row =
                      b_.CreateGEP(element, block.first_row, b_.CreateNSWMul(number, a_stride));
                  moved.column.first_of_b = b_.CreateGEP(element, block.column.first_of_b,
                                                         b_.CreateNSWMul(number, b_stride));
                  return add_group_runs(tile, moved, run + 1, current);
                });
  }
  const auto step = [&](Value* k, const Values& current) {
    return contract_step(tile, k, 0, block.first_row, block.rows, block.column, current,
                         block.mask);
  };
  const auto* known = llvm::dyn_cast<llvm::ConstantInt>(tile.depth);
  if (known == nullptr || known->getZExtValue() > kMostRunSteps)
    return loop(b_.getInt64(0), tile.depth, 1, sums, step);
  for (std::uint64_t k = 0; k < known->getZExtValue(); ++k) sums = step(b_.getInt64(k), sums);
  return sums;
}

}  // namespace heddle::jit::cpu
